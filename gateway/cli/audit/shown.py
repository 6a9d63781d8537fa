"""Formats a record for people, and for programs."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.model import Json
from gateway.stores.records import StoredRecord

WIDEST = 80
"""Maximum width of a column in characters; a longer cell shifts only the rest of its line."""

COLUMNS = ("time", "app", "initiator", "door", "client", "what", "decision", "status", "reason", "id")


def as_json(record: StoredRecord) -> dict[str, Json]:
    """Return a record as one object; `ended` is null if its end is unknown."""
    return {"id": record.id, "time": when(record.time), "ended": when(record.ended), **record.fields}


def table(records: list[StoredRecord]) -> str:
    """Format records as lines; no cell is cut to fit a terminal, since ids and URLs are copied."""
    rows = [COLUMNS, *(tuple(visible(cell) for cell in row(record)) for record in records)]
    widths = [min(WIDEST, max(len(line[column]) for line in rows)) for column in range(len(COLUMNS))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in rows)


def row(record: StoredRecord) -> tuple[str, ...]:
    """Return the cells of `COLUMNS`."""
    fields = record.fields
    status, reason = fields.get("status"), fields.get("reason")
    if status == 202 and "approval" in fields and "answered_by" not in fields:  # its outcome has a separate record
        status, reason = "waits", f"approval {_text(fields['approval'])}"
    if record.ended is None or fields.get("reason") == "result-unknown":
        status = "unknown"
    words = (fields.get(name) for name in ("app", "initiator", "door", "client"))
    return (
        when(record.time) or "",
        *(_text(word) for word in words),
        what(record),
        _text(fields.get("decision")),
        _text(status),
        _text(reason),
        record.id,
    )


def what(record: StoredRecord) -> str:
    """Return method and URL, or the tool; for a line that sums up refusals their number."""
    if "more" in record.fields:
        return f"{_text(record.fields['more'])} more refused"
    return (
        f"{_text(record.fields.get('method'))} {_text(record.fields.get('tool') or record.fields.get('url'))}".strip()
    )


def when(seconds: float | None) -> str | None:
    """Format a time in UTC (RFC 3339)."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def visible(text: str) -> str:
    """Escape control characters, so that content from a page cannot imitate a line of ours."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _text(value: Json) -> str:
    return "" if value is None else str(value)

"""Report mode: for a limited time, denied requests are allowed and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from gateway.documents import Section
from gateway.policy.limits import checked

MAX_DAYS: Final = 30
_LONGEST: Final = MAX_DAYS * 86400.0


@dataclass(frozen=True, slots=True)
class ReportMode:
    """Report mode until the end of a day: `until` in seconds since the epoch, `date` as written."""

    date: str
    until: float

    def active(self, now: float | None) -> bool:
        """Return whether it is active at `now`; never without a time, nor more than 30 days before its end."""
        return now is not None and 0 < self.until - now <= _LONGEST


def read_mode(top: Section, now: float | None) -> ReportMode | None:
    """Read the mode of the file, None if it enforces. Without `now` the end is not limited."""
    node = top.get("mode")
    if node is None or node.value == "enforce":
        return None
    if isinstance(node.value, str):
        top.problem(f"must be enforce, or {{report: {{until: 2026-12-31}}}}, not {node.kind}", "mode")
        return None
    mode = top.section("mode")
    if "report" not in mode:
        mode.problem('"report" is missing: write {report: {until: 2026-12-31}}')
    report = mode.section("report")
    report.require("until")
    found = checked(report, "until", _until, report.text("until"))
    if found is not None and now is not None and found.until - now > _LONGEST:
        report.problem(f"{found.date} is more than {MAX_DAYS} days away: report mode lasts {MAX_DAYS} at most", "until")
    return found


def _until(text: str) -> ReportMode:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text[:40]}" is no day: write one such as 2026-12-31') from None
    end = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
    return ReportMode(text, end.timestamp())

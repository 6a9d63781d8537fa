"""How the log is written: lines for a person, or JSON objects for a collector."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final

FORMATS: Final = ("text", "json")


class OneLine(logging.Formatter):
    """Writes control characters as escapes: what a page or a client says can not look like a line of ours."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class JsonLines(logging.Formatter):
    """One JSON object per line: `time` (RFC 3339, UTC), `level`, `logger`, `message`, and `exception`, if any."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said)


def set_up(format: str, verbose: bool) -> None:
    """Write the log to standard error in one of `FORMATS`; called again, it replaces what was set up."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if format == "json" else OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)

"""Log formats: lines for people, or JSON objects for a collector."""

from __future__ import annotations

import atexit
import json
import logging
import re
from datetime import UTC, datetime
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, InvalidURLError, TransferEncodingError

from gateway.cli.log_limits import Limits

FORMATS: Final = ("text", "json")

_QUOTED = re.compile(r"""(?:bytearray\()?\bb['"]""")
_BARE: Final[dict[type[HttpProcessingError], str]] = {
    InvalidURLError: "the target of a request is no URL",
    BadStatusLine: "a request does not begin with the line of one",
    TransferEncodingError: "the chunks of a body are none",
}
"""Errors in which aiohttp, or its pure Python parser, quotes the client's text without a `b` prefix."""


class OneLine(logging.Formatter):
    """Escapes control characters, so that content from a page or client cannot imitate a log line."""

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


def said(format: str, logger: str, message: str) -> str:
    """Format a command's standard output like the log."""
    if format != "json":
        return message
    return JsonLines().format(logging.LogRecord(logger, logging.INFO, "", 0, "%s", (message,), None))


class NoHttp(logging.Filter):
    """Logs bytes that are not HTTP in one line, without traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, web.RequestPayloadError):  # its cause is the parser's error
            error = error.__cause__
        if isinstance(error, HttpProcessingError):
            record.msg, record.args = "a client sent what is no HTTP: %s", (_said(error),)
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.exc_info = record.exc_text = None
        return True


def _said(error: HttpProcessingError) -> str:
    """Describe the error without the client's bytes, which aiohttp quotes last: they may contain a secret."""
    bare = next((words for kind, words in _BARE.items() if isinstance(error, kind)), None)
    return bare or " ".join(_QUOTED.split(str(error.message), maxsplit=1)[0].split())[:200]


def set_up(format: str, verbose: bool) -> None:
    """Write the log to standard error in one of `FORMATS`, replacing an earlier setup."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if format == "json" else OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    limits = Limits(handler.handle)
    handler.addFilter(limits)
    atexit.register(limits.flush)
    server = logging.getLogger("aiohttp.server")
    for found in [found for found in server.filters if isinstance(found, NoHttp)]:
        server.removeFilter(found)
    server.addFilter(NoHttp())
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)

"""The log of a running gateway: lines for people or JSON objects for a collector, rate-limited by kind."""

from __future__ import annotations

import asyncio
import atexit
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import BadStatusLine, HttpProcessingError, InvalidURLError, TransferEncodingError

from gateway.bounds import Area, Bound
from gateway.jsontext.writing import plain_json

LINES: Final = 60
"""Lines of one kind per period: the same logger, level and message format, with any arguments."""

PERIOD: Final = 60.0
"""Seconds of a period."""

KINDS: Final = 500
"""Kinds tracked per period; further ones of one logger and level count as one."""

LONGEST: Final = 16 * 1024
"""Maximum characters of a message; longer ones are cut."""

BOUNDS: Final = (
    Bound(
        Area.RECORD,
        "log lines",
        f"{LINES} of one kind in {PERIOD:g} s (one logger, level and wording), {KINDS} kinds, "
        f"{LONGEST:,} characters each",
        "one line states the number of suppressed ones and their period; longer messages are cut",
        uncounted="the summary line states the number",
    ),
)

_SUM: Final = "%d more lines like this between %s and %s: %s"

Key: TypeAlias = tuple[str, int, str]
"""Logger, level and message format."""


@dataclass(slots=True)
class _Kind:
    """`first` and `last` are the times of suppressed lines, in seconds since the epoch."""

    passed: int = 0
    more: int = 0
    first: float = 0.0
    last: float = 0.0


class Limits(logging.Filter):
    """A filter of a handler. `write` receives the summary lines; `clock` is monotonic, in seconds."""

    def __init__(
        self, write: Callable[[logging.LogRecord], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._write = write
        self._clock = clock
        self._ends = 0.0
        self._kinds: dict[Key, _Kind] = {}
        self._lock = threading.RLock()
        self._alarm: asyncio.TimerHandle | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written."""
        if getattr(record, "sums_up", False):
            return True
        with self._lock:
            now = self._clock()
            if now >= self._ends:
                self.flush()
                self._ends = now + PERIOD
            kind = self._kind(record)
            kind.passed += 1
            if kind.passed > LINES:
                kind.first = kind.first or record.created
                kind.more, kind.last = kind.more + 1, record.created
                self._wake(self._ends - now)
                return False
        _shorten(record)
        return True

    def flush(self) -> None:
        """Write the summaries now, at the end of a period or of the program."""
        with self._lock:
            kinds, self._kinds = self._kinds, {}
            alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()
        for (name, level, wording), kind in kinds.items():
            if kind.more:
                filled = (kind.more, _when(kind.first), _when(kind.last), wording or "others")
                line = logging.LogRecord(name, level, __file__, 0, _SUM, filled, None)
                line.sums_up = True
                self._write(line)

    def _kind(self, record: logging.LogRecord) -> _Kind:
        key = (record.name, record.levelno, str(record.msg)[:200])
        if key not in self._kinds and len(self._kinds) >= KINDS:
            key = (record.name, record.levelno, "")
        return self._kinds.setdefault(key, _Kind())

    def _wake(self, seconds: float) -> None:
        """Schedule the summary for the end of the period, even if nothing is logged then."""
        if self._alarm is None:
            try:
                self._alarm = asyncio.get_running_loop().call_later(seconds, self.flush)
            except RuntimeError:
                return  # no event loop in this thread; the next line or the program's end writes it


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat("T", "seconds")


def _shorten(record: logging.LogRecord) -> None:
    """Cut a long message, and append the number of omitted characters."""
    message = record.getMessage()
    if len(message) > LONGEST:
        record.msg, record.args = "%s… (%d characters more)", (message[:LONGEST], len(message) - LONGEST)


FORMATS: Final = ("text", "json")

_QUOTED = re.compile(r"""(?:bytearray\()?\bb['"]""")
_BARE: Final[dict[type[HttpProcessingError], str]] = {
    InvalidURLError: "the target of a request is not a URL",
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
        log_text = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            log_text["exception"] = self.formatException(record.exc_info)
        return plain_json(log_text)


def log_text(format: str, logger: str, message: str) -> str:
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
            record.msg, record.args = "a client sent invalid HTTP: %s", (_describe(error),)
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
            record.exc_info = record.exc_text = None
        return True


def _describe(error: HttpProcessingError) -> str:
    """Describe the error without the client's bytes, which aiohttp quotes last: they may contain a secret."""
    bare = next((words for kind, words in _BARE.items() if isinstance(error, kind)), None)
    return bare or " ".join(_QUOTED.split(str(error.message), maxsplit=1)[0].split())[:200]


def set_up(format: str, verbose: bool, *, access: bool = False) -> None:
    """Write the log to standard error in one of `FORMATS`, replacing an earlier setup; with `access` each request."""
    requests = logging.getLogger("gateway.access")
    requests.propagate = False
    requests.handlers = [logging.StreamHandler()]  # each line is a JSON object of its own
    requests.setLevel(logging.INFO if access else logging.WARNING)
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if format == "json" else OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    limits = Limits(handler.handle)
    handler.addFilter(limits)
    atexit.register(limits.flush)
    server = logging.getLogger("aiohttp.server")
    for log_filter in [log_filter for log_filter in server.filters if isinstance(log_filter, NoHttp)]:
        server.removeFilter(log_filter)
    server.addFilter(NoHttp())
    logging.getLogger("gateway.assembly.reload").setLevel(logging.INFO)  # the author of a change waits for the result
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)

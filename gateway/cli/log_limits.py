"""Rate-limits log lines: so many of each kind per minute, then one line with the number of the rest."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from gateway.bounds import Area, Bound

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
        "lines of the log",
        f"{LINES} of one kind in {PERIOD:g} s (one logger, level and wording), {KINDS} kinds, "
        f"{LONGEST:,} characters each",
        "one line says how many more there were, and from when to when; of a long message the rest is left out",
        uncounted="the line that counts says so",
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

"""Report mode: for a bounded time what no rule allows is let through and written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_DAYS: Final = 30
_LONGEST: Final = MAX_DAYS * 86400.0


@dataclass(frozen=True, slots=True)
class Report:
    """Report mode until the end of a day; `until` is that moment in seconds since the epoch, `date` as written."""

    date: str
    until: float

    def active(self, now: float | None) -> bool:
        """Whether it holds at `now`; never without a time, nor more than 30 days before its end."""
        return now is not None and 0 < self.until - now <= _LONGEST

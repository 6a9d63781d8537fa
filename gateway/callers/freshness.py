"""When something that an issuer publishes is asked for again: before it is old, and never as often as callers like."""

from __future__ import annotations

FRESH = 600.0
"""Seconds for which it is used without a look."""

STALE = 3600.0
"""Seconds for which it is used while the issuer does not answer."""

PAUSE = 5.0
"""Seconds between two tries while the issuer does not answer."""

SURPRISES = 3
SPACING = 5.0
"""Looks out of turn, such as for a key that is not known: so many at once, and one more after each so many seconds.

Whoever looks finds what is new for all: however many odd keys strangers name, a new one is found as soon as that.
"""


class Freshness:
    """Keeps the times, in seconds."""

    def __init__(self) -> None:
        self._got = float("-inf")
        self._failed = float("-inf")
        self._spent = float("-inf")

    def due(self, now: float) -> bool:
        """Whether to ask now."""
        return now - self._got >= FRESH and now - self._failed >= PAUSE

    def surprised(self, now: float) -> bool:
        """Whether to ask now although it is not old; counts as one look out of turn."""
        if now - self._failed < PAUSE or self._spent > now + (SURPRISES - 1) * SPACING:
            return False
        self._spent = max(self._spent, now) + SPACING
        return True

    def usable(self, now: float) -> bool:
        """Whether what was got last can be used."""
        return now - self._got < STALE

    def got(self, now: float) -> None:
        """The issuer answered."""
        self._got = now

    def failed(self, now: float) -> None:
        """It did not."""
        self._failed = now

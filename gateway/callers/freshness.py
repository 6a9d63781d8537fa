"""Decides when to refresh an issuer's published data: before it is stale, at a bounded rate."""

from __future__ import annotations

FRESH = 600.0
"""Seconds for which the data are used without a refresh."""

STALE = 3600.0
"""Seconds for which the data are used while the issuer does not answer."""

PAUSE = 5.0
"""Seconds between two attempts while the issuer does not answer."""

SURPRISES = 3
SPACING = 5.0
"""Unscheduled refreshes, such as for an unknown key: a burst of `SURPRISES`, and one more per `SPACING` seconds.

A refresh serves all callers: even if strangers name many unknown keys, a new one is found within that time.
"""


class Freshness:
    """The refresh times of one kind of data, in seconds."""

    def __init__(self) -> None:
        self._got = float("-inf")
        self._failed = float("-inf")
        self._spent = float("-inf")

    def due(self, now: float) -> bool:
        """Return whether a scheduled refresh is due."""
        return now - self._got >= FRESH and now - self._failed >= PAUSE

    def surprised(self, now: float) -> bool:
        """Return whether an unscheduled refresh is allowed, and count it."""
        if now - self._failed < PAUSE or self._spent > now + (SURPRISES - 1) * SPACING:
            return False
        self._spent = max(self._spent, now) + SPACING
        return True

    def usable(self, now: float) -> bool:
        """Return whether the last data may still be used."""
        return now - self._got < STALE

    def got(self, now: float) -> None:
        """Record an answer."""
        self._got = now

    def failed(self, now: float) -> None:
        """Record a failure."""
        self._failed = now

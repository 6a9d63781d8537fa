"""The initiator of a view's requests: a model's call taints the view until a person's gesture follows it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import Struct

from gateway.model import Initiator

GRACE = 2.0
"""Seconds after a model's call during which the page's requests still count as the model's."""

GESTURE = 1.0
"""Seconds after the report of a gesture, which just precedes its request, in which a request counts as caused by it."""

ATTESTED = "attested-gesture"
"""Evidence of a gesture that a trusted host attests."""

CLAIMED = "view-gesture"
"""Evidence of a gesture that the view itself reports."""

LONGEST_GESTURE = 5.0
"""Seconds after a gesture for which a browser still reports it."""


class Cause(Struct, frozen=True):
    """The initiator, its evidence, and the id under which it is shown: of the model's call, or of the gesture."""

    initiator: Initiator
    evidence: str
    id: str | None


@dataclass(slots=True)
class Taint:
    """The taint of a view. All times are in seconds of one steady clock.

    `turned` is called whenever the view becomes tainted or untainted.
    """

    running: dict[str, None] = field(default_factory=dict)
    call: str | None = None
    ended: float = 0.0
    tainted: str | None = None
    reported: float = float("-inf")
    gesture: str | None = None
    gesture_at: float = float("-inf")
    evidence: str = ATTESTED
    turned: Callable[[], None] = lambda: None

    def call_started(self, id: str) -> None:
        """A model's call is forwarded into the view."""
        self.running[id] = None
        self.call = id
        self._turn("model-call")

    def call_ended(self, id: str, now: float) -> None:
        """That call has its answer, or will have none."""
        self.running.pop(id, None)
        self.ended = now

    def model_reported(self, now: float) -> None:
        """The view itself reports that a model caused its action; believed, since it only adds a restriction."""
        if self.tainted is None:
            self.call = None
        self._turn(self.tainted or "model-call-reported")
        self.ended = now

    def gesture_seen(self, age: float, now: float, evidence: str = ATTESTED) -> None:
        """Take an accepted report that the person's last gesture was at most `age` seconds ago."""
        at = now - min(max(age, 0.0), LONGEST_GESTURE)
        if at > self.gesture_at + GESTURE:
            self.gesture = secrets.token_urlsafe(16)
        self.gesture_at = max(at, self.gesture_at)
        self.reported = now
        self.evidence = evidence
        if not self.running and at > self.ended + GRACE:
            self._turn(None)

    def inherit(self, other: Taint, now: float, *, beside: bool) -> None:
        """Copy the taint of `other`, whose view this one replaces; or exists `beside`, with running calls."""
        self.running = dict(other.running) if beside else {}
        self.call = other.call
        self._turn(other.tainted)
        self.ended = now

    def _turn(self, tainted: str | None) -> None:
        turned = (self.tainted is None) is not (tainted is None)
        self.tainted = tainted
        if turned:
            self.turned()

    def cause(self, now: float) -> Cause:
        """Return the initiator of a request that the view makes at `now`."""
        if self.tainted is not None:
            return Cause(Initiator.MODEL, self.tainted, self.call)
        if now - self.reported < GESTURE:
            return Cause(Initiator.PERSON, self.evidence, self.gesture)
        return Cause(Initiator.PAGE, "no-gesture", None)

"""The initiator of a view's requests: a model's call taints the view, and the taint outlives it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import Initiator
from gateway.ports.views import StoredTaint, TaintKey, TaintStore

GRACE = 2.0
"""Seconds after a model's call during which the page's requests still count as the model's."""

GESTURE = 1.0
"""Seconds after the report of a gesture, which just precedes its request, in which a request counts as caused by it."""

ATTESTED = "attested-gesture"
"""Evidence of a gesture that a trusted host attests."""

CLAIMED = "view-gesture"
"""Evidence of a gesture that the view itself reports."""

MOVED = "view-moved"
"""Evidence of a view whose former process ended without storing whether it was tainted."""

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

    `note_turn` is called whenever the view becomes tainted or untainted.
    """

    running: dict[str, None] = field(default_factory=dict)
    call: str | None = None
    ended_at: float = 0.0
    tainted: str | None = None
    reported_at: float = float("-inf")
    gesture: str | None = None
    gesture_at: float = float("-inf")
    evidence: str = ATTESTED
    on_change: Callable[[], None] = lambda: None

    def call_started(self, id: str) -> None:
        """A model's call is forwarded into the view."""
        self.running[id] = None
        self.call = id
        self._turn("model-call")

    def call_ended(self, id: str, now: float) -> None:
        """The call has its answer, or will have none."""
        self.running.pop(id, None)
        self.ended_at = now

    def model_reported(self, now: float) -> None:
        """The view itself reports that a model caused its action; believed, since it only adds a restriction."""
        if self.tainted is None:
            self.call = None
        self._turn(self.tainted or "model-call-reported")
        self.ended_at = now

    def move(self, now: float) -> None:
        """The view comes from another process, which may have known of a model's call; that has ended."""
        self._turn(self.tainted or MOVED)
        self.ended_at = now - GRACE

    def hear(self, taint: StoredTaint, now: float) -> None:
        """A view at another process, with which this one shares its taint, was called by a model, or reports so."""
        if self.tainted is None:
            self.call = taint.call
        self._turn(self.tainted or taint.evidence)
        self.ended_at = now

    def stored(self) -> StoredTaint | None:
        """Return the taint as it is stored."""
        return StoredTaint(self.tainted, self.call) if self.tainted is not None else None

    def gesture_seen(self, age: float, now: float, evidence: str = ATTESTED) -> None:
        """Take an accepted report that the person's last gesture was at most `age` seconds ago."""
        at = now - min(max(age, 0.0), LONGEST_GESTURE)
        if at > self.gesture_at + GESTURE:
            self.gesture = secrets.token_urlsafe(16)
        self.gesture_at = max(at, self.gesture_at)
        self.reported_at = now
        self.evidence = evidence
        if not self.running and at > self.ended_at + GRACE:
            self._turn(None)

    def inherit(self, other: Taint, now: float, *, beside: bool) -> None:
        """Copy the taint of `other`, whose view this one replaces; or exists `beside`, with running calls."""
        self.running = dict(other.running) if beside else {}
        self.call = other.call
        self._turn(other.tainted)
        self.ended_at = now

    def _turn(self, evidence: str | None) -> None:
        turned = (self.tainted is None) is not (evidence is None)
        self.tainted = evidence
        if turned:
            self.on_change()

    def cause(self, now: float) -> Cause:
        """Return the initiator of a request that the view makes at `now`."""
        if self.tainted is not None:
            return Cause(Initiator.MODEL, self.tainted, self.call)
        if now - self.reported_at < GESTURE:
            return Cause(Initiator.PERSON, self.evidence, self.gesture)
        return Cause(Initiator.PAGE, "no-gesture", None)


MOST: Final = 100_000
"""Taints of closed views that are kept. Beyond that, every new view is tainted."""

PAUSE: Final = 1.0
"""Seconds until the end of a taint is written to the database: it often begins again before."""

FORGOTTEN: Final = "too-many-taints"
"""Evidence of a view that may replace a tainted one: there are too many taints to tell."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "tainted apps of principals without an open view",
        f"{MOST:,}",
        "none is evicted: each new view is tainted until a person acts in it",
    ),
)

(_TAINTS,) = BOUNDS

log = logging.getLogger(__name__)


class _Any(Container[TaintKey]):
    """Contains every key."""

    def __contains__(self, _: object) -> bool:
        return True


ANY: Final = _Any()


class Taints:
    """The taints of closed views, which the database keeps with the `live` ones. `clock` is that of taints.

    With several processes it is `shared`: others store taints, too, and remove them.
    """

    def __init__(
        self,
        live: Callable[[], Mapping[TaintKey, Taint]],
        clock: Callable[[], float],
        store: TaintStore | None,
        *,
        shared: bool = False,
    ) -> None:
        self._live = live
        self._clock = clock
        self._store = store
        self._shared = shared
        self._by_key: dict[TaintKey, Taint] = {}
        self._stored: dict[TaintKey, str | None] = {}
        """The taints that the database has, as far as is known, with the call of each."""
        self._dirty: set[TaintKey] = set()
        self._calls: Counter[TaintKey] = Counter()
        self._full = False
        self._change = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Load the taints from before a restart. Raises OSError."""
        if self._store is None:
            return
        stored_taints = await self._store.all(MOST + 1)
        for key, taint in stored_taints.items():
            self._take(key, taint)

    async def learn(self, key: TaintKey) -> None:
        """Read what other processes know, before a view comes: while that cannot be read, it counts as tainted."""
        if self._store is None or not self._shared:
            return
        try:
            async with self._writing:  # else a taint that is being written would look like one that a person ended
                stored = await self._store.find(key)
        except OSError as error:
            log.warning("a view counts as called by a model, since this cannot be looked up: %s", error)
            if self.before(key) is None:
                self.leave(key, Taint(ended_at=self._clock(), tainted=MOVED))
            return
        if stored is not None:
            self._take(key, stored)
        elif key in self._stored and key not in self._calls and key not in self._live():  # a person acted elsewhere
            del self._stored[key]
            self._by_key.pop(key, None)

    def _take(self, key: TaintKey, stored: StoredTaint) -> None:
        """Note a taint of the database."""
        self._stored[key] = stored.call
        if key not in self._by_key:
            self.leave(key, Taint(call=stored.call, ended_at=self._clock(), tainted=stored.evidence))

    def keys(self) -> Container[TaintKey]:
        """Return the principals and apps that are tainted, or may be."""
        return ANY if self._full else {*self._live(), *self._by_key, *self._calls}

    def leave(self, key: TaintKey, taint: Taint, *, new: bool = False) -> None:
        """Keep the taint of a view that closes; a `new` one is stored again if other processes have removed it."""
        if new:
            self._stored.pop(key, None)
        if key in self._by_key or len(self._by_key) < MOST:
            self._by_key[key] = taint
        elif not self._full:
            self._full = True
            _TAINTS.report(key[0])
            log.error("more than %d apps of principals are the model's: every new view is, from now on", MOST)
        self._touch(key)

    def before(self, key: TaintKey) -> Taint | None:
        """Return the taint of a closed view that a new view replaces."""
        taint = self._by_key.get(key)
        if taint is None and self._full:
            return Taint(tainted=FORGOTTEN, ended_at=self._clock())
        return taint

    def note_turn(self, key: TaintKey, taint: Taint, came_from: Taint | None) -> None:
        """A live view became tainted, or untainted by a person, which also ends the taint that it came from."""
        if taint.tainted is None and came_from is not None and self._by_key.get(key) is came_from:
            del self._by_key[key]
        self._touch(key)

    def store_again(self, key: TaintKey) -> None:
        """Store the taint of a live view again, after another process has removed it for its own view."""
        if key in self._live():
            self._stored.pop(key, None)
            self._touch(key)

    async def keep(self, key: TaintKey, evidence: str, call: str) -> None:
        """Store the taint of the call `call` before it runs, so that it survives a restart.

        The caller calls `over` afterwards. Raises `Refusal` (`state-unavailable`) if other processes could not know of
        it.
        """
        self._calls[key] += 1
        if self._store is not None and (self._shared or key not in self._stored):
            async with self._writing:
                stored = await self._put({key: StoredTaint(evidence, call)})
            if self._shared and not stored:
                raise Refusal(Reason.STATE_UNAVAILABLE, "That a model calls this view cannot be stored. Try again.")

    def over(self, key: TaintKey) -> None:
        """End a call for which `keep` was called."""
        self._calls[key] -= 1
        self._calls += Counter()  # without zero counts
        self._touch(key)

    def _touch(self, key: TaintKey) -> None:
        if self._store is not None:
            self._dirty.add(key)
            self._change.set()

    async def run(self) -> None:
        """Write each change to the database, until cancelled."""
        while True:
            await self._change.wait()
            self._change.clear()
            await self.flush(ended=False)
            await asyncio.sleep(PAUSE)
            if not await self.flush():
                self._change.set()

    async def flush(self, *, ended: bool = True) -> bool:
        """Write the begun taints, and the `ended` ones, to the database; False while it is down."""
        if self._store is None:
            return True
        async with self._writing:
            keys, self._dirty = self._dirty, set()
            live = self._live()
            now = {key: taint for key in keys if (taint := live.get(key) or self._by_key.get(key)) is not None}
            began = {key: StoredTaint(taint.tainted or "", taint.call) for key, taint in now.items()}
            good = await self._put({key: taint for key, taint in began.items() if key not in self._stored})
            gone = keys & self._stored.keys() - now.keys() - self._calls.keys()
            stale = {key: self._stored[key] for key in gone}
            if ended and good and stale and not self._full:
                good = await self._try(self._store.remove(stale))
                for key in stale if good else ():
                    self._stored.pop(key, None)
            self._dirty.update(() if ended and good else keys)
            return good

    async def _put(self, taints: Mapping[TaintKey, StoredTaint]) -> bool:
        if not taints or self._store is None:
            return True
        good = await self._try(self._store.put(taints))
        self._stored.update({key: taint.call for key, taint in taints.items()} if good else {})
        return good

    async def _try(self, work: Awaitable[None]) -> bool:
        try:
            await work
        except OSError as error:
            log.warning("the database does not store which views are tainted, so a restart would lose it: %s", error)
            return False
        return True

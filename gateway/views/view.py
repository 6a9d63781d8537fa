"""A live view of an app: the values to open one, its rules, its state, and how often one may be opened."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol

import mcp_types as mcp

from gateway.bounds import Area, Bound
from gateway.crypto import base64url, equals_secret
from gateway.errors import Reason, Refusal
from gateway.model import Principal, ViewTool
from gateway.policy import Policy, Rate, parse_policy
from gateway.ports.views import Launch, MovedView, OtherTaints, StoredTaint, TaintGroup, TaintKey, TaintStore
from gateway.token_buckets import Buckets
from gateway.views.initiator import MOVED, Taint, Taints
from gateway.views.relay import Relay
from gateway.views.session import PageSession
from gateway.views.shown import Tell

OPENING = Rate(300, 60.0)
"""The rate at which one principal may open views: each is announced, counted separately, and recorded."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "opened views",
        f"{OPENING.count} in {OPENING.period:g} s per principal",
        "`rate-limited`",
    ),
)

(_OPENED_VIEWS,) = BOUNDS

WINDOW = 128
"""The distance behind the newest number at which one is still accepted: calls of one view may overtake each other."""

LONGEST = 128
"""Characters of the longest proof that is parsed."""


class ViewKey:
    """The secret that a view shares with the gateway, and its used numbers."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key or secrets.token_bytes(32)
        self._signing = hmac.new(self._key, digestmod=hashlib.sha256)
        self._newest = 0
        self._last_number = 0

    def reveal(self) -> str:
        """Return the key for the view, base64url without padding."""
        return base64url(self._key)

    def accepts(self, sequence: str, signature: str) -> bool:
        """Return whether `signature` is valid for `sequence`, and that number is unused. Marks it as used."""
        if not (sequence.isascii() and sequence.isdecimal()) or len(sequence) > 15 or sequence.startswith("0"):
            return False
        signing = self._signing.copy()  # a copy of the keyed state: half the cost of a new HMAC
        signing.update(sequence.encode())
        expected = base64url(signing.digest())
        return equals_secret(signature, expected) and self._use(int(sequence))

    def _use(self, number: int) -> bool:
        if number > self._newest:
            self._last_number = (
                (self._last_number << (number - self._newest) | 1) if number - self._newest < WINDOW else 1
            )
            self._last_number &= (1 << WINDOW) - 1
            self._newest = number
            return True
        behind = self._newest - number
        if behind >= WINDOW or self._last_number >> behind & 1:
            return False
        self._last_number |= 1 << behind
        return True


def split(proof: str) -> tuple[str, str, str] | None:
    """Return view id, number and signature of a `_view` argument; None if it is malformed."""
    parts = proof.split(".") if len(proof) <= LONGEST and proof.isascii() else []
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


@dataclass(frozen=True, slots=True)
class AppRules:
    """The rules for the views of one app."""

    title: str
    policy: Policy
    unproven: str = "as-model"
    trust_view_gestures: bool = False
    dedicated: bool = False


@lru_cache(maxsize=256)
def rules_without_entry(upstream: str) -> AppRules:
    """Return the rules for views of an upstream's apps without an entry: no requests, no links, no tools of pages."""
    return AppRules(upstream, parse_policy("version: 1\n", "(no entry under apps)"))


@dataclass(frozen=True, slots=True)
class AttachResult:
    """The answer to a view that attached: id, key (base64url), and the `free` tools that hosts may offer."""

    view: str
    key: str
    proven: bool
    free: tuple[str, ...]


class PageCalls(Protocol):
    """Calls into a page: over the bridge, or by relay."""

    async def call(
        self, tool: ViewTool, arguments: Mapping[str, Any], on_start: Callable[[], None]
    ) -> mcp.CallToolResult:
        """Run a tool of the page; `on_start` is called once it may begin. Raises `MCPError` and `Refusal`."""
        ...

    @property
    def behind(self) -> bool:
        """True if the page announced a change of its tools that is not applied yet."""
        ...

    async def catch_up(self) -> bool:
        """Apply an announced change of tools at once, which otherwise waits; False if there is none."""
        ...


@dataclass(slots=True, eq=False)
class View:
    """One live iframe of an app, or of the one at `resource` of the upstream `app`, which has no entry under `apps`.
    `used_at` is when it last spoke, on the clock of its registry.

    `since` is when it attached; `principal` is as of its last call. A `bridged` view ends with its connection; another
    one after `registry.IDLE` seconds of silence. `tool_list` are its tools as its page lists them (None before it has),
    `tools` those that its policy offers. `tell` notifies a view in our host page of the model's call that opens its
    app. `came_from` is the taint of the closed view that it replaces. `attached` is the number of its attachment.
    `dedicated` views of an app and principal have one origin, so that their pages can script each other. One has
    `arrived` if it was at another process before, and `gone_on` if it is at another one now.
    """

    id: str
    principal: Principal
    app: str
    proven: bool
    resource: str | None = None
    bridged: bool = False
    attached: int = 0
    used_at: float = 0.0
    since: float = 0.0
    opened_at: float = field(default_factory=time.time)
    dedicated: bool = False
    arrived: bool = False
    gone_on: bool = False
    key: ViewKey = field(default_factory=ViewKey)
    taint: Taint = field(default_factory=Taint)
    came_from: Taint | None = None
    tools: tuple[ViewTool, ...] = ()
    tool_list: Sequence[mcp.Tool] | None = None
    session: PageSession | None = None
    relay: Relay | None = None
    tell: Tell | None = None

    @property
    def lost(self) -> bool:
        """True if its host page has disconnected, or its tab sleeps."""
        return (self.bridged and self.session is None) or (self.relay is not None and self.relay.lost)

    @property
    def calls(self) -> PageCalls | None:
        """The connection to its page, if there is one now."""
        return self.session or self.relay


REPORTED: Final = StoredTaint("model-call-reported", None)
"""The taint of views that report a model's call, or whose content a model chose."""


def _group(view: View) -> TaintGroup:
    """Return the views with which a live view shares its taint."""
    if view.dedicated:
        return TaintGroup.DEDICATED
    return TaintGroup.ALONE if view.bridged else TaintGroup.LAUNCHED


class SharedTaints:
    """The taints of live views `of` each principal: views of one app share theirs, unless a bridge identifies them.

    Several launch values may belong to one page, and one page may attach again; our host page shows one page in each
    view. Those on a dedicated origin are as one page: they have one taint. `taints` are those of closed views, also in
    `store`. `others` are those of views at other processes.
    """

    def __init__(
        self,
        of: Mapping[str, Mapping[str, View]],
        clock: Callable[[], float],
        store: TaintStore | None,
        others: OtherTaints | None = None,
    ) -> None:
        self.taints = Taints(self._live, clock, store, shared=others is not None)
        self._of = of
        self._clock = clock
        self._others = others
        self._learning = Counter[TaintKey]()
        """Views that open, and learn what other processes know."""

    async def begin_call(self, view: View, id: str) -> None:
        """Prepare a model's call into `view`: its taint will survive a restart, and other processes know of it.

        Raises `Refusal` otherwise. The caller calls `end_call` afterwards, also then.
        """
        key = view.principal.id, view.app
        await self.taints.keep(key, "model-call", id)
        if self._others is not None and (group := _group(view)) is not TaintGroup.ALONE:
            await self._others.tell(key, group, StoredTaint("model-call", id))

    def hear(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Taint the views here that share their taint with one at another process."""
        for view in self._of.get(key[0], {}).values():
            if view.app == key[1] and _group(view) is group:
                view.taint.hear(taint, self._clock())
        if key in self._learning:
            self._leave(key, taint)

    def _leave(self, key: TaintKey, taint: StoredTaint) -> None:
        """Taint the views that open from now on, as if this were the taint of a closed one."""
        if self.taints.before(key) is None:
            self.taints.leave(key, Taint(call=taint.call, ended_at=self._clock(), tainted=taint.evidence), new=True)

    def start_call(self, view: View, id: str) -> None:
        """Taint `view` before its page may begin with a model's call."""
        for one in self._taint_group(view):
            one.taint.call_started(id)

    def end_call(self, view: View, id: str) -> None:
        """Note that the call has its answer, or will have none."""
        for one in self._taint_group(view):
            if one is view or id in one.taint.running:
                one.taint.call_ended(id, self._clock())
        self.taints.over((view.principal.id, view.app))

    def attest_gesture(self, view: View, age: float) -> None:
        """Take a trusted host's report of a person's gesture in `view`, at most `age` seconds ago."""
        view.taint.gesture_seen(age, self._clock())

    def report(self, view: View) -> None:
        """Taint `view`, because its page reports a model as the cause, or a model chose its content."""
        for one in self._taint_group(view):
            one.taint.model_reported(self._clock())
        if self._others is not None and (group := _group(view)) is not TaintGroup.ALONE:
            self._others.tell_soon((view.principal.id, view.app), group, REPORTED)

    async def choose(self, principal: Principal, app: str) -> None:
        """Taint the views to which a model's choice of content may go. Raises `Refusal` (`state-unavailable`).

        An open page may receive the launch value as well, and one that opens may attach with another.
        """
        key = principal.id, app
        for view in self._launched_views(principal, app):
            view.taint.model_reported(self._clock())
        self.taints.leave(key, Taint(tainted=REPORTED.evidence, ended_at=self._clock()), new=True)
        if self._others is not None:
            await self.taints.flush(ended=False)
            await self._others.tell(key, TaintGroup.LAUNCHED, REPORTED)

    async def learn(self, principal: Principal, app: str) -> None:
        """Read what other processes know, right before a view of `app` is added."""
        key = principal.id, app
        self._learning[key] += 1
        try:
            await self.taints.learn(key)
        finally:
            self._learning[key] -= 1
            self._learning += Counter()  # without zero counts

    def doubt(self, principal: Principal, launch: Launch, moved: MovedView | None) -> None:
        """Taint the views of a launch whose former process did not say whether a model had called it."""
        key = principal.id, launch.app
        if moved is not None and moved.known:
            if moved.taint is not None:
                self._leave(key, moved.taint)
        elif launch.unsure:
            self._leave(key, StoredTaint(MOVED, None))

    def inherit(self, view: View) -> None:
        """Taint a new view as the closed one that it may replace, and as those with which it shares a taint."""
        key = (view.principal.id, view.app)
        if (mate := self._mate(view)) is not None:
            view.taint, view.came_from = mate.taint, mate.came_from
            return
        view.taint.on_change = lambda: self._note_turn(key, view)
        view.came_from = self.taints.before(key)
        for before, beside in ((view.came_from, False), (self._beside(view), not view.bridged)):
            if before is not None:  # a page that is reloaded is as tainted as before
                view.taint.inherit(before, view.used_at, beside=beside)

    def keep(self, view: View) -> None:
        """Keep the taint of a view that is closed."""
        if self._mate(view) is not None:
            return  # it is that of an open view
        view.taint.on_change = lambda: None
        if view.taint.tainted is not None:
            self.taints.leave((view.principal.id, view.app), view.taint)

    def _note_turn(self, key: TaintKey, view: View) -> None:
        """Store that a live view became tainted, or that a person untainted it."""
        self.taints.note_turn(key, view.taint, view.came_from)
        if self._others is not None and view.taint.tainted is None:
            self._others.ended(key, self.taints.flush)

    def _mate(self, view: View) -> View | None:
        """Return another view on the same dedicated origin."""
        mine = self._of.get(view.principal.id, {}).values() if view.dedicated else ()
        return next((one for one in mine if one is not view and one.dedicated and one.app == view.app), None)

    def _live(self) -> dict[TaintKey, Taint]:
        """Return the taints of live views, by principal and app."""
        views = (view for mine in self._of.values() for view in mine.values() if view.taint.tainted is not None)
        return {(view.principal.id, view.app): view.taint for view in views}

    def _beside(self, view: View) -> Taint | None:
        """Return the taint of a live view that `view` shares: of a lost one, and of any that came by a launch value."""
        for other in self._of.get(view.principal.id, {}).values():
            launched = not other.bridged and not view.bridged
            if other.app == view.app and (other.lost or launched) and other.taint.tainted is not None:
                return other.taint
        return None

    def _taint_group(self, view: View) -> list[View]:
        """Return the view, and those that share its taint."""
        others = () if view.bridged else self._launched_views(view.principal, view.app)
        return [view, *(other for other in others if other is not view)]

    def _launched_views(self, principal: Principal, app: str) -> list[View]:
        """Return the views of an app that are not on a bridge."""
        mine = self._of.get(principal.id, {}).values()
        return [view for view in mine if not view.bridged and view.app == app]


class Openings:
    """The rate limiter of opened views, by principal."""

    def __init__(self) -> None:
        self._buckets: Buckets[str] = Buckets()

    def take(self, principal: str, now: float) -> None:
        """Count a view that opens at `now`, in seconds. Raises `Refusal` (`rate-limited`)."""
        result = self._buckets.take(principal, now, OPENING)
        if not result.allowed:
            _OPENED_VIEWS.report(principal)
            detail = f"More than {OPENING.count} views were opened within {OPENING.period:g} seconds. Wait a moment."
            raise Refusal(Reason.RATE_LIMITED, detail)

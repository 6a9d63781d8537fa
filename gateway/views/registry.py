"""The live views of all principals: opened, attached, proven, listed, closed."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import mcp_types as mcp

from gateway.bounds import Area, Bound
from gateway.callers.entitlements import Admits, admit_all
from gateway.callers.methods import PERSON_VIEWS, reaches
from gateway.crypto import SigningKeys
from gateway.errors import Reason, Refusal
from gateway.eventloop.model_priority import ModelPriority
from gateway.exchange.approval_step import UNPROVEN
from gateway.model import Caller, Door, Initiator, Principal, ViewTool
from gateway.ports.views import (
    MOVES_WITHIN,
    LaunchValues,
    LiveView,
    MovedView,
    OpenedView,
    OtherTaints,
    TaintStore,
    ViewDirectory,
)
from gateway.views.initiator import CLAIMED, Cause
from gateway.views.relay import Relay
from gateway.views.session import JsonObject, PageSession
from gateway.views.shown import ShownView, Successions, Tell
from gateway.views.tools import clean_tools, with_callable_tools
from gateway.views.view import (
    AppRules,
    AttachResult,
    Openings,
    PageCalls,
    SharedTaints,
    View,
    ViewKey,
    rules_without_entry,
    split,
)

LIVE = 32
"""Live views of one principal by default."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "live views",
        f"`mcp.views_each` ({LIVE}) per principal",
        "an idle view is closed, else `rate-limited`",
    ),
)

(_LIVE_VIEWS,) = BOUNDS

IDLE = 1800.0
"""Seconds of silence after which a view that came over MCP is considered gone."""

LISTING = 10.0
"""Seconds within which a page over MCP that has tools lists them after it attached."""

ATTACHING = 60.0
"""Seconds within which the page of a view that this process has taken over attaches, or attaches once more."""

LEAVING = 5.0
"""Seconds for which a model's call waits in a drain until the page of its view is at another process."""

LOOK = 0.05
"""Seconds between two looks whether it is."""

QUIET = 300.0
"""Seconds of silence after which such a view may be evicted for another: hosts do not report that a page is gone."""


class Views:
    """Every live view of a gateway, at most `each` per principal; the sessions with pages run inside it.

    Views of apps that their principal may not use, by `admits`, are as if they were closed.
    The keys of views are derived from `keys`, so that later processes know the views of earlier ones.
    With several processes, `new_id` makes ids of views, `take` makes this one the owner of a view that came here, and
    `end_former` ends the view of a page that attached as another one here; views share taints with `other_taints`.
    """

    def __init__(
        self,
        apps: Mapping[str, AppRules],
        clock: Callable[[], float] = time.monotonic,
        *,
        launches: LaunchValues,
        directory: ViewDirectory,
        each: int = LIVE,
        taints: TaintStore | None = None,
        admits: Admits = admit_all,
        keys: SigningKeys | None = None,
        new_id: Callable[[], str] | None = None,
        take: Callable[[str], Awaitable[MovedView | None]] | None = None,
        end_former: Callable[[Principal, str, str], Awaitable[None]] | None = None,
        other_taints: OtherTaints | None = None,
    ) -> None:
        self._new_id = new_id
        self._take = take
        self._end_former = end_former
        self.apps = apps
        self.admits = admits
        self.each = each
        self._clock = clock
        self.precedence = ModelPriority(clock)
        self._views: dict[str, View] = {}
        self._of: dict[str, dict[str, View]] = {}
        self._idle_from = float("inf")
        self.launches = launches
        self._keys = keys or SigningKeys((secrets.token_bytes(32),))
        self._process = secrets.token_urlsafe(6)
        self._directory = directory
        self.taints = SharedTaints(self._of, clock, taints, other_taints)
        self._keeping: asyncio.Task[None] | None = None
        self._successions = Successions(clock)
        self._sessions: asyncio.TaskGroup = asyncio.TaskGroup()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._draining = self._left = False
        self._taken: OrderedDict[str, float] = OrderedDict()
        """When this process made itself the owner of views, the latest; without those that others have taken since."""
        self._gone: deque[tuple[float, Principal, LiveView]] = deque()
        """The views that have moved to another process just now, and when."""
        self._moved: set[str] = set()
        """Those that were at another process, and are not here yet."""
        self._came_late: set[str] = set()
        """Views whose pages have attached in a drain, as in a session of this process: they are not sent on again."""
        self.has_streams: Callable[[str], bool] = lambda _: False
        """Returns whether a view reads streams, which end if it moves to another process."""
        self._openings = Openings()

    async def __aenter__(self) -> Self:
        await self.taints.taints.load()
        await self._sessions.__aenter__()
        self._keeping = self._sessions.create_task(self.taints.taints.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for view in list(self._views.values()):
            self.close(view)
        if self._keeping is not None:
            self._keeping.cancel()
        await self._sessions.__aexit__(kind, error, trace)
        if await self.taints.taints.flush():
            await self.launches.settle(self.taints.taints.keys())

    # ── opening ──────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self, principal: Principal, app: str, *, chosen: bool = False) -> OpenedView:
        """Issue a handle and a launch value for a view that a host will show.

        `chosen`: its content was chosen by a model, so the view is tainted until a person acts in it.
        """
        if chosen:  # an open page may receive the launch value as well, and one that opens may attach with another
            await self.taints.choose(principal, app)
        return await self.launches.give(principal, app, chosen=chosen)

    async def attach(
        self,
        principal: Principal,
        app: str | None,
        launch: str | None,
        capabilities: Mapping[str, Any],
        former: str | None = None,
    ) -> AttachResult:
        """Register a view that runs; without a launch value it is unproven.

        `former` is the view of its page before this launch value arrived, which is closed: a proof of it, or the id of
        an unproven one. Raises `Refusal` (`view-unproven`, `rate-limited`).
        """
        if launch is None:
            app = self._only_app(app, principal)
            self._admit_unproven(app)
            await self.taints.learn(principal, app)
            id = f"{self._process}{secrets.token_urlsafe(12)}" if self._new_id is None else self._new_id()
            view = self._add(View(id, principal, app, proven=False, key=self._key(id, principal, 0)))
        else:
            apps = {one for one in self.apps if app in (None, one) and self.admits(principal, one)}
            waiting = await self.launches.find(launch, principal, apps)
            taint = await self.take_over(waiting.view)  # first: an attachment that fails must supersede no page
            self._check_owned(waiting.view)
            number = await self.launches.attach(launch)
            self.taints.doubt(principal, waiting, taint)
            if former and not self.end_former(principal, waiting.app, former) and self._end_former is not None:
                await self._end_former(principal, waiting.app, former)
            chosen = waiting.chosen or await self.launches.is_chosen(principal, waiting.app)
            await self.taints.learn(principal, waiting.app)
            self._check_owned(waiting.view)
            if waiting.view in self._views:
                if self._views[waiting.view].attached > number:
                    raise Refusal(Reason.VIEW_UNPROVEN, "Another page has attached as this view meanwhile.")
                self.close(self._views[waiting.view])
            key = self._key(waiting.view, principal, number)
            view = self._add(View(waiting.view, principal, waiting.app, proven=True, attached=number, key=key))
            if self._draining:
                self._came_late.add(view.id)
            if chosen:
                self.taints.report(view)
        return AttachResult(view.id, view.key.reveal(), view.proven, self.rules(view.app).policy.free_tools)

    async def take_over(self, view: str) -> MovedView | None:
        """Make this process the owner of a view whose page has attached, or connected, here. Raises `Refusal`.

        Return its state if it was at another process.
        """
        if self._take is None:
            return None
        now = self._clock()
        while self._taken and next(iter(self._taken.values())) < now - ATTACHING:
            self._moved.discard(self._taken.popitem(last=False)[0])
        self._taken[view] = now
        self._taken.move_to_end(view)
        moved = await self._take(view)
        if moved is not None:
            self._moved.add(view)
        return moved

    def note_gone(self, id: str) -> View | None:
        """Note that a view is at another process now, whose page may be about to come here; return it if it is here."""
        self._taken.pop(id, None)
        self._moved.discard(id)
        if (view := self._views.get(id)) is not None:
            view.gone_on = True
            now = self._clock()
            while self._gone and self._gone[0][0] < now - MOVES_WITHIN:
                self._gone.popleft()
            self._gone.append((now, view.principal, self._live_view(view, view.tools)))
        return view

    def _check_owned(self, view: str) -> None:
        """Raise `Refusal` if another process has made itself the owner of a view that is about to come here."""
        if self._take is not None and view not in self._taken:
            raise Refusal(Reason.VIEW_UNPROVEN, "Another page has attached as this view meanwhile.")

    def arrives(self, view: str) -> bool:
        """Return whether this process has made itself the owner of a view just now, whose page is not here yet."""
        return view not in self._views and self._taken.get(view, float("-inf")) > self._clock() - LISTING

    def lists_soon(self, view: View) -> bool:
        """Return whether a view came from another process, and its page has not listed its tools here yet."""
        return view.arrived and view.tool_list is None and self.may_offer_more(view)

    async def goes_on(self, view: View) -> bool:
        """Return whether a model's call must follow a view to another process, where its page attaches in a drain."""
        end = self._clock() + LEAVING  # then it runs a long call, or sleeps
        while (  # noqa: ASYNC110  # views have no event of their end, and this waits in a drain alone
            not self._left and self._may_leave(view) and self.is_open(view) and self._clock() < end
        ):
            await asyncio.sleep(LOOK)
        return self._left or not self.is_open(view)

    def note_left(self) -> None:
        """Let no further call of a model into the views: other processes take them over now."""
        self._left = True

    def end_former(self, principal: Principal, app: str, former: str) -> bool:
        """Close the view that `former` proves, or names if it is unproven; return False if it is at no page here."""
        was = self._former(principal, app, former)
        if was is not None:
            self.close(was)
        return was is not None

    def has(self, view: str) -> bool:
        """Return whether a view is live in this process."""
        return view in self._views

    def get(self, view: str) -> View | None:
        """Return a view that is live in this process."""
        return self._views.get(view)

    def open_bridged(self, principal: Principal, app: str, resource: str | None = None) -> View:
        """Add a view of a host page, proven by its socket. Raises `Refusal` if there are too many.

        With a `resource` it shows that app of the upstream `app`. The caller has called `taints.learn`.
        """
        id = secrets.token_urlsafe(16) if self._new_id is None else self._new_id()
        return self._add(self._new_view(id, principal, app, resource))

    def _new_view(self, id: str, principal: Principal, app: str, resource: str | None = None) -> View:
        dedicated = self.rules(app).dedicated
        return View(id, principal, app, proven=True, resource=resource, bridged=True, dedicated=dedicated)

    def move_bridged(self, principal: Principal, app: str, id: str, moved: MovedView | None = None) -> View | None:
        """Add a view of our host page that was open in another process, with the taint that it had there.

        It is tainted if that process did not say so: a model may have called it. None if a view with this id lives, or
        has been taken over by another process meanwhile.
        Raises `Refusal` if there are too many. The caller has called `taints.learn`.
        """
        if id in self._views or (self._take is not None and id not in self._taken):
            return None
        view = self._add(self._new_view(id, principal, app))
        if moved is None or not moved.known:
            view.taint.move(self._clock())
        elif moved.taint is not None:
            view.taint.hear(moved.taint, self._clock())
        return view

    def find_shown(self, principal: Principal, app: str) -> ShownView | None:
        """Return the view of `app` that our host page shows to `principal`, if there is exactly one.

        None for a shared principal: nothing identifies the conversation of the view.
        """
        if principal.shared:
            return None
        return self._successions.find(
            lambda: [view for view in self.of(principal, app) if view.tell is not None],
            lambda view: view.id in self._views,
            self._sessions,
        )

    def connect(self, view: View, send: Callable[[JsonObject], Awaitable[None]], tell: Tell | None = None) -> None:
        """Begin the MCP session with the page of `view`; `send` sends a message on its webmcp channel."""
        self.disconnect(view)
        view.tell = tell
        self._successions.note_change()

        async def first(message: JsonObject) -> None:
            await send(message)
            self.precedence.note_sent(view.principal.id)

        session = PageSession(first, lambda tools: self._take_list(view, session, tools), view.principal.id)
        view.session = session
        self._running[view.id] = self._sessions.create_task(session.run())

    def relay_of(self, principal: Principal, app: str | None, proof: str, *, may_move: bool = False) -> Relay:
        """Return the relay of the view that `proof` proves, which polls for the model's calls.

        Raises `Refusal`; if the view `may_move`, `view-moved` in a drain.
        """
        view = self.speaker(principal, app, proof)
        if may_move:
            self._check_stays(view)
        if view.relay is None:
            relay = view.relay = Relay(lambda tools: self._take_list(view, relay, tools), principal.id)
            if self._draining:
                relay.drain()
        return view.relay

    def leave(self, principal: Principal, app: str | None, proof: str, *, for_good: bool = True) -> None:
        """Close the view that `proof` proves, or, not `for_good`, note that its page is unloaded. Raises `Refusal`."""
        view = self.speaker(principal, app, proof)
        if for_good:
            self._taken.pop(view.id, None)
            self.close(view)
        elif view.relay is not None:
            view.relay.leave()

    def waits(self, view: str | None) -> bool:
        """Return whether there are calls for this view that it has not fetched yet."""
        entry = self._views.get(view) if view is not None else None
        return entry is not None and entry.relay is not None and entry.relay.waits()

    def drain(self) -> None:
        """Drain: answer polls at once, including those of relays that are created from now on."""
        self._draining = True
        for view in self._views.values():
            if view.relay is not None:
                view.relay.drain()

    def spawn(self, work: Coroutine[Any, Any, mcp.CallToolResult]) -> asyncio.Task[mcp.CallToolResult]:
        """Run `work` for as long as there are views; every call into a view ends with it. Its error is its caller's."""
        task = asyncio.ensure_future(work)
        self._sessions.create_task(_end_with_views(task))
        return task

    def disconnect(self, view: View) -> None:
        """End the connection to the page, and its tools; the view itself may reconnect."""
        relay, view.relay = view.relay, None
        if relay is not None:
            relay.close()
        session, view.session = view.session, None
        task = self._running.pop(view.id, None)
        if session is not None and task is not None:
            task.add_done_callback(lambda _: session.close())
            task.cancel()
        view.tell = None
        view.tool_list = None
        self._set_tools(view, ())

    def close(self, view: View) -> None:
        """Remove the view."""
        self.disconnect(view)
        if self._views.pop(view.id, None) is not None:
            mine = self._of[view.principal.id]
            del mine[view.id]
            if not mine:
                del self._of[view.principal.id]
            self.taints.keep(view)
            self._directory.remove(view.principal, view.id)
            self._successions.note_change()

    # ── who speaks ───────────────────────────────────────────────────────────────────────────────────────────

    def caller(
        self,
        principal: Principal,
        app: str | None,
        proof: str | None,
        *,
        reported_model: bool = False,
        gesture: float | None = None,
        may_move: bool = False,
    ) -> Caller:
        """Return the caller of a request over MCP.

        Raises `Refusal` (`view-unproven`; if the view `may_move`, `view-moved` in a drain). `gesture` is the age in
        seconds of a person's gesture, as the view reports it; it counts if the app is trusted for that.
        """
        if proof is None:
            app = self._only_app(app, principal)
            self._admit_unproven(app)
            return Caller(principal, app, Door.MCP, Initiator.MODEL, "no-view-proof")
        view = self.speaker(principal, app, proof)
        if may_move:
            self._check_stays(view)
        if gesture is not None and not reported_model and view.proven and self.rules(view.app).trust_view_gestures:
            view.taint.gesture_seen(gesture, self._clock(), CLAIMED)
        return self.caller_of(view, Door.MCP, reported_model=reported_model)

    def speaker(self, principal: Principal, app: str | None, proof: str) -> View:
        """Return the view that `proof` proves. Raises `Refusal` (`view-unproven`)."""
        parts = split(proof)
        view = self._views.get(parts[0]) if parts else None
        if parts is None or view is None or app not in (None, view.app) or not self.admits(principal, view.app):
            raise Refusal(Reason.VIEW_UNPROVEN, "This view is not open here. Open the app again.")
        if view.principal is not principal:
            if view.principal != principal:
                raise Refusal(Reason.VIEW_UNPROVEN, "This view is not open here. Open the app again.")
            view.principal = principal  # with its current roles and claims
        if not view.key.accepts(parts[1], parts[2]):
            raise Refusal(Reason.VIEW_UNPROVEN, "The proof of this call is wrong or was used before.")
        if not view.proven:
            self._admit_unproven(view.app)
        view.used_at = self._clock()
        if view.relay is not None:
            view.relay.note_activity()
        return view

    def _check_stays(self, view: View) -> None:
        """Raise `Refusal` (`view-moved`) in a drain beside other processes: its page attaches again at one of them.

        A view with a model's call, or with streams, stays until these have ended.
        """
        if self._may_leave(view) and (view.relay is None or not view.relay.busy):
            detail = "This process of the gateway stops: attach this view again, and repeat the call."
            raise Refusal(Reason.VIEW_MOVED, detail)

    def _may_leave(self, view: View) -> bool:
        """Return whether the page of a view is to attach at another process in a drain, once it runs no call."""
        if not self._draining or self._take is None or view.bridged or view.id in self._came_late:
            return False
        return not self.has_streams(view.id)

    async def explain(self, refusal: Refusal, principal: Principal, proof: str | None) -> Refusal:
        """Return the refusal of a call with `proof`: `view-moved` if the view of an earlier process makes it.

        Only the page that attached last is told so, and attaches again; one that it superseded stays refused.
        """
        parts = split(proof) if proof is not None and refusal.reason is Reason.VIEW_UNPROVEN else None
        if parts is None or parts[0] in self._views or parts[0].startswith(self._process):
            return refusal
        attached = await self.launches.attachment(parts[0], principal)
        keys = map(ViewKey, self._keys.secrets("view", parts[0], principal.id, str(attached or 0)))
        if not any(key.accepts(*parts[1:]) for key in keys):
            return refusal
        return Refusal(Reason.VIEW_MOVED, "The gateway was restarted: attach this view again, and repeat the call.")

    def _key(self, view: str, principal: Principal, attached: int) -> ViewKey:
        """Return the key of a view as of an attachment; one without a launch value has number 0."""
        return ViewKey(self._keys.secrets("view", view, principal.id, str(attached))[0])

    def caller_of(self, view: View, door: Door, *, reported_model: bool = False) -> Caller:
        """Return the caller of a request of `view` now; a view's report that a model caused it is believed.

        Raises `Refusal` (`view-unproven`) once it is closed.
        """
        if self._views.get(view.id) is not view or not self.admits(view.principal, view.app):
            raise Refusal(Reason.VIEW_UNPROVEN, "This view is closed.")
        if reported_model:
            self.taints.report(view)
        cause = view.taint.cause(self._clock())
        if not view.proven:
            cause = Cause(Initiator.MODEL, UNPROVEN, cause.id)
        return Caller(view.principal, view.app, door, cause.initiator, cause.evidence, view.id, view.proven, cause.id)

    def rules(self, app: str) -> AppRules:
        """Return the rules for the views of an app, or of an upstream's apps without an entry."""
        return self.apps.get(app) or rules_without_entry(app)

    # ── queries ─────────────────────────────────────────────────────────────────────────────────────────────────

    def live(self, principal: Principal | None, app: str | None = None) -> tuple[LiveView, ...]:
        """Return the live views of `principal` (of all, if None), oldest first."""
        self._close_idle()
        if principal is not None:
            mine = self._directory.of(principal, app)
            return tuple([self._view_for(view, principal) for view in mine if self.admits(principal, view.app)])
        return tuple(view for _, view in self._directory.all() if app in (None, view.app))

    def vanished(self, principal: Principal, app: str | None = None) -> list[LiveView]:
        """Return the views of `principal` that were open until a moment ago, here or at another process."""
        since = self._clock() - MOVES_WITHIN
        gone = [view for at, owner, view in self._gone if at > since and owner == principal]
        return [view for view in (*gone, *self._directory.vanished(principal)) if app in (None, view.app)]

    def live_for(self, is_wanted: Callable[[Principal, str], bool]) -> tuple[LiveView, ...]:
        """Return the live views of the principals and apps for which `is_wanted` returns True, oldest first."""
        self._close_idle()
        return tuple(self._view_for(view, owner) for owner, view in self._directory.all() if is_wanted(owner, view.app))

    def of(self, principal: Principal | None, app: str | None = None) -> list[View]:
        """Return the live views of `principal` as `View`s, after closing idle ones."""
        self._close_idle()
        if principal is None:
            return [view for view in self._views.values() if app in (None, view.app)]
        mine = self._of.get(principal.id, {}).values()
        return [view for view in mine if app in (None, view.app) and self.admits(principal, view.app)]

    def is_open(self, view: View) -> bool:
        """Return whether the view is live."""
        return self._views.get(view.id) is view

    def list_excluded(self) -> list[View]:
        """Return the live views of apps that their principal may not use any more."""
        return [view for view in self._views.values() if not self.admits(view.principal, view.app)]

    def _close_idle(self) -> None:
        """Close the views that have been silent for too long; nothing is examined before the first one can be."""
        silent = self._clock() - IDLE
        if silent <= self._idle_from:
            return
        for view in [view for view in self._views.values() if not view.bridged and view.used_at < silent]:
            self.close(view)
        self._idle_from = min((view.used_at for view in self._views.values() if not view.bridged), default=float("inf"))

    def find(self, id: str, principal: Principal) -> View | None:
        """Return the live view `id`, if it is this principal's."""
        view = self._views.get(id)
        mine = view is not None and view.principal == principal and self.admits(principal, view.app)
        return view if mine else None

    def reach(self, id: str, principal: Principal) -> View | None:
        """Return the live view `id` if it is this principal's, or one that the same person opened at another client."""
        view = self._views.get(id)
        if view is None or not (view.principal == principal or reaches(principal, view.principal)):
            return None
        return view if self.admits(principal, view.app) and self.admits(view.principal, view.app) else None

    def reachable(self, principal: Principal, app: str | None = None) -> list[tuple[Principal, LiveView]]:
        """Return the live views that `reach` returns, with their principals: the caller's own come first."""
        own = [(principal, view) for view in self.live(principal, app)]
        if PERSON_VIEWS not in principal.capabilities:
            return own
        others = [
            (owner, self._view_for(view, principal))
            for owner, view in self._directory.all()
            if owner != principal and app in (None, view.app) and self.reach(view.id, principal) is not None
        ]
        return [*own, *others]

    def tools(self, principal: Principal, app: str | None) -> tuple[ViewTool, ...]:
        """Return the tools of all live views of `principal`, each name once; none for a shared principal."""
        if principal.shared:
            return ()
        tools_by_name: dict[str, ViewTool] = {}
        self._close_idle()
        for view in self.live(principal, app):
            for tool in view.tools:
                tools_by_name.setdefault(tool.name, tool)
        return tuple(tools_by_name.values())

    def may_offer_more(self, view: View) -> bool:
        """Return whether a view's tools are unknown or outdated: its page has not listed them, or announced a change.

        A page that is reached over MCP lists nothing while it has no tools.
        """
        if view.lost:
            return False
        if view.calls is not None and view.calls.behind:
            return True
        return view.tool_list is None and (view.session is not None or self._clock() < view.since + LISTING)

    def renew(self, app: str) -> None:
        """Update the tools of all views of `app` after a change of its rules."""
        for view in self.of(None, app):
            self._set_tools(view, clean_tools(app, self.rules(app).policy, view.tool_list or ()))
            self._publish(view)

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]:
        """Call `callback` whenever the views or tools of a principal change; the returned function unregisters it."""
        return self._directory.watch(callback)

    def learn(self, principal: Principal) -> Awaitable[None] | None:
        """Return None if the views of `principal` at other processes are known; else an awaitable until they are."""
        return self._directory.learn(principal)

    def _add(self, view: View) -> View:
        view.used_at = view.since = self._clock()
        self._openings.take(view.principal.id, view.used_at)
        mine = list(self._of.get(view.principal.id, {}).values())
        self.taints.inherit(view)
        if len(mine) >= self.each:
            self._make_room(mine)
        for other in mine:
            if other.app == view.app and other.relay is not None:
                other.relay.doubt()
        view.arrived = view.id in self._moved
        self._moved.discard(view.id)
        self._views[view.id] = view
        self._of.setdefault(view.principal.id, {})[view.id] = view
        if not view.bridged:
            self._idle_from = min(self._idle_from, view.used_at)
        self._publish(view)
        return view

    def _make_room(self, mine: Sequence[View]) -> None:
        """Evict the lost, unproven or quiet view that was silent longest. Raises `Refusal` if there is none."""
        quiet = self._clock() - QUIET
        spare = [view for view in mine if view.lost or not view.proven or (not view.bridged and view.used_at < quiet)]
        _LIVE_VIEWS.report(mine[0].principal.id)
        if not spare:
            raise Refusal(Reason.RATE_LIMITED, f"{self.each} views are open already. Close one of them.")
        self.close(min(spare, key=lambda view: view.used_at))

    def _former(self, principal: Principal, app: str, former: str) -> View | None:
        """Return the view that `former` proves, or, if it is unproven, names."""
        id, *_ = proof = split(former) or (former,)
        view = self.find(id, principal)
        if view is None or view.app != app:
            return None
        return view if not view.proven or (len(proof) == 3 and view.key.accepts(*proof[1:])) else None

    def _admit_unproven(self, app: str) -> None:
        if self.apps[app].unproven == "deny":
            raise Refusal(Reason.VIEW_UNPROVEN, "This call does not prove which view sends it.")

    def _only_app(self, app: str | None, principal: Principal) -> str:
        """Return `app`, or the only app that the caller may use. Raises `Refusal`."""
        apps = [one for one in self.apps if app in (None, one) and self.admits(principal, one)]
        if len(apps) != 1:
            raise Refusal(Reason.VIEW_UNPROVEN, "Nothing names the app of this call. Use /mcp/<app>.")
        return apps[0]

    def _view_for(self, view: LiveView, principal: Principal) -> LiveView:
        """Return a live view with the tools that `principal` may call."""
        rules = self.apps.get(view.app)
        return view if rules is None else with_callable_tools(view, rules.policy, principal)

    def _take_list(self, view: View, way: PageCalls, tools: Sequence[mcp.Tool]) -> None:
        if view.calls is way:
            view.tool_list = tools
            self._set_tools(view, clean_tools(view.app, self.rules(view.app).policy, tools, view.principal.id))

    def _set_tools(self, view: View, tools: tuple[ViewTool, ...]) -> None:
        if tools != view.tools:
            view.tools = tools
            if view.relay is not None:
                view.relay.offer(tools)
            self._publish(view)

    def _publish(self, view: View) -> None:
        """Show the current state of a live view in the directory."""
        if self._views.get(view.id) is view:
            self._directory.put(view.principal, self._live_view(view, view.tools))

    def _live_view(self, view: View, tools: tuple[ViewTool, ...]) -> LiveView:
        return LiveView(view.id, view.app, self.rules(view.app).title, view.opened_at, tools)


async def _end_with_views(task: asyncio.Task[mcp.CallToolResult]) -> None:
    """Wait for a call, whose error would end all views in their task group; a cancellation cancels it."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
    finally:
        if task.done() and not task.cancelled():
            task.exception()

"""The state of views in memory: their launch values, and the directory of live views."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import Principal, Secret
from gateway.ports.views import Launch, LaunchStore, LiveView, OpenedView, StoredLaunch, TaintKey
from gateway.watchers import Watchers

T = TypeVar("T")

EACH = 256
"""Launch values of one principal that may wait for their view; the oldest is evicted first."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "unused launch values",
        f"{EACH} per principal",
        "the oldest of that principal is evicted",
    ),
)

(_LAUNCHES,) = BOUNDS

LIFE = 24 * 3600.0
"""Seconds for which a launch value is valid."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _IssuedValue:
    """The view that a value was issued for; `attached` counts its attachments, `here` if one was in this process."""

    view: str
    principal: Principal
    app: str
    expires: float
    chosen: bool
    attached: int = 0
    here: bool = False
    clean: bool = False

    @property
    def unsure(self) -> bool:
        """True if an earlier process may have known of a model's call."""
        return self.attached > 0 and not self.here and not self.clean


class Launches:
    """The port `LaunchValues`: in memory, and in `store`, if there is one, for other processes.

    `new_id` makes the ids of their views. `shared`: other processes attach views at the same time.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        store: LaunchStore | None = None,
        new_id: Callable[[], str] = lambda: secrets.token_urlsafe(16),
        *,
        shared: bool = False,
    ) -> None:
        self._new_id = new_id
        self._shared = shared
        self._clock = clock
        self._store = store
        self._issued: dict[str, _IssuedValue] = {}
        self._of: dict[Principal, dict[str, None]] = {}
        self._turn = deque[Principal]()

    def __len__(self) -> int:
        """The number of launch values."""
        return len(self._issued)

    async def give(self, principal: Principal, app: str, *, chosen: bool) -> OpenedView:
        """Issue a launch value for a view of `app`."""
        self._forget()
        opened = OpenedView(view=self._new_id(), launch=Secret(secrets.token_urlsafe(32)))
        issued = _IssuedValue(opened.view, principal, app, self._clock() + LIFE, chosen)
        self._add(opened.launch.reveal(), issued)
        if self._store is not None:
            await self._try(self._store.put(opened.launch.reveal(), self._stored_launch(issued), EACH))
        return opened

    async def find(self, value: str, principal: Principal, apps: Container[str]) -> Launch:
        """Return the launch of `value` if it was issued to `principal` for one of `apps`.

        Raises `Refusal` (`view-unproven`).
        """
        launch = self._issued.get(value)
        if launch is None or self._shared:
            launch = await self._load(value, principal)
        if launch is None or launch.principal != principal or launch.app not in apps:
            raise Refusal(Reason.VIEW_UNPROVEN, "This launch value is not known here. Open the app again.")
        if self._clock() > launch.expires:
            self._drop(value)
            raise Refusal(Reason.VIEW_UNPROVEN, "This launch value has expired. Open the app again.")
        return Launch(launch.view, launch.app, launch.chosen, launch.unsure)

    async def attach(self, value: str) -> int:
        """Count that a page attaches with `value`."""
        launch = self._issued.get(value)
        if launch is None:
            return 0
        launch.attached += 1
        launch.here = True
        number, before, store = launch.attached, launch.attached - 1, self._store
        while store is not None:
            changed = replace(self._stored_launch(launch), attached=number)
            done = await self._try(store.replace({value: changed}, {value: before}))
            if done is None or value in done:
                break
            stored = await self._try(store.find(value, launch.principal.id))  # another process was faster
            if stored is None:
                break
            before, number = stored.attached, stored.attached + 1
            launch.attached = max(launch.attached, number)
        return number

    async def attachment(self, view: str, principal: Principal) -> int | None:
        """Return the number of the latest attachment of a view of an earlier process."""
        if self._store is None or self._mine(view, principal) is not None:
            return None
        stored = await self._try(self._store.of_view(view, principal.id))
        return stored.attached if stored is not None and stored.attached else None

    async def is_awaited(self, view: str, principal: Principal, app: str | None) -> bool:
        """Return whether a value was issued to this principal for `view`, and no page has attached with it yet."""
        launch = self._mine(view, principal)
        awaited = launch is not None and not launch.attached and launch.expires > self._clock()
        awaited = awaited and launch is not None and app in (None, launch.app)
        if self._store is None or (launch is not None and not (awaited and self._shared)):
            return awaited
        stored = await self._try(self._store.of_view(view, principal.id))  # a page may have attached at another process
        if stored is None:
            return awaited
        return not stored.attached and app in (None, stored.app)

    async def is_chosen(self, principal: Principal, app: str) -> bool:
        """Return whether a model chose the content of a view of `app` that no page has attached as yet.

        Those of an earlier process left a taint to this principal and app.
        """
        mine = map(self._issued.__getitem__, self._of.get(principal, ()))
        return any(launch.chosen and not launch.attached and launch.app == app for launch in mine)

    async def settle(self, tainted_keys: Container[TaintKey]) -> None:
        """Store that the views of other principals and apps are not tainted."""
        clean = {
            value: launch
            for value, launch in self._issued.items()
            if launch.here and (launch.principal.id, launch.app) not in tainted_keys
        }
        if self._store is not None and clean:
            rows = {value: replace(self._stored_launch(launch), clean=True) for value, launch in clean.items()}
            await self._try(self._store.replace(rows, {value: row.attached for value, row in rows.items()}))

    def _mine(self, view: str, principal: Principal) -> _IssuedValue | None:
        """Return the launch of a view of this principal, if this process issued or attached it."""
        mine = map(self._issued.__getitem__, self._of.get(principal, ()))
        return next((launch for launch in mine if launch.view == view and (launch.here or not launch.attached)), None)

    async def _load(self, value: str, principal: Principal) -> _IssuedValue | None:
        """Return the launch of a value of an earlier process. Raises `Refusal` while the store is down."""
        if self._store is None:
            return None
        try:
            stored = await self._store.find(value, principal.id)
        except OSError as error:
            log.warning("a launch value cannot be looked up: %s", error)
            detail = "Launch values cannot be looked up now. Try again."
            raise Refusal(Reason.BACKEND_UNAVAILABLE, detail) from error
        if stored is None or value in self._issued:
            known = self._issued.get(value)
            if stored is not None and known is not None and stored.attached > known.attached:
                known.attached, known.here, known.clean = stored.attached, False, stored.clean  # by another process
            return known
        expires = self._clock() + stored.left
        issued = _IssuedValue(
            stored.view, principal, stored.app, expires, stored.chosen, stored.attached, clean=stored.clean
        )
        self._add(value, issued)
        return issued

    async def _try(self, work: Awaitable[T]) -> T | None:
        try:
            return await work
        except OSError as error:
            log.warning("views may not survive a restart: the database does not know their launch values: %s", error)
            return None

    def _stored_launch(self, launch: _IssuedValue) -> StoredLaunch:
        left = launch.expires - self._clock()
        return StoredLaunch(launch.view, launch.principal.id, launch.app, launch.chosen, left, launch.attached)

    def _add(self, value: str, launch: _IssuedValue) -> None:
        if launch.principal not in self._of:
            self._of[launch.principal] = {}
            self._turn.append(launch.principal)
        mine = self._of[launch.principal]
        while len(mine) >= EACH:
            oldest = next(iter(mine))
            if not self._issued[oldest].attached:
                _LAUNCHES.report(launch.principal.id)
            self._drop(oldest)
        self._issued[value] = launch
        mine[value] = None

    def _drop(self, value: str) -> None:
        launch = self._issued.pop(value)
        self._of[launch.principal].pop(value)

    def _forget(self) -> None:
        """Delete the expired values of one principal, in turn."""
        if not self._turn:
            return
        principal, now = self._turn.popleft(), self._clock()
        for value in [value for value in self._of[principal] if self._issued[value].expires < now]:
            self._drop(value)
        if self._of[principal]:
            self._turn.append(principal)
        else:
            del self._of[principal]


class MemoryDirectory:
    """The port `ViewDirectory` of one process."""

    def __init__(self) -> None:
        self._all: dict[str, tuple[Principal, LiveView]] = {}
        self._of: dict[str, dict[str, LiveView]] = {}
        self._watchers = Watchers[[Principal]]()

    def put(self, principal: Principal, view: LiveView) -> None:
        """Add a view, or replace it at its place."""
        mine = self._of.setdefault(principal.id, {})
        if mine.get(view.id) != view:
            mine[view.id] = view
            self._all[view.id] = (principal, view)
            self._watchers.notify(principal)

    def remove(self, principal: Principal, id: str) -> None:
        """Remove a view."""
        mine = self._of.get(principal.id, {})
        if mine.pop(id, None) is not None:
            del self._all[id]
            if not mine:
                del self._of[principal.id]
            self._watchers.notify(principal)

    def of(self, principal: Principal, app: str | None = None) -> tuple[LiveView, ...]:
        """Return the live views of `principal`, oldest first."""
        mine = self._of.get(principal.id)
        if mine is None:
            return ()
        return tuple([view for view in mine.values() if app is None or view.app == app])

    def all(self) -> Iterable[tuple[Principal, LiveView]]:
        """Return the live views of all principals, oldest first."""
        return tuple(self._all.values())

    def vanished(self, principal: Principal) -> list[LiveView]:
        """Return nothing: there are no other processes."""
        return []

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]:
        """Call `callback` after each change of a principal's views or tools."""
        return self._watchers.add(callback)

    def learn(self, principal: Principal) -> Awaitable[None] | None:
        """Return None: there are no other processes."""
        return None

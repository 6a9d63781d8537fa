"""Launch values: issued to a host for each view that it will show, to prove that a page is that view."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.model import Principal, Secret
from gateway.ports.views import Launch, OpenedView

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


@dataclass(slots=True)
class _Given:
    """The view that a value was issued for; `came` once its page has attached."""

    view: str
    principal: Principal
    app: str
    expires: float
    chosen: bool
    came: bool = False


class MemoryLaunches:
    """The port `LaunchValues` of one process: a restart ends all of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._given: dict[str, _Given] = {}
        self._of: dict[Principal, dict[str, None]] = {}
        self._turn = deque[Principal]()

    def __len__(self) -> int:
        """The number of launch values."""
        return len(self._given)

    async def give(self, principal: Principal, app: str, *, chosen: bool) -> OpenedView:
        """Issue a launch value for a view of `app`."""
        self._forget()
        if principal not in self._of:
            self._of[principal] = {}
            self._turn.append(principal)
        mine = self._of[principal]
        while len(mine) >= EACH:
            oldest = next(iter(mine))
            if not self._given[oldest].came:
                _LAUNCHES.exceeded(principal.id)
            self._drop(oldest)
        opened = OpenedView(view=secrets.token_urlsafe(16), launch=Secret(secrets.token_urlsafe(32)))
        self._given[opened.launch.reveal()] = _Given(opened.view, principal, app, self._clock() + LIFE, chosen)
        mine[opened.launch.reveal()] = None
        return opened

    async def find(self, value: str, principal: Principal, apps: Container[str]) -> Launch:
        """Return the launch of `value` if it was issued to `principal` for one of `apps`.

        Raises `Refusal` (`view-unproven`).
        """
        launch = self._given.get(value)
        if launch is None or launch.principal != principal or launch.app not in apps:
            raise Refusal(Reason.VIEW_UNPROVEN, "This launch value is not known here. Open the app again.")
        if self._clock() > launch.expires:
            self._drop(value)
            raise Refusal(Reason.VIEW_UNPROVEN, "This launch value has expired. Open the app again.")
        return Launch(launch.view, launch.app, launch.chosen)

    async def attached(self, value: str) -> None:
        """Note that a page has attached with `value`."""
        launch = self._given.get(value)
        if launch is not None:
            launch.came = True

    async def awaited(self, view: str, principal: Principal, app: str | None) -> bool:
        """Whether a value was issued to this principal for `view`, and no page has attached with it yet."""
        return any(
            (launch.view, launch.principal, launch.came) == (view, principal, False) and app in (None, launch.app)
            for launch in map(self._given.__getitem__, self._of.get(principal, ()))
            if launch.expires > self._clock()
        )

    async def chosen(self, principal: Principal, app: str) -> bool:
        """Whether a model chose the content of a view of `app` that no page has attached as yet."""
        mine = map(self._given.__getitem__, self._of.get(principal, ()))
        return any(launch.chosen and not launch.came and launch.app == app for launch in mine)

    def _drop(self, value: str) -> None:
        launch = self._given.pop(value)
        self._of[launch.principal].pop(value)

    def _forget(self) -> None:
        """Delete the expired values of one principal, in turn."""
        if not self._turn:
            return
        principal, now = self._turn.popleft(), self._clock()
        for value in [value for value in self._of[principal] if self._given[value].expires < now]:
            self._drop(value)
        if self._of[principal]:
            self._turn.append(principal)
        else:
            del self._of[principal]

"""A live view of an app: what a host gets to open one, what it is held to, and what is known of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp import types as mcp

from gateway.model import Principal, Secret, ViewTool
from gateway.policy import Policy
from gateway.views.initiator import Taint
from gateway.views.proof import ViewKey
from gateway.views.relay import Relay
from gateway.views.session import PageSession
from gateway.views.shown import Tell


@dataclass(frozen=True, slots=True)
class AppRules:
    """What the views of one app are held to."""

    title: str
    policy: Policy
    unproven: str = "as-model"
    trust_view_gestures: bool = False


@dataclass(frozen=True, slots=True)
class Opened:
    """A view that a host may show now: its handle, and the launch value that proves it."""

    view: str
    launch: Secret


@dataclass(frozen=True, slots=True)
class Attached:
    """The answer to a view that attached: id, key (base64url), and the tools that others than the gateway may offer."""

    view: str
    key: str
    proven: bool
    free: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveView:
    """A live view as a model or the console sees it; `opened` is in seconds since the epoch."""

    id: str
    app: str
    title: str
    opened: float
    tools: tuple[ViewTool, ...]


class PageCalls(Protocol):
    """The way into a page: over the bridge, or by relay."""

    async def call(
        self, tool: ViewTool, arguments: Mapping[str, Any], started: Callable[[], None]
    ) -> mcp.CallToolResult:
        """Run a tool of the page; `started` is called once it may begin. Raises `MCPError` and `Refusal`."""
        ...

    @property
    def behind(self) -> bool:
        """Whether the page told of a change of its tools that is not taken in yet."""
        ...

    async def catch_up(self) -> bool:
        """Take in at once what the page told of its tools, which has its time else; False where that is nothing."""
        ...


@dataclass(slots=True, eq=False)
class View:
    """One live iframe of an app. `used` is when it last spoke, on the clock of its registry, and `since` when it
    came; `principal` is as it was when it last spoke.

    A `bridged` view ends with its connection; another one when it has been silent for `registry.IDLE` seconds. `listed`
    are its tools as its page lists them (None before it has), `tools` those that its policy offers. Host pages of ours
    can `tell` it what a model's call says to the app that it opens.
    `came_from` is the taint of a closed view in whose place it came.
    """

    id: str
    principal: Principal
    app: str
    proven: bool
    bridged: bool = False
    used: float = 0.0
    since: float = 0.0
    opened: float = field(default_factory=time.time)
    key: ViewKey = field(default_factory=ViewKey)
    taint: Taint = field(default_factory=Taint)
    came_from: Taint | None = None
    tools: tuple[ViewTool, ...] = ()
    listed: Sequence[mcp.Tool] | None = None
    session: PageSession | None = None
    relay: Relay | None = None
    tell: Tell | None = None

    @property
    def lost(self) -> bool:
        """Whether its host page has gone, or its tab sleeps, for now."""
        return (self.bridged and self.session is None) or (self.relay is not None and self.relay.lost)

    @property
    def calls(self) -> PageCalls | None:
        """The way into its page, if there is one now."""
        return self.session or self.relay

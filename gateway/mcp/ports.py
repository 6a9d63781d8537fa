"""What a mount of the MCP server needs of the rooms below it, and who calls through it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import mcp_types as types
from msgspec import Struct

from gateway.contract import Handed
from gateway.errors import Refusal
from gateway.mcp.results import Aside
from gateway.model import Caller, Door, Json, Principal, Request, Resource, Response, Tell, ViewTool
from gateway.views.precedence import Precedence
from gateway.views.relay import Relay
from gateway.views.shown import Shown
from gateway.views.view import Attached, LiveView, Opened

Push = Callable[[dict[str, Json]], Awaitable[None]]


class Client(Struct, frozen=True):
    """Who calls through a mount.

    `is_app` says that the client shows MCP Apps, so that its calls may come from one. `caller` gives the view that
    calls, where the connection itself proves it; it is told whether the view reports a model, and raises `Refusal` once
    that view is gone. `handed` is the body of its request where that came beside the call, `aside` puts that of an
    answer there. `push` sends a part of a stream before the call is answered. `tell` sends its person to a page of the
    console, where the client can do that.
    """

    principal: Principal
    door: Door = Door.MCP
    is_app: bool = False
    caller: Callable[[bool], Caller] | None = None
    tell: Tell | None = None
    handed: Handed | None = None
    aside: Aside | None = None
    push: Push | None = None


class PackedApp(Protocol):
    """An app as it is offered: its id, what people call it, and the one HTML file that it was packed into."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def opens(self) -> bool:
        """Whether models open it by a tool of the gateway's; the app of an upstream is opened by that one's tools."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether the gateway keeps what its page stores."""
        ...

    async def html(self) -> str:
        """The page as it is given out: `resource.html` with the snapshot, which may be another one each time."""
        ...


class Views(Protocol):
    """The live views: `gateway.views.registry.Views`, as much of it as a mount needs. `app` None is every app."""

    @property
    def precedence(self) -> Precedence: ...

    def tools(self, principal: Principal, app: str | None) -> tuple[ViewTool, ...]: ...

    def live(self, principal: Principal, app: str | None) -> tuple[LiveView, ...]: ...

    def open(self, principal: Principal, app: str, *, chosen: bool) -> Opened: ...

    def shown(self, principal: Principal, app: str) -> Shown | None: ...

    def attach(
        self,
        principal: Principal,
        app: str | None,
        launch: str | None,
        capabilities: Mapping[str, Any],
        former: str | None,
    ) -> Attached: ...

    def caller(
        self, principal: Principal, app: str | None, proof: str | None, *, reported_model: bool, gesture: float | None
    ) -> Caller: ...

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]: ...

    def relayed(self, principal: Principal, app: str | None, proof: str) -> Relay: ...

    def left(self, principal: Principal, app: str | None, proof: str, *, for_good: bool = True) -> None: ...

    def waits(self, view: str | None) -> bool: ...


class Forwarder(Protocol):
    """The way into a page: `gateway.views.forward.Forwarder`. It tells refusals in the result."""

    async def call(
        self,
        principal: Principal,
        name: str,
        arguments: Mapping[str, Any],
        *,
        app: str | None,
        view: str | None = None,
        tell: Tell | None = None,
    ) -> types.CallToolResult: ...

    async def collect(self, principal: Principal, call: str) -> types.CallToolResult: ...


class Exchange(Protocol):
    """The way to the backends: `gateway.exchange.pipeline.Exchange`. `wait` is in seconds, as it says."""

    async def run(self, request: Request, caller: Caller, *, wait: float, tell: Tell | None = None) -> Response: ...

    async def refuse(self, refusal: Refusal, caller: Caller, method: str, url: str) -> Response:
        """The recorded answer to what no request could be made of."""
        ...

    async def resume(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response: ...

"""The interfaces of the layers below that a mount of the MCP server calls, and the client for which it calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import mcp_types as types
from msgspec import Struct

from gateway.contract import UploadedBody
from gateway.errors import Refusal
from gateway.eventloop.model_priority import ModelPriority
from gateway.exchange.sockets import Message
from gateway.mcp.results import Aside
from gateway.model import Caller, Door, Json, Principal, Request, Resource, Response, Tell, ViewTool
from gateway.ports.views import LiveView, OpenedView
from gateway.views.relay import Relay
from gateway.views.shown import ShownView
from gateway.views.view import AttachResult

Push = Callable[[dict[str, Json]], Awaitable[None]]


class ReadEvents(Protocol):
    """Reads the next part of an event stream."""

    async def __call__(self, wait: float, /, *, cancel: bool = False) -> Response:
        """Return the next part, empty after `wait` seconds of silence, or the refusal in its place, which is no part.

        `cancel` ends the stream. Raises `Refusal` once its view is gone.
        """
        ...


Offer = Callable[[ReadEvents], str | None]
"""Puts an event stream at an address at which the page reads it itself, once; returns None if there is no room."""


class MountClient(Struct, frozen=True):
    """The caller of a mount.

    `is_app`: the client shows MCP Apps, so its calls may come from one.
    `caller`: returns the calling view if the connection itself proves it. Its argument is whether the view reports a
    model; it raises `Refusal` once that view is gone.
    `tell`: sends the client's person to a page of the console, if the client can do that.
    `upload`: the request's body that was sent beside the call.
    `aside`: stores the answer's body beside the answer.
    `push`: sends a part of a stream before the call is answered.
    `offer`: puts an event stream at an address for the page.
    `forwarded`: another node of the gateway sends the call, which is not forwarded again.
    """

    principal: Principal
    door: Door = Door.MCP
    is_app: bool = False
    caller: Callable[[bool], Caller] | None = None
    tell: Tell | None = None
    upload: UploadedBody | None = None
    aside: Aside | None = None
    push: Push | None = None
    offer: Offer | None = None
    forwarded: bool = False


class PackedApp(Protocol):
    """An app as offered to clients: its id, its title, and the one HTML file that it was packed into."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def resource(self) -> Resource: ...
    @property
    def opens(self) -> bool:
        """True if models open it by a tool of the gateway; the app of an upstream is opened by the upstream's tools."""
        ...

    @property
    def keeps(self) -> bool:
        """True if the gateway stores the data of its page."""
        ...

    async def html(self) -> str:
        """Return the page as served: `resource.html` with the snapshot, which may differ each time."""
        ...


class Views(Protocol):
    """The live views: the part of `gateway.views.registry.Views` that a mount needs. `app` None means every app."""

    @property
    def precedence(self) -> ModelPriority: ...

    def tools(self, principal: Principal, app: str | None) -> tuple[ViewTool, ...]: ...

    def live(self, principal: Principal, app: str | None) -> tuple[LiveView, ...]: ...

    def vanished(self, principal: Principal, app: str | None) -> list[LiveView]: ...

    def reachable(self, principal: Principal, app: str | None) -> list[tuple[Principal, LiveView]]: ...

    async def open(self, principal: Principal, app: str, *, chosen: bool) -> OpenedView: ...

    def find_shown(self, principal: Principal, app: str) -> ShownView | None: ...

    async def attach(
        self,
        principal: Principal,
        app: str | None,
        launch: str | None,
        capabilities: Mapping[str, Any],
        former: str | None,
    ) -> AttachResult: ...

    def caller(
        self,
        principal: Principal,
        app: str | None,
        proof: str | None,
        *,
        reported_model: bool,
        gesture: float | None,
        may_move: bool,
    ) -> Caller: ...

    async def explain(self, refusal: Refusal, principal: Principal, proof: str | None) -> Refusal: ...

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]: ...

    def learn(self, principal: Principal) -> Awaitable[None] | None: ...

    def relay_of(self, principal: Principal, app: str | None, proof: str, *, may_move: bool = False) -> Relay: ...

    def leave(self, principal: Principal, app: str | None, proof: str, *, for_good: bool = True) -> None: ...

    def waits(self, view: str | None) -> bool: ...


class Forwarder(Protocol):
    """Calls into a page: `gateway.views.forward.Forwarder`. It reports refusals in the result, but for `ViewMoves`."""

    async def call(
        self,
        principal: Principal,
        name: str,
        arguments: Mapping[str, Any],
        *,
        app: str | None,
        view: str | None = None,
        tell: Tell | None = None,
        door: Door = Door.MCP,
    ) -> types.CallToolResult: ...

    async def collect(self, principal: Principal, call: str) -> types.CallToolResult: ...


class Exchange(Protocol):
    """Requests to backends: `gateway.exchange.pipeline.Exchange`, which defines `wait`, in seconds."""

    async def run(self, request: Request, caller: Caller, *, wait: float, tell: Tell | None = None) -> Response: ...

    async def refuse(self, refusal: Refusal, caller: Caller, method: str, url: str) -> Response:
        """Return the recorded answer to input that is no valid request."""
        ...

    async def send(self, id: str, caller: Caller, number: int, messages: Sequence[Message]) -> None:
        """Send messages on a WebSocket. Raises `Refusal`."""
        ...

    async def resume(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response: ...

    async def read_on(self, id: str, caller: Caller) -> bytes: ...

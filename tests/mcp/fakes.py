"""Small working views, pages and backends behind a mount."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as types

from gateway.contract import problem
from gateway.errors import Reason, Refusal
from gateway.eventloop.model_priority import ModelPriority
from gateway.exchange.sockets import CloseRequest
from gateway.mcp.results import LONG
from gateway.model import (
    Caller,
    Door,
    Initiator,
    Part,
    Principal,
    Request,
    Resource,
    Response,
    Secret,
    Tell,
    ViewTool,
)
from gateway.ports.views import LiveView, OpenedView
from gateway.views.relay import PollAnswer, Relay, RelayEvent
from gateway.views.view import AttachResult

ADD = ViewTool(
    name="cart_add_to_cart",
    page_name="add_to_cart",
    title="Add to cart",
    description="Adds an item.",
    input_schema={"type": "object", "properties": {"item_id": {"type": "string"}}, "required": ["item_id"]},
    annotations={"destructiveHint": False},
)


@dataclass(frozen=True)
class Packed:
    """A packed app."""

    id: str
    title: str
    resource: Resource
    opens: bool = True
    keeps: bool = False

    async def html(self) -> str:
        """Return the page, which has no snapshot."""
        return self.resource.html


def fake_app(id: str) -> Packed:
    """Return an app of one line of HTML."""
    return Packed(id, id.title(), Resource(f"ui://{id}/app.html", f"<p>{id}</p>", {"csp": {"connectDomains": []}}))


EVENTS: tuple[tuple[RelayEvent, ...], ...] = (
    (),
    (RelayEvent(1, "call-1", "add_to_cart", {"item_id": "tea"}),),
    (RelayEvent(2, "call-2", "find", {}), RelayEvent(3, "call-2")),
    (RelayEvent(4, "call-4", "\u00e9\U0001f600", {"\u00e9": [1, 1.0, -0.0, 1e300, None, True, "\x7f\u2028"]}),),
    (RelayEvent(5, "call-5", "odd", {"text": "\ud800", "number": float("inf"), "whole": 10**30}),),
)
"""The answers to a poll, by the number of the last event that arrived."""

HELD, BROKEN, OVERTAKEN = 90, 91, 92
"""A poll with the first number waits for `release`, one with the second fails, the third is overtaken."""


class FakeRelay:
    """A view with the same pending calls at each poll; `call-1` waits for its answer."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.listed: list[str] = []

    def spend(self) -> None:
        """Spend nothing: there is no rate limit."""

    def list(self, tools: Sequence[types.Tool]) -> None:
        self.listed += [tool.name for tool in tools]

    async def poll(self, after: int, wait: float, *, hidden: bool = False) -> PollAnswer:
        if after == BROKEN:
            raise ZeroDivisionError
        if after == HELD:
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        return PollAnswer(EVENTS[after] if after < len(EVENTS) else (), after == OVERTAKEN)

    def answer(self, id: str, result: Mapping[str, Any]) -> None:
        if id != "call-1":
            raise Refusal(Reason.BAD_REQUEST, "No such call waits.")


class FakeViews:
    """One live view with tools for each principal; `proof` is the proof of a proven view."""

    def __init__(self) -> None:
        self._tools: dict[Principal, tuple[ViewTool, ...]] = {}
        self._watchers: set[Callable[[Principal], None]] = set()
        self.gestures: list[float | None] = []
        self.relay = FakeRelay()
        self.precedence = ModelPriority(time.monotonic)

    def offer(self, principal: Principal, *tools: ViewTool) -> None:
        """Let the page of `principal` offer other tools."""
        self._tools[principal] = tools
        for watcher in list(self._watchers):
            watcher(principal)

    def tools(self, principal: Principal, app: str | None) -> tuple[ViewTool, ...]:
        return self._tools.get(principal, ())

    def live(self, principal: Principal, app: str | None) -> tuple[LiveView, ...]:
        tools = self.tools(principal, app)
        return (LiveView("view-1", "cart", "Cart", 1.0, tools),) if tools else ()

    def vanished(self, principal: Principal, app: str | None) -> list[LiveView]:
        """Return nothing: no view moves."""
        return []

    def reachable(self, principal: Principal, app: str | None) -> list[tuple[Principal, LiveView]]:
        return [(principal, view) for view in self.live(principal, app)]

    def find_shown(self, principal: Principal, app: str) -> None:
        return None

    async def open(self, principal: Principal, app: str, *, chosen: bool) -> OpenedView:
        return OpenedView("view-1", Secret("launch-value"))

    async def attach(
        self,
        principal: Principal,
        app: str | None,
        launch: str | None,
        capabilities: Mapping[str, Any],
        former: str | None,
    ) -> AttachResult:
        if launch not in (None, "launch-value"):
            raise Refusal(Reason.VIEW_UNPROVEN, "unknown launch value")
        return AttachResult("view-1", "a2V5", launch is not None, ("checkout",))

    def caller(
        self,
        principal: Principal,
        app: str | None,
        proof: str | None,
        *,
        reported_model: bool,
        gesture: float | None,
        may_move: bool,
    ) -> Caller:
        self.gestures.append(gesture)
        if proof not in (None, "proof"):
            raise Refusal(Reason.VIEW_UNPROVEN, "wrong proof")
        initiator = Initiator.PAGE if proof and not reported_model else Initiator.MODEL
        return Caller(principal, app or "cart", Door.MCP, initiator, "fake", proven=proof is not None)

    async def explain(self, refusal: Refusal, principal: Principal, proof: str | None) -> Refusal:
        return refusal

    def relay_of(self, principal: Principal, app: str | None, proof: str, *, may_move: bool = False) -> Relay:
        if proof != "proof":
            raise Refusal(Reason.VIEW_UNPROVEN, "nobody asks for calls here")
        return cast(Relay, self.relay)

    def leave(self, principal: Principal, app: str | None, proof: str, *, for_good: bool = True) -> None:
        if proof != "proof":
            raise Refusal(Reason.VIEW_UNPROVEN, "nobody leaves here")

    def waits(self, view: str | None) -> bool:
        return False

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]:
        self._watchers.add(callback)
        return lambda: self._watchers.discard(callback)

    def learn(self, principal: Principal) -> None:
        """Nothing is to be learnt of other processes."""


class FakeStorage:
    """The storage of pages by person and app; `failing` is the exception that it raises."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], dict[str, str]] = {}
        self.failing: Exception | None = None

    async def load(self, person: str, app: str) -> Mapping[str, str]:
        if self.failing is not None:
            raise self.failing
        return self.items.get((person, app), {})

    async def save(
        self, person: str, app: str, changes: Mapping[str, str | None], *, clear: bool = False, now: float
    ) -> bool:
        kept = {} if clear else dict(await self.load(person, app))
        kept |= {key: value for key, value in changes.items() if value is not None}
        if "too much" in kept:
            return False
        self.items[person, app] = {key: value for key, value in kept.items() if changes.get(key, "") is not None}
        return True


class FakePages:
    """Pages whose tools return their call; `raising` is the exception that they raise."""

    def __init__(self) -> None:
        self.raising: Exception | None = None

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
    ) -> types.CallToolResult:
        if self.raising is not None:
            raise self.raising
        said = json.dumps({"name": name, "arguments": dict(arguments), "view": view, "principal": principal.subject})
        if name == "cart_odd":
            odd = {"text": "\ud800", "number": float("inf")}
            return types.CallToolResult(
                content=[types.TextContent(type="text", text="od\ud800d")], structured_content=odd
            )
        return types.CallToolResult(content=[types.TextContent(type="text", text=said)])

    async def collect(self, principal: Principal, call: str) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=f"collected {call}")])


ANSWERS: dict[str, Response] = {
    f"/answer/{number}": Response(status, headers, body, "/answer", reason_phrase=phrase)
    for number, (status, phrase, headers, body) in enumerate(
        (
            (200, "OK", (("content-type", "text/plain"),), b"plain"),
            (200, "OK", (("content-type", "text/plain"),), "\u00e9\u20ac\U0001f600\u2028\x7f".encode()),
            (200, "", (("content-type", "text/plain"),), b'quotes " and \\ and \r\n\t\x00'),
            (200, "", (("content-type", "text/plain; charset=iso-8859-1"),), b"\xe9"),
            (200, "", (("content-type", "text/plain"),), b"\xff\xfe"),
            (200, "", (("content-type", "application/json"),), b"null"),
            (200, "", (("content-type", "application/json"),), b'{"a":null,"b":[null,1.0,-0.0,1e5,true],"c":{}}'),
            (200, "", (("content-type", "application/json"),), '{"\u00e9":"\u00fc"}'.encode()),
            (200, "", (("content-type", "application/json"),), b'{"n":12345678901234567890}'),
            (200, "", (("content-type", "application/json"),), b'{"deleted":"\x7f"}'),
            (200, "", (("content-type", "application/json"),), b'{"a":1,"a":2}'),
            (200, "", (("content-type", "application/json"),), b'"\\ud800"'),
            (200, "", (("content-type", "application/json"),), b"{broken"),
            (200, "", (("content-type", "application/problem+json"),), b'{"title":"x"}'),
            (200, "", (("content-type", "image/png"),), bytes(range(256))),
            (200, "", (), b"typeless"),
            (204, "No Content", (), b""),
            (304, "", (("etag", '"1"'),), b""),
            (404, "Not\xe9Found", (("x-a", "1"), ("x-a", "2"), ("set-cookie", "a=1")), b"gone"),
            (500, "", (("gateway-reason", "internal"),), b""),
            (500, "", (("gateway-reason", "cancelled"),), b"x"),
            (403, "", (("gateway-reason", "policy-denied"),), b"x"),
            (202, "", (("gateway-pending", "p1"), ("content-type", "application/json")), b"{}"),
            (99, "", (), b"x"),
            (700, "", (), b"x"),
            (200, "", (("content-type", "application/x-www-form-urlencoded"),), b"a=b&c=%20"),
            (200, "", (("content-type", "text/html"),), b"<p>" + b"x" * 70_000),
            (200, "", (("content-type", "application/json"),), b'"' + b"x" * LONG + b'"'),
        )
    )
}
"""Answers of backends, plain and odd, by the requested URL."""
ANSWERS["/answer/part"] = Response(200, (("content-type", "text/plain"),), b"first", "/answer", part=Part("s1", False))
ANSWERS["/answer/last"] = Response(200, (("content-type", "text/plain"),), b"last", "/answer", part=Part("s1", True))


class EchoExchange:
    """A backend that returns the request; `/slow` never answers, `/big` answers with 100,000 letters."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.held = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.cancels: list[str] = []
        self.callers: list[Caller] = []

    async def run(self, request: Request, caller: Caller, *, wait: float, tell: Tell | None = None) -> Response:
        self.callers.append(caller)
        match request.url:
            case url if url in ANSWERS:
                return ANSWERS[url]
            case "/slow":
                return await self._hang()
            case "/held":
                self.held.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
                return Response(200, (), b"", request.url)
            case "/bug":
                raise ZeroDivisionError
            case "/odd-status":
                return Response(999, (), b"", request.url)
            case "/internal":
                return Response(500, (("gateway-reason", "internal"),), b"", request.url)
            case "/big":
                return Response(200, (("content-type", "text/plain"),), b"x" * 100_000, request.url)
            case _:
                return Response(200, (("content-type", "application/json"),), _echo(request, caller, wait), request.url)

    async def read_on(self, id: str, caller: Caller) -> bytes:
        """Return nothing: a part is whole."""
        return b""

    async def refuse(self, refusal: Refusal, caller: Caller, method: str, url: str) -> Response:
        return problem(refusal, "record-1", url)

    async def send(self, id: str, caller: Caller, number: int, messages: Sequence[str | bytes | CloseRequest]) -> None:
        """Send nothing."""

    async def resume(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response:
        if cancel:
            self.cancels.append(id)
        return Response(202, (("gateway-pending", id), ("content-type", "application/json")), b'{"id":"q"}', "/")

    async def _hang(self) -> Response:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return Response(200)


def _echo(request: Request, caller: Caller, wait: float) -> bytes:
    said = {
        "method": request.method,
        "url": request.url,
        "body": request.body.decode(),
        "nothing": None,
        "initiator": caller.initiator,
        "door": caller.door,
        "wait": wait,
    }
    return json.dumps(said).encode()

"""The tools and resources of one mount and the execution of their calls, independent of the transport."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from gateway.callers.entitlements import Admits, admit_all
from gateway.contract import parse_arguments, result
from gateway.errors import OwnerGone, Reason, Refusal, ViewMoves
from gateway.exchange.approval_step import AS_LONG_AS_IT_IS_OPEN, CALLER_WAIT
from gateway.exchange.sockets import read_messages
from gateway.mcp import own_tools
from gateway.mcp import tools as define
from gateway.mcp.mount_interfaces import Exchange, Forwarder, MountClient, PackedApp, Push, Views
from gateway.mcp.own_tools import read_flag, read_mapping, read_number, read_optional_text, read_text, refuse_others
from gateway.mcp.results import APART, LONG, More, of_page, of_refusal, of_response, of_values
from gateway.model import Caller, Door, Initiator, Json, Principal, Response, ViewTool
from gateway.ports.views import LiveView
from gateway.views.forward import SEVERAL
from gateway.views.initiator import LONGEST_GESTURE

if TYPE_CHECKING:
    from gateway.mcp.elsewhere import Elsewhere, OtherNodes

log = logging.getLogger(__name__)

HTTP_REQUEST: Final = "http_request"

LAUNCH = "webmcp-gateway/launch"
"""The `_meta` key under which the result of `open_<app>` carries the launch value."""

EVENTS_AT: Final = "webmcp-gateway-stream"
"""The header with the address at which the page reads its event stream; no backend can set it."""

EVENT_STREAM: Final = "text/event-stream"

POLL = 20.0
"""Seconds that one `http_stream` call waits."""

MOST_PUSHED = 32
"""Parts pushed for one `http_stream` call before its answer; the view then asks again, if it has read them."""

NO_HEADERS: Mapping[str, Any] = {"type": "object"}
"""Replaces the schemas of the gateway's own tools, which have no `x-mcp-header`: walking them costs 16 µs per call."""

Arguments = Mapping[str, Json]

TOOLS_APART: Final = (HTTP_REQUEST, own_tools.POLL, own_tools.RESULT)
"""Tools that find the node of their view themselves, since the fast path calls them, too."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tool of the gateway and its implementation."""

    tool: types.Tool
    run: Callable[[Arguments, MountClient], Awaitable[types.CallToolResult]]
    app: str | None = None
    """The app that it opens."""

    @property
    def visibility(self) -> frozenset[str]:
        """The permitted callers: `model`, `app`, or both, which is the default in MCP Apps."""
        ui = (self.tool.meta or {}).get("ui", {})
        return frozenset(ui.get("visibility", ("model", "app")))


class Catalog:
    """The offer of one mount: of the app `app`, or of all `apps` if it is None.
    `largest` returns the current limit of a message in bytes. Apps do not exist for callers that they do not admit, by
    `admits`. Calls for live objects of other `nodes` run there.
    """

    def __init__(
        self,
        app: str | None,
        *,
        apps: Mapping[str, PackedApp],
        views: Views,
        forwarder: Forwarder,
        exchange: Exchange,
        storage: own_tools.StorageTool,
        largest: Callable[[], int],
        admits: Admits = admit_all,
        nodes: OtherNodes | None = None,
    ) -> None:
        self._nodes = nodes
        self._app = app
        self._admits = admits
        self._all = apps
        self._views = views
        self._largest = largest
        self._forwarder = forwarder
        self._exchange = exchange
        self._keeping = storage
        self._relay = own_tools.RelayTools(app, views)
        self._apps: Mapping[str, PackedApp] = {}
        self._own: Mapping[str, _Entry] = {}
        self._resources: Mapping[str, PackedApp] = {}
        self.renew()

    def renew(self) -> None:
        """Offer the apps of the new configuration."""
        apps = self._all
        self._apps = {id: apps[id] for id in apps if self._app in (None, id)}
        self._resources = {app.resource.uri: app for app in self._apps.values() if app.opens}
        self._own = {entry.tool.name: entry for entry in self._entries()}

    def list_tools(self, client: MountClient) -> list[types.Tool]:
        """Return the gateway's own tools that `client` may use, and those of its live views."""
        own = [
            entry.tool
            for entry in self._own.values()
            if (client.is_app or "model" in entry.visibility) and self._is_open(entry, client.principal)
        ]
        return own + [define.live_tool(tool) for tool in self._views.tools(client.principal, self._app)]

    def input_schema(self, name: str, principal: Principal) -> Mapping[str, Any] | None:
        """Return the schema in which the SDK looks for `x-mcp-header` at each call; None for an unknown tool."""
        if name in self._own:
            return NO_HEADERS
        live = self._views.tools(principal, self._app)
        return next((define.input_schema(tool) for tool in live if tool.name == name), None)

    def owns(self, name: str) -> bool:
        """Return whether a tool's name is the gateway's own, or reserved for tools of live views."""
        return name in self._own or any(name.startswith(f"{app}_") for app in self._apps)

    def open_to_apps(self, name: str) -> bool:
        """Return whether an app may call the tool `name`; the model's tools, live ones among them, are closed to it."""
        return name in self._own and "app" in self._own[name].visibility

    def tools_for_apps(self) -> list[types.Tool]:
        """Return the tools that apps may call."""
        return [entry.tool for entry in self._own.values() if "app" in entry.visibility]

    async def call_tool(self, name: str, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        """Return the result of a call; refusals are results too.

        Raises `MCPError` for an unknown tool; for a call of another node `ViewMoves`.
        """
        try:
            return await self._call(name, arguments, client)
        except Refusal as refusal:
            if client.forwarded and isinstance(refusal, ViewMoves):
                raise  # the other node sends the call after its view
            return of_refusal(await self._explain(refusal, arguments, client))
        except MCPError:
            raise
        except Exception:  # the contract has a result for this
            log.exception("the call of %s failed", name)
            return of_refusal(Refusal(Reason.INTERNAL, "The gateway failed at this call; its log says why."))

    def list_resources(self, principal: Principal) -> list[types.Resource]:
        """Return the packed apps that the caller may use as resources."""
        mine = (app for app in self._resources.values() if self._admits(principal, app.id))
        return [define.app_resource(app) for app in mine]

    async def read_resource(self, uri: str, principal: Principal) -> types.ReadResourceResult:
        """Return one packed app. Raises `MCPError` for an unknown resource."""
        app = self._resources.get(uri)
        if app is None or not self._admits(principal, app.id):
            raise MCPError(types.INVALID_PARAMS, f"Unknown resource: {uri[:200]}", {"uri": uri[:200]})
        return types.ReadResourceResult(contents=[define.app_contents(app, await app.html())])

    def _entries(self) -> list[_Entry]:
        keeps = any(app.keeps for app in self._apps.values())
        return [
            *([_Entry(own_tools.storage_tool(), self._keep)] if keeps else []),
            *(_Entry(define.open_tool(one), self._open_handler(one), one.id) for one in self._resources.values()),
            _Entry(define.http_request(), self._http_request),
            _Entry(define.http_stream(), self._http_stream),
            _Entry(define.webmcp_send(), self._send),
            _Entry(define.webmcp_attach(), self._attach),
            *(_Entry(tool, self._relaying(tool.name)) for tool in (own_tools.poll_tool(), own_tools.result_tool())),
            _Entry(define.list_view_tools(), self._list_view_tools),
            _Entry(define.call_view_tool(), self._call_view_tool),
        ]

    async def _call(self, name: str, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        entry = self._own.get(name)
        if entry is not None and self._is_open(entry, client.principal):
            if "model" not in entry.visibility and not client.is_app:
                refusal = Refusal(
                    Reason.NOT_AN_APP, f"{name} serves MCP Apps; this client does not declare that it shows them."
                )
                response = await self._exchange.refuse(refusal, self._unknown_caller(client), "", "")
                return await self._answer(response, client, arguments)
            if self._nodes is None or client.forwarded or name in TOOLS_APART:
                return await entry.run(arguments, client)
            find = partial(self._nodes.find, name, arguments, client)
            if name == define.CALL_VIEW_TOOL:
                here = partial(entry.run, arguments, client)
                return await self._nodes.run(find, here, self._app, name, arguments, client)
            if (there := await find()) is not None:
                with suppress(OwnerGone):
                    return await there.result(self._app, name, arguments, client)
            return await entry.run(arguments, client)
        # The tool of a closed view still belongs to the app: the forwarder's refusal explains the remedy.
        if any(name.startswith(f"{app}_") and self._admits(client.principal, app) for app in self._apps):
            run = partial(self._call_page_tool, name, arguments, client)
            if self._nodes is None or client.forwarded:
                return await run()
            return await self._nodes.run(
                partial(self._having_tool, name, client), run, self._app, name, arguments, client
            )
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:128]}")

    async def _call_page_tool(self, name: str, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        """Return the result of a page's tool with the model's name `name`, whose view is here."""
        return of_page(await self._forwarder.call(client.principal, name, arguments, app=self._app, tell=client.tell))

    async def _having_tool(self, name: str, client: MountClient) -> Elsewhere | None:
        """Return the other node with the only view that offers a page's tool; None leaves it to this one.

        Raises `Refusal` if several views of the app are open, and one is at another node; `ViewMoves` if one that has
        offered it moves.
        """
        if self._nodes is None or client.forwarded or client.principal.shared:
            return None
        views = self._views.live(client.principal, self._app)
        offering = [view for view in views if _offers(view, name)]
        if not offering:
            vanished = [view for view in self._views.vanished(client.principal, self._app) if _offers(view, name)]
            await self._nodes.check_stay(vanished, views)
            return None
        there = await self._nodes.having_view(offering[0].id)
        same_app = [view for view in views if view.app == offering[0].app]
        if len(same_app) > 1 and (there is not None or not all(map(self._nodes.has, same_app))):
            raise Refusal(Reason.BAD_REQUEST, SEVERAL)
        return there

    def _is_open(self, entry: _Entry, principal: Principal) -> bool:
        """Return whether the tool exists for a caller."""
        return entry.app is None or self._admits(principal, entry.app)

    def _open_handler(self, app: PackedApp) -> Callable[[Arguments, MountClient], Awaitable[types.CallToolResult]]:
        async def run(arguments: Arguments, client: MountClient) -> types.CallToolResult:
            refuse_others(arguments, "input")
            read_mapping(arguments, "input")
            # A client that shows apps shows this one itself; for another client a host page of the gateway may.
            view_shown = None if client.is_app else self._views.find_shown(client.principal, app.id)
            if view_shown is not None:
                if arguments:  # without arguments an open page needs no call

                    def answer(view: str) -> dict[str, Any]:
                        result = _open_result(app, view, None)
                        return result.model_dump(by_alias=True, mode="json", exclude_none=True)

                    await view_shown.call(arguments, answer)
                return _open_result(app, view_shown.id, None)
            opened = await self._views.open(client.principal, app.id, chosen=bool(arguments))
            if not client.is_app:  # it would only show the launch value to its model
                return _unseen_result(app, opened.view)
            return _open_result(app, opened.view, {LAUNCH: opened.launch.reveal()})

        return run

    async def http_request(self, arguments: Arguments, client: MountClient) -> Response:
        """Return the answer of the tool `http_request` to a client that shows apps; refusals are answers too.

        Raises `Refusal` (`view-moved`).
        """
        if self._nodes is not None:
            try:
                if (there := await self._nodes.find(HTTP_REQUEST, arguments, client)) is not None:
                    return await there.response(self._app, arguments, client)
            except OwnerGone:
                pass  # the view is told to move, as if its node had been gone before
            except Refusal as refusal:
                if refusal.reason is Reason.VIEW_MOVED:
                    raise
                return await self._exchange.refuse(refusal, self._unknown_caller(client), "", "")
        caller = None
        try:
            caller = self._caller(arguments, client, may_move=True)
            upload = {"body": client.upload, "bodyType": "base64"} if client.upload is not None else None
            request = parse_arguments(arguments if upload is None else {**arguments, **upload})
        except Refusal as refusal:
            # A value that is no string names nothing, and not every path reads a large number in it exactly.
            values = (arguments.get(name) for name in ("method", "url"))
            method, url = (value if isinstance(value, str) else "" for value in values)
            refusal = await self._explain(refusal, arguments, client)
            response = await self._exchange.refuse(refusal, caller or self._unknown_caller(client), method, url)
            if (
                refusal.reason is Reason.VIEW_MOVED
            ):  # for the view itself, which repeats the call: no answer for its page
                raise refusal from None
            return response
        if caller.proven:  # the page polls by itself, and its view shows where a person answers
            response = await self._exchange.run(request, caller, wait=0.0)
            return self._relay.noting_calls(response, caller)
        wait = CALLER_WAIT if client.tell is None else AS_LONG_AS_IT_IS_OPEN
        return await self._exchange.run(request, caller, wait=wait, tell=client.tell)

    async def run_relay_tool(self, name: str, arguments: Arguments, client: MountClient) -> dict[str, Json]:
        """Return the result of the relay's poll or result tool. Raises `Refusal`."""
        if self._nodes is not None and (there := await self._nodes.find(name, arguments, client)) is not None:
            with suppress(OwnerGone):
                return await there.values(self._app, name, arguments, client)
        try:
            return await (self._relay.poll if name == own_tools.POLL else self._relay.result)(arguments, client)
        except Refusal as refusal:
            raise await self._explain(refusal, arguments, client) from refusal

    def _relaying(self, name: str) -> Callable[[Arguments, MountClient], Awaitable[types.CallToolResult]]:
        async def run(arguments: Arguments, client: MountClient) -> types.CallToolResult:
            return of_values(await self.run_relay_tool(name, arguments, client))

        return run

    async def _http_request(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        response = await self.http_request(arguments, client)
        answer = await self._answer(response, client, arguments)
        address = self._offer_events(response, client, arguments)
        if address is not None and answer.structured_content is not None:
            answer.structured_content["headers"][EVENTS_AT] = address
        return answer

    def _offer_events(self, response: Response, client: MountClient, arguments: Arguments) -> str | None:
        """Return the address at which the page's event source reads the stream of `response` itself, if it can."""
        part, headers = response.part, arguments.get("headers")
        asks = isinstance(headers, dict) and headers.get("accept") == EVENT_STREAM
        if client.offer is None or part is None or part.last or not asks or arguments.get("_bytes") is not True:
            return None
        if not response.says_by_and_by():
            return None

        async def read(wait: float, /, *, cancel: bool = False) -> Response:
            return await self._exchange.resume(part.stream, self._caller({}, client), wait=wait, cancel=cancel)

        return client.offer(read)

    async def _http_stream(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        try:
            caller = self._caller(arguments, client)
            cancel, id = read_flag(arguments, "cancel"), read_text(arguments, "id")
            response = await self._exchange.resume(id, caller, wait=POLL, cancel=cancel)
            if client.push is not None and arguments.get("_bytes") is True:
                response = await self._push_parts(response, caller, client.push)
        except Refusal as refusal:
            refusal = await self._explain(refusal, arguments, client)
            response = await self._exchange.refuse(refusal, self._unknown_caller(client), "", "")
            if refusal.reason is Reason.VIEW_MOVED:
                raise refusal from None
        return await self._answer(response, client, arguments)

    async def _answer(self, response: Response, client: MountClient, arguments: Arguments) -> types.CallToolResult:
        aside = client.aside if arguments.get("_bytes") is True else None  # a client that reads JSON gets JSON
        more = None if aside is None else self._following(response, client.caller)
        conversion = partial(
            of_response, response, structured_arrives=client.door is Door.BRIDGE, aside=aside, more=more
        )
        return await asyncio.to_thread(conversion) if aside is None and len(response.body) > LONG else conversion()

    def _following(self, response: Response, find_caller: Callable[[bool], Caller] | None) -> More | None:
        """Return a reader of what follows a part of a stream; None for the last part, and for separate events."""
        part = response.part
        if part is None or part.last or find_caller is None or response.says_by_and_by():
            return None

        async def read_on() -> bytes:
            try:
                return await self._exchange.read_on(part.stream, find_caller(False))
            except Refusal:  # the view is gone
                return b""

        return read_on

    async def _send(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        caller = self._caller(arguments, client)
        id, number = read_text(arguments, "id"), read_number(arguments, "number")
        await self._exchange.send(id, caller, number, read_messages(arguments.get("messages")))
        return of_values({"sent": True})

    async def _push_parts(self, response: Response, caller: Caller, push: Push) -> Response:
        """Push small parts; return the answer: the last part, a large or empty one, or the last that may be pushed."""
        for _ in range(MOST_PUSHED):
            if not _is_pushed(response) or response.part is None:
                break
            await push(result(response))
            response = await self._exchange.resume(response.part.stream, caller, wait=POLL)
        return response

    async def _keep(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        caller = self._caller(arguments, client)
        if not self._apps[caller.app].keeps:
            raise Refusal(Reason.BAD_REQUEST, f"The app {caller.app} has no storage on the gateway.")
        return await self._keeping.serve(arguments, caller)

    async def _attach(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        if client.caller is not None:
            raise Refusal(Reason.BAD_REQUEST, "This view needs no proof: its connection is one.")
        launch = read_optional_text(arguments, "launch")
        capabilities, former = read_mapping(arguments, "capabilities"), read_optional_text(arguments, "former")
        attachment = await self._views.attach(client.principal, self._app, launch, capabilities, former)
        return of_values(
            {
                "view": attachment.view,
                "key": attachment.key,
                "proven": attachment.proven,
                "free": list(attachment.free),
                "largest": self._largest(),
            }
        )

    async def _list_view_tools(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        refuse_others(arguments, "view")
        view_id = read_optional_text(arguments, "view")
        views = self._views.reachable(client.principal, self._app)
        if client.principal.shared:  # a holder of a shared token knows only the handles of the views that it opened
            views = [(owner, view) for owner, view in views if view.id == view_id]
        rows: list[Json] = []
        for owner, view in views:
            elsewhere: dict[str, Json] = {} if owner == client.principal else {"client": owner.client}
            rows += [{**_view(view), **elsewhere}] if view_id in (None, view.id) else []
        return of_values({"views": rows})

    async def _call_view_tool(self, arguments: Arguments, client: MountClient) -> types.CallToolResult:
        if "call" in arguments:
            refuse_others(arguments, "call")
            return of_page(await self._forwarder.collect(client.principal, read_text(arguments, "call")))
        refuse_others(arguments, "view", "tool", "arguments")
        view, tool = read_text(arguments, "view"), read_text(arguments, "tool")
        values = read_mapping(arguments, "arguments")
        return of_page(
            await self._forwarder.call(client.principal, tool, values, app=self._app, view=view, tell=client.tell)
        )

    async def _explain(self, refusal: Refusal, arguments: Arguments, client: MountClient) -> Refusal:
        """Return the refusal of a call, which tells a view of an earlier process to attach again."""
        proof = arguments.get("_view")
        if client.caller is not None or not isinstance(proof, str):
            return refusal
        return await self._views.explain(refusal, client.principal, proof)

    def _unknown_caller(self, client: MountClient) -> Caller:
        """Return the caller while no view is proven."""
        return Caller(client.principal, self._app or "", client.door, Initiator.MODEL, "no-view")

    def _caller(self, arguments: Arguments, client: MountClient, *, may_move: bool = False) -> Caller:
        """Return the caller by the connection or the view proof. Raises `Refusal`; `may_move` as in `Views.caller`."""
        reported_model = arguments.get("_initiator") == Initiator.MODEL
        if client.caller is None:
            proof, age = read_optional_text(arguments, "_view"), _gesture_age(arguments)
            return self._views.caller(
                client.principal, self._app, proof, reported_model=reported_model, gesture=age, may_move=may_move
            )
        return client.caller(reported_model)


def _open_result(app: PackedApp, view: str, meta: dict[str, Json] | None) -> types.CallToolResult:
    text = (
        f"{app.title} is open as view {view}. Its tools are listed as {app.id}_… once its page "
        f"has registered them; list_view_tools and call_view_tool reach this one by its handle."
    )
    return of_values({"view": view}, text, meta)


def _unseen_result(app: PackedApp, view: str) -> types.CallToolResult:
    text = (
        f"{app.title} is not shown anywhere: this client declares no support for MCP Apps, and the person has not "
        f"opened it on the gateway's console. Ask them to open it there, or in a client that shows MCP Apps, then "
        f"call open_{app.id} again. Until then view {view} has no page, and no tools."
    )
    return of_values({"view": view}, text, None)


def _is_pushed(response: Response) -> bool:
    """Return whether this part may be sent before the answer: a large one is sent beside it, and delays nothing."""
    part = response.part
    return part is not None and not part.last and 0 < len(response.body) <= APART


def _gesture_age(arguments: Arguments) -> float | None:
    """Return the seconds since the person's gesture, from the view's milliseconds; None unless a valid whole number."""
    age = arguments.get("_gesture")
    return age / 1000 if type(age) is int and 0 <= age <= LONGEST_GESTURE * 1000 else None


def _offers(view: LiveView, name: str) -> bool:
    """Return whether a view offers a tool, by the model's name of it."""
    return any(tool.name == name for tool in view.tools)


def _view(view: LiveView) -> dict[str, Json]:
    tools: list[Json] = [_view_tool(tool) for tool in view.tools]
    return {"view": view.id, "app": view.app, "title": view.title, "opened": view.opened_at, "tools": tools}


def _view_tool(tool: ViewTool) -> dict[str, Json]:
    return {
        "tool": tool.page_name,
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": define.input_schema(tool),
        **({} if (result := define.output_schema(tool)) is None else {"outputSchema": result}),
        "annotations": dict(tool.annotations),
    }

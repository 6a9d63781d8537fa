"""The gateway's end of a view's ui channel: a small JSON-RPC server, and its answers to the view's calls."""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, Self, TypeGuard

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.methods import serialize_server_result
from pydantic import BaseModel

from gateway.bounds import Area, Bound
from gateway.contract import UploadedBody
from gateway.errors import Reason, Refusal
from gateway.mcp import results
from gateway.mcp.catalog import Catalog
from gateway.mcp.mount_interfaces import Forwarder, MountClient, Offer, Push
from gateway.mcp.results import GREETINGS, Aside, greet, version_of
from gateway.mcp.tools import page_tool
from gateway.model import Caller, Door, Json, Principal, ViewTool
from gateway.traces import continue_trace

Params = Mapping[str, Json]

CAPABILITIES = types.ServerCapabilities(
    tools=types.ToolsCapability(),
    resources=types.ResourcesCapability(),
    prompts=types.PromptsCapability(),
    completions=types.CompletionsCapability(),
)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A view that calls.
    `caller` returns it as the connection proves it; its argument is whether the view reports a model, and it raises
    `Refusal` once the view is gone. `notify` sends the view a notification for its call. `upload` is the body of its
    request that came beside the call; `aside` stores that of an answer there, and `offer` puts an event stream at an
    address for its page. `page` is the origin of the host page around it, if that is not the console's.
    """

    caller: Callable[[bool], Caller]
    notify: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    aside: Aside | None = None
    upload: UploadedBody | None = None
    page: str | None = None
    offer: Offer | None = None

    def now(self) -> Caller:
        """Return the caller. Raises `MCPError` for a view that is gone."""
        try:
            return self.caller(False)
        except Refusal as refusal:
            raise MCPError(types.INTERNAL_ERROR, refusal.detail) from refusal


class Show(Protocol):
    """Prepares the document of an app for our host page."""

    def __call__(self, principal: Principal, html: str, ui: Mapping[str, Any], page: str | None, /) -> dict[str, Json]:
        """Return the members of `SHOWN` for a page with this `_meta.ui`, in the host page `page`. Raises `Refusal`."""
        ...


OURS: Final = "webmcp-gateway/"
"""Prefix of the `_meta` keys by which the gateway and its own host page speak to each other."""

SHOWN: Final = f"{OURS}shown"
"""The `_meta` key under which the host page learns how to show an app; no upstream can set it."""


def is_shown(params: Params) -> bool:
    """Return whether our host page reads a resource to show it."""
    meta = params.get("_meta")
    return isinstance(meta, dict) and meta.get(f"{OURS}show") is True


class ViewServer(Protocol):
    """The server side of the views of one app."""

    @property
    def methods(self) -> Collection[str]:
        """The methods that it answers."""
        ...

    async def answer(self, method: str, params: Params, speaker: Speaker) -> BaseModel | dict[str, Any]:
        """Return the result: the gateway's own as a model of the SDK, an upstream's as it came. Raises `MCPError`."""
        ...

    async def follow(self, speaker: Speaker) -> None:
        """Notify the view of changes until it disconnects; cancelled then."""
        ...


class _NoServer:
    """The server for views whose app was removed meanwhile."""

    methods: Collection[str] = frozenset()

    async def answer(self, method: str, params: Params, speaker: Speaker) -> BaseModel | dict[str, Any]:
        """Raise `MCPError`."""
        raise MCPError(types.METHOD_NOT_FOUND, f"Method not found: {method[:128]}")

    async def follow(self, speaker: Speaker) -> None:
        """Return at once."""


NO_SERVER: Final = _NoServer()


async def read_html(server: ViewServer, uri: str, caller: Caller) -> str | None:
    """Return the HTML that `server` gives the views of `caller`; None if it is no text. Raises `Refusal`."""

    async def notify(method: str, params: Mapping[str, Any]) -> None:
        """Drop it: there is no view yet."""

    try:
        result = await server.answer("resources/read", {"uri": uri}, Speaker(lambda _: caller, notify))
    except MCPError as error:
        raise Refusal(Reason.BACKEND_UNAVAILABLE, error.error.message) from error
    contents = result.get("contents") if isinstance(result, dict) else getattr(result, "contents", None)
    first = contents[0] if isinstance(contents, list) and contents else None
    return text_of(first.model_dump() if isinstance(first, BaseModel) else first)


def text_of(content: object) -> str | None:
    """Return the text of a resource, which may be in base64; None if it has none."""
    text, blob = (content.get("text"), content.get("blob")) if isinstance(content, dict) else (None, None)
    if isinstance(blob, str):
        try:
            return base64.b64decode(blob, validate=True).decode("utf-8", "replace")
        except ValueError:
            return None
    return text if isinstance(text, str) else None


class GatewayAnswers:
    """Answers for the views of an app that the gateway packed, from the catalog of its mount."""

    methods: Collection[str] = frozenset(
        (
            *GREETINGS,
            "tools/list",
            "tools/call",
            "resources/list",
            "resources/read",
            "resources/templates/list",
            "prompts/list",
            "prompts/get",
            "completion/complete",
            "ping",
        )
    )

    def __init__(self, catalog: Catalog, show: Show | None = None) -> None:
        self._catalog = catalog
        self._show = show

    async def answer(self, method: str, params: Params, speaker: Speaker) -> BaseModel | dict[str, Any]:
        """Return the result. Raises `MCPError`."""
        principal = speaker.now().principal
        if method.endswith("/list"):
            results.no_further_page(params.get("cursor"))
        match method:
            case "initialize" | "server/discover":
                return greet(method, params, CAPABILITIES)
            case "tools/list":
                return types.ListToolsResult(tools=self._catalog.tools_for_apps())
            case "tools/call":
                return await self._call_tool(params, speaker)
            case "resources/list":
                return types.ListResourcesResult(resources=self._catalog.list_resources(principal))
            case "resources/read":
                result = await self._read_resource(params, principal)
                return result if self._show is None or not is_shown(params) else self._for_host_page(result, speaker)
            case "resources/templates/list":
                return results.templates()
            case "prompts/list":
                return results.prompts()
            case "prompts/get":
                raise results.no_prompt(params.get("name"))
            case "completion/complete":
                ref = params.get("ref")
                raise results.nothing_to_complete(ref if isinstance(ref, dict) else {})
            case _:
                return types.EmptyResult()

    async def follow(self, speaker: Speaker) -> None:
        """Return at once: the gateway's own offer to views does not change."""

    def has(self, tool: object) -> bool:
        """Return whether a tool is one of the gateway's own that views may call."""
        return isinstance(tool, str) and self._catalog.open_to_apps(tool)

    async def _call_tool(self, params: Params, speaker: Speaker) -> BaseModel:
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise MCPError(types.INVALID_PARAMS, "`name` must be a string and `arguments` an object.")
        if not self._catalog.open_to_apps(name):
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {name[:128]!r} for apps.")
        call_meta = params.get("_meta")
        meta = call_meta if isinstance(call_meta, dict) else {}
        client = MountClient(
            speaker.now().principal,
            door=Door.BRIDGE,
            is_app=True,
            caller=speaker.caller,
            upload=speaker.upload,
            aside=speaker.aside,
            push=_pushing(speaker, meta.get("progressToken")),
            offer=speaker.offer,
        )
        with continue_trace(meta):
            return await self._catalog.call_tool(name, arguments, client)

    def _for_host_page(self, result: types.ReadResourceResult, speaker: Speaker) -> BaseModel:
        """Return the app for our host page: its document is at its own origin, and not in the result."""
        page = result.contents[0]
        if self._show is None or not isinstance(page, types.TextResourceContents):
            return result
        ui = (page.meta or {}).get("ui") or {}
        try:
            page_shown = self._show(speaker.now().principal, page.text, ui, speaker.page)
        except Refusal as refusal:
            raise MCPError(BUSY, refusal.detail) from refusal
        contents = page.model_copy(update={"text": ""})
        return types.ReadResourceResult(contents=[contents], _meta={SHOWN: {**page_shown, "ui": dict(ui)}})

    async def _read_resource(self, params: Params, principal: Principal) -> types.ReadResourceResult:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise MCPError(types.INVALID_PARAMS, "`uri` must be a string.")
        return await self._catalog.read_resource(uri, principal)


PART = "webmcp-gateway/part"
"""The `_meta` key of a progress notification under which a part of a stream is pushed."""


def _pushing(speaker: Speaker, token: Json) -> Push | None:
    """Return a function that sends parts as progress of the call (MCP 2025-11-25, Progress); None without a token."""
    if not isinstance(token, str | int) or isinstance(token, bool):
        return None
    count = itertools.count(1)

    async def push(part: dict[str, Json]) -> None:
        meta: dict[str, Json] = {PART: part}
        await speaker.notify("notifications/progress", {"progressToken": token, "progress": next(count), "_meta": meta})

    return push


log = logging.getLogger(__name__)

MAX_CALLS = 64
"""Calls of one view in flight."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "concurrent calls of a view over the bridge",
        f"{MAX_CALLS} per view",
        "`-32000 busy`",
    ),
)

(_CALLS,) = BOUNDS

BUSY = -32000
"""The JSON-RPC error code for calls beyond the limit."""

Message = Mapping[str, Json]
Id = str | int


class Send(Protocol):
    """Sends a message to a view; `own` marks an answer in the gateway's own words.
    `leaving` is called when the message leaves: until then it may be cancelled without a trace.
    """

    async def __call__(
        self, message: dict[str, Any], /, *, own: bool = False, leaving: Callable[[], object] = lambda: None
    ) -> None: ...


PAGE: Final = f"{OURS}page"
"""The `_meta` key by which a host page, and no app, asks for the tools of the page of its view."""


class PageTools:
    """The answers to a view, and to the host page around it about the tools of its page.

    Such a call of a tool is the model's: it passes the policy of the app's tools, and taints the view.
    """

    def __init__(
        self, answers: ViewServer, forwarder: Forwarder, tools: Callable[[], Awaitable[Sequence[ViewTool]]]
    ) -> None:
        self._answers = answers
        self._forwarder = forwarder
        self._tools = tools
        self.methods = answers.methods

    async def answer(self, method: str, params: Params, speaker: Speaker) -> BaseModel | dict[str, Any]:
        """Return the result. Raises `MCPError`."""
        meta = params.get("_meta")
        if not isinstance(meta, dict) or meta.get(PAGE) is not True:
            return await self._answers.answer(method, params, speaker)
        caller = speaker.now()
        if method == "tools/list":
            return types.ListToolsResult(tools=[page_tool(tool) for tool in await self._tools()])
        name, arguments = params.get("name"), params.get("arguments", {})
        if method != "tools/call" or not isinstance(name, str) or not isinstance(arguments, dict):
            raise MCPError(types.INVALID_PARAMS, "A page has tools: `name` is a string, `arguments` is an object.")
        with continue_trace(meta):
            try:
                result = await self._forwarder.call(
                    caller.principal, name, arguments, app=caller.app, view=caller.view, door=Door.BRIDGE
                )
            except Refusal as refusal:  # the view moves to another process
                return results.of_refusal(refusal)
        return results.of_page(result)

    async def follow(self, speaker: Speaker) -> None:
        """Notify the view of changes until it disconnects; cancelled then."""
        await self._answers.follow(speaker)


@dataclass(slots=True, eq=False)
class Beside:
    """The body that came beside a message, and the callback that releases it."""

    upload: UploadedBody
    release: Callable[[], None]
    taken: bool = False


class UiPeer:
    """Answers the requests of a view. `answers` are those of the view's app.

    `caller` returns the view as the connection proves it; its argument is whether the view reports a model, and it
    raises `Refusal` once the view is gone. `send` sends answers and notifications of calls; `aside` stores the bytes of
    an answer beside it, and `turn` is awaited before each call. `owner` is the view's principal, `page` and `offer`
    are as in `Speaker`.
    An async context manager: leaving it cancels the calls in flight.
    """

    def __init__(
        self,
        answers: ViewServer,
        caller: Callable[[bool], Caller],
        send: Send,
        aside: Aside | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
        owner: str | None = None,
        page: str | None = None,
        offer: Offer | None = None,
    ) -> None:
        self._answers = answers
        self._owner = owner
        self._turn = turn
        self._speaker = Speaker(caller, self._notify, aside, page=page, offer=offer)
        self._send = send
        self._tasks = asyncio.TaskGroup()
        self._running: set[asyncio.Task[None]] = set()
        self._calls: dict[Id, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._following = self._tasks.create_task(self._follow())
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self.cancel_all()
        if self._following is not None:
            self._following.cancel()
        await self._tasks.__aexit__(*exc)

    async def _follow(self) -> None:
        try:
            await self._answers.follow(self._speaker)
        except (MCPError, Refusal) as error:
            log.info("a view cannot be notified of changes: %s", error)

    def cancel_all(self) -> None:
        """Cancel every call in flight; none of them is answered."""
        for task in list(self._running):
            task.cancel()

    async def receive(self, message: Message, beside: Beside | None = None) -> None:
        """Process one message of the view, with the body that came beside it. Invalid messages never raise."""
        try:
            await self._receive(message, beside)
        finally:
            if beside is not None and not beside.taken:
                beside.release()

    async def _receive(self, message: Message, beside: Beside | None) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None and ("result" in message or "error" in message):
            return  # the gateway sends no requests on this channel, so no response is expected
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
            await self._fail(None, types.INVALID_REQUEST, "This is not a JSON-RPC 2.0 request.")
        elif "id" not in message:
            self._take_notification(method, params)
        elif not _is_id(id):
            await self._fail(None, types.INVALID_REQUEST, "An id must be a string or an integer.")
        elif not isinstance(params, dict):
            await self._fail(id, types.INVALID_PARAMS, "`params` must be an object.")
        else:
            await self._request(id, method, params, beside)

    async def _request(self, id: Id, method: str, params: Message, beside: Beside | None) -> None:
        if id in self._calls:
            await self._fail(id, types.INVALID_REQUEST, "A call with this id is in flight.")
        elif method not in self._answers.methods:
            await self._fail(id, types.METHOD_NOT_FOUND, f"Method not found: {method[:128]}")
        elif len(self._running) >= MAX_CALLS:
            _CALLS.report(self._owner)
            await self._fail(id, BUSY, "busy")
        else:
            task = self._tasks.create_task(self._answer(id, method, params, beside))
            self._calls[id] = task
            self._running.add(task)
            task.add_done_callback(lambda task: self._forget_task(id, task))
            if beside is not None:
                beside.taken = True
                task.add_done_callback(lambda _: beside.release())

    def _forget_task(self, id: Id, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if self._calls.get(id) is task:
            del self._calls[id]

    def _take_notification(self, method: str, params: Json) -> None:
        if method == "notifications/cancelled" and isinstance(params, dict):
            id = params.get("requestId")
            task = self._calls.pop(id, None) if _is_id(id) else None
            if task is not None:
                task.cancel()

    async def _answer(self, id: Id, method: str, params: Message, beside: Beside | None) -> None:
        if self._turn is not None:
            await self._turn()
        speaker = self._speaker if beside is None else replace(self._speaker, upload=beside.upload)
        outcome, own = await _outcome(method, version_of(params), self._answers.answer(method, params, speaker))
        # At the latest now, since the view may use the id again from then on.
        await self._deliver({"jsonrpc": "2.0", "id": id, **outcome}, own=own, leaving=lambda: self._calls.pop(id, None))

    async def _fail(self, id: Id | None, code: int, message: str) -> None:
        await self._deliver({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})

    async def _notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._deliver({"jsonrpc": "2.0", "method": method, "params": dict(params)})

    async def _deliver(
        self, message: dict[str, Any], *, own: bool = False, leaving: Callable[[], object] = lambda: None
    ) -> None:
        with suppress(ConnectionError):  # the view disconnected
            await self._send(message, own=own, leaving=leaving)


async def _outcome(
    method: str, version: str, answering: Awaitable[BaseModel | dict[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Return the `result` or the `error` of a call, in this version, and whether it is the gateway's own."""
    try:
        result = await answering
        if isinstance(result, dict):
            return {"result": result}, False
        content = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            return {"result": serialize_server_result(method, version, content)}, True
        except KeyError:
            raise MCPError(types.METHOD_NOT_FOUND, f"There is no {method} in protocol {version}.") from None
    except MCPError as error:
        return {"error": {"code": error.error.code, "message": error.error.message}}, False
    except Exception:  # one call must not end the others of its view
        log.exception("%s of a view failed", method)
        message = "The gateway failed at this call; its log says why."
        return {"error": {"code": types.INTERNAL_ERROR, "message": message}}, False


def _is_id(value: Json) -> TypeGuard[Id]:
    return isinstance(value, str | int) and not isinstance(value, bool)

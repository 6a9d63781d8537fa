"""The answers to the views of an upstream's app: the upstream's own, under its policy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_client_request
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import BaseModel, ValidationError

from gateway.config import UpstreamApp
from gateway.errors import Refusal
from gateway.mcp.results import GREETINGS, greet, version_of
from gateway.mcp.tools import APP_MIME_TYPE, UI_EXTENSION
from gateway.mcp.upstreams.calls.client import UpstreamClient, modern_result
from gateway.mcp.upstreams.catalog.listing import ui_of, visibility
from gateway.mcp.upstreams.changes.feed import KINDS, ChangeListener
from gateway.mcp.upstreams.changes.following import News
from gateway.mcp.upstreams.mount import Proxy, as_error
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.mcp.view_server import BUSY, OURS, SHOWN, GatewayAnswers, Params, Show, Speaker, is_shown, text_of
from gateway.model import Principal
from gateway.traces import continue_trace

CAPABILITIES: Mapping[str, Any] = {"extensions": {UI_EXTENSION: {"mimeTypes": [APP_MIME_TYPE]}}}

FORWARDED = (
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "prompts/get",
    "completion/complete",
)


class _View(UpstreamClient, frozen=True):
    """A view as client of an upstream."""

    speaker: Speaker | None = None

    async def tell(self, method: str, params: Message) -> None:
        logged = method == "notifications/message" and self.hears(params.get("level"))
        if self.speaker is not None and (logged or method == "notifications/progress"):
            await self.speaker.notify(method, params)


def _client(speaker: Speaker, meta: object = None) -> _View:
    """Return the view as a client, with the log level in the `_meta` of its request."""
    caller = speaker.now()
    level = meta.get(types.LOG_LEVEL_META_KEY) if isinstance(meta, dict) else None
    return _View(
        principal=caller.principal,
        who=f"view {caller.view}",
        version=LATEST_HANDSHAKE_VERSION,
        capabilities=CAPABILITIES,
        level=level if isinstance(level, str) else None,
        is_app=True,
        caller=caller,
        speaker=speaker,
    )


class UpstreamAnswers:
    """Answers the views of the app `source`. `proxies` returns the current upstreams.
    `own` are the gateway's tools, for pages that have its view runtime, if the app has an entry with a policy of its
    own. `sandbox` makes the signed address under which a page with this `_meta.ui` is shown by the host page at an
    origin, None for the console; `show`, if it is there, puts the page at an origin of its own.
    """

    methods: Collection[str] = frozenset((*GREETINGS, *FORWARDED, "tools/list", "tools/call", "resources/read", "ping"))

    def __init__(
        self,
        source: UpstreamApp,
        *,
        proxies: Callable[[], Mapping[str, Proxy]],
        own: GatewayAnswers | None,
        sandbox: Callable[[Mapping[str, Any], str | None], str],
        show: Show | None = None,
    ) -> None:
        self._source = source
        self._proxies = proxies
        self._own = own
        self._sandbox = sandbox
        self._show = show

    async def answer(self, method: str, params: Params, speaker: Speaker) -> BaseModel | dict[str, Any]:
        """Return the upstream's result. Raises `MCPError`."""
        proxy = self._proxies().get(self._source.upstream)
        if proxy is None:
            raise MCPError(types.INTERNAL_ERROR, f"There is no upstream {self._source.upstream} any more.")
        if method == "ping":
            return types.EmptyResult()
        ours = self._own if proxy.upstream.spec.runtime and method == "tools/call" else None
        if ours is not None and ours.has(params.get("name")):
            return await ours.answer(method, params, speaker)
        try:
            validate_client_request(method, version_of(params), dict(params))
        except ValidationError as error:
            place = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
            field = ".".join(str(part) for part in place if part != "params")[:128]
            raise MCPError(types.INVALID_PARAMS, f"{method}: `{field or 'params'}` is missing or wrong.") from error
        meta = params.get("_meta")
        try:
            with continue_trace(meta if isinstance(meta, dict) else None):
                if method in GREETINGS:
                    return await _greet(proxy, method, params, speaker)
                result = await self._ask(proxy, method, dict(params), speaker)
                return result if version_of(params) == LATEST_HANDSHAKE_VERSION else modern_result(method, result)
        except Refusal as refusal:
            raise as_error(refusal) from refusal

    async def follow(self, speaker: Speaker) -> None:
        """Notify the view when the lists of its upstream change, also after a replacement of that upstream."""
        news = News()
        while True:
            proxy = self._proxies().get(self._source.upstream)
            if proxy is None or proxy.upstream.closed:
                return  # the app ends with its upstream or with the gateway
            follower = ChangeListener(news.tell)
            joined_link = proxy.upstream.link(_client(speaker))
            joined_link.feed.add(follower)
            try:
                if (session := joined_link.link.now) is not None:
                    await joined_link.feed.listen(session)
                while not proxy.upstream.closed:
                    method, _ = await news.get()
                    if method in KINDS.values():
                        await speaker.notify(method, {})
            finally:
                proxy.upstream.spawn(joined_link.feed.remove(joined_link.link, follower))

    async def _ask(self, proxy: Proxy, method: str, params: Message, speaker: Speaker) -> Message:
        client = _client(speaker, params.get("_meta"))
        match method:
            case "tools/list":
                result = _theirs(await proxy.list_tools(client, params))
                return {**result, "tools": [tool for tool in result["tools"] if "app" in visibility(tool)]}
            case "tools/call":
                return _theirs(await proxy.call_tool(client, params))
            case "resources/read":
                result = _theirs(await proxy.read_resource(client, params))
                if params.get("uri") != self._source.resource:
                    return result
                ours = speaker.now().principal if self._show is not None and is_shown(params) else None
                return await self._with_display(proxy, client, result, ours, speaker.page)
            case _:
                return _theirs(await proxy.relay.forward(client, method, params))

    async def _with_display(
        self, proxy: Proxy, client: UpstreamClient, result: Message, principal: Principal | None, page: str | None
    ) -> Message:
        """Return the app with its display settings, which are declared with its content, or else in the list.

        For a `principal`, its document is at an origin of its own.
        """
        contents = result.get("contents")
        first = contents[0] if isinstance(contents, list) and contents else None
        ui = ui_of(first if isinstance(first, dict) else None)
        if not ui:
            resources = await _list_resources(proxy, client)
            ui = ui_of(next((one for one in resources if one.get("uri") == self._source.resource), None))
        meta_shown: Message = {"sandbox": self._sandbox(ui, page), "ui": dict(ui)}
        html = text_of(first) if principal is not None else None
        if self._show is not None and principal is not None and isinstance(first, dict) and html is not None:
            try:
                meta_shown |= self._show(principal, html, ui, page)
            except Refusal as refusal:
                raise MCPError(BUSY, refusal.detail) from refusal
            whole = {key: value for key, value in first.items() if key != "blob"} | {"text": ""}
            result = {**result, "contents": [whole]}
        if self._source.tool is not None:
            meta_shown["tool"] = self._source.tool
        meta = result.get("_meta")
        return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), SHOWN: meta_shown}}


async def _list_resources(proxy: Proxy, client: UpstreamClient) -> list[Message]:
    """Return the resources that an upstream lists; none if it lists none, as of templates only."""
    try:
        return await proxy.pages(client, "resources/list")
    except MCPError as error:
        if error.error.code != types.METHOD_NOT_FOUND:
            raise
        return []


def _theirs(result: Message) -> Message:
    """Return an upstream's result without `_meta` keys that the host page would attribute to the gateway."""
    meta = result.get("_meta")
    if not isinstance(meta, dict):
        return result
    return {**result, "_meta": {key: value for key, value in meta.items() if not key.startswith(OURS)}}


async def _greet(proxy: Proxy, method: str, params: Params, speaker: Speaker) -> BaseModel:
    """Return the upstream's capabilities for views, with its own instructions."""
    _, session = await proxy.upstream.session(_client(speaker))
    terms = session.terms
    capabilities = types.ServerCapabilities(
        tools=types.ToolsCapability(list_changed=True) if terms.can("tools") else None,
        resources=types.ResourcesCapability(list_changed=True) if terms.can("resources") else None,
        prompts=types.PromptsCapability(list_changed=True) if terms.can("prompts") else None,
        completions=types.CompletionsCapability() if terms.can("completions") else None,
    )
    return greet(method, params, capabilities, terms.instructions)

"""The answers to the calls of a view on its ui channel, from the gateway's own catalog or from an upstream."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from gateway.contract import Handed
from gateway.errors import Refusal
from gateway.mcp import standard_answers
from gateway.mcp.catalog import Catalog
from gateway.mcp.ports import MountClient, Push
from gateway.mcp.results import Aside
from gateway.mcp.standard_answers import GREETINGS, greeted
from gateway.model import Caller, Door, Json
from gateway.traces import arriving

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
    `Refusal` once the view is gone. `notify` sends the view a notification for its call. `handed` is the body of its
    request that came beside the call; `aside` stores that of an answer there.
    """

    caller: Callable[[bool], Caller]
    notify: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    aside: Aside | None = None
    handed: Handed | None = None

    def now(self) -> Caller:
        """Return the caller. Raises `MCPError` for a view that is gone."""
        try:
            return self.caller(False)
        except Refusal as refusal:
            raise MCPError(types.INTERNAL_ERROR, refusal.detail) from refusal


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


class OwnAnswers:
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

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def answer(self, method: str, params: Params, speaker: Speaker) -> BaseModel | dict[str, Any]:
        """Return the result. Raises `MCPError`."""
        if method.endswith("/list"):
            standard_answers.no_further_page(params.get("cursor"))
        match method:
            case "initialize" | "server/discover":
                return greeted(method, params, CAPABILITIES)
            case "tools/list":
                return types.ListToolsResult(tools=self._catalog.tools_for_apps())
            case "tools/call":
                return await self._call_tool(params, speaker)
            case "resources/list":
                return types.ListResourcesResult(resources=self._catalog.list_resources())
            case "resources/read":
                return await self._read_resource(params)
            case "resources/templates/list":
                return standard_answers.templates()
            case "prompts/list":
                return standard_answers.prompts()
            case "prompts/get":
                raise standard_answers.no_prompt(params.get("name"))
            case "completion/complete":
                ref = params.get("ref")
                raise standard_answers.nothing_to_complete(ref if isinstance(ref, dict) else {})
            case _:
                return types.EmptyResult()

    async def follow(self, speaker: Speaker) -> None:
        """Return at once: the gateway's own offer to views does not change."""

    def has(self, tool: object) -> bool:
        """Whether a tool is one of the gateway's own that views may call."""
        return isinstance(tool, str) and self._catalog.open_to_apps(tool)

    async def _call_tool(self, params: Params, speaker: Speaker) -> BaseModel:
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise MCPError(types.INVALID_PARAMS, "`name` must be a string and `arguments` an object.")
        if not self._catalog.open_to_apps(name):
            raise MCPError(types.INVALID_PARAMS, f"There is no tool {name[:128]!r} for apps.")
        given = params.get("_meta")
        meta = given if isinstance(given, dict) else {}
        client = MountClient(
            speaker.now().principal,
            door=Door.BRIDGE,
            is_app=True,
            caller=speaker.caller,
            handed=speaker.handed,
            aside=speaker.aside,
            push=_pushing(speaker, meta.get("progressToken")),
        )
        with arriving(meta):
            return await self._catalog.call_tool(name, arguments, client)

    async def _read_resource(self, params: Params) -> BaseModel:
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise MCPError(types.INVALID_PARAMS, "`uri` must be a string.")
        return await self._catalog.read_resource(uri)


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

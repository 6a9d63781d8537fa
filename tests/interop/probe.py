"""A server whose tools return what reached them, and wait until they are released."""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any

import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged, ResourceUpdated

CURSOR = "odd \u00e9/+="
"""The cursor of the second page of its resources."""

TOOLS = ("plain", "hold", "visit", "ask", "tells", "meta", "held", "gave_up")

Context = ServerRequestContext[Any, Any]
Result = types.CallToolResult | types.InputRequiredResult


def text_result(text: str) -> types.CallToolResult:
    """Return a result of one text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def text(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


class Probe:
    """The server. `held` is set while a call of `hold` waits, `given_up` once one was cancelled.

    `seen` are the params of the calls that arrived at `tools/call`, with the header fields of their requests.
    """

    def __init__(self, name: str = "probe") -> None:
        self.name = name
        self.held, self.go, self.given_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.seen: list[dict[str, Any]] = []
        self.bus = InMemorySubscriptionBus()
        self.sessions: list[Any] = []
        self.description = "Does it."
        self.server = Server[Any](
            name,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=ListenHandler(self.bus),
            on_completion=self._complete,
        )
        self.server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, self._set_level)

    @property
    def uri(self) -> str:
        """The URI of its one resource."""
        return f"{self.name}://doc"

    async def updated(self) -> None:
        """Notify subscribers of the resource that it changed."""
        await self.bus.publish(ResourceUpdated(self.uri))
        for session in self.sessions:
            await session.send_resource_updated(self.uri)

    async def listed_anew(self) -> None:
        """Notify listeners that the list of resources changed."""
        await self.bus.publish(ResourcesListChanged())

    async def _list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        schema = {"type": "object"}
        tools = [types.Tool(name=name, description=self.description, input_schema=schema) for name in TOOLS]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Result:
        headers = dict(context.request.headers) if context.request is not None else {}
        self.seen.append({"name": params.name, "meta": dict(context.meta or {}), "headers": headers})
        match params.name:
            case "hold":
                return await self._hold()
            case "visit":
                return await self._visit(context, params)
            case "tells":
                return await self._tells(context)
            case "meta":
                return text_result(json.dumps(self.seen[-1]["meta"]))
            case "held":
                await self.held.wait()
                return text_result("held")
            case "gave_up":
                await self.given_up.wait()
                return text_result("gave up")
            case _:
                return text_result(f"{params.name} of {self.name}: {json.dumps(params.arguments)}")

    async def _tells(self, context: Context) -> Result:
        """Report progress, and log."""
        for done in (1, 2):
            await context.session.report_progress(done, 2, f"step {done}")
        with warnings.catch_warnings(action="ignore"):  # the SDK warns that logging is deprecated
            await context.session.send_log_message("info", "told", related_request_id=context.request_id)
        return text_result("told")

    async def _hold(self) -> types.CallToolResult:
        self.held.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.given_up.set()
            raise
        return text_result("went on")

    async def _visit(self, context: Context, params: types.CallToolRequestParams) -> Result:
        """Send the person to a page, in the way of the era."""
        url = "https://pages.example/visit?id=1"
        if not context.protocol_version.startswith("2026"):
            answer = await context.session.elicit_url("Go there", url, "visit-1", context.request_id)
            await context.session.send_elicit_complete("visit-1", context.request_id)
            return text_result(f"visit {answer.action}")
        found = (params.input_responses or {}).get("visit")
        if isinstance(found, types.ElicitResult):
            return text_result(f"visit {found.action}")
        asked = types.ElicitRequestURLParams(message="Go there", url=url, elicitation_id="visit-1")
        return types.InputRequiredResult(input_requests={"visit": types.ElicitRequest(params=asked)}, request_state="s")

    async def _list_resources(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        if params is not None and params.cursor == CURSOR:
            return types.ListResourcesResult(resources=[types.Resource(uri=f"{self.name}://second", name="second")])
        return types.ListResourcesResult(resources=[types.Resource(uri=self.uri, name=self.name)], next_cursor=CURSOR)

    async def _read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=self.name)])

    async def _complete(self, _: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[f"{params.argument.value}ris"]))

    async def _set_level(self, _: Context, __: types.SetLevelRequestParams) -> types.EmptyResult:
        return types.EmptyResult()

    async def _subscribe(self, context: Context, _: types.SubscribeRequestParams) -> types.EmptyResult:
        self.sessions.append(context.session)
        return types.EmptyResult()

    async def _unsubscribe(self, _: Context, __: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self.sessions.clear()
        return types.EmptyResult()


if __name__ == "__main__":
    import anyio

    from tests.interop.standard_streams import on_standard_streams

    anyio.run(on_standard_streams, Probe().server)

"""Clients and upstreams of either era: every request reaches the other side, and its answer comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import FileUrl

from gateway.mcp.upstreams.calls import relay
from tests.interop.everything import Everything
from tests.interop.everything_tools import SCHEMA_2020_12
from tests.interop.serving import gateway, over_http, over_websocket

MODES = ["legacy", "2026-07-28"]
Context = ServerRequestContext[Any, Any]


async def elicit(_: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Answer as a person called Ada."""
    return types.ElicitResult(action="accept", content={"name": "Ada", "username": "ada", "email": "a@b.example"})


async def sample(_: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    """Answer as a model: Paris."""
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def roots(_: ClientRequestContext) -> types.ListRootsResult:
    """Return one root."""
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///home"))])


WAYS = pytest.mark.parametrize("way", ["url", "websocket"])
"""A connection for each request, and one for all of them, as processes also have."""


@asynccontextmanager
async def paired(
    folder: Path, client_era: str, upstream_era: str, way: str, **options: Any
) -> AsyncIterator[tuple[Client, Everything]]:
    """Yield a client of one era in front of a gateway and an upstream of another, which refuses the client's era."""
    everything = Everything()
    over = over_http if way == "url" else over_websocket
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(over(everything.server, only=upstream_era))
        mcp = await stack.enter_async_context(gateway(folder, f'up: {{{way}: "{url}", network: private}}'))
        callbacks = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
        client = Client(f"{mcp}/up", mode=client_era, **callbacks, **options)  # type: ignore[arg-type]  # by name
        yield await stack.enter_async_context(client), everything


def text(result: types.CallToolResult) -> str:
    """Return the text of a result."""
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


@WAYS
@pytest.mark.parametrize("upstream", MODES)
@pytest.mark.parametrize("client", MODES)
async def test_lists_and_reads(tmp_path: Path, client: str, upstream: str, way: str) -> None:
    """Tools with every keyword of their schemas, resources, templates, prompts and completions."""
    async with paired(tmp_path, client, upstream, way) as (one, _):
        tools = {tool.name: tool for tool in (await one.list_tools()).tools}
        assert tools["json_schema_2020_12_tool"].input_schema == SCHEMA_2020_12
        assert text(await one.call_tool("test_simple_text")) == "This is a simple text response for testing."
        assert (await one.call_tool("test_error_handling")).is_error
        assert text(await one.call_tool("test_x_mcp_header", {"region": "eu"})) == "region=eu"
        assert {str(r.uri) for r in (await one.list_resources()).resources} >= {"test://static-text"}
        assert (await one.list_resource_templates()).resource_templates[0].uri_template == "test://template/{id}/data"
        read = (await one.read_resource("test://template/7/data")).contents[0]
        assert isinstance(read, types.TextResourceContents)
        assert '"id": "7"' in read.text
        assert len((await one.list_prompts()).prompts) == 5
        assert (await one.get_prompt("test_simple_prompt")).messages[0].content.type == "text"
        reference = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        completed = await one.complete(reference, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]


@WAYS
@pytest.mark.parametrize("client", MODES)
async def test_a_legacy_upstream_asks_clients_of_both_eras(tmp_path: Path, client: str, way: str) -> None:
    """Elicitation and sampling of the handshake era."""
    async with paired(tmp_path, client, "legacy", way) as (one, _):
        asked = await one.call_tool("test_elicitation", {"message": "Who?"})
        assert "action=accept" in text(asked)
        assert '"username": "ada"' in text(asked)
        assert text(await one.call_tool("test_sampling", {"prompt": "Capital?"})) == "LLM response: Paris"


class Curious:
    """A server that sends a request at each list and completion, and in a tool, while a list is under way."""

    def __init__(self) -> None:
        self.listing, self.answered = asyncio.Event(), asyncio.Event()
        self.server = Server[Any](
            "curious",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_completion=self._complete,
        )

    async def _asked(self, context: Context) -> str:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        try:
            answer = await context.session.elicit_form("Who?", schema, context.request_id)
        except MCPError as error:
            return error.error.message
        return f"{(answer.content or {})['name']}"

    async def _list_tools(self, context: Context, _: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        tool = types.Tool(name="ask", description=await self._asked(context), input_schema={"type": "object"})
        return types.ListToolsResult(tools=[tool])

    async def _call_tool(self, context: Context, _: types.CallToolRequestParams) -> types.CallToolResult:
        await self.listing.wait()
        said = types.TextContent(type="text", text=await self._asked(context))
        self.answered.set()
        return types.CallToolResult(content=[said])

    async def _list_resources(self, _: Context, __: Any) -> types.ListResourcesResult:
        self.listing.set()
        await self.answered.wait()
        return types.ListResourcesResult(resources=[])

    async def _complete(self, context: Context, _: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[await self._asked(context)]))


@WAYS
@pytest.mark.parametrize("mount", ["", "/up"])
async def test_only_what_can_be_asked_anew_asks_a_modern_client(tmp_path: Path, mount: str, way: str) -> None:
    """A request during a list is refused at once; one in a call beside a list goes to the call's client."""
    curious = Curious()
    over = over_http if way == "url" else over_websocket
    async with (
        over(curious.server, only="legacy") as url,
        gateway(tmp_path, f'up: {{{way}: "{url}", network: private, prefix: null}}') as mcp,
        Client(f"{mcp}{mount}", elicitation_callback=elicit, cache=None) as one,  # type: ignore[arg-type]  # by name
        asyncio.timeout(60),
    ):
        [tool] = [tool for tool in (await one.list_tools()).tools if tool.name == "ask"]
        assert tool.description in (
            "This client does not support elicitation/create.",
            "No client is known for this request.",
        )
        if mount:
            ref = types.PromptReference(name="p")
            [value] = (await one.complete(ref, {"name": "a", "value": "b"})).completion.values
            assert "does not support elicitation/create" in value
        calling = asyncio.ensure_future(one.call_tool("ask"))
        await one.list_resources()
        assert text(await calling) == "Ada"


@pytest.mark.bound("calls suspended for an upstream's question to the client")
async def test_too_many_calls_wait_for_a_client_to_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is an error; an answered one frees its place."""
    monkeypatch.setattr(relay, "MAX_PARKED", 2)
    async with paired(tmp_path, "2026-07-28", "legacy", "url") as (one, _):

        async def begun() -> types.CallToolResult | types.InputRequiredResult:
            return await one.session.call_tool("test_elicitation", {"message": "Who?"}, allow_input_required=True)

        first, second = await begun(), await begun()
        assert isinstance(first, types.InputRequiredResult)
        assert isinstance(second, types.InputRequiredResult)
        with pytest.raises(MCPError, match="Too many calls wait for an answer of this client already"):
            await begun()
        answers: dict[str, Any] = {
            id: types.ElicitResult(action="accept", content={"username": "ada", "email": "a@b.example"})
            for id in first.input_requests or {}
        }
        done = await one.session.call_tool(
            "test_elicitation",
            {"message": "Who?"},
            input_responses=answers,
            request_state=first.request_state,
            allow_input_required=True,
        )
        assert isinstance(done, types.CallToolResult)
        assert "action=accept" in text(done)
        assert isinstance(await begun(), types.InputRequiredResult)


@WAYS
@pytest.mark.parametrize("client", MODES)
async def test_a_modern_upstream_asks_clients_of_both_eras(tmp_path: Path, client: str, way: str) -> None:
    """Elicitation, sampling and roots as rounds of one call."""
    async with paired(tmp_path, client, "2026-07-28", way) as (one, _):
        assert text(await one.call_tool("test_input_required_result_elicitation")) == "Hello, Ada!"
        assert text(await one.call_tool("test_input_required_result_sampling")) == "Paris"
        assert text(await one.call_tool("test_input_required_result_list_roots")) == "1 roots"
        assert text(await one.call_tool("test_input_required_result_multiple_inputs")) == "All inputs received."
        prompt = await one.get_prompt("test_input_required_result_prompt")
        assert prompt.messages[0].content.type == "text"


@WAYS
@pytest.mark.parametrize("upstream", MODES)
@pytest.mark.parametrize("client", MODES)
async def test_progress_arrives_in_order_before_the_answer(
    tmp_path: Path, client: str, upstream: str, way: str
) -> None:
    """A call's progress goes to its own client."""
    seen: list[float] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with paired(tmp_path, client, upstream, way) as (one, _):
        await one.call_tool("test_tool_with_progress", progress_callback=heard)
    assert seen == [0, 50, 100]


@WAYS
@pytest.mark.parametrize("upstream", MODES)
@pytest.mark.parametrize("client", MODES)
async def test_log_messages_reach_who_wants_them(tmp_path: Path, client: str, upstream: str, way: str) -> None:
    """A client receives a tool's log messages if it requested them."""
    heard: list[Any] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.data)

    async with paired(tmp_path, client, upstream, way, logging_callback=log, log_level="info") as (one, _):
        if client == "legacy":
            await one.session.send_request(
                types.SetLevelRequest(params=types.SetLevelRequestParams(level="info")), types.EmptyResult
            )
        await one.call_tool("test_logging_tool")
    assert heard == ["Logged"]


@WAYS
@pytest.mark.parametrize("upstream", MODES)
async def test_a_modern_client_hears_of_changes(tmp_path: Path, upstream: str, way: str) -> None:
    """The stream of a modern client carries changes of upstreams of both eras."""
    async with paired(tmp_path, "2026-07-28", upstream, way) as (one, _):
        uri = "test://watched-resource"
        async with one.listen(tools_list_changed=True, resource_subscriptions=[uri]) as changes:
            await one.call_tool("test_trigger_resource_change")
            event = await asyncio.wait_for(anext(aiter(changes)), 20)
            assert getattr(event, "uri", None) == uri


@WAYS
@pytest.mark.parametrize("upstream", MODES)
async def test_a_legacy_client_hears_of_changes(tmp_path: Path, upstream: str, way: str) -> None:
    """A session hears of list changes, and of the resources that it subscribed to."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def message(item: Any) -> None:
        if not isinstance(item, Exception):
            heard.put_nowait(item.method)

    async with paired(tmp_path, "legacy", upstream, way, message_handler=message) as (one, _):
        params = types.SubscribeRequestParams(uri="test://watched-resource")
        await one.session.send_request(types.SubscribeRequest(params=params), types.EmptyResult)
        await one.call_tool("test_trigger_resource_change")
        assert await asyncio.wait_for(heard.get(), 20) == "notifications/resources/updated"
        await one.call_tool("test_trigger_tool_change")
        assert await asyncio.wait_for(heard.get(), 20) == "notifications/tools/list_changed"

"""Approvals by elicitation, in both eras of MCP: a call waits for its client, the page's function runs once."""

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp_types import (
    CallToolResult,
    ElicitCompleteNotification,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    InputResponses,
)

from gateway.config import values
from gateway.mcp import elicitation
from tests.approvals.page import show_cart
from tests.mcp.mounts import result_text
from tests.views.pages import until
from tests.whole.test_main_job import UI, answer_next, person
from tests.world import World, running

MODES = ["legacy", "2026-07-28"]


class Asked:
    """A person at an MCP client: `visits` are the pages that the client was requested to open."""

    def __init__(self, world: World, ann: aiohttp.ClientSession, answer: str | None = None, action: Any = "accept"):
        self.world = world
        self.ann = ann
        self.answer = answer
        self.action = action
        self.visits: list[ElicitRequestURLParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Open the page, and answer there."""
        assert isinstance(params, ElicitRequestURLParams)
        self.visits.append(params)
        if self.answer is not None:
            id = params.url.rpartition("/")[2]
            async with self.ann.post(f"{self.world.console}/api/approvals/{id}", json={"answer": self.answer}) as done:
                assert done.status == 200, await done.text()
        return ElicitResult(action=self.action)


@pytest.mark.parametrize("mode", MODES)
async def test_a_confirm_inside_a_running_page_tool_runs_the_page_once(world: World, mode: Any) -> None:
    """The model's client is requested to open a page; the answer there lets the one run continue."""
    async with person(world) as ann, show_cart(world, ann) as page:
        asked = Asked(world, ann, "approve")
        async with Client(f"{world.url}/mcp", mode=mode, elicitation_callback=asked) as client:
            result = await client.call_tool("cart_checkout", {})
        assert (result.is_error, page.ran) == (False, ["checkout"])
    (visit,) = asked.visits
    assert visit.url.startswith(f"{world.console}/approvals/")
    assert visit.message == "Order what is in the cart, and pay for it?"
    assert len([line for line in world.arrived() if line["path"] == "/api/checkout"]) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_elsewhere_counts_as_well(world: World, mode: Any) -> None:
    """The client opened the page, but another answer was given at the console first."""
    async with person(world) as ann, show_cart(world, ann) as page:
        asked = Asked(world, ann)
        async with (
            Client(f"{world.url}/mcp", mode=mode, elicitation_callback=asked) as client,
            asyncio.TaskGroup() as tasks,
        ):
            calling = tasks.create_task(client.call_tool("cart_checkout", {}))
            await answer_next(ann, world, "decline")
        assert "approval-declined" in result_text(calling.result())
        assert page.ran == ["checkout"]
    assert [line for line in world.arrived() if line["path"] == "/api/checkout"] == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_declines_gives_the_call_up(world: World, mode: Any) -> None:
    """Nothing is sent, and no question stays open."""
    async with person(world) as ann, show_cart(world, ann) as page:
        asked = Asked(world, ann, action="decline")
        async with Client(f"{world.url}/mcp", mode=mode, elicitation_callback=asked) as client:
            result = await client.call_tool("cart_checkout", {})
        assert result.is_error
        assert "approval-declined" in result_text(result)
        assert page.ran == ["checkout"]
    assert [line for line in world.arrived() if line["path"] == "/api/checkout"] == []


async def call_once(
    client: Client, name: str = "cart_checkout", **arguments: Any
) -> CallToolResult | InputRequiredResult:
    """One call at the protocol level, with input required allowed as a result."""
    return await client.session.call_tool(name, arguments, allow_input_required=True)


async def begin_call(client: Client, name: str = "cart_checkout") -> InputRequiredResult:
    """A call that requires input."""
    result = await call_once(client, name)
    assert isinstance(result, InputRequiredResult), result
    return result


async def repeat_call(
    client: Client, state: str | None, name: str = "cart_checkout", **arguments: Any
) -> CallToolResult:
    """Repeat the call with the request state that it was given, until it has a result."""
    while True:
        result = await client.session.call_tool(name, arguments, request_state=state, allow_input_required=True)
        if isinstance(result, CallToolResult):
            return result
        state = result.request_state


async def no_one(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """A callback that is never called: the test repeats the call itself."""
    raise AssertionError


def modern(world: World) -> Client:
    """A client that declares that it can open pages."""
    return Client(f"{world.url}/mcp", mode="2026-07-28", elicitation_callback=no_one)


async def test_a_call_repeated_twice_at_once_runs_once(world: World) -> None:
    """Both callers get the same answer, also after the call has ended."""
    async with person(world) as ann, show_cart(world, ann) as page, modern(world) as client:
        state = (await begin_call(client)).request_state
        async with asyncio.TaskGroup() as tasks:
            calls = [tasks.create_task(repeat_call(client, state)) for _ in range(2)]
            await answer_next(ann, world, "approve")
        late = await repeat_call(client, state)
        assert [result_text(call.result()) for call in calls] == [result_text(late)] * 2
        assert page.ran == ["checkout"]


@pytest.mark.bound("calls of clients with elicitation")
async def test_too_many_calls_of_one_principal_wait_for_their_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A further call is refused and asks no question; a finished one frees its place."""
    monkeypatch.setattr(elicitation, "RUNS_EACH", 1)
    monkeypatch.setattr(elicitation, "KEPT", 0.05)
    async with running(tmp_path) as world, person(world) as ann, show_cart(world, ann) as page, modern(world) as client:
        state = (await begin_call(client)).request_state
        refused = await call_once(client)
        assert isinstance(refused, CallToolResult)
        assert "rate-limited: Too many calls of yours are under way here" in result_text(refused)
        assert page.ran == ["checkout"]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeat_call(client, state))
            await answer_next(ann, world, "decline")
        async with asyncio.timeout(60):
            while isinstance(again := await call_once(client), CallToolResult):
                await asyncio.sleep(0.05)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeat_call(client, again.request_state))
            await answer_next(ann, world, "decline")


@pytest.mark.bound("bytes of calls and results whose client is to come back")
async def test_too_many_bytes_of_one_principal_wait_for_their_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose bytes find no room is given up when its client is to come back; an ended one frees its bytes."""
    monkeypatch.setattr(values, "LARGEST_BODY", 2**19)
    monkeypatch.setattr(elicitation, "ROUND", 0.2)
    large = {"note": "x" * 200_000}
    async with (
        running(tmp_path, extra="mcp: {bodies: 64MiB, bodies_each: 512KiB}\n") as world,
        person(world) as ann,
        show_cart(world, ann) as page,
        modern(world) as client,
    ):
        first = await call_once(client, **large)
        assert isinstance(first, InputRequiredResult)
        refused = await call_once(client, **large)
        assert isinstance(refused, CallToolResult)
        assert "rate-limited: Too many bytes of calls wait for a client to come back" in result_text(refused)
        async with asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(repeat_call(client, first.request_state, **large))
            await answer_next(ann, world, "approve")
        assert not calling.result().is_error
        again = await call_once(client, **large)
        assert isinstance(again, InputRequiredResult)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(repeat_call(client, again.request_state, **large))
            await answer_next(ann, world, "decline")
        assert page.ran == ["checkout"] * 3


@pytest.mark.parametrize("state", ["", "v1.AAAA", "made up", "v1." + "A" * 200])
async def test_a_forged_state_is_refused(world: World, state: str) -> None:
    """The call is refused, and nothing runs."""
    async with person(world) as ann, show_cart(world, ann) as page, modern(world) as client:
        with pytest.raises(MCPError, match="requestState"):
            await repeat_call(client, state)
        assert page.ran == []


async def test_a_state_is_of_one_call_only(world: World) -> None:
    """A state is refused with another tool, with other arguments, and on another mount."""
    async with person(world) as ann, show_cart(world, ann) as page, modern(world) as client:
        state = (await begin_call(client)).request_state
        for name, arguments in (("cart_remove_from_cart", {}), ("cart_checkout", {"more": 1})):
            with pytest.raises(MCPError, match="requestState"):
                await repeat_call(client, state, name, **arguments)
        async with Client(f"{world.url}/mcp/cart", mode="2026-07-28", elicitation_callback=no_one) as other:
            with pytest.raises(MCPError, match="requestState"):
                await repeat_call(other, state)
        assert page.ran == ["checkout"]
        await answer_next(ann, world, "decline")
        await repeat_call(client, state)


async def test_a_client_that_goes_away_takes_its_questions_with_it(world: World) -> None:
    """The connection of the call ends: the page is notified, and the approval that it waited for is void."""
    async with person(world) as ann, show_cart(world, ann) as page:
        asked = Asked(world, ann)
        async with Client(f"{world.url}/mcp", mode="legacy", elicitation_callback=asked) as client:
            calling = asyncio.create_task(client.call_tool("cart_checkout", {}))
            await until(lambda: len(asked.visits) == 1)
            calling.cancel()
            id = asked.visits[0].url.rpartition("/")[2]
            await until(lambda: any(line["fields"].get("reason") == "cancelled" for line in world.records()))
            async with ann.post(f"{world.console}/api/approvals/{id}", json={"answer": "approve"}) as late:
                assert late.status == 410, await late.text()
        assert page.ran == ["checkout"]
    assert [line for line in world.arrived() if line["path"] == "/api/checkout"] == []


@pytest.mark.parametrize("mode", MODES)
async def test_an_unproven_request_is_asked_about_by_its_client(world: World, mode: Any) -> None:
    """An unproven request may be the model's, so its client opens the page; the request is sent once."""
    async with person(world) as ann:
        asked = Asked(world, ann, "approve")
        async with Client(f"{world.url}/mcp/cart", mode=mode, elicitation_callback=asked, extensions=UI) as client:
            result = await client.call_tool("http_request", {"url": "/api/cart/tea", "method": "DELETE"})
    assert result.structured_content is not None
    assert "gateway-reason" not in result.structured_content["headers"]
    assert [visit.message for visit in asked.visits] == ["Remove tea from the cart?"]
    assert len([line for line in world.arrived() if line["method"] == "DELETE"]) == 1


async def test_a_refused_call_names_its_record(world: World) -> None:
    """The answer to the model contains the id of the audit log line."""
    async with person(world) as ann, show_cart(world, ann) as page, Client(f"{world.url}/mcp") as client:
        result = await client.call_tool("cart_get_cart", {"item": 7})
        assert page.ran == []
    outcome = next(line for line in world.records() if line["fields"].get("tool") == "get_cart")
    assert f"audit id {outcome['id']}" in result_text(result)


async def test_a_client_is_told_that_it_need_not_ask_any_more(world: World) -> None:
    """The client's dialog can close: another answer was given at the console first."""
    told: list[str] = []
    asking = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, ElicitCompleteNotification):
            told.append(message.params.elicitation_id)

    async def wait(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asking.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        person(world) as ann,
        show_cart(world, ann),
        Client(f"{world.url}/mcp", mode="legacy", elicitation_callback=wait, message_handler=hear) as client,
        asyncio.TaskGroup() as tasks,
    ):
        calling = tasks.create_task(client.call_tool("cart_checkout", {}))
        await asking.wait()
        question = await answer_next(ann, world, "decline")
        await calling
        assert told == [question["id"]]


async def test_what_a_view_says_of_answers_and_states_is_dropped(world: World) -> None:
    """Answers and states that a view claims are ignored, and the approval is asked for: only its proof counts."""
    async with person(world) as ann, Client(f"{world.url}/mcp/cart", mode="2026-07-28", extensions=UI) as client:
        opened = await client.call_tool("open_cart", {})
        launch = (opened.meta or {})["webmcp-gateway/launch"]
        view = (await client.call_tool("webmcp_attach", {"launch": launch})).structured_content
        assert view is not None
        proof = f"{view['view']}.1.{proof_of(view['key'])}"
        wish = {"url": "/api/cart/tea", "method": "DELETE", "_initiator": "model", "_view": proof}
        claim: InputResponses = {"approval": ElicitResult(action="accept")}
        result = await client.session.call_tool("http_request", wish, input_responses=claim, allow_input_required=True)
        assert isinstance(result, CallToolResult)
        assert result.structured_content is not None
        assert "gateway-pending" in result.structured_content["headers"]
        await answer_next(ann, world, "decline")
    assert [line for line in world.arrived() if line["method"] == "DELETE"] == []


def proof_of(key: str) -> str:
    """The proof of a view's first call."""
    digest = hmac.digest(base64.urlsafe_b64decode(key + "="), b"1", hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

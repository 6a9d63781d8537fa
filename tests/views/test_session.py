"""The gateway as the MCP client of one page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import MCPError
from mcp import types as mcp

from gateway.errors import Refusal
from gateway.model import ViewTool
from gateway.mux import IN_FLIGHT_LIMIT
from gateway.traces import continue_trace
from gateway.views import session as sessions
from gateway.views.session import PageSession
from gateway.views.tools import MOST_LISTED, ROOM
from tests.views.pages import JsonObject, text, until

INFO = {"name": "page", "version": "1"}
GREETING: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": INFO}
TOOL: JsonObject = {"name": "add", "inputSchema": {"type": "object"}}
ADD = ViewTool("cart_add", "add", "", "", {"type": "object"}, {})
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Page:
    """Its answer to each method; `heard` are the received messages, `listed` the tools that the session found."""

    def __init__(self, **says: Any) -> None:
        self.says = {"initialize": GREETING, "tools/list": {"tools": [TOOL]}, "tools/call": text("added"), **says}
        self.heard: list[JsonObject] = []
        self.listed: list[list[str]] = []
        self.session = PageSession(self._hear, self._list)

    async def _hear(self, message: JsonObject) -> None:
        self.heard.append(message)
        if "id" not in message or "method" not in message:
            return
        said = self.says[message["method"]]
        said = said(message["params"]) if callable(said) else said
        if said is not None:
            answer = said if "error" in said else {"result": said}
            assert self.session.receive({"jsonrpc": "2.0", "id": message["id"], **answer})

    def _list(self, tools: Any) -> None:
        self.listed.append([tool.name for tool in tools])

    async def call(self) -> mcp.CallToolResult:
        """Call its tool as the model."""
        return await self.session.call(ADD, {"n": 1}, lambda: None)


@asynccontextmanager
async def open_(page: Page) -> AsyncIterator[Page]:
    """Run its session."""
    running = asyncio.create_task(page.session.run())
    try:
        await until(lambda: bool(page.listed))
        yield page
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_page_is_greeted_then_asked_for_its_tools_then_called() -> None:
    """In this order; the call uses the page's own name of the tool."""
    async with open_(Page()) as page:
        assert (await page.call()).content == [mcp.TextContent(type="text", text="added")]
    said = ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    assert [message["method"] for message in page.heard] == said
    assert page.heard[-1]["params"] == {"name": "add", "arguments": {"n": 1}}
    assert page.listed == [["add"], []]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"error": {"code": -32602, "message": "No such tool"}}, "No such tool"),
        ({"content": "added"}, "not the result of a tool"),
        ({}, "not the result of a tool"),
        ({"content": [{"type": "text"}]}, "not the result of a tool"),
    ],
)
async def test_what_a_page_says_in_place_of_a_result_is_an_error(said: JsonObject, words: str) -> None:
    """With the page's own message if there is one; its session continues."""
    async with open_(Page(**{"tools/call": said})) as page:
        with pytest.raises(MCPError, match=words):
            await page.call()
        page.says["tools/call"] = text("added")
        assert not (await page.call()).is_error


async def test_the_lists_of_a_page_are_followed_and_bounded() -> None:
    """Invalid tools are left out of each."""
    asked: list[JsonObject] = []

    def listed(params: JsonObject) -> JsonObject:
        asked.append(params)
        return {"tools": [{**TOOL, "name": f"add{len(asked)}"}, {"name": 1}, None], "nextCursor": str(len(asked))}

    async with open_(Page(**{"tools/list": listed})) as page:
        assert page.listed == [["add1", "add2", "add3", "add4", "add5"]]
    assert asked == [{}, *({"cursor": str(number)} for number in (1, 2, 3, 4))]


async def test_of_a_long_list_the_first_tools_are_read() -> None:
    """Other tasks wait while one list is checked, and a page may list again and again."""
    many = [{**TOOL, "name": f"add{number}"} for number in range(MOST_LISTED + 50)]
    async with open_(Page(**{"tools/list": {"tools": many}})) as page:
        assert page.listed == [[tool["name"] for tool in many[:MOST_LISTED]]]


@pytest.mark.parametrize(
    "large",
    [
        lambda: "a" * ROOM,
        lambda: {"a" * ROOM: 0},
        lambda: ["a"] * (ROOM // 8),
        lambda: {str(n): [] for n in range(ROOM // 8)},
    ],
    ids=["text", "name", "list", "object"],
)
async def test_of_large_tools_those_are_kept_for_which_there_is_room(large: Callable[[], Any]) -> None:
    """Over all pages of a list: the kept tools occupy memory as long as the view is open."""
    schema = {"type": "object", "default": large()}
    pages = iter((TOOL, {**TOOL, "name": "large", "inputSchema": schema}, {**TOOL, "name": "late"}))

    def listed(_: JsonObject) -> JsonObject:
        tool = next(pages)
        return {"tools": [tool], **({} if tool["name"] == "late" else {"nextCursor": "more"})}

    async with open_(Page(**{"tools/list": listed})) as page:
        assert page.listed == [["add", "late"]]


async def test_a_page_that_does_not_say_its_tools_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The known tools stay meanwhile, and the page receives a cancellation of the first request."""
    monkeypatch.setattr(sessions, "LIST_PAUSE", 0.0)
    async with open_(Page()) as page:
        monkeypatch.setattr(sessions, "READY", 0.05)
        silent = iter((None,))
        page.says["tools/list"] = lambda _: next(silent, {"tools": [{**TOOL, "name": "new"}]})
        assert page.session.receive({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await until(lambda: len(page.listed) > 1)
        assert page.listed == [["add"], ["new"]]
        asked = [message["id"] for message in page.heard if message.get("method") == "tools/list"]
    over = [message["params"] for message in page.heard if message["method"] == "notifications/cancelled"]
    assert over == [{"requestId": asked[1]}]


@pytest.mark.parametrize(
    "says",
    [
        {"initialize": {**GREETING, "protocolVersion": "1999-01-01"}},
        {"initialize": {"error": {"code": -32600, "message": "no"}}},
        {"tools/list": {"tools": "none"}},
        {"tools/list": {}},
    ],
)
async def test_a_page_that_breaks_the_protocol_loses_its_session(says: JsonObject) -> None:
    """Its tools are removed, and its messages are ignored."""
    page = Page(**says)
    await page.session.run()
    assert page.listed == [[]]
    assert not page.session.receive({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    with pytest.raises(MCPError, match="not ready"):
        await page.call()


async def test_a_page_that_is_silent_has_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then its session ends."""
    monkeypatch.setattr(sessions, "READY", 0.05)
    page = Page(initialize=lambda _: None)
    await page.session.run()
    assert page.listed == [[]]
    assert [message["method"] for message in page.heard] == ["initialize"]


async def test_a_ping_is_answered() -> None:
    """With its id."""
    async with open_(Page()) as page:
        assert page.session.receive({"jsonrpc": "2.0", "id": "p1", "method": "ping"})
        await until(lambda: page.heard[-1] == {"jsonrpc": "2.0", "id": "p1", "result": {}})


async def test_a_call_that_is_given_up_is_told_to_the_page_which_may_answer_late() -> None:
    """The notification names the call; other calls get their own answers."""
    async with open_(Page(**{"tools/call": lambda _: None})) as page:
        call = asyncio.create_task(page.call())
        await until(lambda: page.heard[-1]["method"] == "tools/call")
        id = page.heard[-1]["id"]
        call.cancel()
        await until(lambda: page.heard[-1]["method"] == "notifications/cancelled")
        assert page.heard[-1]["params"] == {"requestId": id}
        assert page.session.receive({"jsonrpc": "2.0", "id": id, "result": text("late")})
        page.says["tools/call"] = text("added")
        assert (await page.call()).content == [mcp.TextContent(type="text", text="added")]


@pytest.mark.bound("concurrent calls into a page")
async def test_so_many_calls_are_under_way_that_the_page_can_tell_of_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, and has not run. The bound is below the mux's, which would end the session."""
    monkeypatch.setattr(sessions, "LIST_PAUSE", 0.0)
    async with open_(Page(**{"tools/call": lambda _: None})) as page, asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(page.call()) for _ in range(sessions.MOST_CALLS)]
        await until(lambda: len([1 for message in page.heard if message["method"] == "tools/call"]) == len(calls))
        with pytest.raises(Refusal, match="under way already"):
            await page.call()
        page.says["tools/list"] = {"tools": []}
        assert page.session.receive({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await until(lambda: len(page.listed) > 1)
        for call in calls:
            call.cancel()
    assert sessions.MOST_CALLS < IN_FLIGHT_LIMIT


async def test_a_session_that_ends_ends_its_calls() -> None:
    """At once."""
    page = Page(**{"tools/call": lambda _: None})
    async with open_(page):
        call = asyncio.create_task(page.call())
        await until(lambda: page.heard[-1]["method"] == "tools/call")
    with pytest.raises(MCPError, match="Connection closed"):
        await call


async def test_the_trace_of_a_call_goes_on_in_the_page() -> None:
    """The client's trace is passed on in `_meta`."""
    async with open_(Page()) as page:
        with continue_trace({"traceparent": TRACE, "tracestate": "a=b"}):
            await page.call()
    assert page.heard[-1]["params"]["_meta"] == {"traceparent": TRACE, "tracestate": "a=b"}


@pytest.mark.bound("unread messages to a page")
async def test_a_page_that_asks_faster_than_it_is_answered_loses_its_session() -> None:
    """The queue of its requests is bounded."""
    async with open_(Page()) as page:
        ping = {"jsonrpc": "2.0", "method": "ping"}
        taken = [page.session.receive({**ping, "id": number}) for number in range(sessions.QUEUE + 2)]
    assert taken == [*[True] * sessions.QUEUE, False, False]

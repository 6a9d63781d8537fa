"""A mount over real HTTP, with the SDK's own client in both eras of the protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.client.subscriptions import ToolsListChanged

from gateway.mcp import server
from gateway.mcp.middleware import BODY_LIMIT
from gateway.model import LOCAL
from tests.mcp.fakes import ADD
from tests.mcp.mounts import MODES, Mount, Served, as_app, principal_of, result_text

ADA = "issuer|client|ada"

MODEL_TOOLS = ["open_cart", "open_todo", "list_view_tools", "call_view_tool"]
APP_TOOLS = ["http_request", "http_stream", "webmcp_send", "webmcp_attach", "webmcp_poll", "webmcp_result"]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Yield the mount of two apps."""
    async with Mount().serve() as served:
        yield served


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_apps_sees_no_tool_of_apps(served: Served, mode: str) -> None:
    """App-only tools are neither listed for nor callable by a client without MCP Apps."""
    async with Client(served.url, mode=mode) as client:
        listed = await client.list_tools()
        refused = await client.call_tool("http_request", {"url": "/api/cart"})
    assert sorted(tool.name for tool in listed.tools) == sorted(MODEL_TOOLS)
    assert refused.is_error
    assert "not-an-app" in result_text(refused)


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_with_apps_sees_them_marked_for_apps_only(served: Served, mode: str) -> None:
    """A host gets the tools of apps, with the visibility that hides them from the model."""
    async with as_app(served.url, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert sorted(tools) == sorted(MODEL_TOOLS + APP_TOOLS)
    assert {(tools[name].meta or {})["ui"]["visibility"][0] for name in APP_TOOLS} == {"app"}
    assert (tools["open_cart"].meta or {})["ui/resourceUri"] == "ui://cart/app.html"
    assert (tools["open_cart"].meta or {})["ui"]["resourceUri"] == "ui://cart/app.html"


@pytest.mark.parametrize("mode", MODES)
async def test_the_launch_value_is_in_meta_alone_and_for_hosts_alone(served: Served, mode: str) -> None:
    """Everyone gets the handle from `open_cart`, but only a host the launch value, which models do not see."""
    async with as_app(served.url, mode) as client:
        opened = await client.call_tool("open_cart", {})
    async with Client(served.url, mode=mode) as client:
        plain = await client.call_tool("open_cart", {})
    assert (opened.meta or {})["webmcp-gateway/launch"] == "launch-value"
    assert opened.structured_content == plain.structured_content == {"view": "view-1"}
    assert "is open as view view-1" in result_text(opened)
    assert "not shown anywhere: this client declares no support for MCP Apps" in result_text(plain)
    assert "launch-value" not in result_text(opened) + plain.model_dump_json()


@pytest.mark.parametrize("mode", MODES)
async def test_a_request_of_an_app_is_carried_and_answered(served: Served, mode: str) -> None:
    """`http_request` returns structured content and the same as text, null values kept."""
    arguments = {"url": "/api/cart", "method": "POST", "body": {"a": None}, "_view": "proof"}
    async with as_app(served.url, mode) as client:
        result = await client.call_tool("http_request", arguments)
    assert result.structured_content is not None
    assert json.loads(result_text(result)) == result.structured_content
    body = result.structured_content["body"]
    assert (body["method"], json.loads(body["body"]), body["nothing"]) == ("POST", {"a": None}, None)
    assert (body["initiator"], body["door"], body["wait"]) == ("page", "mcp", 0.0)


@pytest.mark.parametrize("mode", MODES)
async def test_an_unproven_request_waits_in_the_call_and_is_the_models(served: Served, mode: str) -> None:
    """Without a proof the call itself waits for an approval, and a wrong proof is a 403 that `fetch()` sees."""
    async with as_app(served.url, mode) as client:
        unproven = await client.call_tool("http_request", {"url": "/api/cart"})
        wrong = await client.call_tool("http_request", {"url": "/api/cart", "_view": "other"})
    assert unproven.structured_content is not None
    assert unproven.structured_content["body"]["initiator"] == "model"
    assert unproven.structured_content["body"]["wait"] == 50.0
    assert wrong.structured_content is not None
    assert not wrong.is_error
    assert wrong.structured_content["headers"]["gateway-reason"] == "view-unproven"
    assert wrong.structured_content["status"] == 403


async def test_a_views_word_on_a_gesture_is_passed_on(served: Served) -> None:
    """In seconds; any other value than whole milliseconds up to five seconds is ignored, without an error."""
    ages: list[Any] = [250, 0, 5000, None, 5001, -1, 1.5, True, "250", [250], {}]
    async with as_app(served.url, "2026-07-28") as client:
        for gesture in ages:
            arguments = {"url": "/api/cart", "_view": "proof", "_gesture": gesture}
            assert not (await client.call_tool("http_request", arguments)).is_error
    assert served.views.gestures == [0.25, 0.0, 5.0] + [None] * 8


@pytest.mark.parametrize("mode", MODES)
async def test_failures_of_the_gateway_reject_the_fetch(served: Served, mode: str) -> None:
    """`internal` is an error result, returned or raised by the exchange; the exception's text is not sent."""
    async with as_app(served.url, mode) as client:
        told = await client.call_tool("http_request", {"url": "/internal"})
        broken = await client.call_tool("http_request", {"url": "/bug"})
    assert told.is_error
    assert broken.is_error
    assert result_text(broken).startswith("internal:")
    assert "Zero" not in result_text(broken)


async def test_a_status_that_no_app_can_take_is_a_refusal(served: Served) -> None:
    """The published clients raise outside 200 to 599, so such an answer is a 502 with a reason."""
    async with as_app(served.url, "2026-07-28") as client:
        result = await client.call_tool("http_request", {"url": "/odd-status"})
    assert not result.is_error
    assert result.structured_content is not None
    assert result.structured_content["status"] == 502


@pytest.mark.parametrize("mode", MODES)
async def test_the_tools_of_a_view_are_listed_and_called(served: Served, mode: str) -> None:
    """A live tool has the page's own description and schema, and its call reaches the page."""
    served.views.offer(LOCAL, ADD)
    async with Client(served.url, mode=mode) as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == ADD.name)
        result = await client.call_tool(ADD.name, {"item_id": "7"})
    assert (tool.description, tool.input_schema) == (ADD.description, ADD.input_schema)
    assert tool.annotations is not None
    assert tool.annotations.destructive_hint is False
    assert json.loads(result_text(result)) == {
        "name": ADD.name,
        "arguments": {"item_id": "7"},
        "view": None,
        "principal": "local",
    }


@pytest.mark.parametrize("mode", MODES)
async def test_the_two_fixed_tools_reach_a_view_by_its_handle(served: Served, mode: str) -> None:
    """`list_view_tools` names the page's tools, `call_view_tool` calls one by that name."""
    served.views.offer(LOCAL, ADD)
    async with Client(served.url, mode=mode) as client:
        listed = await client.call_tool("list_view_tools", {})
        call = {"view": "view-1", "tool": "add_to_cart", "arguments": {"item_id": "7"}}
        result = await client.call_tool("call_view_tool", call)
        missing = await client.call_tool("call_view_tool", {"view": "view-1"})
        collected = await client.call_tool("call_view_tool", {"call": "c1"})
    assert listed.structured_content is not None
    assert listed.structured_content["views"][0]["tools"][0]["tool"] == "add_to_cart"
    assert json.loads(result_text(result))["view"] == "view-1"
    assert missing.is_error
    assert "`tool`" in result_text(missing)
    assert result_text(collected) == "collected c1"


@pytest.mark.parametrize("mode", MODES)
async def test_a_view_attaches(served: Served, mode: str) -> None:
    """`webmcp_attach` returns the key for a valid launch value, and refuses a wrong one."""
    async with as_app(served.url, mode) as client:
        attached = await client.call_tool("webmcp_attach", {"launch": "launch-value", "capabilities": {}})
        refused = await client.call_tool("webmcp_attach", {"launch": "guess"})
    assert attached.structured_content == {
        "view": "view-1",
        "key": "a2V5",
        "proven": True,
        "free": ["checkout"],
        "largest": BODY_LIMIT,
    }
    assert refused.is_error
    assert "view-unproven" in result_text(refused)


@pytest.mark.parametrize("mode", MODES)
async def test_packed_apps_are_resources(served: Served, mode: str) -> None:
    """List and read give the HTML with the MIME type of MCP Apps and `_meta.ui` in both."""
    async with Client(served.url, mode=mode) as client:
        listed = (await client.list_resources()).resources[0]
        contents = (await client.read_resource("ui://cart/app.html")).contents[0]
        with pytest.raises(MCPError, match="Unknown resource"):
            await client.read_resource("ui://cart/other.html")
    assert isinstance(contents, types.TextResourceContents)
    assert contents.text == "<p>cart</p>"
    assert listed.mime_type == contents.mime_type == "text/html;profile=mcp-app"
    assert listed.meta == contents.meta == {"ui": {"csp": {"connectDomains": []}}}


@pytest.mark.parametrize("mode", MODES)
async def test_an_unknown_tool_is_a_protocol_error(served: Served, mode: str) -> None:
    """A name that no app could have is refused as MCP requires; a tool of a closed view is left to the views."""
    async with Client(served.url, mode=mode) as client:
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("shop_add", {})
        gone = await client.call_tool("cart_gone", {})
    assert json.loads(result_text(gone))["name"] == "cart_gone"


async def test_a_mount_of_one_app_offers_that_app_alone() -> None:
    """`/mcp/<app>` has neither the tools nor the resources of another app."""
    async with Mount(app="todo").serve() as served, Client(served.url, mode="2026-07-28") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        resources = [resource.name for resource in (await client.list_resources()).resources]
    assert names == ["open_todo", "list_view_tools", "call_view_tool"]
    assert resources == ["todo"]


async def test_a_page_with_an_odd_schema_does_not_spoil_the_list(served: Served) -> None:
    """A schema that MCP cannot carry is trimmed; the other tools stay listed in both eras."""
    odd: dict[str, Any] = {"properties": [1], "required": "all", "$schema": 5, "description": "kept"}
    tool = type(ADD)("cart_odd", "odd", "", "", odd, {"readOnlyHint": {"no": "bool"}})
    served.views.offer(LOCAL, tool, ADD)
    for mode in MODES:
        async with Client(served.url, mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["cart_odd"].input_schema == {"type": "object", "description": "kept"}
        assert ADD.name in tools


@pytest.mark.parametrize("mode", MODES)
async def test_values_that_no_transport_can_write_do_not_spoil_an_answer(served: Served, mode: str) -> None:
    """A page may send lone surrogates and infinities; list and result still arrive, and the session continues."""
    schema = {"type": "object", "properties": {"a": {"title": "\ud800", "maximum": float("inf")}}}
    served.views.offer(LOCAL, type(ADD)("cart_odd", "odd", "", "", schema), ADD)
    async with asyncio.timeout(60), Client(served.url, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        fixed = await client.call_tool("list_view_tools", {})
        result = await client.call_tool("cart_odd", {})
    assert tools["cart_odd"].input_schema["properties"] == {"a": {"title": "?", "maximum": None}}
    assert not fixed.is_error
    assert result.structured_content == {"text": "?", "number": None}
    assert isinstance(result.content[0], types.TextContent)
    assert result.content[0].text == "od?d"


# ── list_changed ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_legacy_session_is_told_that_tools_changed(served: Served) -> None:
    """The handshake advertises listChanged, and the notification comes on the session's own stream."""
    told = asyncio.Event()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.set()

    async with Client(served.url, mode="legacy", message_handler=hear) as client:
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        await _offered_until(served, told)


async def _offered_until(served: Served, told: asyncio.Event) -> None:
    """Change tools until a notification arrives: the client opens its stream some time after the handshake."""
    async with asyncio.timeout(60):
        while not told.is_set():
            served.views.offer(LOCAL, ADD)
            served.views.offer(LOCAL)
            await asyncio.sleep(0.05)


async def test_a_modern_listener_is_told_that_tools_changed(served: Served) -> None:
    """A `subscriptions/listen` stream carries the change, which discovery advertises."""
    async with Client(served.url, mode="auto") as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.tools.list_changed
        async with client.listen(tools_list_changed=True) as changes:
            served.views.offer(LOCAL, ADD)
            async with asyncio.timeout(60):
                assert await anext(aiter(changes)) == ToolsListChanged()


async def test_another_principals_tools_are_neither_told_nor_listed(served: Served) -> None:
    """A listener hears of its own principal's tools only."""
    async with Client(served.url, mode="2026-07-28") as client, client.listen(tools_list_changed=True) as changes:
        served.views.offer(principal_of(ADA), ADD)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(aiter(changes))
        assert ADD.name not in [tool.name for tool in (await client.list_tools()).tools]


@pytest.mark.bound("streams of changes (`subscriptions/listen`)")
async def test_one_principal_may_listen_so_often(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond that it is refused; a closed stream frees its place."""
    monkeypatch.setattr(server, "LISTENERS_EACH", 1)
    async with Client(served.url, mode="2026-07-28") as client:
        for _ in range(2):
            async with client.listen(tools_list_changed=True):
                with pytest.raises(MCPError, match="Too many clients listen already"):
                    async with client.listen(tools_list_changed=True):
                        pass
            async with asyncio.timeout(60):
                while served.face._listeners:
                    await asyncio.sleep(0.01)


async def test_draining_ends_standing_streams_and_lets_calls_finish(served: Served) -> None:
    """Listeners end gracefully at a drain; a call made then still gets its answer."""
    async with Client(served.url, mode="2026-07-28") as client:
        async with client.listen(tools_list_changed=True) as changes:
            served.face.drain()
            async with asyncio.timeout(60):
                assert [event async for event in changes] == []
        assert not (await client.call_tool("list_view_tools", {})).is_error


async def test_a_session_that_ends_is_no_longer_followed(served: Served) -> None:
    """The resources of a legacy session are released when it is deleted."""
    async with Client(served.url, mode="legacy") as client:
        await client.list_tools()
        async with asyncio.timeout(60):
            while not served.face._subscriptions:
                await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        while served.face._subscriptions or served.face._changes._feeds:
            await asyncio.sleep(0.01)


# ── cancellation ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", MODES)
async def test_a_cancelled_call_cancels_the_exchange(served: Served, mode: str) -> None:
    """`notifications/cancelled`, or closing the stream, ends the request."""
    async with as_app(served.url, mode) as client:
        call = asyncio.create_task(client.call_tool("http_request", {"url": "/slow"}))
        await served.exchange.started.wait()
        call.cancel()
        async with asyncio.timeout(60):
            await served.exchange.cancelled.wait()
            with pytest.raises(asyncio.CancelledError):
                await call

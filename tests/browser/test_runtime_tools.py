"""The page's tools as hosts reach them: each mechanism separately, and never one through the other."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, async_playwright

from tests.browser.conftest import launch
from tests.browser.runtime_host import Host, host_server, pack_html, show_page

TOOLS = """<!doctype html><html><head></head><body><p>page</p><script>
  window.runs = [];
  for (const name of ["add", "clear"]) document.modelContext.registerTool({
    name, description: `Does ${name}.`, inputSchema: {type: "object", properties: {n: {type: "number"}}},
    async execute(input, {signal}) {
      runs.push([name, input]);
      signal.addEventListener("abort", () => runs.push(["aborted", signal.reason.message]));
      if (input.wait) await new Promise((resolve) => signal.addEventListener("abort", resolve));
      const response = await fetch("/api/" + name, {method: "POST"});
      return {name, status: response.status};
    },
  });
</script></body></html>"""

CLIENT = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def envelope(payload: Any, direction: str = "client-to-server") -> dict[str, Any]:
    """A message of the webmcp channel."""
    return {"channel": "mcp-iframe", "type": "mcp", "direction": direction, "payload": payload}


def rpc(id: int | str, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


async def sent_payloads(host: Host) -> list[Any]:
    """The payloads that the page has sent on the webmcp channel."""
    found: list[Any] = await host.run("() => host.log.filter((m) => m.channel === 'mcp-iframe').map((m) => m.payload)")
    return found


async def ask(host: Host, id: int, method: str, params: dict[str, Any] | None = None) -> Any:
    """The page's answer on the webmcp channel."""
    await host.run("message => host.post(message)", envelope(rpc(id, method, params)))
    return await host.until(f"host.log.find((m) => m.channel === 'mcp-iframe' && m.payload.id === {id})?.payload")


async def open_session(host: Host, folder: Path) -> Frame:
    """A page with tools, and an MCP session with it on the webmcp channel."""
    await host.answers("return { status: 204 };")
    frame = await show_page(host, folder, TOOLS)
    await host.run(
        "message => { host.check = setInterval(() => host.post(message), 100); }", envelope("mcp-check-ready")
    )
    await host.until("host.log.some((m) => m.payload === 'mcp-server-ready')")
    await host.run("() => clearInterval(host.check)")
    await ask(host, 1, "initialize", CLIENT)
    await host.run("m => host.post(m)", envelope({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    return frame


async def open_page(host: Host, folder: Path, *free: str) -> Frame:
    """A page with tools in a stock host, attached."""
    await host.attaches(*free)
    await host.answers("return { status: 204 };")
    frame = await host.show(pack_html(folder, TOOLS))
    await host.until("host.calls('webmcp_attach').length")
    return frame


# webmcp: the envelope


async def test_our_host_calls_tools_in_the_envelope(host: Host, tmp_path: Path) -> None:
    """A full MCP session: initialize, list, call, list_changed; the gateway forwarded it, so no request is marked."""
    frame = await open_session(host, tmp_path)
    listed = await ask(host, 2, "tools/list")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add", "clear"]
    assert listed["result"]["tools"][0]["inputSchema"] == {"type": "object", "properties": {"n": {"type": "number"}}}
    called = await ask(host, 3, "tools/call", {"name": "add", "arguments": {"n": 2}})
    assert called["result"] == {
        "content": [{"type": "text", "text": '{"name":"add","status":204}'}],
        "structuredContent": {"name": "add", "status": 204},
    }
    assert await frame.evaluate("runs") == [["add", {"n": 2}]]
    [sent] = await host.run("() => host.calls('http_request')")
    del sent["headers"]
    assert sent == {"url": "/api/add", "method": "POST", "stream": True, "_bytes": True}
    await frame.evaluate("() => document.modelContext.registerTool({name: 'new', description: 'd', execute() {}})")
    await host.until("host.log.some((m) => m.payload?.method === 'notifications/tools/list_changed')")


async def test_cancelling_reaches_the_page(host: Host, tmp_path: Path) -> None:
    """The page's signal is aborted, and the call is not answered."""
    frame = await open_session(host, tmp_path)
    await host.run("m => host.post(m)", envelope(rpc(5, "tools/call", {"name": "add", "arguments": {"wait": True}})))
    await frame.wait_for_function("() => runs.length")
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5, "reason": "stop"}}
    await host.run("m => host.post(m)", envelope(cancel))
    await host.until("host.calls('http_request').length")  # which the page sends all the same
    await host.settled()
    assert (await ask(host, 6, "ping"))["result"] == {}
    assert ["aborted", "stop"] in await frame.evaluate("runs")
    assert all(not isinstance(payload, dict) or payload.get("id") != 5 for payload in await sent_payloads(host))


async def test_the_page_answers_and_never_begins(host: Host, tmp_path: Path) -> None:
    """It sends nothing on the webmcp channel before a request, nor before the view is initialized."""
    await host.run("() => { host.initializes = false; }")
    await show_page(host, tmp_path, TOOLS)
    for message in ("mcp-check-ready", rpc(1, "initialize", CLIENT), rpc(2, "tools/list")):
        await host.run("m => host.post(m)", envelope(message))
    await host.until("host.of('ui/initialize').length")
    await host.run("m => host.post(m)", rpc(3, "tools/list"))
    await host.page.wait_for_timeout(200)  # for messages that must not come
    assert await sent_payloads(host) == []
    assert await host.run("() => host.log.map((m) => m.method)") == ["ui/initialize"]


# app tools


async def test_a_stock_host_calls_app_tools(host: Host, tmp_path: Path) -> None:
    """They work on the ui channel; their requests are marked as the model's, and guarded tools are not listed."""
    frame = await open_page(host, tmp_path, "add")
    listed = await host.run("() => host.ask(1, 'tools/list')")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
    assert await host.run("() => host.of('ui/initialize')[0].params.appCapabilities") == {
        "tools": {"listChanged": True}
    }
    assert await host.run("() => host.of('notifications/tools/list_changed').length") == 1
    called = await host.run("() => host.ask(2, 'tools/call', {name: 'add', arguments: {n: 1}})")
    assert called["result"]["structuredContent"] == {"name": "add", "status": 204}
    refused = await host.run("() => host.ask(3, 'tools/call', {name: 'clear', arguments: {}})")
    assert refused["error"]["code"] == -32602
    assert await frame.evaluate("runs") == [["add", {"n": 1}]]
    assert await host.run("() => host.calls('http_request').map((args) => args._initiator)") == ["model"]


async def test_app_tools_wait_for_attach(host: Host, tmp_path: Path) -> None:
    """No tool is offered before the gateway has listed the free ones; a call cancelled meanwhile never runs."""
    await host.attaches("add")
    await host.run(
        "() => { const attach = host.tools.webmcp_attach;"
        " host.tools.webmcp_attach = () => new Promise((resolve) => { host.attach = () => resolve(attach()); }); }"
    )
    frame = await host.show(pack_html(tmp_path, TOOLS))
    await host.until("!!host.attach")
    await host.run(
        "() => { host.ask(0, 'tools/call', { name: 'add' }); host.notify('notifications/cancelled', { requestId: 0 });"
        " host.ask(1, 'tools/list').then((answer) => { host.listed = answer; }); }"
    )
    await host.settled()
    await host.page.wait_for_timeout(200)  # for messages that must not come
    assert await host.run("() => host.listed ?? null") is None
    await host.run("() => host.attach()")
    listed = await host.until("host.listed")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
    assert await frame.evaluate("runs") == []


@pytest.mark.parametrize("lost", ["no server tools", "no such method"])
async def test_where_no_call_reaches_the_gateway_the_page_says_which_tools_are_free(
    host: Host, tmp_path: Path, lost: str
) -> None:
    """The host lists and calls those; a call of another one is refused with the reason."""
    await host.answers("return { status: 204 };")
    if lost == "no such method":
        await host.run(
            "() => { host.tools.webmcp_attach = async () => ({ failure: { code: -32601, message: 'no' } }); }"
        )
    else:
        await host.run("() => { host.capabilities = {}; }")
    frame = await host.show(pack_html(tmp_path, TOOLS, tools=["add", "gone"]))
    await host.until("host.of('notifications/tools/list_changed').length")
    listed = await host.run("() => host.ask(1, 'tools/list')")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
    called = await host.run("() => host.ask(2, 'tools/call', {name: 'add', arguments: {n: 1}})")
    assert not called["result"].get("isError")
    refused = await host.run("() => host.ask(3, 'tools/call', {name: 'clear', arguments: {}})")
    assert "clear is called through the gateway" in refused["error"]["message"]
    assert await frame.evaluate("runs") == [["add", {"n": 1}]]
    assert len(await host.run("() => host.calls('webmcp_attach')")) == (lost == "no such method")


@pytest.mark.parametrize(
    "refusal",
    ["{ isError: true, content: [] }", "{ failure: { code: -32000, message: 'the person said no' } }"],
    ids=["gateway", "error"],
)
async def test_where_a_view_is_refused_no_tool_is_free(host: Host, tmp_path: Path, refusal: str) -> None:
    """The list in the page does not count there: the policy may have changed."""
    await host.run(f"() => {{ host.tools.webmcp_attach = async () => ({refusal}); }}")
    await host.show(pack_html(tmp_path, TOOLS, tools=["add"]))
    await host.until("host.calls('webmcp_attach').length")
    assert (await host.run("() => host.ask(1, 'tools/list')"))["result"] == {"tools": []}
    assert "error" in await host.run("() => host.ask(2, 'tools/call', {name: 'add'})")


async def test_in_our_host_there_are_no_app_tools(host: Host, tmp_path: Path) -> None:
    """Every call passes the gateway there."""
    frame = await open_session(host, tmp_path)
    assert (await host.run("() => host.ask(9, 'tools/list')"))["result"] == {"tools": []}
    assert (await host.run("() => host.ask(10, 'tools/call', {name: 'add'})"))["error"]["code"] == -32602
    await frame.evaluate("document.modelContext.registerTool({ name: 'more', description: 'd', execute: () => 1 })")
    await host.until("host.log.some((m) => m.payload?.method === 'notifications/tools/list_changed')")
    assert await host.run("host.of('notifications/tools/list_changed')") == []


async def test_what_a_host_may_not_call_itself_is_offered_by_relay(host: Host, tmp_path: Path) -> None:
    """Only those are offered by relay: no tool is listed twice."""
    await host.run(
        "() => { host.tools.webmcp_poll = async () =>"
        " ({ content: [], structuredContent: { events: [], overtaken: false } }); }"
    )
    await open_page(host, tmp_path, "add")
    answer = await host.run("() => host.ask(1, 'tools/list')")
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["add"]
    await host.until("host.calls('webmcp_poll').some(({ tools }) => tools)")
    polled = await host.run(
        "host.calls('webmcp_poll').filter(({ tools }) => tools).at(-1).tools.map((tool) => tool.name)"
    )
    assert polled == ["clear"]


async def test_an_envelope_past_the_gateway_offers_no_more_than_app_tools(host: Host, tmp_path: Path) -> None:
    """A third-party host with the envelope cannot enforce the gateway's rules either; its calls are marked."""
    await open_page(host, tmp_path, "add")
    await host.run("m => host.post(m)", envelope("mcp-check-ready"))
    await host.until("host.log.some((m) => m.payload === 'mcp-server-ready')")
    await ask(host, 1, "initialize", CLIENT)
    assert [tool["name"] for tool in (await ask(host, 2, "tools/list"))["result"]["tools"]] == ["add"]
    assert (await ask(host, 3, "tools/call", {"name": "clear"}))["error"]["code"] == -32602
    await ask(host, 4, "tools/call", {"name": "add"})
    assert await host.run("() => host.calls('http_request').map((args) => args._initiator)") == ["model"]


async def test_native_webmcp_mirrors_what_the_gateway_need_not_guard(tmp_path: Path) -> None:
    """If the browser admits the frame's tools, the unguarded ones are registered, and their calls are marked."""
    async with async_playwright() as playwright, host_server() as url:
        browser = await launch(playwright, "--enable-features=WebMCP")
        page = await browser.new_page()
        await page.goto(url)
        host = Host(page)
        frame = await open_page(host, tmp_path, "add")
        # The frame's embedder can never list its tools; a browser's agent can, and is simulated here.
        agent = await page.context.new_cdp_session(frame)
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        agent.on("WebMCP.toolsAdded", events.put_nowait)
        agent.on("WebMCP.toolResponded", events.put_nowait)
        async with asyncio.timeout(60):
            await agent.send("WebMCP.enable")
            [tool] = (await events.get())["tools"]
            call = {"frameId": tool["frameId"], "toolName": tool["name"], "input": {"n": 3}}
            await agent.send("WebMCP.invokeTool", call)
            answer = await events.get()
        assert tool["name"] == "add"
        assert answer["output"]["structuredContent"] == {"name": "add", "status": 204}
        assert await host.run("() => host.calls('http_request').map((args) => args._initiator)") == ["model"]
        await browser.close()


# the channels are separate


async def test_a_message_on_one_channel_is_not_answered_on_the_other(host: Host, tmp_path: Path) -> None:
    """Neither equal ids on both, nor answers to the page's requests in the envelope, nor the other's methods are."""
    frame = await open_session(host, tmp_path)
    await host.run("() => { host.tools.http_request = () => new Promise(() => 0); }")
    await frame.evaluate("() => { window.state = 'open'; fetch('/x').then(() => { state = 'answered'; }); }")
    await host.until("host.calls('http_request').length")
    id = await host.run("() => host.of('tools/call').at(-1).id")
    result = {"content": [], "structuredContent": {"status": 200, "headers": {}, "url": "/x", "bodyType": "none"}}
    await host.run("m => host.post(m)", envelope({"jsonrpc": "2.0", "id": id, "result": result}))
    await host.run("m => host.post(m)", envelope(rpc(20, "ui/resource-teardown")))
    both = await host.run(
        "(inside) => { const ui = host.ask(21, 'ping'); host.post(inside); return ui; }",
        envelope(rpc(21, "tools/list")),
    )
    assert both == {"jsonrpc": "2.0", "id": 21, "result": {}}
    await host.until("host.log.some((m) => m.channel === 'mcp-iframe' && m.payload.id === 21)")
    await host.settled()
    inside = [
        payload for payload in await sent_payloads(host) if isinstance(payload, dict) and payload.get("id") in (20, 21)
    ]
    assert [("error" in payload, len(payload.get("result", {}).get("tools", []))) for payload in inside] == [
        (True, 0),
        (False, 2),
    ]
    assert await frame.evaluate("state") == "open"
    bare = await host.run("() => host.log.filter((m) => m.jsonrpc && m.id === 20)")
    assert bare == []


async def test_the_page_itself_says_nothing_in_the_envelope(host: Host, tmp_path: Path) -> None:
    """The runtime is the only sender on the channel: messages of a server in the page are dropped."""
    frame = await open_session(host, tmp_path)
    forged = [rpc(70, "ping"), {"jsonrpc": "2.0", "id": 71, "result": {"tools": []}}, "mcp-server-stopped"]
    for payload in forged:
        await frame.evaluate("m => parent.postMessage(m, '*')", envelope(payload, "server-to-client"))
    assert (await ask(host, 72, "ping"))["result"] == {}
    assert [payload for payload in await sent_payloads(host) if payload in forged] == []


async def test_only_the_parent_is_the_host(host: Host, tmp_path: Path) -> None:
    """Frames of the page, sibling frames and the page itself cannot act as the host; garbage has no effect."""
    frame = await open_session(host, tmp_path)
    before = len(await host.run("() => host.log"))
    forged = [envelope(rpc(50, "tools/call", {"name": "add"})), rpc(51, "tools/list"), rpc(52, "ping")]
    await host.run(
        """(forged) => {
          const sibling = document.createElement("iframe");
          document.body.append(sibling);
          const script = sibling.contentDocument.createElement("script");
          script.textContent = `for (const m of ${JSON.stringify(forged)}) parent.frames[0].postMessage(m, "*")`;
          sibling.contentDocument.body.append(script);
        }""",
        forged,
    )
    await frame.evaluate(
        """(forged) => {
          const child = document.createElement("iframe");
          child.srcdoc = `<script>for (const m of ${JSON.stringify(forged)}) parent.postMessage(m, "*")</` + "script>";
          document.body.append(child);
          for (const message of forged) window.postMessage(message, "*");
          return new Promise((resolve) => { child.onload = () => resolve(); });
        }""",
        forged,
    )
    garbage: list[Any] = [
        None,
        1,
        "x",
        [],
        {},
        {"jsonrpc": "2.0"},
        {"jsonrpc": "2.0", "id": None, "method": 5},
        envelope(None),
        envelope([]),
    ]
    for message in garbage:
        await host.run("m => host.post(m)", message)
    await host.page.wait_for_timeout(400)  # for messages that must not come
    after = await host.run("() => host.log")
    assert [m for m in after[before:] if m.get("method") != "ui/notifications/size-changed"] == []
    assert await frame.evaluate("runs") == []
    assert (await ask(host, 60, "ping"))["result"] == {}


async def test_what_the_page_takes_for_its_parent_behaves_like_it(host: Host, tmp_path: Path) -> None:
    """Messages come from it, and pass unchanged; access to it is denied as to any foreign window."""
    await host.run("() => addEventListener('message', ({ data }) => data?.mine && host.post({ yours: data.mine }))")
    frame = await show_page(host, tmp_path)
    seen = await frame.evaluate(
        """async () => {
          const next = new Promise((resolve) => addEventListener("message", resolve, {once: true}));
          parent.postMessage({mine: [1, 2]}, "*");
          const event = await next;
          const closed = (() => { try { return parent.location.href; } catch (error) { return error.name; } })();
          const own = parent === window;
          return [event.source === parent, event.data, event.origin, own, parent.document ?? null, closed];
        }"""
    )
    origin = await host.run("() => origin")
    assert seen == [True, {"yours": [1, 2]}, origin, False, None, "SecurityError"]

"""Registration of tools besides `registerTool`: by the page's own client, and by older drafts."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame

from tests.browser.runtime_host import Host, pack_html
from tests.browser.test_own_client import page_with_app

NAMES = ["add", "again", "bad", "bare", "book", "count", "find", "old", "once", "one", "reserve", "slow", "two"]
"""The names of all tools and forms here."""


async def open_page(host: Host, folder: Path, html: str, free: Sequence[str] = NAMES) -> Frame:
    """The page in a host that calls app tools, attached with these free tools."""
    await host.attaches(*free)
    frame = await host.show(pack_html(folder, html))
    await host.until("host.calls('webmcp_attach').length")
    return frame


async def list_tools(host: Host) -> dict[str, Any]:
    """The tools that the host lists, by name."""
    await host.run("() => { host.asked = (host.asked ?? 0) + 1; }")
    answer = await host.run("() => host.ask(`list-${host.asked}`, 'tools/list')")
    names = [tool["name"] for tool in answer["result"]["tools"]]
    assert len(names) == len(set(names))
    return {tool["name"]: tool for tool in answer["result"]["tools"]}


async def call_tool(host: Host, name: str, arguments: dict[str, Any] | None = None) -> Any:
    """The answer to a call."""
    await host.run("() => { host.asked = (host.asked ?? 0) + 1; }")
    return await host.run(
        "([name, given]) => host.ask(`call-${host.asked}`, 'tools/call', {name, arguments: given})",
        [name, arguments or {}],
    )


async def wait_listed(host: Host, *names: str) -> dict[str, Any]:
    """The listed tools, once they have exactly these names."""
    async with asyncio.timeout(60):
        while sorted(tools := await list_tools(host)) != sorted(names):
            await asyncio.sleep(0.05)
    return tools


# The tools of the page's own client

OWN_TOOLS = """
  document.modelContext.registerTool({name: "add", description: "d", execute: () => "added"});
  const app = new App({name: "own", version: "1"}, {tools: {listChanged: true}}, {autoResize: false});
  window.ran = [];
  window.handle = app.registerTool("count",
    {description: "Counts.", inputSchema: undefined, annotations: {readOnlyHint: true}},
    async () => { ran.push("count"); return {content: [{type: "text", text: "1"}], structuredContent: {count: 1}}; });
  window.app = app;
  await app.connect();
  window.connected = true;
"""


async def test_registered_app_tools_are_of_the_pages_tools(host: Host, tmp_path: Path) -> None:
    """They are listed in `modelContext` too, and run once, in their client."""
    frame = await open_page(host, tmp_path, page_with_app(OWN_TOOLS))
    tools = await wait_listed(host, "add", "count")
    assert tools["count"]["annotations"] == {"readOnlyHint": True}
    names = await frame.evaluate("document.modelContext.getTools().then((all) => all.map((tool) => tool.name))")
    assert names == ["add", "count"]
    answer = await call_tool(host, "count")
    assert answer["result"]["structuredContent"] == {"count": 1}
    assert await frame.evaluate("ran") == ["count"]


async def test_their_life_is_followed(host: Host, tmp_path: Path) -> None:
    """Disable, enable, update and remove take effect."""
    frame = await open_page(host, tmp_path, page_with_app(OWN_TOOLS))
    await wait_listed(host, "add", "count")
    await frame.evaluate("handle.disable()")
    await wait_listed(host, "add")
    await frame.evaluate("handle.enable()")
    await wait_listed(host, "add", "count")
    await frame.evaluate("handle.update({description: 'Counts again.'})")
    await host.until("host.of('notifications/tools/list_changed').length >= 3")
    assert (await list_tools(host))["count"]["description"] == "Counts again."
    await frame.evaluate("handle.remove()")
    await wait_listed(host, "add")


@pytest.mark.parametrize("package", ["@modelcontextprotocol/ext-apps", "ext-apps-1"])
async def test_a_client_that_closes_takes_its_tools_along(host: Host, tmp_path: Path, package: str) -> None:
    """A running call fails at once with a reason; the page's other tools stay, and can be registered again."""
    slow = "app.registerTool('slow', {description: 'd'}, () => { ran.push('slow'); return new Promise(() => 0); });"
    html = page_with_app(OWN_TOOLS.replace("window.app = app;", slow + "window.app = app; window.App = App;"), package)
    frame = await open_page(host, tmp_path, html)
    await wait_listed(host, "add", "count", "slow")
    running = asyncio.create_task(call_tool(host, "slow"))
    await frame.wait_for_function("() => ran.includes('slow')")
    # Another listener of the page, right before: not the client's.
    await frame.evaluate(
        "{ const hear = () => 0; addEventListener('message', hear); removeEventListener('message', hear); }"
    )
    assert (await call_tool(host, "count"))["result"]["structuredContent"] == {"count": 1}
    await frame.evaluate("app.close()")
    answer = await asyncio.wait_for(running, 20)
    assert (answer["result"]["isError"], answer["result"]["content"][0]["text"]) == (
        True,
        "The page closed the client of this tool",
    )
    assert list(await list_tools(host)) == ["add"]
    assert "error" in await call_tool(host, "count")
    assert (await call_tool(host, "add"))["result"]["content"][0]["text"] == "added"
    await frame.evaluate(
        """async () => {
          const app = new App({name: "own", version: "2"}, {tools: {listChanged: true}}, {autoResize: false});
          app.registerTool("again", {description: "d"}, () => ({content: [{type: "text", text: "again"}]}));
          await app.connect();
        }"""
    )
    await wait_listed(host, "add", "again")
    assert (await call_tool(host, "again"))["result"]["content"][0]["text"] == "again"


@pytest.mark.parametrize("package", ["@modelcontextprotocol/ext-apps", "ext-apps-1"])
async def test_a_host_is_answered_when_a_client_has_closed(host: Host, tmp_path: Path, package: str) -> None:
    """The runtime answers the requests that every view gets; an open client answers them itself, once."""
    plain = """
      const app = new App({name: "own", version: "1"}, {}, {autoResize: false});
      app.onteardown = async () => ({torn: true});
      window.app = app;
      await app.connect();
      window.connected = true;
    """
    frame = await open_page(host, tmp_path, page_with_app(plain, package))
    await frame.wait_for_function("() => window.connected")
    asked = "id => host.ask(id, id.startsWith('ping') ? 'ping' : 'ui/resource-teardown')"
    assert [(await host.run(asked, id))["result"] for id in ("ping-1", "teardown-1")] == [{}, {"torn": True}]
    await frame.evaluate("app.close()")
    assert [(await host.run(asked, id))["result"] for id in ("ping-2", "teardown-2")] == [{}, {}]
    answered = await host.run("host.log.map(({ id, method }) => method ? '' : id).filter(Boolean)")
    assert answered == ["ping-1", "teardown-1", "ping-2", "teardown-2"]


# Listeners that are replaced at each message: at once, as in pages that re-render themselves, or always the same one.
RESTLESS = [
    "(function wait() { const hear = () => { heard(); removeEventListener('message', hear); wait(); };"
    " addEventListener('message', hear); })();",
    "let hear; const { port1, port2 } = new MessageChannel();"
    " port1.onmessage = () => { removeEventListener('message', hear);"
    " hear = () => { heard(); port2.postMessage(0); }; addEventListener('message', hear); }; port2.postMessage(0);",
    "const hear = () => { heard(); setTimeout(() => { removeEventListener('message', hear);"
    " addEventListener('message', hear); }); }; addEventListener('message', hear);",
]


@pytest.mark.parametrize("restless", RESTLESS)
async def test_listeners_that_come_and_go_are_not_asked_without_end(host: Host, tmp_path: Path, restless: str) -> None:
    """Beside a client with tools: the probe for a client is a message, too."""
    count = "window.count = 0; const heard = () => { if (++count > 100) throw new Error('without end'); };"
    errors: list[str] = []
    host.page.on("pageerror", lambda error: errors.append(error.message))
    frame = await open_page(host, tmp_path, page_with_app(OWN_TOOLS + count + restless))
    await wait_listed(host, "add", "count")
    await frame.evaluate("dispatchEvent(new MessageEvent('message'))")
    await frame.evaluate("new Promise((go) => setTimeout(go, 500))")
    assert (await call_tool(host, "count"))["result"]["structuredContent"] == {"count": 1}
    assert errors == []
    assert await frame.evaluate("count") < 100


async def test_what_the_gateway_must_guard_is_not_called_past_it(host: Host, tmp_path: Path) -> None:
    """Guarded tools of the page and of its client are refused."""
    frame = await open_page(host, tmp_path, page_with_app(OWN_TOOLS), free=["add"])
    await wait_listed(host, "add")
    assert "error" in await call_tool(host, "count")
    assert await frame.evaluate("ran") == []


# Older drafts


async def test_the_handles_and_contexts_of_earlier_drafts(host: Host, tmp_path: Path) -> None:
    """`navigator.modelContext`, `handler` and `unregister` work, and `provideContext` replaces its earlier tools."""
    frame = await open_page(host, tmp_path, "<!doctype html><p>page</p>")
    await frame.evaluate(
        """() => {
          window.handle = navigator.modelContext.registerTool({name: "old", description: "d", handler: () => "old"});
          navigator.modelContext.provideContext({tools: [{name: "one", description: "d", execute: () => "1"}]});
          navigator.modelContext.provideContext({tools: [{name: "two", description: "d", execute: () => "2"}]});
        }"""
    )
    await wait_listed(host, "old", "two")
    assert (await call_tool(host, "old"))["result"]["content"][0]["text"] == "old"
    await frame.evaluate("handle.unregister()")
    await wait_listed(host, "two")


# Tools that misbehave


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("throw new Error('no')", "no"),
        ("throw null", "null"),
        ("return Promise.reject('later')", "later"),
        ("const a = {}; a.a = a; return a", "circular"),
        ("return 1n", "BigInt"),
        ("return {toJSON() { throw new Error('json') }}", "json"),
    ],
)
async def test_a_tool_that_fails_is_an_error_in_words(host: Host, tmp_path: Path, body: str, said: str) -> None:
    """The thrown value, or the reason why the result cannot be sent, is in the message."""
    html = (
        "<p>page</p><script>document.modelContext.registerTool("
        "{name: 'bad', description: 'd', execute() { BODY }})</script>"
    )
    await open_page(host, tmp_path, html.replace("BODY", body))
    answer = await call_tool(host, "bad")
    assert answer["result"]["isError"] is True
    assert said in answer["result"]["content"][0]["text"]


async def test_a_tool_that_removes_itself_still_answers(host: Host, tmp_path: Path) -> None:
    """The running call is answered; the next one finds no tool."""
    html = """<p>page</p><script>const end = new AbortController();
      document.modelContext.registerTool({name: 'once', description: 'd', async execute() {
        end.abort(); await null; return 'done'; }}, {signal: end.signal})</script>"""
    await open_page(host, tmp_path, html)
    assert (await call_tool(host, "once"))["result"]["content"][0]["text"] == "done"
    assert "error" in await call_tool(host, "once")

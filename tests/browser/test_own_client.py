"""Pages that bundle the published client of MCP Apps: it keeps working, and its tools are among the page's."""

import json
import re
from pathlib import Path

from playwright.async_api import Frame

from tests.browser.runtime_host import ROOT, Host, pack_html


def page_with_app(body: str, package: str = "@modelcontextprotocol/ext-apps") -> str:
    """A page that bundles the published client of MCP Apps."""
    source = ROOT / "browser/node_modules" / package / "dist/src/app-with-deps.js"
    code = source.read_text("utf-8").replace("</script", "<\\/script")
    name = re.search(r"([\w$]+) as App\b", code)
    assert name is not None
    return (
        f'<!doctype html><body><p>page</p><script type="module">{code}\nconst App = {name[1]};\n{body}</script></body>'
    )


OWN_APP = """
  window.seen = [];
  document.modelContext.registerTool({name: "add", description: "d", execute: () => "added"});
  const capabilities = CAPABILITIES;
  const app = new App({name: "own", version: "1"}, capabilities, {autoResize: false});
  app.ontoolresult = (params) => seen.push(params);
  app.onteardown = async () => { seen.push("teardown"); return {}; };
  if (capabilities.tools) {
    app.onlisttools = async () => ({tools: [{name: "own_tool", inputSchema: {type: "object"}}]});
    app.oncalltool = async ({name}) => ({content: [{type: "text", text: "own " + name}]});
  }
  window.app = app;
  await DELAY;
  await app.connect();
  window.connected = true;
"""


def own_app(capabilities: str = "{}", delay: str = "0") -> str:
    """Such a page, with the client's capabilities and a delay before it connects."""
    return page_with_app(OWN_APP.replace("CAPABILITIES", capabilities).replace("DELAY", delay))


async def open_connected(host: Host, html: str) -> Frame:
    """Such a page, attached, with its client connected."""
    frame = await host.show(html)
    await host.until("host.calls('webmcp_attach').length")
    await frame.wait_for_function("() => window.connected")
    return frame


async def test_a_page_with_its_own_client_goes_on_working(host: Host, tmp_path: Path) -> None:
    """There is one initialize for both; its calls are proven, and each side gets its own answers and requests."""
    await host.attaches("add")
    await host.answers("return { bodyType: 'text', body: args.url };")
    await host.run("() => { host.tools.other = async (args) => ({ content: [{ type: 'text', text: 'other' }] }); }")
    frame = await open_connected(host, pack_html(tmp_path, own_app("{availableDisplayModes: ['inline']}")))
    results = await frame.evaluate(
        """async () => {
          const [mine, other, page] = await Promise.all([
            app.callServerTool({name: "http_request", arguments: {url: "/own"}}),
            app.callServerTool({name: "other", arguments: {}}),
            fetch("/fetched").then((response) => response.text()),
          ]);
          return [mine.structuredContent.body, other.content[0].text, page, app.getHostVersion().name, seen];
        }"""
    )
    assert results[:4] == ["/own", "other", "/fetched", "plain"]
    assert results[4] == [{"content": [{"type": "text", "text": "open"}], "_meta": {"other": 1}}]
    asked = await host.run("() => host.of('ui/initialize').map((m) => m.params)")
    assert [(one["appInfo"]["name"], one["appCapabilities"]) for one in asked] == [
        ("own", {"availableDisplayModes": ["inline"], "tools": {"listChanged": True}})
    ]
    assert await host.run("() => host.of('ui/notifications/initialized').length") == 1
    views = await host.run(
        "() => Object.fromEntries(host.calls('http_request').map((a) => [a.url, a._view.split('.')[1]]))"
    )
    assert sorted(views.values()) == ["1", "2"]
    assert "_view" not in (await host.run("() => host.calls('other')[0]"))
    assert (await host.run("() => host.ask(1, 'ui/resource-teardown', {})"))["result"] == {}
    assert "teardown" in await frame.evaluate("seen")
    assert (await host.run("() => host.ask(2, 'tools/call', {name: 'add'})"))["result"]["content"][0]["text"] == "added"
    assert await host.run("() => host.of('ui/notifications/size-changed').length") == 0


async def test_a_page_that_connects_late_is_not_a_second_view(host: Host, tmp_path: Path) -> None:
    """Its client gets the host's earlier answer, and the tool result that it missed."""
    await host.attaches()
    delay = "new Promise((resolve) => setTimeout(resolve, 600))"
    frame = await host.show(pack_html(tmp_path, own_app(delay=delay)))
    await host.until("host.calls('webmcp_attach').length")
    await frame.wait_for_function("() => window.connected && seen.length")
    await host.settled()
    assert await frame.evaluate("[connected, app.getHostVersion().name, seen.length]") == [True, "plain", 1]
    assert await host.run(
        "() => [host.of('ui/initialize').length, host.of('ui/notifications/initialized').length]"
    ) == [1, 1]


async def test_app_tools_of_the_page_and_of_its_client_are_one_list(host: Host, tmp_path: Path) -> None:
    """Each call reaches the owner of the tool, and is answered once."""
    await host.attaches("add", "own_tool")
    await open_connected(host, pack_html(tmp_path, own_app("{tools: {}}")))
    listed = await host.run("() => host.ask(1, 'tools/list')")
    assert sorted(tool["name"] for tool in listed["result"]["tools"]) == ["add", "own_tool"]
    texts = [
        (await host.run("([id, name]) => host.ask(id, 'tools/call', {name, arguments: {}})", [id, name]))["result"][
            "content"
        ]
        for id, name in ((2, "add"), (3, "own_tool"))
    ]
    assert json.dumps(texts) == json.dumps(
        [[{"type": "text", "text": "added"}], [{"type": "text", "text": "own own_tool"}]]
    )
    assert await host.run("() => host.log.filter((m) => m.id !== undefined && !m.method).map((m) => m.id)") == [1, 2, 3]


async def test_the_pages_own_client_reads_a_413(host: Host, tmp_path: Path) -> None:
    """The host only reports that a large call failed; for a small one the client reads the host's error."""
    await host.attaches()
    await host.run(
        "() => { host.tools.http_request = () => ({ failure: { code: -32000, message: 'HTTP 413' } }); }",
    )
    frame = await open_connected(host, pack_html(tmp_path, own_app()))
    seen = await frame.evaluate(
        """(sizes) => Promise.all(sizes.map((size) => app
          .callServerTool({name: "http_request", arguments: {url: "/x", method: "POST", body: "x".repeat(size)}})
          .then(({structuredContent}) => structuredContent.status, (error) => error.message)))""",
        [100_000, 10],
    )
    assert seen[0] == 413
    assert "HTTP 413" in seen[1]


async def test_an_approval_holds_the_call_of_the_pages_own_client(host: Host, tmp_path: Path) -> None:
    """The published clients would take the pending answer for the final one."""
    await host.attaches()
    await host.answers(
        "return { status: 202, bodyType: 'json', headers: { 'gateway-pending': 'p1' },"
        " body: { id: 'p1', message: '?', url: '' } };"
    )
    await host.run(
        "() => { host.tools.http_stream = async () => ({ content: [], structuredContent: { status: 200,"
        " headers: {}, url: '/x', bodyType: 'text', body: 'approved' } }); }"
    )
    frame = await open_connected(host, pack_html(tmp_path, own_app()))
    body = await frame.evaluate(
        "async () => (await app.callServerTool({name: 'http_request', arguments: {url: '/x'}})).structuredContent.body"
    )
    assert body == "approved"

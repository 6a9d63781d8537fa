"""The element `<mcp-app>` in Chromium: over a gateway, and with the host's own handlers."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from playwright.async_api import Page, expect

from gateway.mcp.asgi import Ending, User, serve
from gateway.model import LOCAL
from tests.browser.element_host import (
    CLIENT,
    HOST,
    SPEAK,
    PlainHost,
    app_in,
    bundled,
    gateway_host,
    in_app,
    insert,
    plain_host,
    until,
    until_app,
)
from tests.browser.stock_host import ROOT
from tests.world import running

OPENING = ["sandbox-proxy-ready", "sandbox-resource-ready", "initialize", "initialized"]
APP = "document.querySelector('mcp-app')"


@asynccontextmanager
async def shown(page: Page, properties: dict[str, Any] | None = None, script: str = "") -> AsyncIterator[PlainHost]:
    """A host page without a gateway, which shows an app that does what a test says."""
    async with plain_host() as host:
        await host.open(page)
        await insert(page, {**host.html(SPEAK), **(properties or {})}, script)
        await expect(app_in(page).locator("#out")).to_contain_text("ready")
        yield host


async def test_an_app_of_the_gateway_is_one_tag(page: Page, tmp_path: Path) -> None:
    """The cart is shown, its requests are answered, and the host hears of each step."""
    async with running(tmp_path) as world:
        await gateway_host(page, world, '<mcp-app gateway="/" app=cart title="Fennel"></mcp-app>')
        await expect(app_in(page).locator("[data-item-id]").first).to_be_visible()
        log = await until(page, "log.includes('initialized') && log")
        assert [name for name in log if name in OPENING] == OPENING


async def test_the_host_calls_the_page_s_tools_through_the_gateway(page: Page, tmp_path: Path) -> None:
    """By the element's methods and by a standard client; the policy holds for both, and the calls are recorded."""
    async with running(tmp_path) as world:
        await gateway_host(page, world, '<mcp-app gateway="/" app=cart title="Fennel"></mcp-app>')
        await expect(app_in(page).locator("[data-item-id]").first).to_be_visible()
        listed = f"async () => (await {APP}.listTools()).tools.map((tool) => tool.name).sort()"
        names = ["add_to_cart", "checkout", "get_cart", "remove_from_cart"]
        await until(page, f"async () => String((await {APP}.listTools()).tools.length) === '4'")
        assert await page.evaluate(listed) == names
        called = await page.evaluate(f"async () => await {APP}.callTool('get_cart')")
        assert called["content"]
        assert not called.get("isError")
        wrong = await page.evaluate(f"async () => await {APP}.callTool('add_to_cart', {{}})")
        assert "item_id" in wrong["content"][0]["text"]
        await page.evaluate(bundled(CLIENT))
        by_client = f"""async () => {{
          const client = new Client({{ name: "host", version: "1" }});
          await client.connect({APP}.transport);
          const {{ tools }} = await client.listTools();
          const called = await client.callTool({{ name: "get_cart", arguments: {{}} }});
          return [tools.map((tool) => tool.name).sort(), called];
        }}"""
        assert await page.evaluate(by_client) == [names, called]
        fields = [line["fields"] for line in world.records() if line["phase"] == "outcome"]
        calls = [(one["initiator"], one["door"]) for one in fields if one.get("tool") == "get_cart"]
        assert calls == [("model", "bridge")] * 2
        await world.gateway.stop()
        await world.start_gateway()
        again = f"() => {APP}.callTool('get_cart').then((result) => !result.isError, () => false)"
        await until(page, again)
        assert await page.evaluate("log.filter((name) => name === 'initialized').length") == 1
        assert "error" not in await page.evaluate("log")


async def test_a_host_without_a_gateway_answers_by_handlers(page: Page) -> None:
    """Page and answers are the host's; a missing handler is a missing capability."""
    answer = """app.onCallTool = (call, { signal }) => {
      if (call.name === "throw") throw new Error("no such city");
      if (call.name === "hang") return new Promise(() => (signal.onabort = () => (window.aborted = true)));
      if (call.name === "cycle") { const one = {}; one.self = one; return one; }
      if (call.name === "text") return "text";
      return { content: [], structuredContent: { ...call.arguments, leave: () => 1 } };
    };
    app.addEventListener("mcp-app-tools-call", (event) => {
      if (event.detail.name === "refused") event.preventDefault();
      if (event.detail.name === "own") event.detail.respondWith({ content: [], own: 1 });
      if (event.detail.name === "own") event.detail.respondWith({ content: [], own: 2 });
    });"""
    async with shown(page, {"tools": [{"name": "model", "visibility": ["model"]}, *NAMED]}, answer):
        capabilities = await in_app(page, "told.hostCapabilities")
        assert sorted(capabilities) == ["downloadFile", "logging", "openLinks", "sandbox", "serverTools"]
        assert (await in_app(page, "ask('resources/list')"))["error"]["code"] == -32601
        given = await in_app(page, "call('echo', { a: 1 })")
        assert given["result"]["structuredContent"] == {"a": 1}
        assert (await in_app(page, "call('own')"))["result"]["own"] == 1
        expected = {
            "throw": "no such city",
            "cycle": "onCallTool: its answer is not JSON",
            "text": "onCallTool: its answer is no MCP result",
            "refused": "The host refused this request",
            "model": "The tool model is for the model only",
            "unknown": 'There is no tool "unknown" for this app',
        }
        for name, words in expected.items():
            assert words in (await in_app(page, "call(arg)", name))["error"]["message"], name
        await in_app(page, "void call('hang').then((answer) => (window.hung = answer))")
        assert (await in_app(page, "call('echo', { b: 2 })"))["result"]["structuredContent"] == {"b": 2}
        await page.evaluate(f"{APP}.remove()")
        await until(page, "() => window.aborted")


NAMED = [{"name": name} for name in ("throw", "hang", "cycle", "text", "refused", "own", "echo")]


async def test_an_app_has_the_host_s_whole_context_and_each_change_of_it(page: Page) -> None:
    """Changes are sent alone, without showing the app anew; what is no context is left out, and reported."""
    await page.emulate_media(color_scheme="null")  # else it is the same in all frames
    async with shown(page):
        context = await in_app(page, "told.hostContext")
        assert sorted(context) == [
            "availableDisplayModes",
            "containerDimensions",
            "deviceCapabilities",
            "displayMode",
            "locale",
            "platform",
            "safeAreaInsets",
            "styles",
            "theme",
            "timeZone",
            "userAgent",
        ]
        assert context["availableDisplayModes"] == ["inline", "fullscreen"]  # the host's and the app's
        assert (context["theme"], context["displayMode"], context["platform"]) == ("light", "inline", "web")
        changes = (
            "heard.filter((one) => one.method === 'ui/notifications/host-context-changed').map((one) => one.params)"
        )
        await page.evaluate("document.documentElement.style.cssText = 'background: #111; --color-ring-info: teal'")
        await until_app(page, f"{changes}.some(({{ theme }}) => theme === 'dark')")
        (dark,) = await in_app(page, f"{changes}.filter((one) => one.theme)")
        assert sorted(dark) == ["styles", "theme"]
        assert dark["styles"]["variables"]["--color-ring-info"] == "teal"
        await page.set_viewport_size({"width": 500, "height": 600})
        await until_app(page, f"{changes}.some((one) => one.containerDimensions?.width < 500)")
        assert await in_app(page, f"{changes}.at(-1).theme") is None
        assert await in_app(page, "matchMedia('(prefers-color-scheme: dark)').matches")
        await page.evaluate(f"""() => {{
          const cycle = {{}};
          cycle.self = cycle;
          const much = "x".repeat(5_000_000);
          {APP}.hostContext = {{ locale: "de-CH", cycle, much, run: () => 1, "x-tenant": {{ id: 7, run: () => 1 }} }};
        }}""")
        await until_app(page, f"{changes}.some((one) => one.locale === 'de-CH')")
        assert (await in_app(page, f"{changes}.at(-1)")) == {"locale": "de-CH", "x-tenant": {"id": 7}}
        assert await page.evaluate("log.filter((name) => name === 'error').length") == 1
        named = (await page.evaluate("details.error"))["message"]
        assert "host-context.cycle" in named
        assert "host-context.much" in named
        await page.evaluate(f"{APP}.sendHostContext({{ locale: 'fr' }})")
        await until_app(page, f"{changes}.at(-1).locale === 'fr'")
        assert await in_app(page, "methods().filter((name) => name !== 'ui/notifications/host-context-changed')") == []
        assert await page.evaluate("log.filter((name) => name === 'initialize').length") == 1


async def test_an_app_hears_of_its_tool_call_in_order_and_once(page: Page) -> None:
    """Partial input, the input, the result; nothing without a call's id, and nothing twice."""
    async with shown(page, {"toolInput": {"city": "Bern"}, "toolResult": {"content": []}}) as host:
        assert await in_app(page, "methods()") == []
        assert "toolInfo" not in await in_app(page, "told.hostContext")
        await page.evaluate(f"{APP}.remove()")
        await insert(page, {**host.html(SPEAK), "toolCallId": "call-1", "toolName": "weather"})
        await expect(app_in(page).locator("#out")).to_contain_text("ready")
        assert (await in_app(page, "told.hostContext.toolInfo")) == {
            "id": "call-1",
            "tool": {"name": "weather", "inputSchema": {"type": "object"}},
        }
        await page.evaluate(f"""() => {{
          const app = {APP};
          app.sendToolInputPartial({{ city: "B" }});
          app.sendToolInputPartial({{ city: "Ber" }});
          app.toolInput = {{ city: "Bern" }};
          app.sendToolInputPartial({{ city: "late" }});
          app.toolInput = {{ city: "Basel" }};
          app.toolResult = {{ content: [{{ type: "text", text: "sunny" }}] }};
          app.cancelTool("too late");
        }}""")
        await until_app(page, "methods().includes('ui/notifications/tool-result')")
        assert await in_app(
            page, "heard.filter((one) => one.method).map((one) => [one.method.slice(17), one.params])"
        ) == [
            ["tool-input-partial", {"arguments": {"city": "B"}}],
            ["tool-input-partial", {"arguments": {"city": "Ber"}}],
            ["tool-input", {"arguments": {"city": "Bern"}}],
            ["tool-result", {"content": [{"type": "text", "text": "sunny"}]}],
        ]
        await page.evaluate(f"{APP}.toolCallId = 'call-2'; {APP}.toolResult = undefined; {APP}.cancelTool('enough')")
        await until(page, "() => log.filter((name) => name === 'initialized').length === 3")
        await until_app(page, "methods().includes('ui/notifications/tool-cancelled')")
        assert await in_app(page, "methods().map((one) => one.slice(17))") == ["tool-input", "tool-cancelled"]


async def test_what_an_app_asks_of_its_host_the_host_decides(page: Page) -> None:
    """By listeners that answer, prevent, or leave it to the element; a person confirms links and downloads."""
    answers = """app.addEventListener("mcp-app-message", (event) => {
      if (event.detail.content[0].text === "no") event.preventDefault();
    });
    app.onUpdateModelContext = (params) => void (window.context = params);
    app.addEventListener("mcp-app-open-link", (event) => {
      if (event.detail.url === "https://own.example/") event.detail.respondWith(true);
    });
    app.addEventListener("mcp-app-request-display-mode", (event) => window.refuses && event.preventDefault());
    window.opened = [];
    window.open = (url) => opened.push(url);"""
    allowed = ["https://own.example", "https://*.docs.example/guide/*"]
    async with shown(page, {"allowedLinks": allowed}, answers) as host:
        ask = "ask(arg[0], arg[1])"

        async def asked(method: str, **params: Any) -> Any:
            return (await in_app(page, ask, [method, params]))["result"]

        def text(words: str) -> list[dict[str, str]]:
            return [{"type": "text", "text": words}]

        assert not (await asked("ui/message", role="user", content=text("yes"))).get("isError")
        assert (await asked("ui/message", role="user", content=text("no")))["isError"]
        assert "error" not in await asked("ui/update-model-context", content=text("two items"))
        assert await page.evaluate("window.context") == {"content": text("two items")}
        assert not (await asked("ui/open-link", url="https://own.example/")).get("isError")
        for url in (
            "https://docs.example.evil/guide/",
            "https://a.docs.example/other",
            "javascript:1",
            "https://x@own",
        ):
            assert (await asked("ui/open-link", url=url))["isError"], url
        await in_app(page, "void ask('ui/open-link', { url: arg }).then((one) => (window.link = one))", LINK)
        dialog = page.get_by_role("dialog", name="Clock wants to open this link in a new tab.")
        await expect(dialog.locator("pre")).to_have_text(LINK)
        await dialog.get_by_role("button", name="Open link").click()
        assert (await until_app(page, "window.link"))["result"] == {"isError": False}
        assert await page.evaluate("opened") == [LINK]
        await in_app(page, "void ask('ui/download-file', { contents: [arg] }).then((one) => (window.file = one))", FILE)
        dialog = page.get_by_role("dialog", name="Clock offers this file.")
        await expect(dialog.locator("pre")).to_have_text("list.csv (3 bytes)")
        async with page.expect_download() as download:
            await dialog.get_by_role("button", name="Save").click()
        assert (await download.value).suggested_filename == "list.csv"
        tell = "tell({ method: 'notifications/message', params: { level: 'info', data: arg } })"
        await in_app(page, tell, "hello")
        await until(page, "details.log?.data === 'hello' && details['notifications-message'].data === 'hello'")
        await in_app(page, "tell({ method: 'ui/notifications/size-changed', params: { width: 10, height: 321 } })")
        await until(page, f"{APP}.shadowRoot.querySelector('iframe').offsetHeight === 321")
        assert (await asked("ui/request-display-mode", mode="pip"))["mode"] == "inline"  # the app does not declare it
        await page.evaluate("window.refuses = true")
        assert (await asked("ui/request-display-mode", mode="fullscreen"))["mode"] == "inline"
        await page.evaluate("window.refuses = false")
        assert (await asked("ui/request-display-mode", mode="fullscreen"))["mode"] == "fullscreen"
        assert await page.evaluate(f"[{APP}.displayMode, details['display-mode-changed'].from]") == [
            "fullscreen",
            "inline",
        ]
        told = "heard.findLast(({ method }) => method === 'ui/notifications/host-context-changed').params"
        assert (await until_app(page, told))["displayMode"] == "fullscreen"
        await page.evaluate(f"{APP}.setAttribute('display-mode', 'inline')")
        assert await until_app(page, f"{told}.displayMode === 'inline'")
        assert await page.evaluate("log.filter((name) => name === 'initialize').length") == 1
        assert host.port


LINK = "https://a.docs.example/guide/one?x=1"
FILE = {"type": "resource", "resource": {"uri": "file:///list.csv", "mimeType": "text/csv", "text": "a,b"}}


async def test_an_app_saves_its_state_before_it_goes(page: Page) -> None:
    """Its frame lives until it has answered, though the element has left the document; a silent app has a second.

    By `removeChild`, as frameworks do it, the frame lives on if `teardown()` was called just before.
    """
    script = f"""{SPEAK}
    window.saves = true;
    addEventListener("message", async ({{ data }}) => {{
      if (data.method !== "ui/resource-teardown") return;
      await call("save", {{ text: "draft" }});
      tell({{ id: data.id, result: {{}} }});
    }});"""
    async with plain_host() as host:
        await host.open(page)
        answer = "app.onCallTool = (call) => (saved.push(call.arguments.text), { content: [] })"
        await page.evaluate("window.saved = []")
        by_framework = f"{APP}.teardown(), {APP}.parentNode.removeChild({APP})"
        for leave in (f"{APP}.remove()", f"{APP}.replaceWith('gone')", by_framework, f"{APP}.teardown()"):
            await page.evaluate("saved.length = log.length = 0")
            await insert(page, host.html(script), answer)
            await until(page, "log.includes('initialized')")
            await page.evaluate(f"() => {{ {leave}; }}")
            await until(page, "saved[0] === 'draft'")
            await until(page, "() => !document.querySelector('iframe')")
        await page.evaluate(f"{APP}.remove()")
        await insert(page, host.html(SPEAK.replace("show", "heard.push") + "for (;;) if (parent.closed) break;"))
        await page.evaluate(f"{APP}.remove()")
        await until(page, "() => !document.querySelector('iframe')")


async def test_an_element_that_is_moved_or_changed_shows_its_app_again(page: Page) -> None:
    """Elsewhere in the document the app begins anew, in one frame; `moveBefore` keeps it; other HTML replaces it."""
    async with shown(page) as host:
        await page.evaluate(f"document.body.append(document.createElement('main')); {APP}.id = 'moved'")
        await page.evaluate(f"document.querySelector('main').moveBefore({APP}, null)")
        await page.evaluate(f"{APP}.hostContext = {{ locale: 'rm' }}")
        await until_app(page, "heard.some(({ params }) => params?.locale === 'rm')")
        await page.evaluate(f"document.body.append({APP})")
        await until(page, "log.filter((name) => name === 'initialized').length === 2")
        assert await in_app(page, "told.hostContext.locale") == "rm"
        await page.evaluate(f"(html) => {{ {APP}.resourceHtml = html }}", host.app(SPEAK + "show('other');"))
        await until(page, "log.filter((name) => name === 'initialized').length === 3")
        await until(page, f"{APP}.shadowRoot.querySelectorAll('iframe').length === 1")
        await expect(app_in(page).locator("#out")).to_contain_text("other")
        await until(page, f"{APP}.shadowRoot.querySelectorAll('iframe').length === 1")


async def test_an_app_that_cannot_be_shown_leaves_its_text_and_a_retry(page: Page) -> None:
    """A page that is never initialized stays in sight; a handler that fails is named; a retry shows the app."""
    async with plain_host() as host:
        await host.open(page)
        await insert(page, {**host.html("document.body.append('only a page')"), "timeout": 1, "fallbackText": "12:30"})
        alert = page.get_by_role("alert")
        await expect(alert).to_contain_text("12:30")
        await expect(alert).to_contain_text("was not initialized within 1 seconds")
        await expect(app_in(page).locator("body")).to_contain_text("only a page")
        assert (await page.evaluate("details.error"))["code"] == "timeout"
        await page.evaluate(f"{APP}.remove()")
        fails = """app.onReadResource = () => {
          if (!window.works) throw new Error("no such page");
          return { contents: [{ uri: "ui://clock/x", text: window.works, _meta: { ui: { prefersBorder: true } } }] };
        }"""
        properties = {"title": "Clock", "sandboxUrl": host.sandbox, "resourceUri": "ui://clock/x"}
        await insert(page, properties, fails)
        await expect(page.get_by_role("alert")).to_contain_text("Clock cannot be shown.")
        await expect(page.get_by_role("alert")).to_contain_text("no such page")
        await page.evaluate("(html) => { window.works = html }", host.app(SPEAK))
        await page.get_by_role("button", name="Try again").click()
        await expect(app_in(page).locator("#out")).to_contain_text("ready")
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.evaluate(f"{APP}.setAttribute('tool-input', '{{'); {APP}.setAttribute('display-mode', 'huge')")
        assert "display-mode: inline, fullscreen, pip" in (await page.evaluate("details.error"))["message"]
        await page.evaluate(f"{APP}.remove()")
        for wrong, words in WRONG:
            await insert(page, {"title": "Wrong", **wrong})
            await expect(page.get_by_role("alert")).to_contain_text(words)
            await page.evaluate(f"{APP}.remove()")


WRONG = [
    ({}, "`sandbox-url` names the sandbox proxy"),
    ({"gateway": ""}, "app: it is missing"),
    ({"gateway": "https://gateway.example/", "app": "cart"}, "does not answer this page: is it running"),
    ({"sandboxUrl": "/sandbox/proxy.html", "resourceHtml": "x"}, "another origin"),
    ({"sandboxUrl": "http://sandbox.localhost:1/"}, "resource-html: it is missing"),
]


NO_TOKEN = [
    ("() => fetch('http://127.0.0.1:1/')", "getToken failed: "),
    ("async () => ({ access_token: 'x' })", "getToken is no text but a value of the type object"),
    ("() => '<!doctype html>'", 'getToken is no token but a text that begins with "<!doctype html>"'),
    ("() => ''", "`getToken` has returned none"),
    ("() => 'unknown'", "the gateway answered 401: Which token?"),
]


async def test_what_is_no_token_is_named_at_a_page_of_another_origin(page: Page) -> None:
    """A back end that fails, an object, a page of an error, nothing, and a token that the gateway does not know."""
    headers = {"access-control-allow-origin": "*", "access-control-allow-headers": "*"}
    problem = {"status": 401, "headers": headers, "content_type": "application/problem+json"}
    async with plain_host() as host:
        await page.route(
            "http://gateway.test/**", lambda route: route.fulfill(**problem, body='{"detail": "Which token?"}')
        )
        await host.open(page)
        for get_token, words in NO_TOKEN:
            await insert(
                page, {"title": "A", "gateway": "http://gateway.test/", "app": "a"}, f"app.getToken = {get_token}"
            )
            await expect(page.get_by_role("alert")).to_contain_text(words)
            await page.evaluate(f"{APP}.remove()")


async def test_a_page_reaches_nothing_beyond_its_frame(page: Page) -> None:
    """Its policy is the resource's; messages of other windows, and forged ones, do nothing; a flood ends it alone."""
    async with shown(page, {"resourceMeta": {"csp": {"connectDomains": []}}}) as host:
        assert await in_app(page, "fetch(arg).then(() => 'reached', () => 'blocked')", f"{host.origin}/") == "blocked"
        assert (
            await in_app(
                page,
                "new Promise((go) => Object.assign(new Image(), { onload: go, onerror: () => go('no'), src: arg }))",
                f"{host.origin}/x.png",
            )
            == "no"
        )
        await page.evaluate("""() => {
          const forged = { jsonrpc: "2.0", id: 9, method: "tools/call", params: { name: "forged" } };
          const other = document.body.appendChild(document.createElement("iframe"));
          other.srcdoc = "<script>parent.postMessage(" + JSON.stringify(forged) + ", '*')</" + "script>";
          window.postMessage(forged, "*");
          return new Promise((go) => (other.onload = () => setTimeout(go, 200)));
        }""")
        assert "tools-call" not in await page.evaluate("log")
        await in_app(
            page,
            "parent.postMessage({ jsonrpc: '2.0', method: 'ui/notifications/sandbox-proxy-ready', params: {} }, '*')",
        )
        await in_app(page, "parent.postMessage({ jsonrpc: '2.0', id: 1, result: {} }, '*')")
        assert (await in_app(page, "ask('ping')"))["result"] == {}
        await in_app(page, "{ for (let n = 0; n < 8000; n++) parent.postMessage({ n }, '*'); }")
        await expect(page.get_by_role("alert")).to_contain_text("it sent too many messages")


async def test_fifty_apps_at_once_leave_the_page_responsive(page: Page) -> None:
    """All of them are initialized, one with ten megabytes of HTML, while the page answers."""
    async with plain_host() as host:
        await host.open(page)
        large = host.app(SPEAK) + f"<!-- {'x' * 10_000_000} -->"
        await page.evaluate(
            """async ([sandboxUrl, html, large]) => {
              await customElements.whenDefined("mcp-app");
              window.turns = 0;
              setInterval(() => turns++, 10);
              for (let n = 0; n < 50; n++) {
                const app = document.createElement("mcp-app");
                const own = { title: "Clock " + n, resourceHtml: n ? html : large };
                document.body.append(Object.assign(app, { sandboxUrl, timeout: 600, ...own }));
              }
            }""",
            [host.sandbox, host.app(SPEAK), large],
        )
        await until(page, "log.filter((name) => name === 'initialized').length === 50")
        assert await page.evaluate("turns") > 50  # else the page did nothing else for long


async def test_the_ten_lines_of_the_docs_are_a_host(page: Page) -> None:
    """They show the app of an MCP server, with the result of its call, and carry the app's own calls."""
    blocks = re.findall(r"```html\n(.*?)```", (ROOT / "docs" / "hosts.md").read_text("utf-8"), re.S)
    (ten,) = [block for block in blocks if "ten lines" in block]
    assert len(ten.splitlines()) == 10
    script = f"""{SPEAK}
    const isResult = (method) => method === "ui/notifications/tool-result";
    addEventListener("message", ({{ data }}) => isResult(data.method) && show(data.params.content[0].text));
    setTimeout(() => call("later").then(({{ result }}) => show(result.content[0].text)), 100);"""
    server: MCPServer[Any] = MCPServer("clock", log_level="WARNING")
    async with plain_host() as host:

        @server.resource("ui://clock/app.html", mime_type="text/html;profile=mcp-app")
        def app() -> str:
            return host.app(script)

        @server.tool()
        def now() -> str:
            """The time."""
            return "12:30"

        @server.tool()
        def later() -> str:
            """Another time."""
            return "12:31"

        allowed = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        asgi = server.streamable_http_app(transport_security=allowed)
        host.handlers["/mcp"] = lambda request: serve(asgi, request, User(LOCAL), Ending())
        host.pages["/host.js"] = bundled(HOST, "es")
        host.pages["/"] = ten.replace("SANDBOX", json.dumps(host.sandbox))
        async with server.session_manager.run():
            await page.goto(host.origin)
            out = app_in(page).locator("#out")
            await expect(out).to_contain_text("12:30")
            await expect(out).to_contain_text("12:31")


async def test_a_frame_that_was_prepared_is_the_next_app_s(page: Page) -> None:
    """It moves into the element with its state: neither the proxy nor what starts its process is loaded again."""
    count = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('proxy.html')).length"
    note = f"app.addEventListener('mcp-app-sandbox-proxy-ready', () => (window.loads = {count}))"
    async with plain_host() as host:
        await host.open(page)
        preload = "async (sandboxUrl) => (await import('/host/mcp-app.js')).preloadMcpApp({ sandboxUrl })"
        await page.evaluate(preload, host.sandbox)
        await until(page, f"{count} === 2")
        await insert(page, host.html(SPEAK), note)
        await expect(app_in(page).locator("#out")).to_contain_text("ready")
        assert await page.evaluate("loads") == 2


@pytest.mark.parametrize("package", ["@modelcontextprotocol/ext-apps", "ext-apps-1"])
async def test_apps_of_both_versions_of_ext_apps_are_at_home(page: Page, package: str) -> None:
    """Their own client is greeted, hears of its call and of the theme, calls a tool, and saves its state at the end."""
    script = bundled(EXT_APP.replace("PACKAGE", package)).replace("</script", "<\\/script")
    properties = {"toolCallId": "call-1", "toolInput": {"city": "Bern"}, "toolResult": {"content": []}}
    answer = """window.saved = [];
    app.onCallTool = ({ arguments: given }) => (saved.push(given), { content: [{ type: "text", text: "done" }] });"""
    async with plain_host() as host:
        await host.open(page)
        html = f"<!doctype html><meta charset=utf-8><body><p id=out></p><script>{script}</script></body>"
        await insert(page, {**host.html(""), "resourceHtml": html, **properties}, answer)
        out = app_in(page).locator("#out")
        for words in ("input Bern;", "result 0;", "theme light;", "called done;"):
            await expect(out).to_contain_text(words)
        await page.evaluate(f"{APP}.sendHostContext({{ theme: 'dark' }})")
        await expect(out).to_contain_text("changed dark;")
        await page.evaluate(f"{APP}.remove()")
        await until(page, "saved.some((one) => one.state === 'last')")


EXT_APP = """import { App } from "PACKAGE";
const show = (text) => (document.querySelector("#out").textContent += text + ";");
const app = new App({ name: "ext", version: "1" }, {});
app.ontoolinput = ({ arguments: given }) => show("input " + given.city);
app.ontoolresult = ({ content }) => show("result " + content.length);
app.onhostcontextchanged = ({ theme }) => show("changed " + theme);
app.onteardown = async () => (await app.callServerTool({ name: "save", arguments: { state: "last" } }), {});
app.connect().then(async () => {
  show("theme " + app.getHostContext().theme);
  show("called " + (await app.callServerTool({ name: "now", arguments: {} })).content[0].text);
});
"""

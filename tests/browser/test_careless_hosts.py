"""Host pages that give `<mcp-app>` what it cannot use: contexts, thrown values, tool data, addresses."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.element_host import app_in, in_app, insert, plain_host, until, until_app
from tests.browser.test_mcp_app import APP, shown

CONTEXTS = {
    "a getter that throws": "({ locale: 'de-CH', get theme() { throw new Error('boom'); } })",
    "a proxy that throws": "new Proxy({}, { ownKeys() { throw new Error('boom'); } })",
    "a proxy that is over": "(() => { const one = Proxy.revocable({}, {}); one.revoke(); return one.proxy; })()",
    "an unknown theme": "({ locale: 'de-CH', theme: 'purple' })",
    "modes that are no list": "({ locale: 'de-CH', availableDisplayModes: 'all' })",
    "insets without a side": "({ locale: 'de-CH', safeAreaInsets: { top: 1 } })",
    "sizes that are no numbers": "({ locale: 'de-CH', containerDimensions: { width: NaN } })",
    "variables that are no texts": "({ locale: 'de-CH', styles: { variables: { '--font-sans': 5 } } })",
    "too many members": "Object.fromEntries(Array.from({ length: 100_000 }, (_, n) => ['x' + n, n]))",
    "many that are too large": "Object.fromEntries(Array.from({ length: 900 }, (_, n) => ['x' + n, 'y'.repeat(3e5)]))",
    "a big integer": "({ locale: 'de-CH', n: 10n })",
}


@pytest.mark.parametrize("given", CONTEXTS.values(), ids=list(CONTEXTS))
async def test_a_context_that_no_app_could_read_is_named_once(page: Page, given: str) -> None:
    """The host goes on, its app too, which receives the rest."""
    async with shown(page):
        await page.evaluate(f"() => {{ log.length = 0; {APP}.hostContext = {given}; }}")
        assert (await page.evaluate("details.error"))["code"] == "bad-context"
        assert await page.evaluate("log.filter((name) => name === 'error').length") == 1
        assert len((await page.evaluate("details.error"))["message"]) < 1000
        changed = (
            "heard.filter(({ method }) => method === 'ui/notifications/host-context-changed').map((one) => one.params)"
        )
        if "de-CH" in given:
            await until_app(page, f"{changed}.some(({{ locale }}) => locale === 'de-CH')")
        await page.evaluate(f"{APP}.sendHostContext({{ locale: 'fr-CH' }})")
        await until_app(page, f"{changed}.some(({{ locale }}) => locale === 'fr-CH')")
        received: list[dict[str, Any]] = await in_app(page, changed)
        assert not any(
            "purple" in str(one) or "x0" in one or one.get("safeAreaInsets") == {"top": 1} for one in received
        )


THROWN = {
    "null": ("null", "Internal error"),
    "undefined": ("undefined", "Internal error"),
    "a text": ("'no such city'", "no such city"),
    "an object without a prototype": ("Object.create(null)", "Internal error"),
    "an error that cannot be read": ("({ get message() { throw 1; } })", "Internal error"),
    "an error with a function": ("Object.assign(new Error('full'), { code: -32001, data: { run() {} } })", "full"),
    "an error with a cycle": ("(() => { const e = new Error('full'); e.data = e; return e; })()", "full"),
    "a long text": ("new Error('x'.repeat(5e6))", "x" * 4000),
}


@pytest.mark.parametrize(("thrown", "words"), THROWN.values(), ids=list(THROWN))
async def test_whatever_a_handler_throws_the_page_has_an_answer(page: Page, thrown: str, words: str) -> None:
    """Of a tool, of a resource, of the host's own methods, and of what only the host can take."""
    script = f"""const fail = () => {{ throw {thrown}; }};
      const all = ["onReadResource", "onFallbackRequest", "onMessage", "onUpdateModelContext"];
      for (const name of all) app[name] = fail;
      app.onCallTool = async () => fail();
      const reject = (event) => event.detail.respondWith(Promise.reject({thrown}));
      app.addEventListener("mcp-app-request-display-mode", reject);"""
    message = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    asked = {
        "tools/call": {"name": "a", "arguments": {}},
        "resources/read": {"uri": "ui://clock/x"},
        "x/own": {},
        "ui/message": message,
        "ui/update-model-context": {},
        "ui/request-display-mode": {"mode": "fullscreen"},
    }
    async with shown(page, script=script):
        for method, params in asked.items():
            error = (await in_app(page, "ask(arg[0], arg[1])", [method, params]))["error"]
            assert error["message"] == words, method
            assert error["code"] == (-32001 if "-32001" in thrown else -32603)


@pytest.mark.parametrize(
    "address",
    [
        "javascript:void(top.ran = true)//",
        "data:text/html,<script>top.ran = true</script>",
        "about:blank",
        "blob:null/1",
    ],
)
async def test_a_sandbox_is_never_of_this_page(page: Page, address: str) -> None:
    """An address that is a script, or has no origin, loads nothing: also none that is prepared."""
    async with plain_host() as host:
        await host.open(page)
        await insert(page, {**host.html("document.body.append('x')"), "sandboxUrl": address})
        await expect(page.get_by_role("alert")).to_contain_text("the sandbox must have an address of https or http")
        prepare = "(sandboxUrl) => import('/host/mcp-app.js').then((host) => host.preloadMcpApp({ sandboxUrl }))"
        assert "https or http" in await page.evaluate(f"(url) => ({prepare})(url).then(() => '', String)", address)
        assert await page.evaluate("document.querySelectorAll('iframe').length") == 0
        assert await page.evaluate("window.ran") is None


async def test_tool_data_that_is_no_json_stops_no_app(page: Page) -> None:
    """It is named, before the app is shown and after, and the app goes without it."""
    cycle = "(() => { const one = {}; one.self = one; return one; })()"
    given = f"app.toolCallId = '1'; app.toolInput = {cycle}; app.toolResult = 'done';"
    async with shown(page, script=given):
        assert (await page.evaluate("details.error"))["code"] == "bad-attribute"
        assert "tool-result: it is not a JSON object" in (await page.evaluate("details.error"))["message"]
        heard = "heard.filter(({ method }) => method?.startsWith('ui/notifications/tool-'))"
        assert [one["params"] for one in await until_app(page, f"{heard}.length && {heard}")] == [{"arguments": {}}]
    async with shown(page, {"toolCallId": "1"}):
        await page.evaluate(
            f"() => {{ {APP}.sendToolInputPartial({cycle}); {APP}.toolInput = {cycle}; {APP}.toolResult = {cycle}; }}"
        )
        assert "tool-result: it is not JSON" in (await page.evaluate("details.error"))["message"]


async def test_lists_of_words_may_be_texts_and_nothing_else(page: Page) -> None:
    """A property takes what its attribute takes; another value is named. A tool's visibility is a list."""
    tools = [
        {"name": "a", "visibility": "not-app"},
        {"name": "b", "_meta": {"ui": {"visibility": "apple"}}},
        {"name": "c"},
    ]
    given = "app.onCallTool = () => ({ content: [] }); app.capabilities = 'message'; app.displayModes = 'pip';"
    async with shown(page, {"tools": tools}, given):
        assert "message" in await in_app(page, "told.hostCapabilities")
        assert await page.evaluate(f"{APP}.displayModes") == ["pip"]
        for value in ("5", "[1]", "{}"):
            await page.evaluate(f"() => {{ details.error = null; {APP}.allowedLinks = {value}; }}")
            await until(page, "() => details.error?.message === 'allowed-links: a list of texts'")
        for name, refused in (("a", True), ("b", True), ("c", False)):
            assert ("error" in await in_app(page, "call(arg)", name)) is refused
        await expect(app_in(page).locator("#out")).to_contain_text("ready")


UNREADABLE = {
    "toolName": ("({})", "tool-name: a text"),
    "toolCallId": ("Symbol()", "tool-call-id: a text"),
    "resourceUri": ("[1]", "resource-uri: a text"),
    "hostInfo": ("5", "hostInfo: {name, version}, two texts"),
}


@pytest.mark.parametrize("name", list(UNREADABLE))
async def test_what_no_app_could_read_is_named_and_left_out(page: Page, name: str) -> None:
    """An app of the SDK does not start with a host, a tool or an id that is no text; a number is one."""
    given, words = UNREADABLE[name]
    note = "window.problems = []; app.addEventListener('mcp-app-error', ({ detail }) => problems.push(detail.message));"
    async with shown(page, {"mcpAppId": 7, "toolCallId": "1"}, f"{note} app['{name}'] = {given};"):
        assert await page.evaluate("problems") == [words]
        assert await page.evaluate(f"{APP}.mcpAppId") == "7"
        told = await in_app(page, "told")
        assert told["hostInfo"] == {"name": "webmcp-gateway-host", "version": "1"}
        assert "toolInfo" not in told["hostContext"]

"""A page whose request cannot be carried gets an error answer: no request ends in silence."""

from pathlib import Path

from playwright.async_api import Page, expect

from tests.browser.test_own_client import page_with_app
from tests.world import running

CLIENT = """
  window.nested = (levels) => { let value = 1; while (levels-- > 0) value = { a: value }; return value; };
  window.cycle = { list: [] };
  cycle.list.push(cycle, cycle);
  window.app = new App({name: "own", version: "1"}, {}, {autoResize: false});
  await app.connect();
  document.querySelector("p").id = "ready";
"""
CALL = '{name: "http_request", arguments: {url: "/api/products", more: VALUE}}'
REQUESTS = {
    "deep": f'{{method: "tools/call", params: {CALL.replace("VALUE", "nested(70)")}}}',
    "deep beyond browsers": f'{{method: "tools/call", params: {CALL.replace("VALUE", "nested(2700)")}}}',
    "cycle": f'{{method: "tools/call", params: {CALL.replace("VALUE", "cycle")}}}',
    "not in JSON": f'{{method: "tools/call", params: {CALL.replace("VALUE", "1n")}}}',
    "deep read": '{method: "resources/read", params: {uri: "ui://x", more: nested(70)}}',
    "deep unknown": '{method: "unknown", params: nested(70)}',
    "extra member": '{method: "ping", more: 1}',
    "list": '{method: "ping", params: [1]}',
    "null": '{method: "ping", params: null}',
    "no text": "{method: 7}",
    "both": '{method: "ping", result: {}}',
    "meta": '{method: "ping", params: {_meta: 7}}',
    "token": '{method: "ping", params: {_meta: {progressToken: {}}}}',
    "large": '{method: "resources/read", params: {uri: "x".repeat(17_000_000)}}',
    "long id": '{id: "x".repeat(300), method: 7}',
    "fraction": '{id: 1.5, method: "ping"}',
}
ASK = """([text]) => new Promise((done) => {
  const { id, ...message } = new Function(`return ${text}`)();
  const own = id ?? crypto.randomUUID();
  addEventListener("message", ({ data }) => data?.id === own && (data.error || data.result) && done(data.error?.code));
  parent.postMessage({ jsonrpc: "2.0", id: own, ...message }, "*");
})"""


async def test_every_request_of_a_page_is_answered(page: Page, tmp_path: Path) -> None:
    """Also one that hosts drop as invalid, that browsers cannot deliver, or that the gateway has no room for."""
    source = tmp_path / "web"
    source.mkdir()
    (source / "index.html").write_text(page_with_app(CLIENT), "utf-8")
    async with running(tmp_path, source=source) as world:
        await page.goto(world.url)
        app = page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        await expect(app.locator("#ready")).to_be_visible()
        frame = page.frames[-1]
        codes = {name: await frame.evaluate(ASK, [text]) for name, text in REQUESTS.items()}
        call = (
            f"app.callServerTool({CALL.replace('VALUE', 'nested(70)')}).then(JSON.stringify, (error) => error.message)"
        )
        assert await frame.evaluate(call) == "cannot be sent: nested deeper than 64 levels"
    assert codes == dict.fromkeys(REQUESTS, -32600) | {
        "deep read": -32602,
        "deep unknown": -32601,
        "large": -32000,
    }

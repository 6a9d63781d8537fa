"""Page features besides requests, in an opaque frame without storage: rewritten documents, older APIs, shims."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest
from playwright.async_api import Page

from tests.browser.runtime_host import Host, host_server, pack_html, show_page
from tests.browser.test_leading_out import requests_of
from tests.browser.test_runtime_tools import CLIENT, ask

PAGE = "<!doctype html><html><body><p>page</p></body></html>"


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host that opens links."""
    async with host_server() as url:
        await page.goto(url)
        yield Host(page)


WRITE = """(html) => {
  host.frame ??= document.body.appendChild(document.createElement("iframe"));
  host.frame.contentDocument.open();
  host.frame.contentDocument.write(html);
  host.frame.contentDocument.close();
}"""
REWRITTEN = """<!doctype html><html><body><script>
document.modelContext.registerTool({ name: "add", description: "adds", execute: () => document.title });
function rewrite(open) {
  if (open) document.open();
  document.write("<!doctype html><title>new</title><a href='https://elsewhere.example/'>link</a>");
  document.write("<form action='/sent'><button>go</button></form><script>");
  document.write("addEventListener('DOMContentLoaded', () => document.title += document.readyState);");
  document.write("fetch('/api/a').then(async (response) => window.asked = await response.text())</" + "script>");
  document.close();
}</script></body></html>"""


@pytest.mark.parametrize(
    ("way", "late"),
    [("() => rewrite(true)", ""), ("() => rewrite()", ""), ("() => rewrite()", "<script src=/api/1></script>")],
)
async def test_a_page_may_write_its_document_anew(host: Host, tmp_path: Path, way: str, late: str) -> None:
    """With or without `open`, the runtime handles links, forms, requests and tools, and the page gets its events."""
    await host.answers("return { bodyType: 'text', body: args.url === '/api/1' ? 'window.ran = 1' : args.url };")
    frame = await show_page(host, tmp_path, late + REWRITTEN)
    await frame.wait_for_function("late => document.readyState === 'complete' && (!late || window.ran)", arg=late)
    await frame.wait_for_function("() => document.documentElement.dataset.tier === 'full'")
    await frame.evaluate(way)
    await frame.wait_for_function("() => window.asked === '/api/a' && document.documentElement.dataset.tier === 'full'")
    await frame.locator("a").click()
    await frame.locator("button").click()
    await host.until("host.calls('http_request').length > 1")
    assert await requests_of(host, "ui/open-link") == [{"url": "https://elsewhere.example/"}]
    await ask(host, 1, "initialize", CLIENT)
    answer = await ask(host, 2, "tools/call", {"name": "add"})
    assert (answer["result"]["content"][0]["text"], frame.url) == (
        "newinteractive",
        "about:srcdoc",
    )


async def test_a_host_may_write_another_page(host: Host, tmp_path: Path) -> None:
    """State of the page before in the same window does not separate the new page from its host."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    await host.in_our_host()
    for number in range(2):
        await host.run(WRITE, pack_html(tmp_path / str(number), REWRITTEN))
        frame = host.page.frames[-1]
        await frame.wait_for_function("() => document.documentElement.dataset.tier === 'full'")
        await frame.evaluate(
            "n => { fetch(`/api/${n}`).then(async (response) => (window.asked = await response.text())); }", number
        )
        await frame.wait_for_function("n => window.asked === `/api/${n}`", arg=number)


STOPPED = """<!doctype html><html><body><a href="https://elsewhere.example/">link</a><script>
const { contentWindow } = document.body.appendChild(document.createElement("iframe"));
document.querySelector("a").onclick = (event) => contentWindow.Event.prototype.stopPropagation.call(event);
</script></body></html>"""


async def test_a_click_may_be_stopped_by_the_method_of_a_frame(host: Host, tmp_path: Path) -> None:
    """A host that writes the page into a frame with an origin gives it this method: the host still opens the link."""
    await host.in_our_host()
    await host.run(WRITE, pack_html(tmp_path, STOPPED))
    frame = next(frame for frame in host.page.frames if frame.parent_frame == host.page.main_frame)
    await frame.wait_for_function("() => document.documentElement.dataset.tier === 'full'")
    await frame.locator("a").click()
    await host.until("host.of('ui/open-link').length")
    assert await frame.evaluate("document.links.length") == 1


async def test_a_web_socket_says_why_it_fails(host: Host, tmp_path: Path) -> None:
    """It fails as a native one does, with a message that names the remedy."""
    problem = {"status": 403, "headers": {"gateway-reason": "policy-denied"}, "bodyType": "json", "body": "{}"}
    await host.answers(f"return {json.dumps(problem)};")
    frame = await show_page(host, tmp_path, f"{PAGE}<script>WebSocket</script>")
    async with host.page.expect_console_message(lambda message: "policy explain WEBSOCKET" in message.text):
        failed = await frame.evaluate(
            "() => new Promise((done) => { const socket = new WebSocket('wss://cart.example/live');"
            " socket.onerror = ({ type }) => done([type, socket.readyState]); })"
        )
    assert failed == ["error", 3]


async def test_enter_in_a_form_without_a_button_sends_it(host: Host, tmp_path: Path) -> None:
    """Only a form with a single text field is sent, as in a browser."""
    await host.answers("return { status: 204 };")
    html = '<form action="/one" method="post"><input id="a" name="a"></form>'
    frame = await show_page(
        host, tmp_path, f'{html}<form action="/two" method="post"><input id="b" name="b"><input></form>'
    )
    await frame.locator("#b").press("Enter")
    await frame.locator("#a").fill("tea")
    await frame.locator("#a").press("Enter")
    await host.until("host.calls('http_request').length")
    calls = await host.run("host.calls('http_request').map(({ url, body }) => [url, body])")
    assert calls == [["/one", "a=tea"]]


@pytest.mark.parametrize("names", ["XMLHttpRequest", 'document.createElement( "script" )', "document.write(tag)"])
async def test_requests_of_the_older_kind_are_carried(host: Host, tmp_path: Path, names: str) -> None:
    """Pages that use XMLHttpRequest, or add scripts that may, have it."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    frame = await show_page(host, tmp_path, f"{PAGE}<script>{names}</script>")
    seen = await frame.evaluate(
        """() => new Promise((done) => {
          const request = new XMLHttpRequest();
          request.onloadend = () => done([request.responseText, request instanceof XMLHttpRequestEventTarget]);
          request.open("GET", "/x");
          request.send();
        })"""
    )
    assert seen == ["/x", True]


HEARD = """() => new Promise((go) => {
  addEventListener("message", (event) => go([event.origin === origin, event.origin === location.origin]));
  postMessage("x", "*");
})"""


@pytest.mark.parametrize(
    ("names", "own"), [("XMLHttpRequest", True), ("XMLHttpRequest; ({ selfRequestsOnly: true })", False)]
)
async def test_a_message_is_of_the_origin_that_a_page_reads(host: Host, tmp_path: Path, names: str, own: bool) -> None:
    """The exception is htmx 2, which requests only that site: there the origin is the backend's."""
    frame = await show_page(host, tmp_path, f"{PAGE}<script>{names}</script>")
    assert await frame.evaluate(HEARD) == [own, True]
    assert await frame.evaluate("new URL('/x', origin).origin === origin") is not own
    assert await frame.evaluate("() => { window.origin = 'mine'; return origin; }") == "mine"


@pytest.mark.parametrize("names", ["sessionStorage", "document.cookie", 'document.createElement( "script" )'])
async def test_what_opaque_origins_refuse_is_there(host: Host, tmp_path: Path, names: str) -> None:
    """Scripts that use it unconditionally run; feature detection finds no service workers and no caches.

    This holds for pages that name some of it, or add scripts that may.
    """
    frame = await show_page(host, tmp_path, f"{PAGE}<script>{names}</script>")
    seen = await frame.evaluate(
        """async () => {
          localStorage.theme = "dark";
          document.cookie = "a=1";
          history.pushState(null, "", "/deep/link");
          const there = ["caches", "indexedDB"].filter((name) => name in window);
          for (const name of ["serviceWorker", "locks", "storage"]) if (name in navigator) there.push(name);
          return [localStorage.theme, sessionStorage.length, document.cookie, there.join(), location.href];
        }"""
    )
    assert seen == ["dark", 0, "a=1", "", "about:srcdoc"]


async def test_the_author_of_a_router_that_needs_an_address_is_told(host: Host, tmp_path: Path) -> None:
    """The message appears once, and not for a router that uses the fragment."""
    frame = await show_page(host, tmp_path, f"{PAGE}<script>history.pushState</script>")
    async with frame.page.expect_console_message(lambda message: message.text == "end") as end:
        said: list[str] = []
        frame.page.on("console", lambda message: said.append(message.text))
        await frame.evaluate(
            """() => {
              for (const url of ["#/a", "/deep/link?x#b", "/other", undefined]) history.pushState(null, "", url);
              console.log("end");
            }"""
        )
    await end.value
    [told] = [text for text in said if text.startswith("webmcp-gateway: ")]
    assert "pushState shows no /deep/link?x in location" in told
    assert await frame.evaluate("location.hash") == ""


KEEPING = """<!doctype html><p>page</p><script>
  const { addEventListener: add, removeEventListener: remove } = EventTarget.prototype;
  const kept = new Map();
  EventTarget.prototype.addEventListener = function (type, listener, ...rest) {
    kept.set(listener, (event) => listener(event));
    return add.call(this ?? window, type, kept.get(listener), ...rest);
  };
  EventTarget.prototype.removeEventListener = function (type, listener, ...rest) {
    return remove.call(this ?? window, type, kept.get(listener), ...rest);
  };
  window.heard = [];
  for (const target of [window, document, new MessageChannel().port1]) {
    const hear = (event) => heard.push(event.type);
    target.addEventListener("hello", hear);
    target.removeEventListener("hello", hear);
    target.dispatchEvent(new Event("hello"));
  }
  const hear = () => heard.push("bare");
  addEventListener("hello", hear);
  removeEventListener("hello", hear);
  window.dispatchEvent(new Event("hello"));
</script>"""


async def test_a_page_that_keeps_listeners_itself_can_remove_them(host: Host, tmp_path: Path) -> None:
    """zone.js does so: it replaces the methods of `EventTarget`, and registers its own functions instead."""
    frame = await show_page(host, tmp_path, KEEPING)
    assert await frame.evaluate("heard") == []


async def test_a_comment_behind_the_page_is_no_error(host: Host, tmp_path: Path) -> None:
    """The comment is a child of the document; later additions of a script are still loaded."""
    errors: list[str] = []
    host.page.on("pageerror", lambda error: errors.append(error.message))
    await host.answers("return { bodyType: 'base64', body: 'AAAA', headers: { 'content-type': 'image/png' } };")
    frame = await show_page(host, tmp_path, "<!doctype html><html><body><p>page</p></body></html><!-- made in 1 s -->")
    await frame.evaluate(
        "() => { document.append(document.createComment('more'));"
        " document.body.insertAdjacentHTML('beforeend', '<img src=/api/a.png>'); }"
    )
    await host.until("host.calls('http_request').length")
    assert errors == []


async def test_a_digest_may_come_as_data(host: Host, tmp_path: Path) -> None:
    """The page does not contain the name of the option: it arrives in an object, and is checked all the same."""
    await host.answers("return { bodyType: 'text', body: 'hello' };")
    page = "<script>const ask = (options) => fetch('/api/a', options).then((answer) => answer.text(), String);</script>"
    frame = await show_page(host, tmp_path, page)
    asked = '(digest) => ask(JSON.parse(`{"integ${\'rity\'}": "sha256-${digest}"}`))'
    digest = b64encode(sha256(b"hello").digest()).decode()
    assert await frame.evaluate(asked, digest) == "hello"
    assert await frame.evaluate(asked, digest.swapcase()) == "TypeError: Failed to fetch"

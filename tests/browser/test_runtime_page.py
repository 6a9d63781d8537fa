"""What a page does besides requests, in an opaque frame that may neither navigate, open, save nor store."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, Page, expect

from tests.browser.runtime_host import Host, host_server, noticed, packed, shown
from tests.browser.test_runtime_tools import CLIENT, ask

PAGE = """<!doctype html><html><body>
<a id="out" href="https://elsewhere.example/x">out</a>
<a id="mail" href="mailto:shop@example.com?subject=Tea">mail</a>
<a id="call" href=" TEL:+4312345 ">call</a>
<a id="blank" href="/help" target="_blank">help</a>
<a id="save" href="/api/report" download="märz.csv">save</a>
<a id="attached" href="/api/report">attached</a>
<a id="page" href="/other.html">page</a>
<a id="taken" href="/routed">routed</a>
<a id="stopped" href="https://stopped.example/">stopped</a>
<a id="hash" href="#below">hash</a><p id="below">below</p>
<svg width="99" height="9"><a id="moved">
  <set attributeName="href" to="https://moved.example/"/><rect width="99" height="9"/></a></svg>
<script>
  // What is saved as a file comes of URL.createObjectURL.
  document.getElementById("taken").addEventListener("click", (event) => event.preventDefault());
  document.getElementById("stopped").addEventListener("click", (event) => event.stopPropagation());
</script></body></html>"""

REPORT = (
    "if (args.url !== '/api/report') return { bodyType: 'text', body: 'page' };"
    "return { bodyType: 'text', body: 'a,b', headers: { 'content-type': 'text/csv',"
    " 'content-disposition': 'attachment; filename=\"report.csv\"' } };"
)


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host that opens links and saves files."""
    async with host_server() as url:
        await page.goto(url)
        await page.evaluate("() => { host.capabilities.downloadFile = {}; }")
        yield Host(page)


async def asked(host: Host, method: str) -> list[Any]:
    """The parameters of every request of the view with this method."""
    found: list[Any] = await host.run(f"host.of('{method}').map(({{ params }}) => params)")
    return found


async def click(frame: Frame, id: str) -> None:
    """As a person does."""
    await frame.locator(f"#{id}").click()


async def test_links_that_lead_outside_are_opened_by_the_host(host: Host, tmp_path: Path) -> None:
    """Other origins, letters, new windows, clicks stopped or of the middle button; what its router takes stays."""
    await host.answers(REPORT)
    frame = await shown(host, tmp_path, PAGE)
    for id in ("out", "mail", "call", "blank", "stopped", "taken", "moved"):
        await click(frame, id)
    await frame.locator("#out").click(button="right")
    await frame.locator("#blank").click(button="middle")
    assert await frame.evaluate("() => window.open('/popup')") is None
    await host.until("host.of('ui/open-link').length > 7")
    urls = [params["url"] for params in await asked(host, "ui/open-link")]
    assert urls == [
        "https://elsewhere.example/x",
        "mailto:shop@example.com?subject=Tea",
        "tel:+4312345",
        "https://cart.invalid/help",
        "https://stopped.example/",
        "https://moved.example/",
        "https://cart.invalid/help",
        "https://cart.invalid/popup",
    ]
    assert frame.url == "about:srcdoc"


async def test_files_are_saved_by_the_host(host: Host, tmp_path: Path) -> None:
    """A link with `download`, one whose answer is an attachment, and the ways in which pages save what they made."""
    await host.answers(REPORT)
    frame = await shown(host, tmp_path, PAGE)
    await click(frame, "save")
    await host.until("host.of('ui/download-file').length > 0")
    await click(frame, "attached")
    await host.until("host.of('ui/download-file').length > 1")
    for count, name in ((3, "one.txt"), (4, "two.txt")):
        await frame.evaluate(
            """(name) => {
              const link = document.createElement("a");
              link.href = URL.createObjectURL(new Blob([name], { type: "text/plain" }));
              link.download = name;
              name === "one.txt" ? link.click() : link.dispatchEvent(new MouseEvent("click"));
            }""",
            name,
        )
        await host.until(f"host.of('ui/download-file').length === {count}")
    saved = [params["contents"][0]["resource"] for params in await asked(host, "ui/download-file")]
    assert [(one["uri"], one["mimeType"], one["blob"]) for one in saved] == [
        ("file:///m%C3%A4rz.csv", "text/csv", "YSxi"),
        ("file:///report.csv", "text/csv", "YSxi"),
        ("file:///one.txt", "text/plain", "b25lLnR4dA=="),
        ("file:///two.txt", "text/plain", "dHdvLnR4dA=="),
    ]


@pytest.mark.parametrize(
    ("id", "method"), [("save", "ui/download-file"), ("out", "ui/open-link"), ("mail", "ui/open-link")]
)
@pytest.mark.parametrize("how", ["cannot", "refuses", "fails"])
async def test_what_a_host_does_not_do_is_told_to_the_person(
    host: Host, tmp_path: Path, id: str, method: str, how: str
) -> None:
    """A host without the capability is not asked; of one that says no, or fails, nobody thinks that it was done."""
    await host.answers(REPORT)
    answer = {"cannot": "{}", "refuses": "{ isError: true }", "fails": "{ failure: { code: -32000, message: 'no' } }"}
    await host.run(
        f"() => {{ const {{ answer }} = host; if ('{how}' === 'cannot') host.capabilities = {{ serverTools: {{}} }};"
        f" host.answer = async (m) => m.method === '{method}' ? {answer[how]} : answer(m); }}"
    )
    frame = await shown(host, tmp_path, PAGE)
    await click(frame, id)
    said = {
        "save": "File not saved märz.csv",
        "out": "Link not opened https://elsewhere.example/x",
        "mail": "Link not opened mailto:shop@example.com?subject=Tea",
    }
    assert await noticed(frame) == said[id]
    assert bool(await asked(host, method)) is (how != "cannot")


async def test_a_form_that_goes_nowhere_is_told_to_the_person(host: Host, tmp_path: Path) -> None:
    """Where no host carries it; what the backend refuses is for the page to say."""
    await host.answers("return { status: 422 };")
    html = '<form action="/contact" method="post"><input name="a"><button>Send</button></form>'
    frame = await shown(host, tmp_path, html)
    await frame.evaluate(
        "() => { window.answered = new Promise((go) =>"
        " addEventListener('webmcp-gateway-response', ({ detail }) => go(detail.status))); }"
    )
    await frame.locator("button").click()
    assert await frame.evaluate("answered") == 422
    await expect(frame.locator("webmcp-gateway-notice")).to_have_count(0)
    await host.run("() => { host.capabilities = {}; }")
    frame = await shown(host, tmp_path, html)
    await frame.locator("button").click()
    assert await noticed(frame) == "Form not sent Send"


async def test_no_form_leaves_the_page_where_the_host_would_let_it(host: Host, tmp_path: Path) -> None:
    """Its answer would take the view's place: however it is submitted, it goes the way of requests."""
    await host.run("() => { host.sandbox += ' allow-forms'; }")
    await host.answers("return { bodyType: 'text', body: 'thanks' };")
    frame = await shown(
        host,
        tmp_path,
        '<form action="/sent" method="post"><input name="a" value="1"><button name="by">Send</button></form>',
    )
    await frame.evaluate("() => { window.still = true; }")
    await frame.locator("button").click()
    await frame.locator("input").press("Enter")
    await frame.evaluate("() => { const [form] = document.forms; form.requestSubmit(); form.submit(); }")
    await host.until("host.calls('http_request').length > 3")
    assert await host.run("host.calls('http_request').map(({ url, body }) => [url, body])") == [
        ["/sent", "a=1&by="],
        ["/sent", "a=1&by="],
        ["/sent", "a=1"],
        ["/sent", "a=1"],
    ]
    assert (frame.url, await frame.evaluate("still")) == ("about:srcdoc", True)


async def test_a_view_stays_at_its_page(host: Host, tmp_path: Path) -> None:
    """Another page of the app is named on the console; a fragment is gone to."""
    await host.answers(REPORT)
    frame = await shown(host, tmp_path, PAGE)
    async with host.page.expect_console_message(lambda message: "/other.html: another page" in message.text):
        await click(frame, "page")
    await click(frame, "hash")
    await frame.wait_for_function("() => location.href === 'about:srcdoc#below'")


REFRESHING = """<!doctype html><html><head><meta http-equiv="Refresh" content="0; URL='https://elsewhere.example/'">
<script>document.write('<meta http-equiv=refresh content="0;https://elsewhere.example/written">');</script></head><body><p>page
<script>window.name += "x"; if (window.name === "x") {
  const added = document.createElement("meta");
  added.setAttribute("http-equiv", "refresh");
  document.head.append(added);
  setTimeout(() => added.content = "0; url=https://elsewhere.example/added", 100);
  const later = document.createElement("template");
  later.innerHTML = '<p><meta http-equiv="refresh" content=".1 , url = /"></p>';
  setTimeout(() => document.body.append(later.content), 200);
  window.still = true;
}</script></body></html>"""


async def test_a_refresh_goes_where_a_link_does(host: Host, tmp_path: Path) -> None:
    """Elsewhere by the host, to the page itself by loading it anew; the frame is the app's as before."""
    frame = await shown(host, tmp_path, REFRESHING)
    await host.until("host.of('ui/open-link').length > 4")
    urls = [params["url"].removeprefix("https://elsewhere.example/") for params in await asked(host, "ui/open-link")]
    assert (sorted(urls[:3]), sorted(urls[3:])) == (["", "added", "written"], ["", "written"])
    assert await frame.evaluate("[window.name, window.still ?? null, location.href]") == ["xx", None, "about:srcdoc"]


UNNAMED = """() => {
  const meta = (equiv) => Object.assign(document.createElement("meta"), { content: "0; url=/gone", httpEquiv: equiv });
  document.head.append(meta("refresh"));
  document.body.insertAdjacentHTML("beforeend", `<b>${meta("Refresh").outerHTML}</b>`);
  const later = meta("");
  document.head.append(later);
  return new Promise((done) => setTimeout(() => {
    later.httpEquiv = "refresh";
    setTimeout(() => done([window.here, "navigation" in window]), 100);
  }));
}"""


async def test_a_refresh_that_no_word_of_the_page_tells_of_is_nothing(host: Host, tmp_path: Path) -> None:
    """It may come in HTML of the backend: the view stays, and the browser's own `navigation` leads nowhere, either."""
    frame = await shown(host, tmp_path, "<p>page<script>window.here = 1</script>")
    assert await frame.evaluate(UNNAMED) == [1, False]
    assert await frame.evaluate("location.href") == "about:srcdoc"


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
    """By `open` or without it: links, forms, requests and tools are the runtime's as before, and its events its own."""
    await host.answers("return { bodyType: 'text', body: args.url === '/api/1' ? 'window.ran = 1' : args.url };")
    frame = await shown(host, tmp_path, late + REWRITTEN)
    await frame.wait_for_function("late => document.readyState === 'complete' && (!late || window.ran)", arg=late)
    await frame.wait_for_function("() => document.documentElement.dataset.tier === 'full'")
    await frame.evaluate(way)
    await frame.wait_for_function("() => window.asked === '/api/a' && document.documentElement.dataset.tier === 'full'")
    await frame.locator("a").click()
    await frame.locator("button").click()
    await host.until("host.calls('http_request').length > 1")
    assert await asked(host, "ui/open-link") == [{"url": "https://elsewhere.example/"}]
    await ask(host, 1, "initialize", CLIENT)
    answer = await ask(host, 2, "tools/call", {"name": "add"})
    assert (answer["result"]["content"][0]["text"], frame.url) == (
        "newinteractive",
        "about:srcdoc",
    )


async def test_a_host_may_write_another_page(host: Host, tmp_path: Path) -> None:
    """Into the same window: what is kept of the one before does not stand between the next one and the host."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    await host.in_our_host()
    for number in range(2):
        await host.run(WRITE, packed(tmp_path / str(number), REWRITTEN))
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
    """Which a page has where its host writes it into a frame with an origin: the link is still opened by the host."""
    await host.in_our_host()
    await host.run(WRITE, packed(tmp_path, STOPPED))
    frame = next(frame for frame in host.page.frames if frame.parent_frame == host.page.main_frame)
    await frame.wait_for_function("() => document.documentElement.dataset.tier === 'full'")
    await frame.locator("a").click()
    await host.until("host.of('ui/open-link').length")
    assert await frame.evaluate("document.links.length") == 1


async def test_a_web_socket_says_why_it_fails(host: Host, tmp_path: Path) -> None:
    """It fails as the browser's own does."""
    frame = await shown(host, tmp_path, f"{PAGE}<script>WebSocket</script>")
    async with host.page.expect_console_message(lambda message: "no WebSocket" in message.text):
        failed = await frame.evaluate(
            "() => new Promise((done) => { const socket = new WebSocket('wss://cart.example/live');"
            " socket.onerror = ({ type }) => done([type, socket.readyState]); })"
        )
    assert failed == ["error", 3]


async def test_enter_in_a_form_without_a_button_sends_it(host: Host, tmp_path: Path) -> None:
    """Where only one field asks for text; else nothing, as in a browser."""
    await host.answers("return { status: 204 };")
    html = '<form action="/one" method="post"><input id="a" name="a"></form>'
    frame = await shown(
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
    """In a page that names them, or adds scripts that may."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    frame = await shown(host, tmp_path, f"{PAGE}<script>{names}</script>")
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
    """But in htmx 2, which asks no site but that: there it is the backend's."""
    frame = await shown(host, tmp_path, f"{PAGE}<script>{names}</script>")
    assert await frame.evaluate(HEARD) == [own, True]
    assert await frame.evaluate("new URL('/x', origin).origin === origin") is not own
    assert await frame.evaluate("() => { window.origin = 'mine'; return origin; }") == "mine"


@pytest.mark.parametrize("names", ["sessionStorage", "document.cookie", 'document.createElement( "script" )'])
async def test_what_opaque_origins_refuse_is_there(host: Host, tmp_path: Path, names: str) -> None:
    """Scripts that take it for granted run; those that ask first hear that there are no service workers and databases.

    That is, in a page that names some of it, or adds scripts that may.
    """
    frame = await shown(host, tmp_path, f"{PAGE}<script>{names}</script>")
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
    """Once, and not where a router keeps to the fragment."""
    frame = await shown(host, tmp_path, f"{PAGE}<script>history.pushState</script>")
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
    """As zone.js does: it replaces the methods of `EventTarget`, and puts functions of its own in their place."""
    frame = await shown(host, tmp_path, KEEPING)
    assert await frame.evaluate("heard") == []


async def test_a_comment_behind_the_page_is_no_error(host: Host, tmp_path: Path) -> None:
    """It stands in the document itself; what a script adds with it is loaded all the same."""
    errors: list[str] = []
    host.page.on("pageerror", lambda error: errors.append(error.message))
    await host.answers("return { bodyType: 'base64', body: 'AAAA', headers: { 'content-type': 'image/png' } };")
    frame = await shown(host, tmp_path, "<!doctype html><html><body><p>page</p></body></html><!-- made in 1 s -->")
    await frame.evaluate(
        "() => { document.append(document.createComment('more'));"
        " document.body.insertAdjacentHTML('beforeend', '<img src=/api/a.png>'); }"
    )
    await host.until("host.calls('http_request').length")
    assert errors == []

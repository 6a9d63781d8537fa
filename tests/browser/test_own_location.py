"""Scripts of a packed page read the app's own `location`, in whatever frame its host puts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, Page, expect

from tests.browser.runtime_host import CSP, ROOT, Host, host_server, pack_html

SCRIPT = """
  const moved = (move) => new Promise((go) => {
    addEventListener("popstate", () => setTimeout(go), { once: true });
    move();
  });
  const place = () => {
    const { href } = location;
    return [href.replace("https://cart.invalid", ""), document.baseURI === href, history.state];
  };
  async function walk() {
    const seen = [place()];
    history.pushState({ at: 5 }, "", "orders/5?x#y");
    seen.push(place());
    location.hash = "#z";
    seen.push(place());
    await moved(() => history.go(-2));
    seen.push(place());
    await moved(() => history.forward());
    seen.push(place());
    history.replaceState(null, "", "6");
    return [...seen, place()];
  }
  function go(how, to) {
    if (how === "") location = to;
    else if (how === "twice") for (const url of ["/", to]) location = url;
    else if (typeof location[how] === "function") location[how](to);
    else location[how] = to;
  }
"""
PAGE = f"<!doctype html><body><p id=below>page</p><script>{SCRIPT}</script></body>"
WALKED = [
    ["/", True, None],
    ["/orders/5?x#y", True, {"at": 5}],
    ["/orders/5?x#z", True, None],
    ["/", True, None],
    ["/orders/5?x#y", True, {"at": 5}],
    ["/orders/6", True, None],
]

READS = Path(__file__).parent / "pages" / "reads.html"

SHOW = """([kind, html]) => {
  const frame = document.createElement("iframe");
  if (kind === "srcdoc") Object.assign(frame, { sandbox: "allow-scripts", srcdoc: html });
  if (kind === "src") frame.src = "/app.html?of=host";
  if (kind === "write") frame.src = "/empty.html";
  if (kind === "blob") frame.src = URL.createObjectURL(new Blob([html], { type: "text/html" }));
  const loaded = new Promise((go) => frame.addEventListener("load", go));
  document.body.append(frame);
  return loaded.then(() => {
    if (kind !== "write") return;
    frame.contentDocument.open();
    frame.contentDocument.write(html);
    frame.contentDocument.close();
  });
}"""


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host on a real server."""
    async with host_server(CSP.replace("frame-src", "frame-src 'self'")) as url:
        await page.goto(url)
        yield Host(page)


@pytest.mark.parametrize("kind", ["srcdoc", "src", "blob", "write"])
async def test_each_entry_has_its_url_in_every_frame(host: Host, tmp_path: Path, kind: str) -> None:
    """Entries are pushed, changed by fragment, traversed both ways, and replaced."""
    html = pack_html(tmp_path, PAGE)
    await host.page.route("**/app.html*", lambda route: route.fulfill(body=html, content_type="text/html"))
    await host.page.route("**/empty.html", lambda route: route.fulfill(body="", content_type="text/html"))
    await host.run(SHOW, [kind, html])
    assert await host.page.frames[-1].evaluate("walk()") == WALKED


async def test_outside_of_a_host_a_packed_page_reads_where_it_is(host: Host, tmp_path: Path) -> None:
    """Without a host it is a page like any other."""
    html = pack_html(tmp_path, PAGE)
    await host.page.route("**/app.html*", lambda route: route.fulfill(body=html, content_type="text/html"))
    await host.page.goto(host.page.url.replace("host.html", "app.html?own"))
    assert await host.page.evaluate("place()[0] === document.URL && document.URL.endsWith('/sub/app.html?own')")


async def show_html(host: Host, html: str) -> Frame:
    """The page in our own host, with an empty backend."""
    await host.in_our_host()
    await host.answers("return { status: 404 }")
    frame = await host.show(html)
    await host.until("host.of('ui/notifications/initialized').length")
    return frame


async def anew(frame: Frame, how: str, to: str | None = None) -> Any:
    """The app's location after a reload by this method."""
    await frame.evaluate("(given) => { window.before = true; setTimeout(() => go(...given)); }", [how, to])
    await frame.wait_for_function("() => !window.before && typeof place === 'function'")
    return (await frame.evaluate("place()"))[0]


async def test_the_app_is_loaded_anew_where_it_was(host: Host, tmp_path: Path) -> None:
    """A reload, and navigation to an earlier path, reload the app; the window's name stays."""
    frame = await show_html(host, pack_html(tmp_path, PAGE))
    await frame.evaluate("() => { window.name = 'mine'; history.pushState(null, '', '/orders/5?x#y'); }")
    assert await anew(frame, "reload") == "/orders/5?x#y"
    assert await anew(frame, "search", "?z") == "/orders/5?z#y"
    assert await anew(frame, "", "/orders/5") == "/orders/5"
    assert await anew(frame, "assign", "/?home") == "/?home"
    await frame.evaluate("history.pushState(null, '', '/orders/5')")
    assert await anew(frame, "twice", "/?home") == "/?home"
    assert await frame.evaluate("name") == "mine"


async def test_the_way_elsewhere_is_that_of_a_link(host: Host, tmp_path: Path) -> None:
    """Other sites are opened by the host; a missing page of the app is logged on the console; the app stays."""
    frame = await show_html(host, pack_html(tmp_path, PAGE))
    for how in ("href", "", "assign", "replace"):
        await frame.evaluate("(how) => go(how, `https://docs.example/${how}`)", how)
    await host.until("host.of('ui/open-link').length === 4")
    opened = await host.run("() => host.of('ui/open-link').map(({ params }) => params.url)")
    assert opened == [f"https://docs.example/{how}" for how in ("href", "", "assign", "replace")]
    async with host.page.expect_console_message(lambda message: "another page" in message.text):
        await frame.evaluate("go('pathname', '/elsewhere')")
    failed = await frame.evaluate("() => { try { go('href', 'http://['); } catch (error) { return error.name; } }")
    assert failed == "SyntaxError"
    assert (await frame.evaluate("place()"))[0] == "/"


async def test_a_base_counts_as_it_says(host: Host, tmp_path: Path) -> None:
    """Relative URLs resolve against it at any location, and routers find the element."""
    frame = await show_html(
        host, pack_html(tmp_path, PAGE.replace("<body>", "<head><base href='/shop/'></head><body>"))
    )
    seen = """() => {
      history.pushState(null, "", "orders/5");
      const link = Object.assign(document.createElement("a"), { href: "x" });
      const { origin } = new URL(document.baseURI);
      const written = document.querySelector("base").getAttribute("href");
      const urls = [written, document.baseURI, link.href, new Request("x").url, document.URL];
      return urls.map((one) => one.replace(origin, ""));
    }"""
    assert await frame.evaluate(seen) == ["/shop/", "/shop/", "/shop/x", "/shop/x", "/shop/orders/5"]


async def test_requests_and_links_are_relative_to_where_the_app_is(host: Host, tmp_path: Path) -> None:
    """A fragment of another path is on another page, as on the app's own site."""
    frame = await show_html(host, pack_html(tmp_path, PAGE))
    await frame.evaluate("() => { history.pushState(null, '', '/orders/5'); void fetch('lines'); }")
    await host.until("host.calls('http_request').some(({ url }) => url === '/orders/lines')")
    await frame.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<a href=/orders/5#below>b</a><a href=/two#top>t</a>')"
    )
    await frame.get_by_text("b", exact=True).click()
    await frame.wait_for_function("() => place()[0] === '/orders/5#below'")
    async with host.page.expect_console_message(lambda message: "/two#top: another page" in message.text):
        await frame.get_by_text("t", exact=True).click()
    assert (await frame.evaluate("place()"))[0] == "/orders/5#below"


async def test_each_form_of_a_read_gives_what_it_does_on_the_apps_own_site(host: Host, tmp_path: Path) -> None:
    """Every syntax of a read is covered."""
    page = READS.read_text("utf-8")
    own = await host.page.context.new_page()
    await own.route("**/*", lambda route: route.fulfill(body=page, content_type="text/html"))
    await own.goto("https://cart.invalid/")
    native = await own.evaluate("readAll()")
    await own.close()
    frame = await show_html(host, pack_html(tmp_path, page))
    assert await frame.evaluate("readAll()") == native


async def test_scripts_that_are_loaded_later_read_what_they_write_out(host: Host, tmp_path: Path) -> None:
    """Scripts of the backend, and chunks that webpack loads, read the app's location."""
    late = "late = [location.pathname, window.location.search, (({ location: a }) => a.protocol)(window)]"
    page = f"<!doctype html><body><script src=/api/one.js></script><script>{SCRIPT}</script></body>"
    own = await host.page.context.new_page()
    await own.route("**/*.js", lambda route: route.fulfill(body=late, content_type="text/javascript"))
    await own.route("https://cart.invalid/", lambda route: route.fulfill(body=page, content_type="text/html"))
    await own.goto("https://cart.invalid/")
    await host.in_our_host()
    await host.answers(
        f"return {{ bodyType: 'text', body: {late!r}, headers: {{ 'content-type': 'text/javascript' }} }}"
    )
    later = """() => new Promise((go) => {
      const first = late;
      history.pushState(null, "", "/orders/5?x");
      const script = document.head.appendChild(document.createElement("script"));
      Object.assign(script, { onload: () => go([first, late]), src: "/api/two.js" });
    })"""
    native = await own.evaluate(later)
    await own.close()
    frame = await host.show(pack_html(tmp_path, page))
    await frame.wait_for_function("() => typeof late === 'object'")
    seen = await frame.evaluate(later)
    # An alias refers to the frame's location.
    assert [one.pop() for one in seen] == ["about:", "about:"]
    assert seen == [one[:2] for one in native] == [["/", ""], ["/orders/5", "?x"]]


SPEAKING = """
  const heard = () => new Promise((go) => {
    const heard = [];
    addEventListener("message", ({ data, origin: from, source }) => {
      if (source !== window) return;
      heard.push([data, from === location.origin, from === origin]);
      if (data === "last") go(heard);
    });
    const to = location.origin, { self: me } = window, channel = new MessageChannel();
    postMessage("*", "*");
    postMessage("/", "/");
    postMessage("own", location.origin);
    window.postMessage("kept", to);
    me?.self.postMessage("page", `${location.href}?a`, []);
    window.postMessage("elsewhere", new URL("https://docs.example").origin);
    parent.postMessage({ jsonrpc: "2.0", method: "x/lost" }, to);
    parent.postMessage({ jsonrpc: "2.0", method: "x/heard" }, "*");
    channel.port1.onmessage = ({ data: [text, port] }) => port.postMessage(text);
    channel.port2.onmessage = () => postMessage("last", to);
    channel.port2.start();
    const sent = new MessageChannel(), transfer = [sent.port2];
    sent.port1.onmessage = ({ data }) => postMessage(data, to);
    channel.port2.postMessage(["last", sent.port2], transfer);
  });
"""


async def test_a_page_hears_itself_by_its_own_origin(host: Host, tmp_path: Path) -> None:
    """Messages to the origin that it reads arrive; those to other origins are handled as usual."""
    frame = await show_html(host, pack_html(tmp_path, PAGE.replace("function go(", f"{SPEAKING} function go(")))
    assert await frame.evaluate("heard()") == [[said, True, True] for said in ("*", "/", "own", "kept", "page", "last")]
    await host.until("host.of('x/heard').length")
    assert await host.run("() => host.of('x/lost')") == []


async def test_forms_lead_where_links_do(host: Host, tmp_path: Path) -> None:
    """Their actions are relative to the app's location; without one, they are the location itself."""
    frame = await show_html(host, pack_html(tmp_path, PAGE))
    await frame.evaluate("history.pushState(null, '', '/orders/5?x')")
    seen = """() => {
      document.body.insertAdjacentHTML("beforeend",
        "<form action=lines><button formaction=/a>a</button><input type=submit formaction=b#c></form>" +
        "<form action><button>b</button></form><form action='https://['></form>");
      const [one, empty, wrong] = document.forms;
      const read = [one, empty, wrong].map(({ action }) => action);
      read.push(...[...document.querySelectorAll("form button, form input")].map(({ formAction }) => formAction));
      one.action = "/set";
      return [...read, one.action, one.getAttribute("action")].map((url) => url.replace("https://cart.invalid", ""));
    }"""
    assert await frame.evaluate(seen) == [
        "/orders/lines", "/orders/5?x", "https://[", "/a", "/orders/b#c", "/orders/5?x", "/set", "/set",
    ]  # fmt: skip


async def test_pages_that_htmx_swaps_are_there_again_on_the_way_back(host: Host, tmp_path: Path) -> None:
    """htmx uses the history, since the browser's Navigation API, which it prefers, would not notify it there."""
    (tmp_path / "htmx.js").write_bytes((ROOT / "browser/node_modules/htmx.org/dist/htmx.min.js").read_bytes())
    page = '<body hx-boost:inherited=true><h1>First</h1><a href="/api/one">Go</a></body>'
    html = pack_html(tmp_path, f"<!doctype html><script src=htmx.js></script>{page}")
    await host.in_our_host()
    answer = page.replace('"', r"\"").replace("First", '" + args.url + "').replace("/one", "/two")
    await host.answers(f'return {{ bodyType: "text", body: "{answer}", headers: {{ "content-type": "text/html" }} }}')
    frame = await host.show(html)
    for name in ("/api/one", "/api/two"):
        await frame.get_by_text("Go").click()
        await expect(frame.locator("h1")).to_have_text(name)
    await frame.evaluate("history.back()")
    await expect(frame.locator("h1")).to_have_text("/api/one")


def test_what_is_added_is_small(tmp_path: Path) -> None:
    """It is added only if a script reads `location`, or a URL that the page resolves."""
    without = pack_html(tmp_path, PAGE.replace("location", "elsewhere").replace("baseURI", "title"))
    assert 0 < len(pack_html(tmp_path, PAGE)) - len(without) < 8_000


@pytest.mark.parametrize("kind", ["srcdoc", "write"])
async def test_a_page_finds_its_own_location_at_the_top(host: Host, tmp_path: Path, kind: str) -> None:
    """As natively, where it is the top: reading throws nothing, messages reach the host, and nothing navigates it."""
    script = (
        "function read() { const seen = [new URL(top.location).href, parent.location.pathname, top === self];"
        "parent.postMessage({ said: 'to the host' }, { targetOrigin: '*' });"
        "try { top.location = 'about:blank#away'; } catch (error) { seen.push(error.name); } return seen; }"
    )
    html = pack_html(tmp_path, f"<!doctype html><body><script>{script}</script></body>")
    await host.page.route("**/empty.html", lambda route: route.fulfill(body="", content_type="text/html"))
    await host.page.evaluate("addEventListener('message', ({ data }) => { if (data.said) window.said = data.said; })")
    await host.run(SHOW, [kind, html])
    seen = await host.page.frames[-1].evaluate("read()")
    assert seen[:3] == ["https://cart.invalid/", "/", False]
    await host.page.wait_for_function("window.said === 'to the host'")
    assert "about:blank" not in host.page.url


async def test_the_runtime_keeps_the_browsers_classes(host: Host, tmp_path: Path) -> None:
    """A page may replace them by polyfills, which lack what is newer than they are."""
    polyfills = (
        "const Native = Promise; self.Promise = function (run) { const made = new Native(run);"
        " return { then: (...given) => made.then(...given) }; };"
        " self.Map = self.Set = self.WeakMap = function () { throw new Error('polyfill'); };"
        " void fetch('/api/cart');"
    )
    await show_html(host, pack_html(tmp_path, f"<!doctype html><body><script>{polyfills}</script></body>"))
    await host.until("host.calls('http_request').some(({ url }) => url === '/api/cart')")

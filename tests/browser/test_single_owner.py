"""A page has one speaker, whatever clients it bundles, and in whatever frame a host shows it."""

import re
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

import pytest
from playwright.async_api import Browser, Frame, Page

from tests.browser.runtime_host import CSP, ROOT, Host, host_server, pack_html

MODULES = ROOT / "browser" / "node_modules"

FRAMES = {
    "srcdoc": "frame.sandbox = 'allow-scripts'; frame.srcdoc = html;",
    "src": "frame.sandbox = 'allow-scripts'; frame.src = '/sub/app.html';",
    "blob": "frame.sandbox = 'allow-scripts'; frame.src = URL.createObjectURL(new Blob([html], {type: 'text/html'}));",
    "write": "",
    "proxy": "frame.sandbox = 'allow-scripts allow-same-origin allow-forms'; frame.src = 'http://proxy.test/';",
}
"""The frames in which hosts show a page.

`write`: an empty document of an origin that the page can read; `proxy`: the same in a page of another origin, which
relays messages.
"""

WRAPPING = """<script>
  const real = window.parent;
  const wrapped = { postMessage: (...given) => real.postMessage(...given) };
  Object.defineProperty(window, "parent", { value: wrapped, configurable: true });
  const add = window.addEventListener;
  window.addEventListener = function (type, listener, options) {
    if (type !== "message") return add.call(window, type, listener, options);
    return add.call(window, type, (event) => {
      if (event.source !== real) return listener(event);
      const made = new MessageEvent("message", { data: event.data, origin: event.origin });
      Object.defineProperty(made, "source", { value: wrapped });
      listener(made);
    }, options);
  };
</script>"""
"""A script that hosts may put before a page, which takes the wrapper for its host."""


@pytest.fixture(scope="module")
async def place(browser: Browser) -> AsyncIterator[tuple[Page, str]]:
    """A browser page, and the URL of a plain host for it."""
    proxy = (Path(__file__).parent / "runtime" / "proxy.html").read_text("utf-8")
    policy = {"content-security-policy": CSP.replace("'none'", "'self' 'unsafe-inline'", 1)}
    async with (
        host_server(CSP.replace("frame-src", "frame-src 'self' http://proxy.test")) as url,
        await browser.new_context() as context,
    ):
        page = await context.new_page()
        await page.route(
            "http://proxy.test/", lambda route: route.fulfill(body=proxy, content_type="text/html", headers=policy)
        )
        yield page, url


@pytest.fixture
async def host(place: tuple[Page, str]) -> Host:
    """The reloaded host."""
    page, url = place
    await page.goto(url)
    return Host(page)


def client(package: str) -> str:
    """The published client of MCP Apps in this package, connected as its documentation describes."""
    code = (MODULES / package / "dist/src/app-with-deps.js").read_text("utf-8").replace("</script", "<\\/script")
    name = re.search(r"([\w$]+) as App\b", code)
    assert name is not None
    connect = f"window.app = new {name[1]}({{name: 'own', version: '1'}}, {{}}, {{autoResize: false}});"
    return f'<script type="module">{code}\n{connect} await app.connect(); window.connected = true;</script>'


def polyfill() -> str:
    """@mcp-b/global, with a tool."""
    code = (MODULES / "@mcp-b/global/dist/index.iife.js").read_text("utf-8").replace("</script", "<\\/script")
    tool = "{name: 'add', description: 'd', inputSchema: {type: 'object'}, execute: async () => 'added'}"
    return f"<script>{code}</script><script>document.modelContext.registerTool({tool});</script>"


PAGES: dict[str, Callable[[], str]] = {
    "neither": lambda: "",
    "app-1": lambda: client("ext-apps-1"),
    "app-2": lambda: client("@modelcontextprotocol/ext-apps"),
    "mcp-b": polyfill,
    "both-1": lambda: polyfill() + client("ext-apps-1"),
    "both-2": lambda: polyfill() + client("@modelcontextprotocol/ext-apps"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The packed page of each kind, packed once."""

    @cache
    def page(kind: str) -> str:
        return pack_html(tmp_path_factory.mktemp("page"), f"<!doctype html><p>page</p>{PAGES[kind]()}")

    return page


async def show_page_of_kind(host: Host, kind: str, html: str) -> None:
    """Show the page in a frame of this kind."""
    await host.page.unroute("**/sub/app.html")
    await host.page.route("**/sub/app.html", lambda route: route.fulfill(body=html, content_type="text/html"))
    await host.run(
        "([html, kind, how]) => { const frame = document.createElement('iframe'); host.frame = frame;"
        " if (kind !== 'write') new Function('frame', 'html', how)(frame, html); document.body.append(frame);"
        " if (kind === 'write') { frame.contentDocument.open(); frame.contentDocument.write(html);"
        " frame.contentDocument.close(); } }",
        [html, kind, FRAMES[kind]],
    )
    if kind == "proxy":
        await host.until("host.of('ui/notifications/sandbox-proxy-ready').length")
        await host.run("html => host.notify('ui/notifications/sandbox-resource-ready', { html })", html)


async def show_in_frame(host: Host, kind: str, html: str) -> Frame:
    """The page in a frame of this kind, once its scripts have run and its host has initialized it."""
    await show_page_of_kind(host, kind, html)
    await host.until("host.of('ui/notifications/initialized').length")
    frame = host.page.frames[-1]
    await frame.wait_for_function("() => document.readyState === 'complete'")
    return frame


def complaints(page: Page) -> list[str]:
    """The errors of the page and its frames, as they occur, except for missing files such as the icon."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda line: errors.append(line.text) if line.type == "error" and "404" not in line.text else None,
    )
    return errors


@pytest.mark.parametrize("script", ["", WRAPPING], ids=["plain", "wrap"])
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("page_kind", PAGES)
async def test_a_page_has_one_speaker(
    host: Host, pages: Callable[[str], str], page_kind: str, frame: str, script: str
) -> None:
    """There is one `ui/initialize`, each call has its own answer, and no console has an error."""
    errors = complaints(host.page)
    await host.in_our_host()
    await host.answers("return { bodyType: 'text', body: args.url };")
    await host.run("() => { host.tools.other = async () => ({ content: [{ type: 'text', text: 'other' }] }); }")
    view = await show_in_frame(host, frame, script + pages(page_kind))
    with_client = page_kind.endswith(("-1", "-2"))
    if with_client:
        await view.wait_for_function("() => window.connected")
    seen = await view.evaluate(
        """async (withClient) => Promise.all([
          fetch("/one").then((response) => response.text()),
          withClient ? app.callServerTool({name: "other", arguments: {}}).then(({content}) => content[0].text)
            : "other",
          withClient ? app.callServerTool({name: "http_request", arguments: {url: "/two"}})
            .then(({structuredContent}) => structuredContent.body) : "/two",
          fetch("/three").then((response) => response.text()),
        ])""",
        with_client,
    )
    assert seen == ["/one", "other", "/two", "/three"]
    assert await host.run("host.of('ui/initialize').length") == 1
    assert await host.run("host.of('ui/notifications/initialized').length") == 1
    assert errors == []

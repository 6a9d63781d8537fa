"""Scripts of the backend in the initial page run in document order, as on its own site."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Page, expect

from tests.browser.runtime_host import Host, host_server, pack_html, show_page
from tests.world import Server

SCRIPTS = {
    "config.js": "order.push(`config ${document.currentScript.id}`); window.config = 1;",
    "later.js": "order.push('later');",
    "last.js": "order.push('last');",
    "latest.js": "order.push('latest'); document.write('gone');",
}
PAGE = """<!doctype html><html><head>
<script>
  window.order = ["first"];
  for (const type of ["DOMContentLoaded", "load"]) addEventListener(type, () => order.push(type));
</script>
<script defer src="/api/later.js"></script>
<script id="c" src="/api/config.js" onload="order.push('loaded')"></script>
<script>order.push(`after ${config}`);</script>
<script src="/api/missing.js" onerror="order.push('missing')"></script>
<script src="/api/last.js" onerror="order.push('changed')"
  integrity="sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="></script>
<script type="module">order.push(`module ${config}`);</script>
<script defer src="/api/latest.js"></script>
<script type="module">order.push("end");</script>
</head><body><script>order.push("body");</script><script src="/api/last.js"></script></body></html>"""


@asynccontextmanager
async def site() -> AsyncIterator[str]:
    """The page on its own site; yields its URL."""

    async def script(request: web.Request) -> web.Response:
        code = SCRIPTS.get(request.match_info["name"])
        return web.Response(text=code, content_type="text/javascript") if code else web.Response(status=404)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    app, door = web.Application(), Server()
    app.router.add_get("/api/{name}", script)
    app.router.add_get("/", page)
    await door.start(app)
    try:
        yield f"http://localhost:{door.port}/"
    finally:
        await door.stop()


@pytest.mark.parametrize("keeps", [False, True])
async def test_scripts_of_the_backend_run_in_their_turn(page: Page, tmp_path: Path, keeps: bool) -> None:
    """They run before later scripts, even if the last one is answered first; a missing one fires its error event."""
    async with site() as url, host_server() as host_url:
        native = await page.context.new_page()
        await native.goto(url)
        await page.goto(host_url)
        host = Host(page)
        await host.run("scripts => { host.scripts = scripts; }", SCRIPTS)
        await host.answers(
            "const name = args.url.split('/').pop(), body = host.scripts[name];"
            " if (name === 'config.js') await new Promise((go) => { host.go = go; });"
            " else if (name === 'last.js') host.go();"
            " return body ? { bodyType: 'text', body, headers: { 'content-type': 'text/javascript' } }"
            " : { status: 404, ok: false };"
        )
        await host.in_our_host()
        await host.run(
            "() => { host.tools.webmcp_storage = async () =>"
            " ({ content: [], structuredContent: { items: {}, quota: 9 } }); }"
        )
        frame = await host.show(pack_html(tmp_path, PAGE, keeps=keeps))
        seen = []
        for place in (native, frame):
            await place.wait_for_function("() => window.order?.at(-1) === 'load'")
            seen.append(await place.evaluate("order"))
    assert seen[0] == seen[1]
    assert seen[0] == [
        "first",
        "config c",
        "loaded",
        "after 1",
        "missing",
        "changed",
        "body",
        "last",
        "later",
        "module 1",
        "latest",
        "end",
        "DOMContentLoaded",
        "load",
    ]


async def test_files_of_the_backend_are_found_however_they_are_named(page: Page, tmp_path: Path) -> None:
    """Files are found by the origin that the policy gives the backend, and relative to the page or a sheet's folder."""
    (tmp_path / "css").mkdir()
    (tmp_path / "css" / "s.css").write_text("p { background: url(../api/c.png) }", "utf-8")
    html = (
        '<!doctype html><link rel=stylesheet href="css/s.css"><p></p>'
        '<img id=a src="https://files.example/a.png"><img id=b src="api/b.png">'
    )
    async with host_server() as host_url:
        await page.goto(host_url)
        host = Host(page)
        await host.answers(
            "return { bodyType: 'base64', body: btoa(args.url), headers: { 'content-type': 'image/png' } };"
        )
        frame = await show_page(host, tmp_path, html)
        for id, url in (("a", "https://files.example/a.png"), ("b", "/api/b.png")):
            made = "data:image/png;base64," + b64encode(url.encode()).decode()
            await expect(frame.locator(f"#{id}[src='{url}'][srcset^='{made}']")).to_have_count(1)
        wanted = b64encode(b"/api/c.png").decode()
        await frame.wait_for_function(
            "wanted => getComputedStyle(document.querySelector('p')).backgroundImage.includes(wanted)", arg=wanted
        )


async def test_a_file_of_a_style_that_is_not_there_is_asked_for_once(page: Page, tmp_path: Path) -> None:
    """It is requested once, wherever the style is; other files, and names that are not URLs, are not affected."""
    html = (
        "<!doctype html><style>p { background: url(/api/1.png) }</style>"
        "<p style=\"background: url('/api/2.png')\"></p><link rel=stylesheet href=/api/s.css><div></div>"
        "<script>document.querySelector('div').attachShadow({ mode: 'open' }).innerHTML ="
        " '<style>b { background: url(/api/3.png), url(http://), url(/api/c.png) }</style>"
        '<b style="background: url(/api/4.png)"></b>\'</script>'
    )
    async with host_server() as host_url:
        await page.goto(host_url)
        host = Host(page)
        await host.answers(
            r"if (/\d.png/.test(args.url)) return { status: 404, ok: false };"
            " return { bodyType: 'text', body: 'i { background: url(5.png) }',"
            " headers: { 'content-type': 'text/css' } };"
        )
        frame = await show_page(host, tmp_path, html)
        await frame.wait_for_function(
            r"""() => {
              const { shadowRoot } = document.querySelector("div");
              const texts = [document, shadowRoot].flatMap((root) => [
                ...[...root.querySelectorAll("style")].map((style) => style.textContent),
                ...[...root.querySelectorAll("[style*=url]")].map((styled) => styled.getAttribute("style")),
              ]);
              const tried = texts.filter((text) => /url\("#[^"]*\d.png"\)/.test(text));
              return tried.length === 5 && tried.some((text) => text.includes("data:text/css"));
            }"""
        )
        await host.settled()
        asked = await host.run("host.calls('http_request').map(({ url }) => url).sort()")
    assert asked == [f"/api/{name}" for name in ("1.png", "2.png", "3.png", "4.png", "5.png", "c.png", "s.css")]

"""Frames in an app: those of other sites are limited to its policy, those of its own backend are loaded under it."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import Browser, FrameLocator, Page, expect

from tests.browser.page_server import POLICY, page_server
from tests.browser.test_main_job import app_of
from tests.world import running, serving


@pytest.mark.parametrize("named", [True, False])
async def test_a_frame_of_another_site_shows_where_the_policy_names_it(page: Page, tmp_path: Path, named: bool) -> None:
    """A frame that a script creates is allowed, too; a frame of another site stays empty."""

    async def maps(_: web.Request) -> web.Response:
        return web.Response(text="<p>the map", content_type="text/html")

    other = web.Application()
    other.router.add_get("/", maps)
    async with serving(other) as port:
        site = f"http://localhost:{port}"
        folder = tmp_path / "app"
        folder.mkdir()
        made = (
            "const frame = document.createElement('iframe'); frame.src = `${site}/`;"
            " frame.onload = () => { document.body.dataset.loaded ??= 'yes'; };"
            " addEventListener('securitypolicyviolation', () => { document.body.dataset.loaded = 'no'; });"
            " document.body.append(frame);"
        )
        (folder / "index.html").write_text(
            f"<!doctype html><html><body><script>const site = '{site}'; {made}</script></body></html>", "utf-8"
        )
        policy = f"version: 1\nframes: [{site if named else 'https://maps.example.com'}]\n"
        async with running(tmp_path, source=folder, policy=policy) as world:
            await page.goto(world.console)
            app = app_of(page)
            await expect(app.locator("body")).to_have_attribute("data-loaded", "yes" if named else "no")
            if named:
                await expect(app.frame_locator("iframe").locator("p")).to_have_text("the map")


async def test_a_page_does_not_go_where_its_frames_may(page: Page, tmp_path: Path) -> None:
    """The site gets no request, the view is closed with a reason; after a reload the page has its frames."""
    asked: list[str] = []

    async def maps(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text="<p>the map", content_type="text/html")

    other = web.Application()
    other.router.add_get("/{name}", maps)
    async with serving(other) as port:
        site = f"http://localhost:{port}"
        folder = tmp_path / "app"
        folder.mkdir()
        (folder / "index.html").write_text(
            f"<!doctype html><html><body><iframe src='{site}/map' onload='document.body.dataset.map = `yes`'></iframe>"
            "<button id=again onclick='location.reload()'>Again</button>"
            f"<button id=away onclick='self[/location/.source].href = `{site}/away`'>Away</button></body></html>",
            "utf-8",
        )
        async with running(tmp_path, source=folder, policy=f"version: 1\nframes: [{site}]\n") as world:
            await page.goto(world.console)
            app = app_of(page)
            # The frame's process changes first, and reading it meanwhile fails.
            await expect(app.locator("body[data-map]")).to_be_visible()
            await expect(app.frame_locator("iframe").locator("p")).to_have_text("the map")
            await app.locator("body").evaluate("(body) => { body.dataset.before = 'yes'; }")
            await app.locator("#again").click()
            await expect(app.locator("body[data-map]:not([data-before])")).to_be_visible()
            await expect(app.frame_locator("iframe").locator("p")).to_have_text("the map")
            await app.locator("#away").click()
            cover = page.get_by_role("alert").filter(has_text="The view is closed")
            await expect(cover).to_contain_text("went to another page")
    assert set(asked) == {"/map"}


OWN = """<!doctype html><html><head><title>Own</title><script>
window.heard = []; window.loads = [];
addEventListener("message", ({ data, origin, source }) => {
  const known = source === document.getElementById("first").contentWindow;
  if (typeof data === "string") heard.push([data.slice(0, 10), origin === location.origin, known]);
});
document.addEventListener("load", ({ target }) => target.id === "first" && loads.push("load"), true);
</script></head><body><h1>Own</h1>
<iframe id=first name=first src="inner?n=1"></iframe><iframe id=text srcdoc="<p>written</p>"></iframe>
<iframe id=file src="part/help.html"></iframe><iframe id=target name=target></iframe>
<a id=lead target=first href="/inner?n=3">three</a>
<form id=post method=post action="/say" target=target><input name=text value=posted><button>send</button></form>
<a id=enter target=target href="/enter">enter</a>
<form id=get action="/inner" target=target><input name=n value=7><button>get</button></form>
<button id=open
 onclick="this.title = String(window.open('/inner?n=8', 'target') === window.frames.target)">open</button>
</body></html>"""
HELP = """<!doctype html><html><body><h1>Help</h1><img src="dot.svg" alt="">
<script src="help.js"></script></body></html>"""


async def use_frames(place: Page | FrameLocator, seen: list[Any]) -> None:
    """Use each way in which a page shows another in a frame, and note what it observes."""
    frame = place.frame_locator("#first")
    await expect(frame.locator("h1")).to_have_text("Inner 1")
    await expect(frame.locator("#status")).to_have_text("404")
    await expect(place.frame_locator("#text").locator("p")).to_have_text("written")
    await expect(place.frame_locator("#file").locator("#made")).to_have_text("/part/help.html 404")
    await frame.locator("#go button").click()
    await expect(frame.locator("h1")).to_have_text("Inner 2")
    await expect(frame.locator("#status")).to_have_text("404")
    await place.locator("#lead").click()
    await expect(frame.locator("h1")).to_have_text("Inner 3")
    await expect(frame.locator("#status")).to_have_text("404")
    await frame.locator("#post button").click()
    await expect(frame.locator("#said")).to_have_text('{"text": "framed"}')
    await place.locator("#post button").click()
    target = place.frame_locator("#target")
    await expect(target.locator("#said")).to_have_text('{"text": "posted"}')
    await place.locator("#enter").click()  # a session by a cookie that no script reads
    await expect(target.locator("#who")).to_have_text("ada")
    await place.locator("#get button").click()
    await expect(target.locator("h1")).to_have_text("Inner 7")
    await place.locator("#open").click()
    await expect(target.locator("h1")).to_have_text("Inner 8")
    await expect(target.locator("#status")).to_have_text("404")
    seen.append(await place.locator("#open").get_attribute("title"))
    added = "() => { const made = document.createElement('iframe'); made.id = 'added'; made.src = '/inner?n=4';"
    seen.append(
        await place.locator("body").evaluate(f"{added} document.body.append(made); return made.src.slice(-10); }}")
    )
    await expect(place.frame_locator("#added").locator("h1")).to_have_text("Inner 4")
    moved = "() => { const one = document.getElementById('added'); one.remove(); one.src = '/inner?n=5';"
    await place.locator("body").evaluate(f"{moved} document.body.append(one); }}")
    await expect(place.frame_locator("#added").locator("h1")).to_have_text("Inner 5")
    await place.locator("#added").evaluate("one => { one.srcdoc = '<p>own</p>'; }")
    await expect(place.frame_locator("#added").locator("p")).to_have_text("own")
    seen.append(await place.locator("body").evaluate("() => [heard.slice(0, 3), loads.length]"))


@pytest.mark.parametrize("sandbox", ["opaque", "dedicated"])
async def test_frames_of_a_packed_page_show_its_backend_and_its_folder(
    page: Page, browser: Browser, tmp_path: Path, sandbox: str
) -> None:
    """Natively and in a view: src, links, forms, windows, scripts and messages; each load is in the record."""
    folder = tmp_path / "app"
    (folder / "part").mkdir(parents=True)
    (folder / "index.html").write_text(OWN, "utf-8")
    (folder / "part" / "help.html").write_text(HELP, "utf-8")
    (folder / "part" / "help.js").write_text(
        "fetch('../missing').then(({ status }) => { const made = document.createElement('p'); made.id = 'made';"
        " made.textContent = `${location.pathname} ${status}`; document.body.append(made); })",
        "utf-8",
    )
    (folder / "part" / "dot.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'/>", "utf-8")
    async with page_server() as pages:
        policy = POLICY.replace("PORT", str(pages.port))
        async with running(tmp_path, source=folder, policy=policy, sandbox=sandbox) as world:
            found = []
            for url in (world.site, world.console):
                seen: list[Any] = []
                async with await browser.new_context() as context:
                    shown = await context.new_page()
                    await shown.goto(url)
                    await use_frames(app_of(shown) if url == world.console else shown, seen)
                arrived = [
                    (one["method"], one["path"], one["body"])
                    for one in pages.arrived
                    if one["path"].startswith(("/inner", "/say"))
                ]
                found.append((seen, sorted(arrived)))
                framed = [one for one in pages.arrived if one["path"] == "/inner?n=4"]
                pages.arrived.clear()
            native, view = found
            assert view == native
            assert framed[0]["headers"]["Sec-Fetch-Dest"] == "iframe"
            assert framed[0]["headers"]["Referer"] == f"http://127.0.0.1:{pages.port}/"
            lines = [line["fields"] for line in world.records()]
            loads = {line["door"]: line["method"] for line in lines if str(line.get("url")).endswith("/inner?n=4")}
            assert loads == {"site": "GET", "bridge": "GET"}


async def test_a_frame_of_a_packed_page_stays_within_the_policy(page: Page, tmp_path: Path) -> None:
    """Refusals, errors, other sites, the page in itself and `frame-ancestors` are told in the frame or the console."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text(
        "<!doctype html><html><body><iframe id=denied src=/denied></iframe><iframe id=self src='#x'></iframe>"
        "<iframe id=away src=/away></iframe><iframe id=guarded src=/apart></iframe><iframe id=lost src=/nothing>"
        "</iframe><iframe id=loop src=/framed></iframe><object data=/report></object>"
        "<script>const made = document.createElement('object'); made.data = '/plugin.pdf'; document.body.append(made);"
        "document.cookie = 'own=1'; fetch('/who', { headers: { 'webmcp-gateway-page': JSON.stringify({ path: '/',"
        " mode: 'cors', cookies: ['who=mallory'] }) } }).then(async (answer) => {"
        " document.body.dataset.who = await answer.text();"
        " document.body.dataset.cookies = String(answer.headers.get('webmcp-gateway-cookies')); });</script>"
        "</body></html>",
        "utf-8",
    )
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    async with (
        page_server() as pages,
        running(tmp_path, source=folder, policy=POLICY.replace("PORT", str(pages.port))) as world,
    ):
        await page.goto(world.console)
        app = app_of(page)
        for name, why in {
            "denied": "403 policy-denied",
            "self": "would contain itself",
            "away": "is not shown here",
            "guarded": "its content policy forbids it",
            "lost": "answered with 500",
        }.items():
            await expect(app.frame_locator(f"#{name}").locator("p")).to_contain_text(why)
        inner = app.frame_locator("#loop").frame_locator("iframe")
        await expect(inner.locator("p")).to_contain_text("would contain itself")
        # A packed page writes no cookie into the jar by the header of its frames, and reads none.
        await expect(app.locator("body[data-who]")).to_have_attribute("data-cookies", "null")
        assert "nobody" in (await app.locator("body").get_attribute("data-who") or "")
        assert any("<object> of /plugin.pdf shows nothing in a view" in one for one in said)
        assert not any("webmcp-gateway-page" in name for one in pages.arrived for name in one["headers"])


@pytest.mark.parametrize("located", [False, True])
@pytest.mark.parametrize(
    "base",
    ["https://elsewhere.example/shop/", " https://elsewhere.example", "/\t\\elsewhere.example/", "/shop/", "data:,x"],
)
async def test_a_frame_is_shown_whatever_the_base_of_its_page(
    page: Page, tmp_path: Path, base: str, located: bool
) -> None:
    """The gateway's own URLs do not depend on it, whether the HTML or a script names the base."""
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text(
        f"<!doctype html><html><head><base href='{base}'></head><body><iframe id=first src='/inner?n=1'></iframe>"
        f"<script>document.querySelector('base')?.remove(); const made = document.createElement('base');"
        f" made.href = '{base}'; document.head.prepend(made);{'self.at = location.href;' if located else ''}"
        " window.fetch = () => Promise.reject(new TypeError('not this one'));"
        " const frame = document.createElement('iframe'); frame.id = 'later'; frame.src = '/inner?n=2';"
        " document.body.append(frame);"
        "</script></body></html>",
        "utf-8",
    )
    async with (
        page_server() as pages,
        running(tmp_path, source=folder, policy=POLICY.replace("PORT", str(pages.port))) as world,
    ):
        await page.goto(world.console)
        app = app_of(page)
        await expect(app.frame_locator("#first").locator("h1")).to_have_text("Inner 1")
        await expect(app.frame_locator("#later").locator("h1")).to_have_text("Inner 2")
        assert {one["path"] for one in pages.arrived if one["path"].startswith("/inner")} == {
            "/inner?n=1",
            "/inner?n=2",
        }


DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40"><rect width="80" height="40" fill="green"/></svg>'
)
PLUGGED = """<!doctype html><html><body><h1>Plugged</h1>
<object id=drawing data="drawing.svg"><p>no drawing</p></object>
<object id=sized data="drawing.svg" width=160 height=80>no drawing</object>
<object id=nested data="missing.svg"><object data="drawing.svg"><b>neither</b></object><i>first missing</i></object>
<object id=help data="help.html" type="text/html" width=300 height=90><b>no help</b></object>
<embed id=embedded src="drawing.svg"><embed id=page src="/inner" width=200 height=100>
<object id=manual data="manual.pdf"><a href="manual.pdf">the manual</a></object>
<script>
document.getElementById("sized").onload = () => { document.body.dataset.loaded = "yes"; };
const made = document.createElement("object");
made.id = "made";
made.type = "image/svg+xml";
made.data = "/drawn";
document.body.append(made);
</script></body></html>"""


@pytest.mark.parametrize("rendered", [False, True])
async def test_object_and_embed_show_pictures_and_pages(page: Page, tmp_path: Path, rendered: bool) -> None:
    """Those of the app's files and of its backend, with the sizes that they have natively; what fails falls back."""

    async def answer(request: web.Request) -> web.Response:
        texts = {
            "/": (PLUGGED, "text/html"),
            "/help.html": ("<p>the help", "text/html"),
            "/inner": ("<p>the inner page", "text/html"),
            "/drawing.svg": (DRAWING, "image/svg+xml"),
            "/drawn": (DRAWING, "image/svg+xml"),
        }
        text, kind = texts.get(request.path, ("", ""))
        return web.Response(text=text, content_type=kind) if text else web.Response(status=404)

    backend = web.Application()
    backend.router.add_get("/{name:.*}", answer)
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text(PLUGGED, "utf-8")
    (folder / "help.html").write_text("<p>the help", "utf-8")
    (folder / "drawing.svg").write_text(DRAWING, "utf-8")
    sizes = "() => ['drawing', 'sized', 'made'].map((id) => document.getElementById(id).getBoundingClientRect())"
    async with serving(backend) as port:
        policy = (
            f"version: 1\nbackends: {{pages: {{url: 'http://127.0.0.1:{port}', network: private}}}}\n"
            "routes: [{path: '/**', methods: [GET]}]\n"
        )
        source = "{backend: pages, start: /}" if rendered else folder
        async with running(tmp_path, source=source, policy=policy) as world:
            await page.goto(world.console)
            app = app_of(page)
            place = app.frame_locator("iframe").first if rendered else app
            await expect(place.locator("body")).to_have_attribute("data-loaded", "yes")
            for name in ("drawing", "sized", "nested > object", "made"):
                await expect(place.locator(f"#{name} > img")).to_be_visible()
            await expect(place.locator("#embedded + img")).to_be_visible()
            await expect(place.frame_locator("#help > iframe").locator("p")).to_have_text("the help")
            await expect(place.frame_locator("#page + iframe").locator("p")).to_have_text("the inner page")
            for text in ("no drawing", "neither", "no help"):
                assert await place.get_by_text(text).first.bounding_box() is None
            await expect(place.get_by_text("first missing")).to_be_visible()
            await expect(place.get_by_text("the manual")).to_be_visible()
            in_view = await place.locator("body").evaluate(sizes)
        await page.goto(f"http://127.0.0.1:{port}/")
        await expect(page.locator("body")).to_have_attribute("data-loaded", "yes")
        native = await page.evaluate(sizes)
    assert [(one["width"], one["height"]) for one in in_view] == [(one["width"], one["height"]) for one in native]

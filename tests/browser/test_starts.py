"""An app that lives below a path begins there, on its own site and in a view of the console alike."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.apps.packing import PIXEL, write
from tests.world import running

POLICY = "version: 1\nbackends: {shop: {url: 'http://127.0.0.1:9401', network: private}}\n"

BUILT = (
    "<!doctype html><link rel=stylesheet href=/my-app/assets/a.css><script src=/my-app/assets/a.js></script>"
    "<script type=module src=/my-app/assets/m.js></script><p id=ready>p</p><img src=/my-app/assets/a.png>"
)
ROUTED = (
    "<!doctype html><script src=/assets/a.js></script><script type=module src=/assets/m.js></script><p id=ready>p</p>"
)
FILES: dict[str, str | bytes] = {
    "assets_of_a__css": "p { color: rgb(1, 2, 3) }",
    "assets_of_a__js": "const { pathname, search, hash, href } = location;"
    "window.seen = [pathname + search + hash, document.URL === href, new URL('x', document.baseURI).pathname]",
    "assets_of_m__js": "import './n.js'; seen.push(new URL(import.meta.url).pathname);"
    "history.pushState(null, '', 'next?a');"
    "seen.push(location.pathname + location.search, await fetch('a.txt').then((one) => one.status))",
    "assets_of_n__js": "seen.push('n')",
    "assets_of_a__png": PIXEL,
    "a__txt": "text",
}
STARTS = {
    "a build for a path": ("/my-app/", {"index__html": BUILT}),
    "a path of the router, with a query": ("/dashboard/users?tab=1", {"index__html": ROUTED}),
    "a path of the router, with a fragment": ("/dashboard/users?tab=1#top", {"index__html": ROUTED}),
    "a page in a folder": ("/admin", {"index__html": "<p>other", "admin_of_index__html": ROUTED}),
    "a page without one at the root": ("/app.html?x", {"app__html": ROUTED}),
    "a page with a base": ("/shop/cart", {"index__html": f"<base href='/shop/'>{ROUTED}"}),
}


@pytest.mark.parametrize("name", STARTS)
async def test_an_app_begins_at_its_start_in_both_places(browser: Browser, tmp_path: Path, name: str) -> None:
    """Location, base, modules, history and files of the folder are the same."""
    start, pages = STARTS[name]
    source = write(tmp_path / "app", **FILES, **pages)
    storage = f"page\n    start: '{start}'"
    async with (
        running(tmp_path, policy=POLICY, source=source, storage=storage) as world,
        await browser.new_context() as context,
    ):
        site, console = await context.new_page(), await context.new_page()
        await site.goto(world.site)
        await site.goto(world.site + start)
        await site.wait_for_function("() => window.seen?.length === 7")
        await console.goto(world.url)
        app = console.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")
        await expect(app.locator("#ready")).to_be_visible()
        view = console.frames[-1]
        await view.wait_for_function("() => window.seen?.length === 7")
        seen = await site.evaluate("seen")
        assert await view.evaluate("seen") == seen
        assert seen[0] == ("/admin/" if start == "/admin" else start)
        assert await site.evaluate("[...document.images].every(({ naturalWidth }) => naturalWidth >= 0)")


async def test_the_root_of_the_site_leads_to_the_start(browser: Browser, tmp_path: Path) -> None:
    """If it has no page of its own; the console's link names the start."""
    source = write(tmp_path / "app", index__html=BUILT, **FILES)
    async with (
        running(tmp_path, policy=POLICY, source=source, storage="page\n    start: /my-app/") as world,
        await browser.new_context() as context,
    ):
        site, console = await context.new_page(), await context.new_page()
        await site.goto(world.site)
        assert site.url == f"{world.site}/my-app/next?a"
        assert await site.evaluate("getComputedStyle(document.querySelector('p')).color") == "rgb(1, 2, 3)"
        await console.goto(world.url)
        await expect(console.get_by_role("link", name="Open as a web site")).to_have_attribute(
            "href", f"{world.site}/my-app/"
        )

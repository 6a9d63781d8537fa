"""Frames of other sites in an app are limited to those in its policy."""

from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import Page, expect

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

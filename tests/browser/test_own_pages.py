"""A site of several pages behaves the same in the strictest frame, as one packed page."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from playwright.async_api import Frame, Page

from tests.apps.packing import write
from tests.browser.runtime_host import Host, host_server, pack_html
from tests.browser.test_single_owner import complaints
from tests.browser.twins.backend import PIXEL, Backend
from tests.world import serving

SITE = """const visits = 1 + Number(localStorage.visits ?? 0);
localStorage.visits = sessionStorage.visits = visits;
document.cookie = `visited=${visits}; path=/`;
addEventListener("beforeunload", () => sessionStorage.left = document.title);
const seen = () => [visits, sessionStorage.left, sessionStorage.visits, document.cookie, document.title,
  document.body.innerText.trim(), location.pathname + location.search + location.hash,
  document.documentElement.lang, document.compatMode, getComputedStyle(document.body).color,
  [...document.images].map((one) => one.naturalWidth), scrollY > 500, loaded];
const loaded = [];
window.whole = () => loaded.length === 2 && [...document.images].every((one) => one.complete);
for (const type of ["DOMContentLoaded", "load"]) addEventListener(type, () => loaded.push(type));
"""
HEAD = '<!doctype html><html lang="{lang}"><head><title>{name}</title><script src="{to}site.js"></script>'
INDEX = (
    HEAD.format(lang="en", name="Index", to="") + '<body class="start"><a href="about.html">About</a>'
    "<form action=docs/found.html><input name=q value=tea><button>Search</button></form>"
    "<p onclick='document.forms[0].submit()'>Send</p>"
    "<p onclick='event.stopPropagation()'><a href='about.html#end'>End</a></p></body></html>"
)
ABOUT = (
    HEAD.format(lang="de", name="About", to="") + "<link rel=stylesheet href=about.css></head><body>"
    "<button onclick=\"location.href = 'docs/found.html'\">Go</button><a href='index.html'>Home</a>"
    "<script type=module>import { name } from './name.js'; document.title += name;</script>"
    "<p style='height: 3000px'></p><p id=end>"
)
FOUND = (
    HEAD.format(lang="", name="Found", to="../") + "</head><body><a href=../index.html>Home</a>"
    "<img src=/api/pixel.png><script>document.title += new URLSearchParams(location.search).get('q')</script>"
)

WRITE = """(html) => {
  const frame = document.createElement("iframe");
  document.body.append(frame);
  frame.contentDocument.open();
  frame.contentDocument.write(html);
  frame.contentDocument.close();
}"""


async def walk_pages(place: Frame | Page) -> list[Any]:
    """The observations of each page on a way through all of them."""
    steps = {
        "About": "About!",
        "Go": "Foundnull",
        "Home": "Index",
        "Search": "Foundtea",
        "Send": "Foundtea",
        "End": "About!",
    }
    found = []
    for name in ("About", "Go", "Home", "Search", "Home", "Send", "Home", "End", "Home"):
        await place.get_by_text(name, exact=True).click()
        there = "title => document.title === title && window.whole?.() && (!location.hash || scrollY > 500)"
        await place.wait_for_function(there, arg=steps[name])
        found.append(await place.evaluate("seen()"))
    return found


async def test_pages_lead_to_each_other(page: Page, tmp_path: Path) -> None:
    """Links, forms and scripts work, with each page's scripts, styles and images, and their shared storage."""
    write(tmp_path, index__html=INDEX, about__html=ABOUT, docs_of_found__html=FOUND, site__js=SITE)
    write(tmp_path, about__css="body { color: rgb(1, 2, 3) }", name__js="export const name = '!'")
    async with serving(Backend(tmp_path).app()) as port:
        await page.goto(f"http://localhost:{port}/index.html")
        native = await walk_pages(page)
    errors = complaints(page)
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.in_our_host()
        picture = base64.b64encode(PIXEL).decode()
        await host.answers(
            f"return {{ bodyType: 'base64', body: '{picture}', headers: {{ 'content-type': 'image/png' }} }}"
        )
        frame = await host.show(pack_html(tmp_path, INDEX))
        assert await walk_pages(frame) == native
    assert errors == []
    assert [step[4] for step in native].count("About!") == 2


async def test_the_page_of_a_folder_is_at_its_address(page: Page, tmp_path: Path) -> None:
    """Its address works with and without a trailing slash; relative URLs resolve against the folder."""
    script = "<script>document.title = location.pathname</script>"
    links = "<a href=news>News</a><a href=/news/>All news</a>"
    write(tmp_path, index__html=f"<!doctype html><title>Home</title>{script}{links}")
    write(tmp_path, news_of_index__html=f"<!doctype html><title>News</title>{script}<a href=../>Home</a>")
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.in_our_host()
        frame = await host.show(pack_html(tmp_path, (tmp_path / "index.html").read_text("utf-8")))
        for name, title in (("News", "/news/"), ("Home", "/"), ("All news", "/news/")):
            await frame.get_by_text(name, exact=True).click()
            await frame.wait_for_function("title => document.title === title", arg=title)
            assert await frame.get_by_text("Home" if name != "Home" else "News", exact=True).count() == 1


async def test_a_page_that_refreshes_itself_leads_to_another(page: Page, tmp_path: Path) -> None:
    """Many start pages only do that; a page written by the host stays, with a message on the console."""
    refresh = '<!doctype html><title>First</title><meta http-equiv="refresh" content="0; url={0}">'
    write(tmp_path, index__html=refresh.format("about.html"), about__html="<!doctype html><title>About</title>")
    async with host_server() as url:
        await page.goto(url)
        host = Host(page)
        await host.in_our_host()
        frame = await host.show(pack_html(tmp_path, refresh.format("about.html")))
        await frame.wait_for_function("() => document.title === 'About'")
        async with page.expect_console_message(lambda message: "would not come back" in message.text):
            await page.evaluate(WRITE, pack_html(tmp_path / "alone", refresh.format("/")))
        assert await page.frames[-1].title() == "First"


async def test_a_page_that_a_host_wrote_stays(page: Page, tmp_path: Path) -> None:
    """It cannot be reloaded there: the console reports that a link leads to another page."""
    write(tmp_path, index__html=INDEX, about__html=ABOUT, docs_of_found__html=FOUND, site__js="const whole = 0")
    write(tmp_path, about__css="", name__js="export const name = '!'")
    html = pack_html(tmp_path, INDEX)
    async with host_server() as url:
        await page.goto(url)
        await page.evaluate(WRITE, html)
        async with page.expect_console_message(lambda message: "another page" in message.text):
            await page.frames[-1].get_by_text("About", exact=True).click()


async def test_a_page_that_a_host_wrote_is_not_lost_by_loading_anew(page: Page, tmp_path: Path) -> None:
    """A reload would show the frame's URL, which is not the app: the page stays, with a message on the console."""
    ways = ("location.reload()", "history.pushState(null, '', '/a'); location.href = '/'", "location.assign('/a')")
    buttons = "".join(f'<button onclick="{way}">{way}</button>' for way in ways)
    html = pack_html(tmp_path, f"<!doctype html><title>App</title>{buttons}")
    async with host_server() as url:
        await page.goto(url)
        await page.evaluate(WRITE, html)
        frame = page.frames[-1]
        for way in ways:
            async with page.expect_console_message(lambda message: "cannot be loaded anew" in message.text):
                await frame.get_by_role("button", name=way, exact=True).click()
        assert await frame.title() == "App"

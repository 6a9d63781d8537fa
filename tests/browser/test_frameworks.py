"""Pages of real frameworks in a view, beside the same pages natively: texts, requests at the backend, console."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Browser, ConsoleMessage, FrameLocator, Page, expect

from tests.browser.test_pages_of_backend import page_of
from tests.world import free_port, running

TESTS = Path(__file__).parents[1]
POLICY = """version: 1
backends: {pages: {url: "http://127.0.0.1:PORT", network: private, cookies: jar}}
limits: {timeout: 60s}
routes:
  - {path: "/**", methods: [GET, POST, DELETE]}
"""
Place = Page | FrameLocator


@asynccontextmanager
async def backend(*command: str, folder: Path) -> AsyncIterator[int]:
    """A server in a process of its own, which prints its port."""
    server = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        async with asyncio.timeout(60):
            while not await _listens(port):
                await asyncio.sleep(0.05)
        yield port
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # node may be started by a script
        await server.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def use_django(place: Place) -> list[str]:
    """Log in, note, like, be refused without a token, log out."""
    seen: list[str] = []
    await place.locator("#login input[name=name]").fill("Ada")
    await place.locator("#login button").click()
    await expect(place.locator(".flash")).to_have_text("Welcome, Ada")
    seen.append(await place.locator("h1").inner_text())
    await place.locator("#note input[name=text]").fill("tea & <b>milk</b>")
    await place.locator("#note button").click()
    await expect(place.locator(".flash")).to_have_text("Noted")
    seen.append(await place.locator("ul").inner_text())
    await place.locator("#like").click()
    await expect(place.locator("#likes")).to_have_text("1")
    await place.locator("#out").click()
    await expect(place.locator("h1")).to_have_text("Notes of nobody")
    await place.locator("#forged button").click()
    await expect(place.locator("h1")).to_contain_text("Forbidden")
    seen.append(await place.locator("h1").inner_text())
    return seen


async def use_flask(place: Place) -> list[str]:
    """Add by htmx, follow boosted links, go back, post a plain form."""
    await place.locator("#add input").fill("bread")
    await place.locator("#add button").click()
    await expect(place.locator("#items li")).to_have_text("bread")
    await place.locator("#count").click()
    await expect(place.locator("#number")).to_have_text("1")
    seen = [await place.locator("#items").inner_text()]
    await place.locator("#about").click()
    await expect(place.locator("h1")).to_have_text("About")
    await place.locator("body").evaluate("() => history.back()")
    await expect(place.locator("#items li")).to_have_text("bread")
    await place.locator("#plain button").click()
    await expect(place.locator(".flash")).to_have_text("All gone")
    return [*seen, await place.locator("h1").inner_text()]


async def use_express(place: Place) -> list[str]:
    """Sign the book, and go on by links."""
    await place.locator("#sign input").fill("Grace")
    await place.locator("#sign button").click()
    await expect(place.locator("li")).to_have_text("Grace")
    await place.locator("#about").click()
    await expect(place.locator("h1")).to_have_text("About")
    await place.locator("#book").click()
    await expect(place.locator("h1")).to_contain_text("Guest book")
    return [await place.locator("h1").inner_text(), await place.locator("ul").inner_text()]


async def use_turbo(place: Place) -> list[str]:
    """The same, in one realm: Turbo loads the pages."""
    seen = await use_express(place)
    return [*seen, str(await place.locator("body").evaluate("() => window.realms"))]


async def use_rails(place: Place) -> list[str]:
    """Sign by Turbo, greet by a Stimulus controller whose request carries the token, drop by `_method`."""
    await place.locator("#guest").fill("Ada")
    await place.locator("#sign [type=submit]").click()
    await expect(place.locator("#flash")).to_have_text("Signed by Ada")
    await place.locator("#name").fill("Eve")
    await place.locator("#greet").click()
    await expect(place.locator("#output")).to_have_text("Hello, Eve, by true")
    await place.locator("#about").click()
    await expect(place.locator("h1")).to_have_text("About")
    seen = [await place.locator("ul").inner_text()]
    await place.locator("#drop [type=submit]").click()
    await expect(place.locator("#flash")).to_have_text("Dropped")
    return [*seen, str(await place.locator("body").evaluate("() => window.realms"))]


async def use_laravel(place: Place) -> list[str]:
    """Note, like with the token of the cookie and without, be refused without the form's token, clear by `_method`."""
    await place.locator("#note [name=text]").fill("tea & <b>milk</b>")
    await place.locator("#note button").click()
    await expect(place.locator(".flash")).to_have_text("Noted")
    await place.locator("#like").click()
    await expect(place.locator("#likes")).to_have_text("200 1 419")
    seen = [await place.locator("ul").inner_text()]
    await place.locator("#clear button").click()
    await expect(place.locator(".flash")).to_have_text("Cleared")
    await place.locator("#forged button").click()
    await expect(place.locator("body")).to_contain_text("419")
    return seen


PYTHON = (sys.executable, "-m")
CASES: dict[str, tuple[tuple[str, ...], Path, str, Callable[[Place], Awaitable[list[str]]]]] = {
    "django": ((*PYTHON, "tests.browser.frameworks.django_notes"), TESTS.parent, "/", use_django),
    "flask and htmx": ((*PYTHON, "tests.browser.frameworks.flask_todo"), TESTS.parent, "/", use_flask),
    "express": (("node", "express_pages.mjs"), TESTS / "interop", "/", use_express),
    "turbo": (("node", "express_pages.mjs"), TESTS / "interop", "/turbo", use_turbo),
}


async def read_arrived(port: int) -> Any:
    """What arrived at the backend since the last call."""
    async with aiohttp.ClientSession() as client, client.get(f"http://127.0.0.1:{port}/arrived") as answer:
        return await answer.json()


def keep_line(lines: list[str], line: ConsoleMessage) -> None:
    """Keep a line that a page wrote."""
    lines.append(line.text)


RAILS = Path(__file__).parent / "frameworks" / "rails_book.rb"
LARAVEL = Path(__file__).parent / "frameworks" / "laravel_notes.php"


@pytest.mark.parametrize("case", CASES)
async def test_a_framework_works_as_natively(browser: Browser, tmp_path: Path, case: str) -> None:
    """The same script sees the same texts; the backend gets the same requests, and the console the same lines."""
    command, folder, start, use = CASES[case]
    await compare(browser, tmp_path, command, folder, start, use)


@pytest.mark.soak
async def test_rails_works_as_natively(browser: Browser, tmp_path: Path) -> None:
    """Its import map, Turbo, Stimulus, its tokens; Debian's `ruby-rails` and `ruby-webrick`."""
    await compare(browser, tmp_path, ("ruby", str(RAILS), str(TESTS / "interop")), TESTS, "/", use_rails)


@pytest.mark.soak
async def test_laravel_works_as_natively(browser: Browser, tmp_path: Path) -> None:
    """Its sessions, the token of its forms, and that of its cookie; Debian's `php-laravel-framework` and `php-cli`."""
    port = free_port()
    command = ("sh", "-c", f"echo {port}; exec php -q -S 127.0.0.1:{port} {LARAVEL} 2>/dev/null")
    await compare(browser, tmp_path, command, TESTS, "/", use_laravel)


async def compare(
    browser: Browser,
    tmp_path: Path,
    command: tuple[str, ...],
    folder: Path,
    start: str,
    use: Callable[[Place], Awaitable[list[str]]],
) -> None:
    """Use a backend natively, in a view and on the app's own site, and compare what is seen there."""
    found: list[tuple[Any, ...]] = []
    async with backend(*command, folder=folder) as port:
        source = f"{{backend: pages, start: {start}}}"
        async with running(tmp_path, policy=POLICY.replace("PORT", str(port)), source=source) as world:
            places = {"native": f"http://127.0.0.1:{port}{start}", "view": world.url, "site": f"{world.site}{start}"}
            for where, url in places.items():
                async with await browser.new_context() as context:
                    page = await context.new_page()
                    lines: list[str] = []
                    page.on("console", partial(keep_line, lines))
                    await page.goto(url)
                    place = page_of(page) if where == "view" else page
                    texts = await use(place)
                    await place.locator("body").evaluate("() => console.log('the end')")
                    while "the end" not in lines:  # lines of a frame may come after what it shows
                        await asyncio.sleep(0.05)
                    found.append((texts, await read_arrived(port), [one for one in lines if one.startswith("page ")]))
    native, view, site = found
    assert view == native
    # The jar of the view has the cookies there from the start.
    assert (site[0], [one[:2] for one in site[1]], site[2]) == (native[0], [one[:2] for one in native[1]], native[2])

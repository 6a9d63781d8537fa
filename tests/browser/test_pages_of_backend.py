"""Apps whose pages a backend renders, in a view: each page in a realm of its own, as in a browser."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser, FrameLocator, Page, expect

from tests.browser.page_server import POLICY, SOURCE, Pages, page_server
from tests.browser.stock_host import UI, bundle_hosts, show_cart
from tests.callers.tokens import link
from tests.world import World, free_port, running


@asynccontextmanager
async def running_pages(folder: Path, start: str = "/", extra: str = "") -> AsyncIterator[tuple[World, Pages]]:
    """The gateway in front of the server."""
    async with page_server() as pages:
        policy = POLICY.replace("PORT", str(pages.port))
        source = SOURCE.replace("start: /", f"start: {start}")
        async with running(folder, policy=policy, source=source, extra=extra) as world:
            yield world, pages


@pytest.fixture(scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[World, Pages]]:
    """The gateway in front of the server, for the tests of this module."""
    async with running_pages(tmp_path_factory.mktemp("pages")) as both:
        yield both


def shell_of(page: Page) -> FrameLocator:
    """The shell in the console."""
    return page.frame_locator("[data-testid=app-frame] iframe").frame_locator("iframe")


def page_of(page: Page) -> FrameLocator:
    """The current page of the backend in the console."""
    return shell_of(page).frame_locator("iframe")


async def test_each_page_is_a_fresh_realm(page: Page, served: tuple[World, Pages]) -> None:
    """Scripts, styles and pictures of the backend load; nothing of page 1 is left on page 2."""
    world, pages = served
    await page.goto(world.url)
    shown = page_of(page)
    await expect(shown.locator("h1")).to_have_text("Start")
    await expect(shown.locator("x-mark")).to_have_text("marked")
    place = f"http://127.0.0.1:{pages.port}"
    seen = await shown.locator("body").evaluate("() => window.seen")
    assert seen == {"href": f"{place}/", "origin": place, "path": "/", "url": f"{place}/", "base": f"{place}/"} | {
        "cookie": "csrftoken=token-for-scripts"
    }
    await expect(shown.locator("h1")).to_have_css("color", "rgb(1, 2, 3)")
    await expect(shown.locator("#picture")).to_have_js_property("naturalWidth", 7)
    await shown.locator("#two").click()
    await expect(shown.locator("h1")).to_have_text("Two")
    await expect(shown.locator("x-mark")).to_have_text("marked")
    assert await shown.locator("body").evaluate("() => window.facts") == {
        "kept": 2,
        "ticks": "undefined",
        "loads": 1,
        "href": f"{place}/two?from=start#there",
        "referrer": f"{place}/",
        "cookie": "csrftoken=token-for-scripts; theme=dark",
        "visits": "1",
    }
    arrived = pages.last("/two")
    assert arrived["cookies"] == {"session": "secret-session-value", "csrftoken": "token-for-scripts", "theme": "dark"}
    told = {name: arrived["headers"].get(name) for name in ("Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode")}
    assert told == {"Referer": f"{place}/", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}


async def open_start(page: Page, world: World) -> FrameLocator:
    """The first page, in the console."""
    await page.goto(world.url)
    shown = page_of(page)
    await expect(shown.locator("h1")).to_have_text("Start")
    await expect(shown.locator("x-mark")).to_have_text("marked")
    return shown


async def test_forms_are_sent_as_a_browser_sends_them(page: Page, served: tuple[World, Pages]) -> None:
    """In each encoding, by each button; a redirect after POST is followed, and its flash message shown once."""
    world, pages = served
    shown = await open_start(page, world)
    await shown.locator("#say button").first.click()
    await expect(shown.locator("#said")).to_have_text('{"text": "h\\u00e9", "how": "loud"}')
    posted = pages.last("/say")
    assert posted["body"] == "text=h%C3%A9&how=loud"
    assert posted["headers"]["Origin"] == f"http://127.0.0.1:{pages.port}"
    assert posted["headers"]["Sec-Fetch-User"] == "?1"
    assert posted["headers"]["Content-Type"] == "application/x-www-form-urlencoded"

    shown = await open_start(page, world)
    await shown.locator("#quiet").click()
    await expect(shown.locator("#body")).to_have_text("text=hé\nhow=quiet\n")

    shown = await open_start(page, world)
    await shown.locator("#upload [type=file]").set_input_files(
        {"name": "a.txt", "mimeType": "text/plain", "buffer": b"abc"}
    )
    await shown.locator("#upload button").click()
    await expect(shown.locator("#said")).to_have_text('{"text": "up", "file": "a.txt:abc"}')

    shown = await open_start(page, world)
    await shown.locator("#find button").click()
    await expect(shown.locator("#query")).to_have_text("q=a+b")

    shown = await open_start(page, world)
    await shown.locator("#change button").click()
    await expect(shown.locator("#method")).to_have_text("PATCH text=new")


async def test_scripts_and_the_history_lead_from_page_to_page(page: Page, served: tuple[World, Pages]) -> None:
    """By `location`, and back and forward by the browser and by the page; a hidden navigation is visible."""
    world, _ = served
    shown = await open_start(page, world)
    await shown.locator("#script").click()
    await expect(shown.locator("#query")).to_have_text("by=script")
    await shown.locator("#hash").click()
    await expect(shown.locator("#query")).to_have_text("by=script")
    assert (await shown.locator("body").evaluate("() => webmcpGatewayOwn(location).hash")) == "#there"
    await shown.locator("#back").click()
    await expect(shown.locator("h1")).to_have_text("Start")
    await page.evaluate("history.back()")
    await expect(shown.locator("#query")).to_have_text("by=script")
    await page.evaluate("history.forward()")
    await expect(shown.locator("h1")).to_have_text("Start")
    await shown.locator("body").evaluate("() => history.back()")
    await expect(shown.locator("#query")).to_have_text("by=script")
    shown = await open_start(page, world)
    await shown.locator("#plain").click()
    problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
    await expect(problem).to_contain_text("went on by itself")
    await problem.get_by_role("button", name="Load the page again").click()
    await expect(shown.locator("h1")).to_have_text("Start")


@pytest.mark.parametrize(
    ("link", "title", "detail"),
    [
        ("denied", "Policy denied", "not allowed to do this"),
        ("slow", "", "504"),
        ("away", "", "redirect-denied"),
        ("nothing", "The page did not load", "500"),
    ],
)
async def test_what_does_not_load_says_so(
    page: Page, served: tuple[World, Pages], link: str, title: str, detail: str
) -> None:
    """A refusal, silence, a redirect to a foreign site and an empty error are visible; the page is still there."""
    world, _ = served
    shown = await open_start(page, world)
    await shown.locator(f"#{link}").click()
    problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
    await expect(problem).to_contain_text(detail)
    await expect(problem).to_contain_text(title)
    await problem.get_by_role("button", name="Back to the page").click()
    await expect(problem).to_have_count(0)
    await expect(shown.locator("h1")).to_have_text("Start")


async def test_error_pages_downloads_and_no_content(page: Page, served: tuple[World, Pages]) -> None:
    """4xx and 5xx pages are shown, 204 leaves the page, and a download is saved by the host."""
    world, _ = served
    shown = await open_start(page, world)
    await shown.locator("#empty").click()
    await shown.locator("#file").click()
    async with page.expect_download() as saving:
        await page.get_by_test_id("link-open").click()
    assert (await saving.value).suggested_filename == "list.csv"
    assert await shown.locator("h1").text_content() == "Start"
    await shown.locator("#missing").click()
    await expect(shown.locator("#status")).to_have_text("404")
    await page.evaluate("history.back()")
    await expect(shown.locator("h1")).to_have_text("Start")
    await shown.locator("#broken").click()
    await expect(shown.locator("#status")).to_have_text("500")


async def test_other_sites_are_opened_by_the_host_alone(page: Page, served: tuple[World, Pages]) -> None:
    """A person's click asks the host; a script that leads away shows where it leads, and opens nothing."""
    world, _ = served
    shown = await open_start(page, world)
    await shown.locator("#outside").click()
    await expect(page.get_by_test_id("link-dialog")).to_contain_text("https://elsewhere.example/x")
    await page.get_by_test_id("link-cancel").click()
    await shown.locator("body").evaluate(
        "() => void setTimeout(() => { webmcpGatewayOwn(location).href = '//evil.example/?' }, 6000)"
    )
    problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
    await expect(problem).to_contain_text("http://evil.example/?")
    await expect(page.get_by_test_id("link-dialog")).to_be_hidden()


async def test_pages_that_lead_on_and_on_are_stopped(page: Page, tmp_path: Path) -> None:
    """A refresh without end asks a person at some point, and goes on if they want."""
    async with running_pages(tmp_path, "/loop") as (world, pages):
        await page.goto(world.url)
        problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
        for _ in range(2):
            await expect(problem).to_contain_text("leads on and on")
            seen = len(pages.arrived)
            await problem.get_by_role("button", name="Go on").click()
            await expect(problem).to_have_count(0)
            await expect(problem).to_contain_text("leads on and on")
            assert 0 < len(pages.arrived) - seen <= 100, (seen, len(pages.arrived))


async def test_strange_pages(page: Page, tmp_path: Path) -> None:
    """A base of another site counts as a path of the own one, and a page is not shown in itself."""
    async with running_pages(tmp_path, "/base") as (world, _):
        await page.goto(world.url)
        await page_of(page).locator("#two").click()
        await expect(page_of(page).locator("h1")).to_have_text("Two")
    async with running_pages(tmp_path, "/framed") as (world, pages):
        await page.goto(world.url)
        await expect(page_of(page).frame_locator("#inner").locator("p")).to_contain_text("would contain itself")
        assert [one["path"] for one in pages.arrived if one["path"] == "/framed"] == ["/framed"]


async def test_the_policy_of_the_backend_holds_for_its_page(page: Page, tmp_path: Path) -> None:
    """Inline scripts without its nonce and handlers do not run; its own scripts do."""
    async with running_pages(tmp_path, "/guarded") as (world, _):
        await page.goto(world.url)
        body = page_of(page).locator("body")
        await expect(page_of(page).locator("h1")).to_have_text("Guarded")
        await page_of(page).locator("#handler").click()
        found = await body.evaluate(
            "async () => { while (!window.loads) await new Promise((go) => setTimeout(go, 20));"
            " return [window.nonced ?? 0, window.inline ?? 0, window.handled ?? 0]; }"
        )
        assert found == [1, 0, 0]


async def wait_tools(client: Client, *names: str) -> None:
    """Wait until the client lists exactly these tools of pages."""
    while True:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        if {name for name in listed if name.startswith(("cart_tool", "cart_find"))} == set(names):
            return
        await asyncio.sleep(0.05)


async def test_the_tools_are_those_of_the_current_page(page: Page, tmp_path: Path) -> None:
    """They change with the page, and a call that leads to another page tells the model of it."""
    async with running_pages(tmp_path, "/tools") as (world, pages):
        await page.goto(world.url)
        async with (
            httpx2.AsyncClient(timeout=60) as http,
            Client(streamable_http_client(f"{world.url}/mcp", http_client=http), mode="2026-07-28") as client,
            asyncio.timeout(60),
        ):
            await wait_tools(client, "cart_tool_one", "cart_find_thing")
            result = await client.call_tool("cart_tool_one", {})
            assert not result.is_error
            told: Any = result.structured_content
            assert (told["title"], told["url"]) == ("Tools two", f"http://127.0.0.1:{pages.port}/tools?name=two")
            await wait_tools(client, "cart_tool_two", "cart_find_thing")
            result = await client.call_tool("cart_find_thing", {"q": "sand"})
            assert not result.is_error
            told = result.structured_content
            assert (told["title"], told["text"]) == ("Found", "q=sand")
            await wait_tools(client)
    found = [one for one in world.records() if one["fields"].get("url") == "/find?q=sand"]
    assert {one["fields"]["initiator"] for one in found} == {"model"}


async def test_a_stock_host_shows_the_pages(
    page: Page, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In an opaque frame under its policy, with calls that the shell signs; a new tab is the app's own site."""
    script = bundle_hosts(tmp_path_factory.mktemp("stock"))
    carried: list[str] = []
    async with running_pages(tmp_path) as (world, pages):
        async with show_cart(page, world, script, landmark="iframe", carried=carried) as shell:
            shown = shell.frame_locator("iframe")
            await expect(shown.locator("x-mark")).to_have_text("marked")
            await shown.locator("#new").click()
            await page.wait_for_function("() => opened.length")
            assert await page.evaluate("opened") == [f"{world.site}/two"]
            await shown.locator("#say button").first.click()
            await expect(shown.locator("#said")).to_contain_text("loud")
            await shown.locator("body").evaluate("() => { webmcpGatewayOwn(location).href = '/two?again' }")
            await expect(shown.locator("#query")).to_have_text("again")
        assert "http_request" in carried
        assert {one["fields"]["evidence"] for one in world.records() if one["fields"]["kind"] == "http"} == {
            "no-gesture"
        }
    assert "session" in pages.last("/two")["cookies"]


async def test_a_page_reaches_nothing_of_its_shell(page: Page, served: tuple[World, Pages]) -> None:
    """Neither documents nor launch value or key; forged messages have no effect, and nothing navigates away."""
    world, _ = served
    shown = await open_start(page, world)
    place = page.url
    await shown.locator("body").evaluate("() => { webmcpGatewayOwn(location).href = '/attacker' }")
    await expect(shown.locator("h1")).to_have_text("Attacker")
    # It is shown where the attack leads, with nothing opened; the page itself stays.
    problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
    await expect(problem).to_contain_text("https://evil.example/")
    tried, heard = await shown.locator("body").evaluate(
        "async () => { while (!window.done) await new Promise((go) => setTimeout(go, 50)); return [tried, heard]; }"
    )
    refused = {"parent document", "parent config", "top document", "shell away", "top away"}
    assert {name: tried[name] for name in refused} == dict.fromkeys(refused, "SecurityError")
    assert not [line for line in heard if '"view"' in line or '"key"' in line]
    errors = [line for line in heard if "Method not found" in line]
    assert all(any(name in line for line in errors) for name in ("webmcp_attach", "webmcp_poll", "forged"))
    assert page.url == place
    assert len(page.context.pages) == 1
    await problem.get_by_role("button", name="Back to the page").click()
    await expect(shown.locator("h1")).to_have_text("Attacker")
    assert await shown.locator("body").evaluate("() => webmcpGatewayOwn(location).pathname") == "/attacker"


async def test_the_shell_is_the_same_for_everybody(tmp_path: Path) -> None:
    """It can be read while the backend is down, and holds nothing of a caller."""
    async with running(tmp_path, policy=POLICY.replace("PORT", str(free_port())), source=SOURCE) as world:
        texts = []
        for _ in range(2):
            async with (
                httpx2.AsyncClient(timeout=60) as http,
                Client(
                    streamable_http_client(f"{world.url}/mcp/cart", http_client=http),
                    mode="2026-07-28",
                    extensions=UI,
                ) as client,
            ):
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                uri = (tools["open_cart"].meta or {})["ui"]["resourceUri"]
                texts.append((await client.read_resource(uri)).contents[0].model_dump()["text"])
        assert texts[0] == texts[1]


async def test_the_apps_own_site_has_the_pages_themselves(page: Page, served: tuple[World, Pages]) -> None:
    """The backend's pages under the policy, with its cookies in the jar, and `Origin` of its own site."""
    world, pages = served
    await page.goto(world.site)
    await expect(page.locator("x-mark")).to_have_text("marked")
    assert await page.evaluate("document.cookie.includes('session')") is False
    await page.locator("#say button").first.click()
    await expect(page.locator("#said")).to_contain_text("loud")
    posted = pages.last("/say")
    assert posted["headers"]["Origin"] == f"http://127.0.0.1:{pages.port}"
    assert posted["headers"]["Referer"] == f"http://127.0.0.1:{pages.port}/"
    assert posted["cookies"]["session"] == "secret-session-value"
    answer = await page.goto(f"{world.site}/denied")
    assert answer is not None
    assert answer.status == 403
    answer = await page.goto(f"{world.site}/guarded")
    assert answer is not None
    assert "script-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("limit", ["4MiB", "64MiB"])
async def test_a_form_of_100_mb_says_that_it_is_too_large(page: Page, tmp_path: Path, limit: str) -> None:
    """Beyond the policy's limit, or the bridge's of 64 MiB: it is refused in words, and the page is still there."""
    file = tmp_path / "large.bin"
    with file.open("wb") as written:
        written.truncate(100_000_000)
    async with page_server() as pages:
        policy = POLICY.replace("PORT", str(pages.port)).replace("4MiB", limit)
        async with running(tmp_path, policy=policy, source=SOURCE) as world:
            shown = await open_start(page, world)
            await shown.locator("#upload [type=file]").set_input_files(file)
            await shown.locator("#upload button").click()
            problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
            await expect(problem).to_contain_text("413 request-too-large")
            await problem.get_by_role("button", name="Back to the page").click()
            await expect(shown.locator("h1")).to_have_text("Start")
            send = "(file) => fetch('/quiet', { method: 'POST', body: file.files[0] }).then(async (answer) => "
            send += "[answer.status, answer.headers.get('gateway-reason'), JSON.stringify(await answer.json())])"
            status, reason, detail = await shown.locator("#upload [type=file]").evaluate(send)
            assert (status, reason) == (413, "request-too-large"), detail
            assert re.search(r"\d[\d,]* bytes|MiB", detail), detail
            assert not {"/say", "/quiet"} & {one["path"] for one in pages.arrived}


@pytest.mark.parametrize("start", ["/nothing", "/slow", "/away"])
async def test_a_first_page_that_does_not_come_says_so(page: Page, tmp_path: Path, start: str) -> None:
    """There is something to read, and a way to try again."""
    async with running_pages(tmp_path, start) as (world, pages):
        await page.goto(world.url)
        problem = shell_of(page).locator("webmcp-gateway-panel [role=alert]")
        await expect(problem.locator("h1")).not_to_be_empty()
        seen = len(pages.arrived)
        await problem.get_by_role("button", name="Try again").click()
        await expect(problem).to_have_count(1)
        while len(pages.arrived) == seen:
            await asyncio.sleep(0.05)


async def test_views_of_a_person_share_a_jar_and_a_logout_empties_it(browser: Browser, tmp_path: Path) -> None:
    """As tabs do: a login or logout at the backend in one is one in the other; nothing of it outlives the console's."""
    async with (
        running_pages(tmp_path, "/who", "auth: [token]\n") as (world, pages),
        await browser.new_context() as context,
        await browser.new_context() as others,
    ):

        async def open_view(page: Page) -> FrameLocator:
            await page.goto(f"{world.console}/#/apps/cart")
            await expect(page_of(page).locator("#who")).not_to_be_empty()
            return page_of(page)

        async def visit(place: FrameLocator, path: str, who: str) -> None:
            seen = len(pages.arrived)
            await place.locator("body").evaluate("(_, path) => { webmcpGatewayOwn(location).href = path }", path)
            while not [one for one in pages.arrived[seen:] if one["path"].startswith("/who")]:
                await asyncio.sleep(0.02)
            await expect(place.locator("#who")).to_have_text(who)

        tab, strangers = await context.new_page(), await others.new_page()
        await tab.goto(await link(world, "ann"))
        await expect(tab.get_by_text("Signed in as ann")).to_be_visible()
        await strangers.goto(await link(world, "bob"))
        await expect(strangers.get_by_text("Signed in as bob")).to_be_visible()
        first, second = await open_view(tab), await open_view(await context.new_page())
        another = await open_view(strangers)
        await visit(first, "/enter", "ada")
        await visit(second, "/who?again", "ada")
        await visit(another, "/who?again", "nobody")
        await visit(second, "/leave", "nobody")
        await visit(first, "/who?after", "nobody")
        await visit(first, "/enter", "ada")
        await tab.get_by_test_id("logout").click()
        await expect(tab.get_by_role("heading", name="Logged out")).to_be_visible()
        seen = len(pages.arrived)
        for _ in range(4):  # through what the page and the console left in the history
            await tab.go_back()
            await tab.wait_for_load_state("networkidle")
            assert not [frame for frame in tab.frames if "ada" in await frame.content()]
        assert len(pages.arrived) == seen
        await tab.goto(await link(world, "ann"))
        await expect(tab.get_by_text("Signed in as ann")).to_be_visible()
        await expect((await open_view(tab)).locator("#who")).to_have_text("nobody")


async def test_frames_of_a_page_show_others_of_its_backend(page: Page, browser: Browser, tmp_path: Path) -> None:
    """Natively and in a view: links, forms, cookies, requests and messages of a frame, and links that leave it."""
    found = []
    async with running_pages(tmp_path, "/frames") as (world, pages):
        for url in (f"http://127.0.0.1:{pages.port}/frames", world.url):
            seen: list[Any] = []
            async with await browser.new_context() as context:
                shown = await context.new_page()
                await shown.goto(url)
                place = page_of(shown) if url == world.url else shown
                frame = place.frame_locator("#first")
                await expect(frame.locator("h1")).to_have_text("Inner 1")
                await expect(frame.locator("#status")).to_have_text("404")
                await expect(place.frame_locator("#text").locator("p")).to_have_text("written")
                await expect(place.locator("h1")).to_have_text("Frames")
                await frame.locator("#go button").click()
                await expect(frame.locator("h1")).to_have_text("Inner 2")
                await expect(frame.locator("#status")).to_have_text("404")
                await place.locator("#lead").click()
                await expect(frame.locator("h1")).to_have_text("Inner 3")
                await expect(frame.locator("#status")).to_have_text("404")
                seen.append(await place.locator("body").evaluate("() => heard"))
                await frame.locator("#post button").click()
                await expect(frame.locator("#said")).to_have_text('{"text": "framed"}')
                target = place.frame_locator("#target")
                await place.locator("#post button").first.click()
                await expect(target.locator("#said")).to_have_text('{"text": "posted"}')
                await place.locator("#other").click()
                await expect(frame.locator("#said")).to_have_text('{"text": "posted", "by": "other"}')
                await place.locator("#post").evaluate("(form) => form.submit()")
                await expect(target.locator("#said")).to_have_text('{"text": "posted"}')
                await place.locator("#get button").click()  # the target of the <base>
                await expect(target.locator("h1")).to_have_text("Inner 7")
                await expect(target.locator("#status")).to_have_text("404")
                await expect(place.locator("h1")).to_have_text("Frames")
                added = "() => { const made = document.createElement('iframe'); made.id = 'added';"
                await place.locator("body").evaluate(
                    added + " made.src = '/inner?n=4'; document.body.append(made); return made.src; }"
                )
                await expect(place.frame_locator("#added").locator("h1")).to_have_text("Inner 4")
                await place.frame_locator("#added").locator("#out").click()
                await expect(place.locator("#query")).to_have_text("by=frame")
            fields = ("Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Referer")
            arrived = [
                (one["method"], one["path"], *(one["headers"].get(name) for name in fields))
                for one in pages.arrived
                if one["path"].startswith(("/inner", "/say", "/two"))
            ]
            pages.arrived.clear()
            found.append((seen, arrived))
    native, view = found
    assert view[0] == native[0]
    assert view[1] == native[1]

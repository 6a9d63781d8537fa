"""`localStorage` kept by the gateway, in Chromium: it is loaded before the page's scripts run, in every session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Frame, Page, expect

from gateway.stores.page_storage import PageStorage, StoredPage
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from tests.browser import stock_host
from tests.browser.runtime_host import Host, host_server, pack_html
from tests.browser.stock_host import bundle_hosts
from tests.browser.test_main_job import app_of
from tests.callers.tokens import token
from tests.world import World, running

PAGE = """<!doctype html><title>Kept</title>
<body onload="order.push('onload')">
<script>
  window.order = [`first ${document.readyState} ${document.currentScript !== null}`];
  document.write("<b id=written>written</b>");
  for (const type of ["DOMContentLoaded", "readystatechange"]) {
    document.addEventListener(type, () => order.push(`${type} ${document.readyState}`));
  }
  window.found = JSON.stringify({ ...localStorage });
  localStorage.visits = Number(localStorage.visits ?? 0) + 1;
</script>
<script type="application/json">{"data": true}</script>
<p id="seen"></p>
<script>order.push("second"); document.querySelector("#seen").textContent = found;</script>
<script type="module">order.push(`module ${document.readyState}`);</script>
</body>"""

AS_PARSED = [
    "first loading true",
    "second",
    "readystatechange interactive",
    "module interactive",
    "DOMContentLoaded interactive",
    "readystatechange complete",
    "onload",
]


@pytest.fixture
async def host(page: Page) -> Host:
    """An empty host page that stores what views save."""
    async with host_server() as url:
        await page.goto(url)
    plain = Host(page)
    await plain.in_our_host()
    await plain.run(
        """() => {
          host.kept = {};
          host.saves = [];
          host.quota = 100;
          host.tools.webmcp_storage = async ({ changes, clear }) => {
            const answer = (values, isError = false) => ({ content: [], structuredContent: values, isError });
            if (!changes && !clear) return answer({ items: { ...host.kept }, quota: host.quota });
            host.saves.push({ changes, clear });
            if (host.fails?.length) return host.fails.shift();
            if (clear) host.kept = {};
            for (const [key, value] of Object.entries(changes))
              value === null ? delete host.kept[key] : host.kept[key] = value;
            return answer({ quota: host.quota });
          };
        }"""
    )
    return plain


async def show_saved(host: Host, folder: Path) -> Frame:
    """The page, once its scripts have run."""
    frame = await host.show(pack_html(folder, PAGE, keeps=True))
    await frame.wait_for_function("() => window.order?.at(-1) === 'onload'")
    return frame


async def saved_pages(world: World) -> list[StoredPage]:
    """The pages that the gateway stores, as soon as there is one."""
    async with Database(world.config.database.reveal()) as database:
        storage = PageStorage(database, KeyRing(KeyFile(world.folder / "gateway.key")))
        async with asyncio.timeout(60):
            while not (found := await storage.list()):
                await asyncio.sleep(0.02)
    return found


async def test_scripts_wait_and_run_as_if_the_page_were_parsed_then(host: Host, tmp_path: Path) -> None:
    """They run in order, with the states and events of a page; the first one already sees the stored values."""
    await host.run("() => { host.kept = { visits: '4', '\\0\"\\\\ud800\"': '\\0\"\\\\udfff!\"' }; }")
    frame = await show_saved(host, tmp_path)
    assert await frame.evaluate("order") == AS_PARSED
    assert await frame.evaluate("found") == '{"visits":"4","\\ud800":"\\udfff!"}'
    assert await frame.locator("#written").inner_text() == "written"
    assert await host.until("host.kept.visits === '5'")


TEMPLATES = """<!doctype html><template id="made"><script>order.push(`made ${document.readyState}`)</script>
<template><script>order.push("inner")</script><script type="module">order.push("end")</script></template></template>
<div><template shadowrootmode="open"><script>(window.order ??= []).push("shadow");</script></template></div>
<script>
  order.push("page");
  const copy = () => document.body.append(document.querySelector("#made").content.cloneNode(true));
  copy();
  addEventListener("load", () => {
    copy();
    document.body.append(document.querySelector("body > template:not(#made)").content);
  });
</script>"""


async def test_scripts_of_templates_run_as_natively(host: Host, tmp_path: Path) -> None:
    """They run when the page inserts a copy, each time; those of a shadow root run with the page."""
    frame = await host.show(pack_html(tmp_path / "packed", TEMPLATES, keeps=True))
    native = await host.page.context.new_page()
    (tmp_path / "page.html").write_text(TEMPLATES, "utf-8")
    await native.goto((tmp_path / "page.html").as_uri())
    seen = []
    for place in (native, frame):
        await place.wait_for_function("() => window.order?.at(-1) === 'end'")
        seen.append(await place.evaluate("order"))
    assert seen[0] == seen[1]
    assert seen[0] == ["shadow", "page", "made loading", "made complete", "inner", "end"]


async def test_changes_are_saved_in_the_background(host: Host, tmp_path: Path) -> None:
    """Changes are batched, one save at a time, encoded for JSON; cleared values are gone, later ones are there."""
    frame = await show_saved(host, tmp_path)
    await host.until("host.saves.length === 1")
    await frame.evaluate(
        "() => { localStorage.setItem('a', 1); localStorage.b = '\\ud800';"
        " localStorage.c = 'x'; delete localStorage.c; localStorage.setItem('__proto__', 'p'); }"
    )
    await host.until("host.saves.length === 2")
    saved = {"visits": "1", "a": "1", "b": '\0"\\ud800"', '\0"__proto__"': "p"}
    assert await host.run("() => host.kept") == saved
    await frame.evaluate("() => { localStorage.clear(); localStorage.d = 'new'; }")
    await host.until("host.saves.length === 3")
    assert await host.run("() => host.kept") == {"d": "new"}
    assert await frame.evaluate("() => [localStorage.length, localStorage.key(0), 'd' in localStorage]") == [
        1,
        "d",
        True,
    ]
    await frame.evaluate("() => { localStorage.d = 'new'; localStorage.removeItem('nothing'); }")
    assert await host.run("() => host.saves.length") == 3


async def test_what_is_too_much_throws_as_in_browsers(host: Host, tmp_path: Path) -> None:
    """The storage stays unchanged; the gateway's refusal, if another session was faster, is logged on the console."""
    frame = await show_saved(host, tmp_path)
    await host.until("host.saves.length === 1")
    refused = await frame.evaluate(
        "() => { try { localStorage.big = 'x'.repeat(91); return ''; } catch (error) { return error.name; } }"
    )
    assert (refused, await frame.evaluate("() => localStorage.getItem('big')")) == ("QuotaExceededError", None)
    told: list[str] = []
    host.page.on("console", lambda line: told.append(line.text))
    refusal = host.page.expect_console_message(lambda line: "localStorage was not kept" in line.text)
    await host.run(
        "() => { const structuredContent = { reason: 'quota-exceeded', detail: 'so' };"
        " host.fails = [{ isError: true, content: [], structuredContent }]; }"
    )
    async with refusal:
        await frame.evaluate("() => { localStorage.e = 'e'; }")
    await frame.evaluate("() => { localStorage.f = 'f'; }")
    await host.until("host.kept.f")
    assert told == ["webmcp-gateway: localStorage was not kept: quota-exceeded: so"]


async def test_a_save_that_fails_is_made_again(host: Host, tmp_path: Path) -> None:
    """Later changes are included."""
    await host.page.clock.install()
    frame = await show_saved(host, tmp_path)
    await host.until("host.saves.length === 1")
    await host.run("() => { host.fails = [{ isError: true, content: [] }]; }")
    await frame.evaluate("() => { localStorage.a = '1'; localStorage.b = '1'; }")
    await host.until("host.saves.length === 2")
    await frame.evaluate("() => { localStorage.b = '2'; }")
    await host.settled()
    await host.page.clock.run_for(6_000)
    await host.until("host.kept.a")
    assert await host.run("() => host.kept") == {"visits": "1", "a": "1", "b": "2"}


@pytest.mark.parametrize("why", ["no tool calls", "a refusal", "silence"])
async def test_without_a_gateway_the_page_runs_all_the_same(host: Host, tmp_path: Path, why: str) -> None:
    """Its storage then lasts as long as the page, the console reports that, and no save overwrites stored values."""
    told: list[str] = []
    host.page.on("console", lambda line: told.append(line.text))
    if why == "no tool calls":
        await host.run("() => { host.capabilities = { updateModelContext: {} }; }")
    elif why == "a refusal":
        refusal = "{ isError: true, content: [], structuredContent: { reason: 'view-unproven', detail: 'no' } }"
        await host.run(f"() => {{ host.tools.webmcp_storage = async () => ({refusal}); }}")
    else:
        await host.run("() => { host.tools.webmcp_storage = () => new Promise(() => 0); }")
    await host.page.clock.install()
    frame = await host.show(pack_html(tmp_path, PAGE, keeps=True))
    if why == "silence":
        await host.until("host.calls('webmcp_storage').length")
        await host.page.clock.fast_forward(12_000)
    await frame.wait_for_function("() => window.order?.at(-1) === 'onload'")
    assert await frame.evaluate("() => localStorage.visits") == "1"
    async with host.page.expect_console_message(lambda line: line.text == "the end"):
        await frame.evaluate("() => console.log('the end')")
    (said,) = [line for line in told if line.startswith("webmcp-gateway")]
    assert "localStorage lasts as long as this page" in said
    assert await host.run("() => [host.saves, host.of('ui/update-model-context')]") == [[], []]


async def test_a_host_is_spoken_to_as_soon_as_the_page_is_parsed(host: Host, tmp_path: Path) -> None:
    """The runtime hears the event that is held back from the page's scripts, and waits for no timer."""
    clock = host.page.clock
    await clock.install(time=0)
    await clock.pause_at(1000)
    frame = await host.show(pack_html(tmp_path, PAGE, keeps=True))
    await clock.fast_forward(100)
    await host.until("host.of('ui/notifications/initialized').length")
    await frame.wait_for_function("() => window.order?.at(-1) === 'onload'", polling=50)


async def test_a_page_on_its_own_runs_at_once(page: Page, tmp_path: Path) -> None:
    """Without a host the page uses the browser's storage."""
    (tmp_path / "packed.html").write_text(pack_html(tmp_path / "app", PAGE, keeps=True), "utf-8")
    await page.goto(f"file://{tmp_path}/packed.html")
    await page.wait_for_function("() => window.order?.at(-1) === 'onload'")
    assert await page.evaluate("order") == AS_PARSED
    await page.reload()
    await expect(page.locator("#seen")).to_have_text('{"visits":"1"}')


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The folder of the page."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE, "utf-8")
    return folder


async def test_each_person_finds_their_own_again(page: Page, tmp_path: Path, source: Path) -> None:
    """Two people use real MCP clients in a third-party host; the database stores ciphertext."""
    script = bundle_hosts(tmp_path)
    async with running(tmp_path, source=source, storage="gateway", extra="auth: [token]\n") as world:
        ann = await token(world, "ann", "mcp", person="ann")
        bob = await token(world, "bob", "mcp", person="bob")
        seen: list[str] = []
        for number, headers in enumerate((ann, ann, bob)):
            async with (
                await page.context.browser.new_context() as fresh,  # type: ignore[union-attr]  # it has one
                stock_host.show_cart(
                    await fresh.new_page(), world, script, headers=headers, landmark="#seen:has-text('{')"
                ) as frame,
            ):
                seen.append(await frame.locator("#seen").inner_text())
                async with asyncio.timeout(60):
                    while sum(one.size for one in await saved_pages(world)) < 7 * (1 if number < 2 else 2):
                        await asyncio.sleep(0.02)
        assert seen == ["{}", '{"visits":"1"}', "{}"]
        assert {(one.person.rpartition("|")[2], one.app, one.size) for one in await saved_pages(world)} == {
            ("ann", "cart", 7),
            ("bob", "cart", 7),
        }
        stored = b"".join(path.read_bytes() for path in tmp_path.glob("gateway.db*"))
        assert b"page storage" not in stored
        assert b"visits" not in stored


async def test_in_our_host_it_outlives_the_page(page: Page, tmp_path: Path, source: Path) -> None:
    """A megabyte is stored over the bridge, and restored."""
    async with running(tmp_path, source=source, storage="gateway") as world:
        await page.goto(world.url)
        frame = app_of(page)
        await expect(frame.locator("#seen")).to_have_text("{}")
        await frame.locator("body").evaluate("() => { localStorage.big = 'ü'.repeat(1000000); }")
        async with asyncio.timeout(60):
            while sum(one.size for one in await saved_pages(world)) < 1_000_000:
                await asyncio.sleep(0.02)
        await page.reload()
        await expect(frame.locator("#seen")).to_contain_text('"visits":"1"')
        assert await frame.locator("body").evaluate("() => localStorage.big.length") == 1_000_000


COUNTED = """<!doctype html><title>Counted</title><p id=seen></p><script>
const done = (request) => new Promise((go, fail) => {
  request.onsuccess = () => go(request.result);
  request.onerror = () => fail(request.error);
});
(async () => {
  const opening = indexedDB.open("notes", 3);
  opening.onupgradeneeded = () => {
    const store = opening.result.createObjectStore("notes", { keyPath: "id", autoIncrement: true });
    store.createIndex("tags", "tags", { multiEntry: true });
    opening.result.createObjectStore("blobs");
  };
  const database = await done(opening);
  const notes = database.transaction("notes", "readwrite").objectStore("notes");
  const map = new Map([[1, new Set("x")]]);
  const value = { tags: ["a", "b"], at: new Date(7), big: 2n ** 70n, none: undefined, map };
  const id = await done(notes.add({ ...value, bytes: new Uint8Array([1, 2, 255]), odd: "\\ud800 \\u2028 \\0" }));
  const byTag = await done(notes.index("tags").getAll("b"));
  const [first] = byTag;
  const kept = [first.at.getTime(), String(first.big), "none" in first, first.map.get(1).has("x")];
  const rest = `${kept.join(" ")} ${[...first.bytes].join("-")} ${escape(first.odd)}`;
  seen.textContent = `note ${id} of ${byTag.length}, version ${database.version}: ${rest}`;
})();
</script>"""


async def test_databases_outlive_the_page_too(page: Page, tmp_path: Path) -> None:
    """With keys, indexes, versions and types, in the quota of the app; the browser refuses its own in the frame."""
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text(COUNTED, "utf-8")
    kept = "version 3: 7 1180591620717411303424 true true 1-2-255 %uD800%20%u2028%20%00"
    async with running(tmp_path, source=folder, storage="gateway") as world:
        await page.goto(world.url)
        seen = app_of(page).locator("#seen")
        size = 0
        for number in (1, 2, 3):
            await expect(seen).to_have_text(f"note {number} of {number}, {kept}")
            async with asyncio.timeout(60):
                while (now := sum(one.size for one in await saved_pages(world))) <= size:
                    await asyncio.sleep(0.02)
            size = now
            await page.reload()

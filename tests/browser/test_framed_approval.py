"""The approval page under attack by other pages: in frames, under images, in windows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from playwright.async_api import Error, Page, expect

from tests.browser.test_approval_page import call_for_approval, count_deletes
from tests.whole.test_main_job import answer_next, person, questions
from tests.world import Server, World

FRAMES = """async (url) => {
  const hash = new URL(url).origin + '/#/approvals/' + url.split('/').pop();
  const made = [];
  const add = (tag, values) => {
    const one = Object.assign(document.createElement(tag), values);
    one.style.cssText = 'position: fixed; inset: 0; width: 100%; height: 100%; opacity: 0.01; border: 0';
    made.push(new Promise((done) => { one.onload = one.onerror = done; setTimeout(done, 3000); }));
    document.body.append(one);
    return one;
  };
  add('iframe', { src: url });
  add('iframe', { src: hash });
  add('iframe', { src: url, sandbox: 'allow-scripts allow-same-origin allow-forms allow-popups' });
  add('iframe', { srcdoc: `<iframe src="${url}" width=900 height=600></iframe>` });
  add('object', { data: url });
  add('embed', { src: url });
  for (const [element, key] of [['form', 'action'], ['a', 'href']]) {
    const frame = add('iframe', { name: `into-${element}` });
    const one = Object.assign(document.createElement(element), { [key]: url, target: frame.name });
    document.body.append(one);
    element === 'form' ? one.submit() : one.click();
  }
  await Promise.all(made);
}"""


@pytest.fixture
async def elsewhere() -> AsyncIterator[str]:
    """The origin of a hostile page."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<!doctype html><title>A game</title><body>", content_type="text/html")

    app = web.Application()
    app.router.add_get("/", page)
    server = Server()
    await server.start(app)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


@pytest.mark.parametrize("whose", ["another site's", "the app's", "the console's"])
async def test_no_page_frames_it(world: World, page: Page, elsewhere: str, whose: str) -> None:
    """In every kind of frame the browser shows an error instead, and clicks there answer nothing."""
    origin = {"another site's": elsewhere, "the app's": world.site, "the console's": world.console}[whose]
    async with call_for_approval(world) as question, person(world) as ann:
        await page.goto(origin)
        await page.evaluate(FRAMES, question.link)
        shown = [frame for frame in page.frames if frame is not page.main_frame]
        assert len(shown) >= 5
        console = urlsplit(world.console).netloc
        assert [frame.url for frame in shown if urlsplit(frame.url).netloc == console] == []
        for frame in shown:
            try:
                assert await frame.get_by_test_id("approve").count() == 0
            except Error:
                assert frame.is_detached()  # the browser has just put its error page there
        size = page.viewport_size or {"width": 1280, "height": 720}
        for across in range(1, 6):
            for down in range(1, 6):
                await page.mouse.click(size["width"] * across / 6, size["height"] * down / 6)
        assert (count_deletes(world), len(await questions(ann, world)), question.answer.done()) == (0, 1, False)
        await answer_next(ann, world, "decline")


async def test_who_opened_its_window_has_no_hold_of_it(world: World, page: Page, elsewhere: str) -> None:
    """The opener is severed: it cannot script, navigate or close the window, or send it messages."""
    async with call_for_approval(world) as question, person(world) as ann:
        await page.goto(elsewhere)
        await page.evaluate("document.body.innerHTML = '<button>Play</button>'")
        await page.evaluate(
            "(url) => document.querySelector('button').onclick = () => { window.held = window.open(url, 'game'); }",
            question.link,
        )
        async with page.context.expect_page() as opened:
            await page.get_by_text("Play").click()
        window = await opened.value
        await expect(window.get_by_test_id("approve")).to_be_enabled()
        assert await window.evaluate("window.opener === null")
        id = question.link.rpartition("/")[2]
        await page.evaluate(
            """async (id) => {
              for (const said of ['approve', { answer: 'approve', id }, { type: 'approve', id }]) {
                held.postMessage(said, '*');
              }
              try { held.document.querySelector('[data-testid=approve]').click(); } catch { /* refused */ }
              try { held.location = 'javascript:0'; } catch { /* refused */ }
              held.close();
            }""",
            id,
        )
        assert await page.evaluate("held.closed")  # as its opener sees it
        assert not window.is_closed()
        await expect(window.get_by_test_id("approve")).to_be_enabled()
        assert (count_deletes(world), len(await questions(ann, world))) == (0, 1)
        await window.get_by_test_id("decline").click()
        async with asyncio.timeout(60):
            assert (await question.answer)["headers"]["gateway-reason"] == "approval-declined"

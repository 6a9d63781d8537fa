"""Messages of the runtime on its own: for a page without a client, about its height, and polls that yield."""

import asyncio
from pathlib import Path

import pytest

from tests.browser.runtime_host import Host, pack_html, show_page
from tests.browser.test_runtime_tools import TOOLS


async def test_a_page_without_a_client_is_spoken_for(host: Host, tmp_path: Path) -> None:
    """It sends one initialize, one initialized and its size, answers ping and teardown, and rejects other requests."""
    frame = await show_page(
        host, tmp_path, "<!doctype html><body style='margin:0'><div id=d style='height:123px'></div>"
    )
    await host.until("host.of('ui/notifications/size-changed').some((m) => m.params.height === 123)")
    await frame.evaluate("() => { d.style.height = '200px'; }")
    await host.until("host.of('ui/notifications/size-changed').some((m) => m.params.height === 200)")
    assert (await host.run("() => host.ask(1, 'ui/resource-teardown', {})"))["result"] == {}
    assert (await host.run("() => host.ask('x', 'ping')"))["result"] == {}
    assert (await host.run("() => host.ask(2, 'ui/unknown')"))["error"]["code"] == -32601
    methods = await host.run(
        "() => host.log.map((m) => m.method).filter((m) => m && m !== 'ui/notifications/size-changed')"
    )
    assert methods == ["ui/initialize", "ui/notifications/initialized"]


@pytest.mark.parametrize("root", ["body", "#root"])
async def test_a_page_as_tall_as_its_frame_says_what_it_would_need(host: Host, tmp_path: Path, root: str) -> None:
    """Its boxes do not grow with their content, as in many pages."""
    style = "<style>html, body, #root { height: 100%; margin: 0 } p { white-space: pre }</style>"
    frame = await show_page(host, tmp_path, f"<!doctype html>{style}<body><div id=root><p>page</p></div>")
    await host.until("host.of('ui/notifications/size-changed').length")
    grow = "(name) => { document.querySelector(name).innerHTML += `<div style='height: 2345px'></div>`; }"
    await frame.evaluate(grow, root)
    await host.until("host.of('ui/notifications/size-changed').some((m) => m.params.height > 2345)")
    await frame.evaluate("() => { document.querySelector('p').firstChild.data += '\\n'.repeat(300); }")
    await host.until("host.of('ui/notifications/size-changed').some((m) => m.params.height > 6000)")


CLOCK = """<script>
  const clock = { now: 0, timers: new Map(), last: 0 };
  performance.now = () => clock.now;
  window.setTimeout = (run, after = 0) => {
    clock.timers.set(++clock.last, { run, after, at: clock.now + after });
    return clock.last;
  };
  window.clearTimeout = (timer) => clock.timers.delete(timer);
  clock.waits = (after) => [...clock.timers.values()].some((timer) => timer.after === after);
  clock.pass = (time) => {
    clock.now += time;
    for (const [id, { run, at }] of clock.timers) if (at <= clock.now) (clock.timers.delete(id), run());
  };
</script>"""
"""A script before the runtime: time advances only on request."""

BRISK = 20
"""Milliseconds between two polls of a view whose host runs one call at a time."""


@pytest.mark.parametrize("what", ["gesture", "request"])
async def test_a_poll_gives_way_to_the_page(host: Host, tmp_path: Path, what: str) -> None:
    """One call at a time: no poll starts within 0.1 s of a person's gesture, or of a request."""
    await host.attaches()
    await host.answers("return { status: 204 };")
    await host.run(
        "() => { host.tools.webmcp_poll = async () =>"
        " ({ content: [], structuredContent: { events: [], overtaken: false } }); }"
    )
    frame = await host.show(CLOCK + pack_html(tmp_path, TOOLS))

    async def polls() -> int:
        return len(await host.run("host.calls('webmcp_poll')"))

    async def steps(count: int) -> int:
        """The number of polls that start in so many steps of the view, each of which is awaited."""
        before = await polls()
        for _ in range(count):
            await frame.evaluate("time => clock.pass(time)", BRISK)
            await frame.wait_for_function("time => clock.waits(time)", arg=BRISK)
        return await polls() - before

    async with asyncio.timeout(150):  # hundreds of small steps, each of which waits for the browser
        # By then the view has detected the host's behaviour.
        while await polls() < 10 or not await frame.evaluate("time => clock.waits(time)", BRISK):
            await frame.evaluate("clock.pass(5)")
    assert await steps(3) == 3
    if what == "gesture":
        await frame.locator("p").click()
    else:
        await frame.evaluate("fetch('/api/x')")
    assert await steps(4) == 0
    assert await steps(4) == 4

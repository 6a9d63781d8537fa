"""Misbehaving hosts and pages: the view keeps working, and answers are never swapped."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, Page

from tests.browser.runtime_host import (
    CLOCK,
    KEY,
    Host,
    advance_clock,
    base64url,
    echoing_host,
    pack_html,
    proof,
    show_page,
)
from tests.browser.test_runtime_tools import TOOLS
from tests.browser.test_single_owner import complaints, show_page_of_kind

ASKED = "async (url) => (await fetch(url)).text()"


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host on a real server, whose answers repeat the requested URL."""
    async with echoing_host(page) as echoing:
        yield echoing


async def test_a_host_that_answers_twice(host: Host, tmp_path: Path) -> None:
    """The first answer counts, the second is dropped: neither the page nor another request receives it."""
    await host.run(
        "() => { const { post } = host; host.post = (message) => { post(message);"
        " if (message.id !== undefined) post(message); }; }"
    )
    frame = await show_page(host, tmp_path)
    await frame.evaluate("() => { window.seen = []; addEventListener('message', ({ data }) => seen.push(data)); }")
    urls = [f"/{number}" for number in range(20)]
    got = await frame.evaluate("(urls) => Promise.all(urls.map(async (url) => (await fetch(url)).text()))", urls)
    assert got == urls
    assert await frame.evaluate("seen") == []
    assert len(await host.run("() => host.of('ui/notifications/initialized')")) == 1


async def test_an_answer_after_the_end_of_its_question(host: Host, tmp_path: Path) -> None:
    """The answer to an aborted request is dropped."""
    await host.answers(
        "if (args.url === '/late') await new Promise((go) => { host.go = go; });"
        " return { bodyType: 'text', body: args.url };"
    )
    frame = await show_page(host, tmp_path)
    await frame.evaluate(
        "() => { window.control = new AbortController();"
        " window.late = fetch('/late', { signal: control.signal }).then(() => 'answered', (error) => error.name); }"
    )
    await host.until("!!host.go")
    await frame.evaluate("() => control.abort()")
    assert await frame.evaluate("() => late") == "AbortError"
    await host.run("() => host.go()")
    assert await frame.evaluate(ASKED, "/next") == "/next"


async def test_a_host_that_goes_on_after_teardown(host: Host, tmp_path: Path) -> None:
    """Its messages are answered, and the page logs no error."""
    frame = await show_page(host, tmp_path)
    errors: list[str] = []
    host.page.on("pageerror", lambda error: errors.append(str(error)))
    assert await frame.evaluate(ASKED, "/a") == "/a"
    assert (await host.run("() => host.ask('end', 'ui/resource-teardown')"))["result"] == {}
    await host.run("() => host.notify('ui/notifications/tool-input', { arguments: {} })")
    assert (await host.run("() => host.ask('after', 'ping')"))["result"] == {}
    assert errors == []


async def test_a_flood_from_the_host(host: Host, tmp_path: Path) -> None:
    """Answers without a request, notifications and garbage do not disturb a request in between."""
    frame = await show_page(host, tmp_path)
    await host.run(
        "() => { for (let n = 0; n < 5000; n++) { host.post({ jsonrpc: '2.0', id: `wg-${n}`, result: { n } });"
        " host.notify('ui/notifications/tool-input-partial', { arguments: { n } }); host.post(n); } }"
    )
    assert await frame.evaluate(ASKED, "/a") == "/a"


async def test_answers_that_say_nothing(host: Host, tmp_path: Path) -> None:
    """A missing result, one that is not an object, or an error without a message fails the request at once."""
    frame = await show_page(host, tmp_path)
    await host.run(
        "() => { const before = host.answer; host.parts = [{}, { result: null }, { result: 5 }, { result: [] },"
        " { error: 'no' }, { error: null }]; host.answer = (message) => {"
        " if (message.params?.name !== 'http_request') return before(message);"
        " host.post({ jsonrpc: '2.0', id: message.id, ...host.parts.shift() }); }; }"
    )
    asked = "() => Promise.all([...'123456'].map((n) => fetch(n).then(() => 'answered', (error) => error.name)))"
    assert await frame.evaluate(asked) == ["TypeError"] * 6


async def test_a_host_that_tells_of_progress_what_is_no_part(host: Host, tmp_path: Path) -> None:
    """Such progress notifications are ignored, as for any call: the stream ends, and the page logs no error."""
    errors = complaints(host.page)
    await host.answers("return { bodyType: 'text', body: 'one ', stream: 's1' };")
    parts: tuple[Any, ...] = (1, {})
    told: list[Any] = [{}, {"_meta": None}, {"_meta": {}}, *({"_meta": {"webmcp-gateway/part": one}} for one in parts)]
    await host.run(
        "(told) => { const answers = host.tools.http_request; host.tools.http_stream = async (args, id) => {"
        " for (const params of told)"
        " host.notify('notifications/progress', { progressToken: id, progress: 1, ...params });"
        " const { structuredContent } = await answers(args);"
        " return { content: [], structuredContent: { ...structuredContent, body: 'two', stream: undefined } }; }; }",
        told,
    )
    frame = await show_page(host, tmp_path)
    assert await frame.evaluate(ASKED, "/a") == "one two"
    assert errors == []


async def test_a_page_that_wraps_fetch(host: Host, tmp_path: Path) -> None:
    """Its wrapper is called first, and XMLHttpRequest does not pass it, as in a browser."""
    page = """<!doctype html><p>XMLHttpRequest</p><script>
      window.asked = [];
      const own = window.fetch;
      window.fetch = (...given) => (asked.push(String(given[0])), own(...given));
    </script>"""
    frame = await show_page(host, tmp_path, page)
    assert await frame.evaluate(ASKED, "/a") == "/a"
    by_xhr = await frame.evaluate(
        "() => new Promise((done) => { const request = new XMLHttpRequest(); request.open('GET', '/b');"
        " request.onload = () => done(request.responseText); request.send(); })"
    )
    assert by_xhr == "/b"
    assert await frame.evaluate("asked") == ["/a"]


async def test_too_large_for_the_route(host: Host, tmp_path: Path) -> None:
    """A 413 of the gateway is an ordinary answer."""
    await host.answers(
        "return { status: 413, headers: { 'gateway-reason': 'request-too-large' }, bodyType: 'json', body: {} };"
    )
    frame = await show_page(host, tmp_path)
    sent = "async () => (await fetch('/up', { method: 'POST', body: 'x'.repeat(1000000) })).status"
    assert await frame.evaluate(sent) == 413


TIER = "() => webmcpGateway.tier"


async def show_without_answer(host: Host, folder: Path) -> Frame:
    """A page whose host does not answer `ui/initialize`, after the five seconds of its timeout."""
    await host.run("() => { host.initializes = false; }")
    frame = await host.show(CLOCK + pack_html(folder, "<!doctype html><p>page</p>"))
    await host.until("host.of('ui/initialize').length")
    await advance_clock(frame, 6)
    await frame.wait_for_function("() => webmcpGateway.tier === 'static'")
    return frame


async def answer_initialize(host: Host, capabilities: str = "{ serverTools: {} }") -> None:
    """The answer to the page's `ui/initialize`."""
    await host.run(
        "() => host.post({ jsonrpc: '2.0', id: host.of('ui/initialize')[0].id, result: { protocolVersion: '2026-01-26',"
        f" hostInfo: {{ name: 'late', version: '1' }}, hostCapabilities: {capabilities}, hostContext: {{}} }} }})"
    )


async def test_a_host_that_answers_late_and_then_otherwise(host: Host, tmp_path: Path) -> None:
    """The late answer upgrades the page; another one after it changes and restarts nothing."""
    frame = await show_without_answer(host, tmp_path)
    await answer_initialize(host)
    await frame.wait_for_function("() => webmcpGateway.tier === 'full'")
    await answer_initialize(host, "{}")
    await host.run("() => host.ask('next', 'ping')")
    assert await frame.evaluate(ASKED, "/a") == "/a"
    assert await frame.evaluate(TIER) == "full"
    assert await host.run(
        "() => [host.of('ui/initialize').length, host.of('ui/notifications/initialized').length]"
    ) == [1, 1]


async def test_a_host_that_answers_after_teardown(host: Host, tmp_path: Path) -> None:
    """The view ended before it was initialized: the page logs no error, and does not initialize again."""
    errors: list[str] = []
    host.page.on("pageerror", lambda error: errors.append(str(error)))
    await show_without_answer(host, tmp_path)
    await host.run("() => host.post({ jsonrpc: '2.0', id: 'end', method: 'ui/resource-teardown', params: {} })")
    await answer_initialize(host)
    await host.until("host.of('ui/notifications/initialized').length")
    assert (await host.run("() => host.ask('again', 'ui/resource-teardown')"))["result"] == {}
    assert await host.run("() => host.of('ui/initialize').length") == 1
    assert errors == []


async def test_a_host_that_answers_the_attaching_late(host: Host, tmp_path: Path) -> None:
    """The host may ask a person first: requests wait, then leave without proof; the late answer counts."""
    await host.run("() => { host.tools.webmcp_attach = () => new Promise((go) => { host.attach = go; }); }")
    frame = await host.show(CLOCK + pack_html(tmp_path, "<!doctype html><p>page</p>"))
    await host.until("host.of('ui/notifications/initialized').length")
    await host.run("() => host.notify('ui/notifications/tool-result', { _meta: { 'webmcp-gateway/launch': 'L' } })")
    await host.until("!!host.attach")
    waiting = asyncio.ensure_future(frame.evaluate(ASKED, "/a"))
    await advance_clock(frame, 16)
    assert await waiting == "/a"
    values = {"view": "view1", "key": base64url(KEY), "proven": True, "free": []}
    await host.run("(values) => host.attach({ content: [], structuredContent: values })", values)
    await host.settled()
    assert await frame.evaluate(ASKED, "/b") == "/b"
    views = await host.run("() => host.calls('http_request').map((args) => args._view ?? null)")
    assert views == [None, proof(1)]
    assert await host.run("() => host.of('notifications/cancelled').length") == 0


async def test_a_host_that_brings_a_launch_value_twice(host: Host, tmp_path: Path) -> None:
    """The view stays the same, as its calls may be in flight."""
    await host.attaches()
    frame = await host.show(pack_html(tmp_path, "<!doctype html><p>page</p>"))
    assert await frame.evaluate(ASKED, "/a") == "/a"
    again = {"_meta": {"webmcp-gateway/launch": "LAUNCH-SECRET"}}
    await host.run("(again) => host.notify('ui/notifications/tool-result', again)", again)
    await host.settled()
    assert await frame.evaluate(ASKED, "/b") == "/b"
    assert await host.run("() => host.calls('webmcp_attach').length") == 1
    assert await host.run("() => host.calls('http_request').map((args) => args._view)") == [proof(1), proof(2)]


async def test_a_host_that_writes_another_page_into_the_frame(host: Host, tmp_path: Path) -> None:
    """Sandbox proxies may do so: the window is that of the previous page, and the new page becomes a view."""
    errors = complaints(host.page)
    await host.attaches("add")
    html = pack_html(tmp_path, TOOLS)
    await show_page_of_kind(host, "write", html)
    await host.until("host.calls('webmcp_attach').length")
    frame = host.page.frames[-1]
    assert await frame.evaluate(ASKED, "/a") == "/a"
    await host.run(
        "(html) => { const page = host.frame.contentDocument; page.open(); page.write(html); page.close(); }", html
    )
    await host.until("host.of('ui/notifications/initialized').length === 2")
    assert await frame.evaluate(ASKED, "/b") == "/b"
    listed = await host.run("() => host.ask('list', 'tools/list')")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["add"]
    await host.run("() => host.ask('call', 'tools/call', { name: 'add', arguments: {} })")
    assert [name for name, _ in await frame.evaluate("runs")] == ["add"]
    assert errors == []


async def test_a_host_that_ends_a_view_while_it_calls_a_tool(host: Host, tmp_path: Path) -> None:
    """Both requests are answered; the page runs until it is removed, without an error."""
    errors = complaints(host.page)
    await host.attaches("add")
    frame = await host.show(pack_html(tmp_path, TOOLS))
    await host.until("host.calls('webmcp_attach').length")
    call = "host.ask('call', 'tools/call', { name: 'add', arguments: { wait: true } })"
    await host.run(f"() => {{ {call}.then((answer) => {{ host.late = answer; }}); }}")
    await frame.wait_for_function("() => runs.length")
    assert (await host.run("() => host.ask('end', 'ui/resource-teardown')"))["result"] == {}
    await host.run("(html) => { host.frame.srcdoc = html; }", "<!doctype html><p>another")
    assert (await host.until("host.late"))["result"]["isError"]
    assert errors == []


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"hostCapabilities": "serverTools", "hostContext": []},
        {"hostCapabilities": None, "hostContext": {"webmcp-gateway": True}},
        [],
        "initialized",
    ],
    ids=["empty", "words", "null", "list", "text"],
)
async def test_a_host_whose_answer_is_none(host: Host, tmp_path: Path, result: Any) -> None:
    """The result declares no capabilities: the tier is static, and requests are refused with that reason."""
    errors: list[str] = []
    host.page.on("pageerror", lambda error: errors.append(str(error)))
    await host.run(
        "result => { const { answer } = host; host.answer = async (message) =>"
        " message.method === 'ui/initialize' ? result : answer(message); }",
        result,
    )
    frame = await host.show(CLOCK + pack_html(tmp_path, "<!doctype html><p>page</p>"))
    await host.until("host.of('ui/initialize').length")
    await advance_clock(frame, 6)
    await frame.wait_for_function("() => webmcpGateway.tier === 'static'")
    assert await frame.evaluate("async () => (await fetch('/a')).status") == 503
    assert errors == []


async def test_a_script_that_wraps_fetch_before_the_runtime(host: Host, tmp_path: Path) -> None:
    """A host's wrapper in the frame is not called: it could only request the host's own site."""
    wrapper = """<script>
      window.asked = [];
      const own = window.fetch;
      window.fetch = (...given) => (asked.push(String(given[0])), own(...given));
      window.XMLHttpRequest = class extends XMLHttpRequest {
        open(...given) { asked.push(given[1]); super.open(...given); }
      };
    </script>"""
    await host.in_our_host()
    frame = await host.show(wrapper + pack_html(tmp_path, "<!doctype html><p>page</p>"))
    assert await frame.evaluate(ASKED, "/a") == "/a"
    assert await frame.evaluate("asked") == []

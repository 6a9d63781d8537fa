"""Links, downloads, forms and refreshes of a page in an opaque frame that may neither navigate, open nor save."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Frame, Page, expect

from tests.browser.runtime_host import Host, host_server, notice_text, show_page

PAGE = """<!doctype html><html><body>
<a id="out" href="https://elsewhere.example/x">out</a>
<a id="mail" href="mailto:shop@example.com?subject=Tea">mail</a>
<a id="call" href=" TEL:+4312345 ">call</a>
<a id="blank" href="/help" target="_blank">help</a>
<a id="save" href="/api/report" download="märz.csv">save</a>
<a id="attached" href="/api/report">attached</a>
<a id="page" href="/other.html">page</a>
<a id="taken" href="/routed">routed</a>
<a id="stopped" href="https://stopped.example/">stopped</a>
<a id="hash" href="#below">hash</a><p id="below">below</p>
<svg width="99" height="9"><a id="moved">
  <set attributeName="href" to="https://moved.example/"/><rect width="99" height="9"/></a></svg>
<script>
  // What is saved as a file comes of URL.createObjectURL.
  document.getElementById("taken").addEventListener("click", (event) => event.preventDefault());
  document.getElementById("stopped").addEventListener("click", (event) => event.stopPropagation());
</script></body></html>"""

REPORT = (
    "if (args.url !== '/api/report') return { bodyType: 'text', body: 'page' };"
    "return { bodyType: 'text', body: 'a,b', headers: { 'content-type': 'text/csv',"
    " 'content-disposition': 'attachment; filename=\"report.csv\"' } };"
)


@pytest.fixture
async def host(page: Page) -> AsyncIterator[Host]:
    """A plain host that opens links and saves files."""
    async with host_server() as url:
        await page.goto(url)
        await page.evaluate("() => { host.capabilities.downloadFile = {}; }")
        yield Host(page)


async def requests_of(host: Host, method: str) -> list[Any]:
    """The parameters of every request of the view with this method."""
    found: list[Any] = await host.run(f"host.of('{method}').map(({{ params }}) => params)")
    return found


async def click(frame: Frame, id: str) -> None:
    """Click the element with this id."""
    await frame.locator(f"#{id}").click()


async def test_links_that_lead_outside_are_opened_by_the_host(host: Host, tmp_path: Path) -> None:
    """Other origins, mail, new windows, stopped clicks and middle clicks are opened; the router's own links stay."""
    await host.answers(REPORT)
    frame = await show_page(host, tmp_path, PAGE)
    for id in ("out", "mail", "call", "blank", "stopped", "taken", "moved"):
        await click(frame, id)
    await frame.locator("#out").click(button="right")
    await frame.locator("#blank").click(button="middle")
    assert await frame.evaluate("() => window.open('/popup')") is None
    await host.until("host.of('ui/open-link').length > 7")
    urls = [params["url"] for params in await requests_of(host, "ui/open-link")]
    assert urls == [
        "https://elsewhere.example/x",
        "mailto:shop@example.com?subject=Tea",
        "tel:+4312345",
        "https://cart.invalid/help",
        "https://stopped.example/",
        "https://moved.example/",
        "https://cart.invalid/help",
        "https://cart.invalid/popup",
    ]
    assert frame.url == "about:srcdoc"


async def test_files_are_saved_by_the_host(host: Host, tmp_path: Path) -> None:
    """A `download` link, a link to an attachment, and the common ways to save generated files are handled."""
    await host.answers(REPORT)
    frame = await show_page(host, tmp_path, PAGE)
    await click(frame, "save")
    await host.until("host.of('ui/download-file').length > 0")
    await click(frame, "attached")
    await host.until("host.of('ui/download-file').length > 1")
    for count, name in ((3, "one.txt"), (4, "two.txt")):
        await frame.evaluate(
            """(name) => {
              const link = document.createElement("a");
              link.href = URL.createObjectURL(new Blob([name], { type: "text/plain" }));
              link.download = name;
              name === "one.txt" ? link.click() : link.dispatchEvent(new MouseEvent("click"));
            }""",
            name,
        )
        await host.until(f"host.of('ui/download-file').length === {count}")
    saved = [params["contents"][0]["resource"] for params in await requests_of(host, "ui/download-file")]
    assert [(one["uri"], one["mimeType"], one["blob"]) for one in saved] == [
        ("file:///m%C3%A4rz.csv", "text/csv", "YSxi"),
        ("file:///report.csv", "text/csv", "YSxi"),
        ("file:///one.txt", "text/plain", "b25lLnR4dA=="),
        ("file:///two.txt", "text/plain", "dHdvLnR4dA=="),
    ]


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (r'attachment; filename="m\u00c3\u00a4rz.csv"', "m%C3%A4rz.csv"),
        (r'attachment; filename="m\u00e4rz.csv"', "m%C3%A4rz.csv"),
        ("attachment; filename=\"x.csv\"; filename*=UTF-8''m%C3%A4rz%2B1.csv", "m%C3%A4rz%2B1.csv"),
        ("attachment; filename*=utf-8''m%C3%A4rz.csv; filename=x.csv", "m%C3%A4rz.csv"),
        ("attachment; filename=100%.csv", "100%25.csv"),
        ("attachment", "report"),
    ],
)
async def test_a_file_is_named_as_its_backend_says(host: Host, tmp_path: Path, disposition: str, name: str) -> None:
    """The name may be encoded, or raw UTF-8 or Latin-1, of which a header's value shows each byte."""
    headers = f"{{ 'content-disposition': `{disposition}` }}"
    await host.answers(f"return {{ bodyType: 'text', body: '', headers: {headers} }};")
    frame = await show_page(host, tmp_path, PAGE)
    await click(frame, "attached")
    await host.until("host.of('ui/download-file').length > 0")
    [params] = await requests_of(host, "ui/download-file")
    assert params["contents"][0]["resource"]["uri"] == f"file:///{name}"


@pytest.mark.parametrize(
    ("id", "method"), [("save", "ui/download-file"), ("out", "ui/open-link"), ("mail", "ui/open-link")]
)
@pytest.mark.parametrize("how", ["cannot", "refuses", "fails"])
async def test_what_a_host_does_not_do_is_told_to_the_person(
    host: Host, tmp_path: Path, id: str, method: str, how: str
) -> None:
    """A host without the capability gets no request; a refusal or failure is shown to the person."""
    await host.answers(REPORT)
    answer = {"cannot": "{}", "refuses": "{ isError: true }", "fails": "{ failure: { code: -32000, message: 'no' } }"}
    await host.run(
        f"() => {{ const {{ answer }} = host; if ('{how}' === 'cannot') host.capabilities = {{ serverTools: {{}} }};"
        f" host.answer = async (m) => m.method === '{method}' ? {answer[how]} : answer(m); }}"
    )
    frame = await show_page(host, tmp_path, PAGE)
    await click(frame, id)
    said = {
        "save": "File not saved märz.csv",
        "out": "Link not opened https://elsewhere.example/x",
        "mail": "Link not opened mailto:shop@example.com?subject=Tea",
    }
    assert await notice_text(frame) == said[id]
    assert bool(await requests_of(host, method)) is (how != "cannot")


async def test_a_form_that_goes_nowhere_is_told_to_the_person(host: Host, tmp_path: Path) -> None:
    """A notice is shown if no host carries the request; a refusal by the backend is left to the page."""
    await host.answers("return { status: 422 };")
    html = '<form action="/contact" method="post"><input name="a"><button>Send</button></form>'
    frame = await show_page(host, tmp_path, html)
    await frame.evaluate(
        "() => { window.answered = new Promise((go) =>"
        " addEventListener('webmcp-gateway-response', ({ detail }) => go(detail.status))); }"
    )
    await frame.locator("button").click()
    assert await frame.evaluate("answered") == 422
    await expect(frame.locator("webmcp-gateway-notice")).to_have_count(0)
    await host.run("() => { host.capabilities = {}; }")
    frame = await show_page(host, tmp_path, html)
    await frame.locator("button").click()
    assert await notice_text(frame) == "Form not sent Send"


async def test_no_form_leaves_the_page_where_the_host_would_let_it(host: Host, tmp_path: Path) -> None:
    """The answer would replace the view: every kind of submission becomes a request."""
    await host.run("() => { host.sandbox += ' allow-forms'; }")
    await host.answers("return { bodyType: 'text', body: 'thanks' };")
    frame = await show_page(
        host,
        tmp_path,
        '<form action="/sent" method="post"><input name="a" value="1"><button name="by">Send</button></form>',
    )
    await frame.evaluate("() => { window.still = true; }")
    ways: tuple[Callable[[], Awaitable[object]], ...] = (
        frame.locator("button").click,
        partial(frame.locator("input").press, "Enter"),
        partial(frame.evaluate, "() => document.forms[0].requestSubmit()"),
        partial(frame.evaluate, "() => document.forms[0].submit()"),
    )
    # A form sends only the last of simultaneous submissions: each waits for the one before.
    for count, submit in enumerate(ways):
        await submit()
        await host.until(f"host.calls('http_request').length > {count}")
    assert await host.run("host.calls('http_request').map(({ url, body }) => [url, body])") == [
        ["/sent", "a=1&by="],
        ["/sent", "a=1&by="],
        ["/sent", "a=1"],
        ["/sent", "a=1"],
    ]
    assert (frame.url, await frame.evaluate("still")) == ("about:srcdoc", True)


async def test_a_view_stays_at_its_page(host: Host, tmp_path: Path) -> None:
    """A link to another page of the app is logged on the console; one to a fragment scrolls."""
    await host.answers(REPORT)
    frame = await show_page(host, tmp_path, PAGE)
    async with host.page.expect_console_message(lambda message: "/other.html: another page" in message.text):
        await click(frame, "page")
    await click(frame, "hash")
    await frame.wait_for_function("() => location.href === 'about:srcdoc#below'")


REFRESHING = """<!doctype html><html><head><meta http-equiv="Refresh" content="0; URL='https://elsewhere.example/'">
<script>document.write('<meta http-equiv=refresh content="0;https://elsewhere.example/written">');</script></head><body><p>page
<script>window.name += "x"; if (window.name === "x") {
  const added = document.createElement("meta");
  added.setAttribute("http-equiv", "refresh");
  document.head.append(added);
  setTimeout(() => added.content = "0; url=https://elsewhere.example/added", 100);
  const later = document.createElement("template");
  later.innerHTML = '<p><meta http-equiv="refresh" content=".1 , url = /"></p>';
  setTimeout(() => document.body.append(later.content), 200);
  window.still = true;
}</script></body></html>"""


async def test_a_refresh_goes_where_a_link_does(host: Host, tmp_path: Path) -> None:
    """Other sites are opened by the host, the page itself is reloaded; the frame stays the app's."""
    frame = await show_page(host, tmp_path, REFRESHING)
    await host.until("host.of('ui/open-link').length > 4")
    urls = [
        params["url"].removeprefix("https://elsewhere.example/") for params in await requests_of(host, "ui/open-link")
    ]
    assert (sorted(urls[:3]), sorted(urls[3:])) == (["", "added", "written"], ["", "written"])
    assert await frame.evaluate("[window.name, window.still ?? null, location.href]") == ["xx", None, "about:srcdoc"]


UNNAMED = """() => {
  const meta = (equiv) => Object.assign(document.createElement("meta"), { content: "0; url=/gone", httpEquiv: equiv });
  document.head.append(meta("refresh"));
  document.body.insertAdjacentHTML("beforeend", `<b>${meta("Refresh").outerHTML}</b>`);
  const later = meta("");
  document.head.append(later);
  return new Promise((done) => setTimeout(() => {
    later.httpEquiv = "refresh";
    setTimeout(() => done([window.here, "navigation" in window]), 100);
  }));
}"""


async def test_a_refresh_that_no_word_of_the_page_tells_of_is_nothing(host: Host, tmp_path: Path) -> None:
    """A refresh in the backend's HTML has no effect, and neither has the browser's `navigation` API."""
    frame = await show_page(host, tmp_path, "<p>page<script>window.here = 1</script>")
    assert await frame.evaluate(UNNAMED) == [1, False]
    assert await frame.evaluate("location.href") == "about:srcdoc"

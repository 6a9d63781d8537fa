"""The view runtime in Chromium, in an opaque frame under the default content policy of hosts."""

from base64 import b64decode
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.runtime_host import CSP, Host, host_server, pack_html, proof, show_page

# fetch


async def test_fetch_reaches_the_host_from_an_opaque_frame(host: Host, tmp_path: Path) -> None:
    """Every way to write a URL of the app gives its path and query; none resolves against the host's."""
    await host.answers("return { bodyType: 'json', body: { url: args.url } };")
    frame = await show_page(host, tmp_path)
    urls = await frame.evaluate(
        """async () => {
          const given = ["/api/cart?a=1#f", "api/cart",
            new URL("/api/x", document.baseURI), new URL("y", document.baseURI),
            new Request("/api/r"), new Request("/api/r2", {headers: {a: "1"}}).clone(), "https://api.example/z"];
          return Promise.all(given.map(async (one) => (await (await fetch(one)).json()).url));
        }"""
    )
    assert urls == ["/api/cart?a=1", "/api/cart", "/api/x", "/y", "/api/r", "/api/r2", "https://api.example/z"]


async def test_fetch_works_in_a_blob_document(host: Host, tmp_path: Path) -> None:
    """There is no base URL at all; even the browser's own Request throws."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    await host.in_our_host()
    html = pack_html(tmp_path, "<p>page</p>")
    await host.run(
        """html => {
          host.frame = document.createElement("iframe");
          host.frame.sandbox = "allow-scripts";
          host.frame.src = URL.createObjectURL(new Blob([html], { type: "text/html" }));
          document.body.append(host.frame);
        }""",
        html,
    )
    await host.until("host.of('ui/notifications/initialized').length")
    text = await host.page.frames[-1].evaluate("async () => (await fetch(new Request('/api/b'))).text()")
    assert text == "/api/b"


async def test_bodies_arrive_as_the_browser_would_send_them(host: Host, tmp_path: Path) -> None:
    """JSON, text, forms, files, bytes and streams are sent alike."""
    await host.answers("return { bodyType: 'json', body: args };")
    frame = await show_page(host, tmp_path)
    sent = await frame.evaluate(
        """async () => {
          const form = new FormData();
          form.append("a", "1");
          form.append("f", new File([new Uint8Array([0, 255])], "x.bin", {type: "application/octet-stream"}));
          const bodies = [JSON.stringify({a: 1}), "text", new URLSearchParams("a=1&b=2"), form,
            new Uint8Array([0, 255]), new Blob(["csv"], {type: "text/csv"}), new Blob(["s"]).stream()];
          const types = ["application/json"];
          return Promise.all(bodies.map(async (body, index) => (await fetch("/x", {
            method: "POST", body, duplex: "half", headers: types[index] ? {"content-type": types[index]} : {},
          })).json()));
        }"""
    )
    form = sent.pop(3)
    boundary = form["headers"]["content-type"].removeprefix("multipart/form-data; boundary=")
    assert form["bodyType"] == "base64"
    assert b64decode(form["body"]).replace(boundary.encode(), b"B") == (
        b'--B\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
        b'--B\r\nContent-Disposition: form-data; name="f"; filename="x.bin"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n\x00\xff\r\n--B--\r\n"
    )
    assert [(one["bodyType"], one["body"]) for one in sent] == [
        ("json", '{"a":1}'),
        ("text", "text"),
        ("urlEncoded", "a=1&b=2"),
        ("base64", "AP8="),
        ("text", "csv"),
        ("base64", "cw=="),
    ]
    assert sent[2]["headers"]["content-type"] == "application/x-www-form-urlencoded;charset=UTF-8"


async def test_responses_look_like_the_browsers(host: Host, tmp_path: Path) -> None:
    """Status, headers, url, redirected and type agree, on a clone too; bytes, null bodies, no cookies."""
    await host.answers(
        "if (args.url === '/empty') return { status: 204 };"
        "if (args.url === '/hop' && args.redirect === 'manual') return { status: 302, headers: { location: '/y' } };"
        "return { status: 201, statusText: 'Created', redirected: true, url: '/other',"
        " bodyType: 'base64', body: 'AP8=',"
        " headers: { 'content-type': 'application/octet-stream', 'set-cookie': 'a=b', etag: 'x' } };"
    )
    frame = await show_page(host, tmp_path)
    seen = await frame.evaluate(
        """async () => {
          const response = await fetch("/x");
          const clone = response.clone();
          const reader = clone.body.getReader({mode: "byob"});
          const {value} = await reader.read(new Uint8Array(8));
          const empty = await fetch("/empty"), hop = await fetch("/hop", {redirect: "manual"});
          return [response.status, response.statusText,
            response.headers.get("etag"), response.headers.get("set-cookie"),
            clone.url, clone.redirected, clone.type, [...value], [...new Uint8Array(await response.arrayBuffer())],
            response instanceof Response, empty.body, hop.type, hop.status, fetch.length, fetch.name];
        }"""
    )
    assert seen == [
        201, "Created", "x", None, "https://cart.invalid/other", True, "basic", [0, 255], [0, 255],
        True, None, "opaqueredirect", 0, 1, "fetch",
    ]  # fmt: skip


async def test_data_and_blob_urls_need_no_host(host: Host, tmp_path: Path) -> None:
    """The content security policy allows the browser's own fetch neither."""
    page = "<!doctype html><script>const made = (text) => URL.createObjectURL(new Blob([text]));</script>"
    frame = await show_page(host, tmp_path, page)
    texts = await frame.evaluate(
        """async () => {
          const urls = [made("inside"), "data:text/plain;base64,aGk=", "data:,a%20b"];
          return Promise.all(urls.map(async (url) => (await fetch(url)).text()));
        }"""
    )
    assert texts == ["inside", "hi", "a b"]
    assert await host.run("host.calls('http_request')") == []


async def test_an_abort_ends_a_fetch_at_every_stage(host: Host, tmp_path: Path) -> None:
    """It may come before the request, during the host's work (which is notified), or while the body is read."""
    await host.answers("if (args.url === '/slow') await new Promise(() => 0); return { bodyType: 'text', body: 'x' };")
    frame = await show_page(host, tmp_path)
    reasons = await frame.evaluate(
        """async () => {
          const reason = (promise) => promise.then(() => "none", (error) => error.name ?? error);
          const during = new AbortController(), reading = new AbortController();
          const slow = fetch("/slow", {signal: during.signal});
          const response = await fetch("/x", {signal: reading.signal});
          during.abort("mine");
          reading.abort();
          return [await reason(fetch("/never", {signal: AbortSignal.abort()})),
            await reason(slow), await reason(response.text()),
            await reason(fetch("/slow", {signal: AbortSignal.timeout(50)}))];
        }"""
    )
    assert reasons == ["AbortError", "mine", "AbortError", "TimeoutError"]
    await host.settled()
    calls = await host.run("host.log.filter(m => m.method === 'tools/call').map(m => [m.params.arguments.url, m.id])")
    cancelled = await host.run("host.of('notifications/cancelled').map(m => m.params.requestId)")
    assert "/never" not in [url for url, _ in calls]
    assert sorted(cancelled) == sorted(id for url, id in calls if url == "/slow")


async def test_a_refusal_is_a_response_and_a_line_on_the_console(host: Host, tmp_path: Path) -> None:
    """The page gets text for people; the author gets the cause, and the command that explains it."""
    await host.answers(
        "return { status: 403, bodyType: 'json', body: { detail: 'Not allowed.', cause: 'No rule.' },"
        " headers: { 'content-type': 'application/problem+json', 'gateway-reason': 'policy-denied' } };"
    )
    frame = await show_page(host, tmp_path)
    async with host.page.expect_console_message(lambda message: "explain" in message.text) as line:
        seen = await frame.evaluate(
            "async () => { const response = await fetch('/api/admin', {method: 'DELETE'});"
            " return [response.ok, (await response.json()).detail]; }"
        )
    assert seen == [False, "Not allowed."]
    told = (await line.value).text
    assert "No rule." in told
    assert "webmcp-gateway policy explain DELETE '/api/admin'" in told


async def test_what_ends_without_an_answer_rejects(host: Host, tmp_path: Path) -> None:
    """It rejects as a network failure does, with the cause beside it."""
    frame = await show_page(host, tmp_path)
    seen = await frame.evaluate(
        "async () => { try { await fetch('/x'); } catch (e) { return [e.name, e.message, String(e.cause)]; } }"
    )
    assert seen[:2] == ["TypeError", "Failed to fetch"]
    assert "Error" in seen[2]


async def test_a_synchronous_request_throws(host: Host, tmp_path: Path) -> None:
    """The standard errors are thrown for `send` and for forbidden properties; the next request works."""
    await host.answers("return { bodyType: 'text', body: args.url };")
    frame = await show_page(host, tmp_path, "<!doctype html><p>XMLHttpRequest</p>")
    seen = await frame.evaluate(
        """() => new Promise((done) => {
          const names = [];
          const tried = (run) => { try { run(); names.push("no error"); } catch ({ name }) { names.push(name); } };
          const xhr = new XMLHttpRequest();
          xhr.open("GET", "/x", false);
          tried(() => xhr.send());
          tried(() => { xhr.timeout = 1; });
          tried(() => { xhr.responseType = "json"; });
          xhr.open("GET", "/next");
          xhr.onload = () => done([...names, xhr.responseText]);
          xhr.send();
        })"""
    )
    assert seen == ["NetworkError", "InvalidAccessError", "InvalidStateError", "/next"]
    assert await host.run("() => host.calls('http_request').map(({ url }) => url)") == ["/next"]


async def test_without_a_host_fetch_says_so(host: Host, tmp_path: Path) -> None:
    """A parent without MCP Apps: 503 after five seconds, and a late host is accepted."""
    await host.run("() => { host.initializes = false; }")
    await host.answers("return { status: 204 };")
    frame = await show_page(host, tmp_path)
    seen = await frame.evaluate(
        "async () => { const r = await fetch('/x'); return [r.status, r.headers.get('gateway-reason')]; }"
    )
    assert seen == [503, "no-host"]
    await host.run(
        "() => host.post({ jsonrpc: '2.0', id: host.of('ui/initialize')[0].id, result: { protocolVersion: '2026-01-26',"
        " hostInfo: { name: 'late', version: '1' }, hostCapabilities: host.capabilities, hostContext: host.context } })"
    )
    await host.until("host.of('ui/notifications/initialized').length")
    assert await frame.evaluate("async () => (await fetch('/x')).status") == 204


# proof and approval


async def test_each_call_is_proven_and_no_secret_is_left(host: Host, tmp_path: Path) -> None:
    """The launch value is sent to attach only; the numbers increase; the page sees neither value nor key."""
    await host.attaches()
    await host.answers("return { status: 204 };")
    spy = (Path(__file__).parent / "runtime" / "spy.html").read_text("utf-8")
    frame = await host.show(pack_html(tmp_path, spy))
    await frame.evaluate(
        "async () => { await Promise.all([fetch('/1'), fetch('/2'), fetch('/3')]); await fetch('/4'); }"
    )
    views = await host.run("host.calls('http_request').map(a => a._view)")
    assert views == [proof(1), proof(2), proof(3), proof(4)]
    assert await host.run("host.calls('webmcp_attach')") == [
        {"launch": "LAUNCH-SECRET", "capabilities": {"pending": True}}
    ]
    await host.run(
        "() => { host.tools.open_cart = async () =>"
        " ({ content: [], _meta: { 'webmcp-gateway/launch': 'LAUNCH-SECRET', other: 2 } }); }"
    )
    await frame.evaluate(
        "parent.postMessage({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'open_cart' } }, '*')"
    )
    await frame.wait_for_function("() => seen.join().includes('other=2')")
    seen = await frame.evaluate("() => seen.join('\\n')")
    assert "ui/notifications/tool-result" in seen
    assert "other=1" in seen
    assert "LAUNCH-SECRET" not in seen
    assert "AAECAwQF" not in seen
    assert not any(made.startswith("0,1,2,3,4,5") for made in await frame.evaluate("() => made.map(String)"))


async def test_an_event_of_a_script_is_no_gesture(host: Host, tmp_path: Path) -> None:
    """A request contains the age of the person's own click, whatever the page clicked since."""
    await host.attaches()
    await host.answers("return { status: 204 };")
    frame = await host.show(pack_html(tmp_path, "<!doctype html><button type=button>Here</button>"))
    await frame.locator("button").click()
    await frame.evaluate(
        """async () => {
          await new Promise((go) => setTimeout(go, 700));
          const button = document.querySelector("button");
          button.click();
          for (const Kind of [PointerEvent, KeyboardEvent, MouseEvent])
            for (const type of ["pointerdown", "keydown", "click"])
              button.dispatchEvent(new Kind(type, { bubbles: true }));
          await fetch("/x");
        }"""
    )
    [age] = await host.run("host.calls('http_request').map(({ _gesture }) => _gesture)")
    assert age >= 700


async def test_without_a_launch_value_the_view_attaches_unproven(host: Host, tmp_path: Path) -> None:
    """Hosts may drop the launch value: requests wait three seconds, then leave with the key of an unproven view."""
    await host.run(
        "key => { host.tools.webmcp_attach = async () => ({ content: [{ type: 'text', text: JSON.stringify("
        "{ view: 'view1', key, proven: false, free: [] }) }] }); }",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
    )
    await host.answers("return { status: 204 };")
    frame = await host.show(pack_html(tmp_path, "<p>page</p>"))
    assert await frame.evaluate("async () => (await fetch('/1')).status") == 204
    assert await host.run("host.calls('webmcp_attach')") == [{"capabilities": {"pending": True}}]
    assert await host.run("host.calls('http_request')[0]._view") == proof(1)


async def test_in_our_host_the_socket_is_the_proof(host: Host, tmp_path: Path) -> None:
    """There is neither attach nor signature."""
    await host.answers("return { status: 204 };")
    frame = await show_page(host, tmp_path)
    await frame.evaluate("() => fetch('/1')")
    [sent] = await host.run("host.calls('http_request')")
    assert sent.pop("headers").keys() == {"accept", "accept-language"}
    assert sent == {"url": "/1", "method": "GET", "stream": True, "_bytes": True}
    assert await host.run("host.calls('webmcp_attach')") == []


PENDING = (
    "return { status: 202, bodyType: 'json', headers: { 'gateway-pending': 'p1' },"
    " body: { id: 'p1', message: 'Remove tea?', url: 'http://console.example/approvals/p1' } };"
)


async def test_fetch_stays_open_while_a_person_is_asked(host: Host, tmp_path: Path) -> None:
    """A notice links to the approval; the final answer is the result; then the notice is gone."""
    await host.answers(PENDING)
    await host.run("() => { host.tools.http_stream = (args) => new Promise((resolve) => { host.decide = resolve; }); }")
    frame = await show_page(host, tmp_path)
    await frame.evaluate(
        "() => { window.done = fetch('/api/cart/1', {method: 'DELETE'})"
        ".then(async (response) => [response.status, await response.text()]); }"
    )
    notice = frame.locator("webmcp-gateway-notice")
    await expect(notice).to_have_count(1)
    await host.until("host.calls('http_stream').length")
    await frame.locator("body").focus()
    await host.page.keyboard.press("Tab")
    await expect(notice).to_be_focused()
    await host.page.keyboard.press("Enter")
    await host.until("host.of('ui/open-link').length")
    assert await host.run("host.of('ui/open-link')[0].params") == {"url": "http://console.example/approvals/p1"}
    await host.run(
        "() => host.decide({ content: [], structuredContent: { status: 200, headers: {},"
        " url: '/api/cart/1', bodyType: 'text', body: 'gone' } })"
    )
    assert await frame.evaluate("() => done") == [200, "gone"]
    await expect(notice).to_have_count(0)
    assert await host.run("host.calls('http_stream')") == [{"id": "p1"}]


SPOILING = "<style>:not(:root) { display: none !important; position: static !important; width: 9px !important }</style>"


@pytest.mark.parametrize("styles", ["'self' 'unsafe-inline'", "'none'"], ids=["inline", "none"])
async def test_the_notice_looks_the_same_everywhere(page: Page, tmp_path: Path, styles: str) -> None:
    """It is a small card in the corner, announced to screen readers, despite a strict CSP and the page's styles."""
    async with host_server(CSP.replace("style-src 'self' 'unsafe-inline'", f"style-src {styles}")) as url:
        await page.goto(url)
        host = Host(page)
        await host.answers(PENDING)
        await host.run("() => { host.tools.http_stream = () => new Promise(() => 0); }")
        frame = await show_page(host, tmp_path, SPOILING)
        await frame.evaluate("() => { fetch('/x', {method: 'DELETE'}); }")
        await expect(frame.locator("webmcp-gateway-notice")).to_be_visible()
        x, y, width, height = await frame.evaluate(
            "() => { const { right, bottom, width, height } ="
            " document.querySelector('webmcp-gateway-notice').getBoundingClientRect();"
            " return [innerWidth - right, innerHeight - bottom, width, height]; }"
        )
        assert (x, y, width) == (16, 16, 380)
        assert 50 < height < 90
        spoken = await (await page.context.new_cdp_session(frame)).send("Accessibility.getFullAXTree")
        said = [(node["role"]["value"], node.get("name", {}).get("value")) for node in spoken["nodes"]]
        assert {"alert", "button"} <= {role for role, _ in said}
        assert {("StaticText", "Remove tea?"), ("button", "Review")} <= set(said)


async def test_an_abort_gives_the_question_up(host: Host, tmp_path: Path) -> None:
    """The gateway is notified that no caller waits any more."""
    await host.answers(PENDING)
    await host.run(
        "() => { host.tools.http_stream = ({ cancel }) => cancel ? { content: [] } : new Promise(() => 0); }"
    )
    frame = await show_page(host, tmp_path)
    await frame.evaluate(
        "() => { window.control = new AbortController();"
        " window.ended = fetch('/x', {method: 'DELETE', signal: control.signal}).catch((error) => error.name); }"
    )
    await host.until("host.calls('http_stream').length")
    await frame.evaluate("() => control.abort()")
    assert await frame.evaluate("() => ended") == "AbortError"
    await host.until("host.calls('http_stream').some((args) => args.cancel === true && args.id === 'p1')")
    await expect(frame.locator("webmcp-gateway-notice")).to_have_count(0)

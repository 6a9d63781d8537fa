"""A backend gets the same from a page's `fetch` in a view, on the app's own site and on its own page."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.browser.three_places import Places, three_places

ASK = """async code => {
  try {
    const response = await eval(`(${code})`);
    return [response.status, response.redirected, response.type, await response.text()];
  } catch (error) {
    return error?.name ?? error;
  }
}"""

FIELDS = ("content-type", "content-length", "transfer-encoding", "accept", "range", "x-h", "x-i", "if-none-match")
FRESHNESS = ("cache-control", "pragma")


@pytest.fixture(scope="module")
async def places(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Places]:
    """The three places, loaded once."""
    async with three_places(browser, tmp_path_factory.mktemp("world")) as found:
        yield found


def post(body: str, more: str = "") -> str:
    """A request with this body."""
    return f"fetch('/e/x', {{method: 'POST', body: {body}, {more}}})"


def get(more: str) -> str:
    """A request with these members of its init."""
    return f"fetch('/e/x', {{{more}}})"


def url(text: str) -> str:
    """A request for a URL."""
    return f"fetch({text})"


def body_with_type(body: str, media_type: str) -> str:
    """A body with this content type."""
    return post(body, f"headers: {{'Content-Type': {media_type!r}}}")


def fetch_request(init: str, more: str = "") -> str:
    """The same with a `Request` object."""
    return f"fetch(new Request('/e/x', {{{init}}}), {{{more}}})"


ASKED: dict[str, str] = {
    # methods
    "pUT": post("'a'").replace("'POST'", "'pUT'"),
    "gEt": get("method: 'gEt'"),
    "delete": post("'a'").replace("'POST'", "'delete'"),
    "trace": get("method: 'trace'"),
    "no method": get("method: 'a b'"),
    # header fields
    "latin-1": get("headers: {'x-h': 'caf\\xe9\\xff'}"),
    "beyond latin-1": get("headers: {'x-h': '\\u20ac'}"),
    "empty": get("headers: {'x-h': ''}"),
    "white space": get("headers: {'x-h': ' \\t a \\t b\\n '}"),
    "a line break": get("headers: {'x-h': 'a\\nb'}"),
    "no name": get("headers: {'x h': 'a'}"),
    "repeated": get("headers: [['x-h', '1'], ['x-h', '2'], ['X-H', '']]"),
    "no pairs": get("headers: [['a']]"),
    "a map": get("headers: new Map([['x-h', 'm']])"),
    "a number": get("headers: {'x-h': 5}"),
    "forbidden": get(
        "headers: {cookie: 'a=b', host: 'x', origin: 'y', 'content-length': '77', 'sec-x': '1', 'proxy-x': '1',"
        " te: 'a', 'transfer-encoding': 'chunked', via: 'y', 'keep-alive': '1', 'set-cookie': 'a', 'x-h': 'kept'}"
    ),
    "accept": get("headers: {accept: 'text/x'}"),
    "a type without a body": get("headers: {'content-type': 'text/weird; A=B'}"),
    # bodies
    **{f"no body of {method}": get(f"method: '{method}'") for method in ("POST", "PUT", "PATCH", "DELETE")},
    "null": post("null"),
    "an empty text": post("''"),
    "an empty blob": post("new Blob([])"),
    "an empty blob with a type": post("new Blob([], {type: 'a/b'})"),
    "empty parameters": post("new URLSearchParams()"),
    "an empty buffer": post("new ArrayBuffer(0)"),
    "text": post("'a\\u20ac\\ud83d b\\0'"),
    **{f"the text of {value}": post(value) for value in ("5", "{a: 1}", "[1, 2]", "false")},
    "a blob": post("new Blob(['a', new Uint8Array([255])], {type: 'Image/PNG; A=b'})"),
    "a blob with an odd type": post("new Blob(['a'], {type: 'odd'})"),
    "a blob with no type": post("new Blob(['a'], {type: '\\xe9/b'})"),
    "a file": post("new File(['abc'], 'n.txt', {type: 'text/css'})"),
    "parameters": post("new URLSearchParams([['a b', '\\u00e9&='], ['~*', '\\ud83d'], ['', '']])"),
    "a buffer": post("new Uint8Array([0, 1, 255]).buffer"),
    "a view": post("new Uint8Array([0, 1, 2, 255]).subarray(1, 3)"),
    "a data view": post("new DataView(new Uint8Array([0, 1, 2, 255]).buffer, 2)"),
    "numbers": post("new Float32Array([1.5])"),
    "parameters with another type": body_with_type("new URLSearchParams('a=1')", "x/y"),
    "a type as it is written": body_with_type("'x'", 'Text/Weird;  A="B;c"'),
    "an empty type": body_with_type("'x'", ""),
    "json as it is written": body_with_type("' {\"a\" : 1.0} '", "application/json"),
    "no json": body_with_type("new Blob([new Uint8Array([0x7b, 0xff])])", "application/json"),
    "a form as it is written": body_with_type("'a=b+c&%zz&\\u00e9'", "application/x-www-form-urlencoded"),
    "utf-8 that says latin-1": body_with_type("'\\xe9'", "text/plain; charset=iso-8859-1"),
    "a stream that fails": post("new ReadableStream({start(c) { c.error(new Error('mine')); }})", "duplex: 'half'"),
    "a stream without duplex": post("new Blob(['s']).stream()"),
    "a body of GET": get("body: 'x'"),
    # URLs
    "beyond ASCII": url("'/e/\\u00e9\\u65e5?\\u00e9\\u65e5\\u{1f600}'"),
    "half a character": url("'/e/\\ud83d?\\ud83d'"),
    "a query of signs": url("'/e/x?\\'()*!$&,;=:@/?#f\\'?'"),
    "dots": url("'/e/./a/../x/%2e%2e/y'"),
    "control characters": url("'/e/\\tx\\n?\\ra'"),
    "spaces around": url("'  /e/x  '"),
    "backslashes": url("'\\\\e\\\\x'"),
    "a fragment": url("'/e/x#frag'"),
    "two question marks": url("'/e/x??'"),
    "plus": url("'/e/a+b?c+d'"),
    "a control character": url("'/e/x?\\x7f\\x1f'"),
    "long": url("'/e/x?' + 'a'.repeat(5000)"),
    "an object": url("{toString: () => '/e/x?o'}"),
    "no address": url("'http://['"),
    "nothing": "fetch()",
    # the rest of init
    "a range": get("headers: {range: 'bytes=0-1'}"),
    "no credentials": get("credentials: 'omit'"),
    "no-store": get("cache: 'no-store'"),
    "reload": get("cache: 'reload'"),
    "no-cache": get("cache: 'no-cache'"),
    "only what is cached": get("cache: 'only-if-cached'"),
    "keepalive": post("'k'", "keepalive: true"),
    "keepalive of a stream": post("new Blob(['s']).stream()", "keepalive: true, duplex: 'half'"),
    "no referrer": get("referrerPolicy: 'no-referrer'"),
    "a referrer": get("referrer: '/other'"),
    "no-cors": get("mode: 'no-cors', headers: {'x-h': 'dropped', accept: 'b/c'}"),
    "no-cors with PUT": get("mode: 'no-cors', method: 'PUT'"),
    "same-origin": get("mode: 'same-origin'"),
    "navigate": get("mode: 'navigate'"),
    "priority": get("priority: 'high'"),
    "a window": get("window: 1"),
    **{f"a wrong {name}": get(f"{name}: 'wrong'") for name in ("cache", "credentials", "duplex", "redirect", "signal")},
    **{f"a wrong {name}": get(f"{name}: 'wrong'") for name in ("mode", "priority", "referrerPolicy")},
    "aborted": get("signal: AbortSignal.abort()"),
    "aborted with a reason": get("signal: AbortSignal.abort('why')"),
    # Request
    "a request": fetch_request("method: 'POST', body: 'r', headers: {'x-h': '1'}"),
    "a request with other headers": fetch_request(
        "method: 'POST', body: 'r', headers: {'x-h': '1'}", "headers: {'x-i': '2'}"
    ),
    "a request with another body": fetch_request("method: 'POST', body: 'r'", "body: 's'"),
    "a request with another method": fetch_request("method: 'POST', body: 'r'", "method: 'PUT'"),
    "a request that becomes GET": fetch_request("method: 'POST', body: 'r'", "method: 'GET'"),
    "a request of parameters": fetch_request("method: 'POST', body: new URLSearchParams('a=1')"),
    "a request of a request": url("new Request(new Request('/e/x', {method: 'POST', body: 'r'}), {headers: {}})"),
    "a request that was used": "(async (r) => { await r.text(); return fetch(r); })"
    "(new Request('/e/x', {method: 'POST', body: 'c'}))",
    "a request and its clone": "(async (r) => { const c = r.clone(); await fetch(r); return fetch(c); })"
    "(new Request('/e/x', {method: 'POST', body: 'c'}))",
}


@pytest.mark.parametrize("name", ASKED)
async def test_requests_as_they_are_sent(places: Places, name: str) -> None:
    """Method, URL, header fields and bytes agree, and so does the outcome."""
    places.backend.asked.clear()
    result = await places.same(ASK, ASKED[name])
    fresh = FRESHNESS if "cache:" in ASKED[name] else ()  # reloading and revalidation are the browser's own
    sent = [
        (one.method, one.target, {field: one.headers.get(field) for field in FIELDS + fresh}, one.body)
        for one in places.backend.asked
    ]
    each = len(sent) // 3
    assert sent == sent[:each] * 3
    assert (each > 0) is isinstance(result, list)

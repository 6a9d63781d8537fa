"""The fuzz targets hold for their seeds and for what Hypothesis generates from hostile parts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.doors import GATEWAY, LIVE
from tests.fuzz.targets import TARGETS

SEEDS = Path(__file__).parent / "seeds"
PARTS = {
    "url": ["/api/products/", "/api/cart/", "/api/files/", "/", "..", ".", "%2e", "%2f", "%5c", "%25", "%", "%00", ";",
            "\\", "?", "#", "//", "@", ":", "https://www.shop.test", "https://", "admin", "\u2025", "\uff0e", "e\u0301",
            "%C0%AE", "%e2%80%a5", "\t", "\r\n", "*"],
    "headers": ["authorization", "Cookie", "x-forwarded-for", "x_api_key", "connection", "content-type", ": ", "\n",
                "-", "_", "\r", "\0", "\x7f", "\u00e9", "close", "proxy-", "sec-", "te", "host", "x-method-override"],
    "arguments": ['{"url":', '"/api/products/1"', ',"method":', '"POST"', '"TRACE"', ',"body":', ',"bodyType":',
                  '"json"', '"formData"', '"urlEncoded"', '"base64"', '"none"', "[", "]", "{", "}", ",", ":", '"',
                  "null",
                  '"_method"', '"name"', '"value"', '"data"', '"AA=="', "1e400", "NaN", "-0", '"\\ud800"',
                  ',"headers":', ',"timeoutMs":', ',"redirect":', '"/api/files/a%2fb"'],
    "policy": ["version: 1\n", "backends:\n", "routes:\n", "tools:\n", "limits:\n", "  a: {url: 'https://a.test'}\n",
               "  - {path: /a, methods: [GET]}\n", "  - ", "{", "}", "[", "]", "&a ", "*a", "!!", "<<: ", "path: ",
               "/**", "{x:encoded}", "methods: ", "confirm: always", "rate: ", "1/second per view", "deny: no", "\n",
               "\t", "'", '"', "? ", ": ", "- ", "network: private", "\u0000", "\ufeff", "%YAML 1.1\n---\n"],
    "frames": ['{"view":"' + "v" * 22 + '","channel":"', "ui", "webmcp", '","message":', '{"jsonrpc":"2.0"', ',"id":1',
               ',"method":"tools/call"', ',"params":{}', ',"result":{}', ',"error":{"code":1,"message":""}', "}", "}\n",
               '{"close":{"view":"' + "v" * 22 + '","reason":""}}\n', '{"hello":{"ticket":"t"}}\n', "[", "]", "1e999",
               '{"open":{"ref":"2","app":"cart"}}\n', '{"gesture":{"view":"' + "v" * 22 + '","age":5}}\n', "\\ud800"],
    "answer": ["200", "302", "101", "\n", "content-type: ", "application/json", "text/html", "; charset=", "utf-16",
               "location: ", "https://shop.test/v2/api/cart/1", "//evil.test", "set-cookie: a=b", "content-encoding: ",
               "gzip", "deflate", "br", "\n\n", '{"a":', "1e400}", "[" * 70, "\x1f\u008b", "\u00ff",
               "cache-control: public"],
    "response": ["HTTP/1.1 200 OK", "HTTP/1.0 204 N", "HTTP/1.1 100 C", "\r\n", "\r\n\r\n", "\n", "\r", "X-A: 1", " ",
                 "Content-Length: ", "Transfer-Encoding: ", "chunked", "identity", "Connection: close", "\t", ",", "2",
                 "0", "ok", "3\r\nabc\r\n", ";a=b", "0\r\n\r\n", ":", "\x00", "Content-Encoding: gzip", "\x1f\u008b"],
    "requests": ["GET ", "POST ", "PUT ", "CONNECT ", "/api/items/1", "/mcp", "?a=b", " HTTP/1.1\r\n", " HTTP/1.0\r\n",
                 "host: a\r\n", "content-length: 3\r\n", "Content-Length: 0\r\n", "transfer-encoding: chunked\r\n",
                 "connection: close\r\n", "connection: keep-alive\r\n", "upgrade: websocket\r\n", "x: \u00e9\r\n",
                 "expect: 100-continue\r\n", " folded\r\n", "\r\n\r\n", "\r\n", "\n", "\r", "abc", "0", ": ", "\t", "#",
                 "%41", "..", "//", "http://a/", "content-encoding: gzip\r\n"],
    "bridge": ['{"hello":{"ticket":"t"}}', '{"open":{"ref":"1","app":"cart"}}', "\n", "\0", '{"close":{}}', "[", "]",
               "{", "}", '"', '{"view":"vvvvvvvvvvvvvvvvvvvvvv","channel":"ui","message":{}}', "\ud800", "1e999",
               "null", ",,,,,"],
    "messages": ['{"jsonrpc":"2.0"', ',"id":1', ',"id":null', ',"id":"\\u0000"', ',"id":1e400', ',"method":"',
                 "tools/call", "tools/list", "initialize", "ping", "resources/read", "notifications/cancelled",
                 "ui/message", '"', ',"params":{', '"name":"http_request"', '"name":"http_stream"',
                 ',"arguments":{"url":"/api/products"}', ',"arguments":{"stream":true}', ',"_meta":{}', "}", "{",
                 "\n", "\n!", ',"result":{"tools":[]}', ',"error":{"code":1,"message":""}', "[", "]", '"$bytes":"x"',
                 '"requestId":1', "\ud800"],
    "rest": ["POST ", "GET ", "PUT ", "DELETE ", "OPTIONS ", "/api/approvals/", "/api/keys", "/api/links",
             "/api/audit?", "/api/downloads", "/api/connections/", "/bridge/tickets", "/bridge/bodies/", "/connect/",
             "/approvals/", "x", "limit=", "-1", "since=", "nan", "1e400", "&", "%00", "%2f", "..", " bare", "\n",
             '{"answer":"approve"', "}", '{"apps":', '["cart"]', "[", "]", "{", '"', ":", ",", '"app":"cart"',
             '"url":"javascript:x"', "null", "1", '"files":[{"name":"a","size":-1}]', "\ud800", "\u2028"],
}  # fmt: skip
"""Pieces of hostile inputs, from which Hypothesis builds whole ones."""


ALL = {**TARGETS, **LIVE}


@pytest.fixture(scope="module", autouse=True)
def gateway() -> Iterator[None]:
    """The gateway of the live targets ends with the last test."""
    yield
    GATEWAY.close()


@pytest.mark.parametrize("seed", sorted(SEEDS.glob("*/*")), ids=lambda seed: f"{seed.parent.name}-{seed.name}")
def test_a_seed_holds(seed: Path) -> None:
    """The initial inputs pass."""
    ALL[seed.parent.name](seed.read_bytes())


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.data())
def test_no_input_breaks_a_pure_room(name: str, data: st.DataObject) -> None:
    """The decided form is what is sent, and only the modules' own errors are raised."""
    pieces = st.sampled_from(PARTS[name]) | st.text(max_size=3)
    joined = "".join(data.draw(st.lists(pieces, max_size=25)))
    encoding = "latin-1" if name in ("headers", "answer", "response", "requests") else "utf-8"
    TARGETS[name](joined.encode(encoding, "replace"))


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(data=st.binary(max_size=200))
def test_no_bytes_break_a_pure_room(name: str, data: bytes) -> None:
    """Also for bytes that are not text."""
    TARGETS[name](data)


@pytest.mark.parametrize("name", sorted(LIVE))
@settings(max_examples=20)
@given(data=st.data())
def test_no_input_breaks_a_door(name: str, data: st.DataObject) -> None:
    """A running gateway answers each request, logs no error, and goes on."""
    pieces = st.sampled_from(PARTS[name]) | st.text(max_size=3)
    joined = "".join(data.draw(st.lists(pieces, max_size=25)))
    LIVE[name](joined.encode("utf-8", "replace"))


@pytest.mark.parametrize("name", sorted(LIVE))
@settings(max_examples=10)
@given(data=st.binary(max_size=200))
def test_no_bytes_break_a_door(name: str, data: bytes) -> None:
    """Also for bytes that are not text."""
    LIVE[name](data)

"""Hostile bytes must neither raise an unexpected exception in the pure modules, nor get through in an undecided form.

Each target takes bytes and returns nothing; it fails by an exception that is not the module's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp import HttpVersion11, StreamReader
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.http_parser import HttpRequestParser, RawRequestMessage
from yarl import URL

from gateway import mux
from gateway.backends.codings import Body
from gateway.contract import parse_arguments, result
from gateway.doors.client_connection import is_one_request
from gateway.errors import DocumentError, MuxError, Reason, Refusal
from gateway.fastpath.http1 import read_head
from gateway.model import (
    LOCAL,
    BodyType,
    Caller,
    CanonicalRequest,
    Channel,
    Door,
    Effect,
    Headers,
    Initiator,
    Request,
    Response,
)
from gateway.policy import (
    Policy,
    answer_headers,
    canonicalise,
    decide,
    filter_request_headers,
    parse_policy,
    redirect_location,
    without,
)
from tests.backends.parsers import read_by_aiohttp, read_by_gateway

POLICY: Final = parse_policy(
    """
version: 1
backends:
  shop: {url: "https://shop.test/v2", origins: ["https://www.shop.test"]}
routes:
  - {path: "/api/products/**", methods: [GET, POST]}
  - {path: "/api/cart/{item}", methods: [GET, PUT, DELETE], confirm: {when: model, message: "Change {params.item}?"}}
  - {path: "/api/files/{key:encoded}", methods: [GET]}
  - {path: "/api/checkout", methods: [POST], when: "request.body.total <= 500"}
  - {path: "/api/search", methods: [GET], when: "request.query.q != \\"admin\\""}
  - {path: "/api/admin/**", deny: "not for apps"}
responses: {headers: [content-type, etag, location], mask: ["$.customer.email", "$..card"]}
tools: {add: {when: "arguments.count < 10"}}
""",
    "fuzz.yaml",
)
CALLER: Final = Caller(LOCAL, "fuzz", Door.MCP, Initiator.PAGE, "fuzz", "v" * 22, proven=True)
VIEW: Final = "v" * 22

_SENT_TARGET = re.compile(r"/[\x21\x22\x24-\x7e]*")
_INJECTED = ("authorization", "cookie", "host", "content-length", "transfer-encoding", "connection", "x-forwarded-for")


def url(data: bytes) -> None:
    """Any URL: refused, or in one form that is decided on, sent unchanged, and stays inside its route."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        canonical = canonicalise(POLICY, Request("GET", text))
    except Refusal as refusal:
        assert refusal.reason in (Reason.BAD_REQUEST, Reason.POLICY_DENIED), refusal
        return
    check_canonical(POLICY, canonical)
    again = canonicalise(POLICY, Request("GET", canonical.url))
    assert (again.path, again.query) == (canonical.path, canonical.query), (canonical.url, again.url)


def headers(data: bytes) -> None:
    """Any header fields: refused, or without all of the gateway's own, in any case and with any separator."""
    fields = tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, _, value in (line.partition(b":") for line in data.split(b"\n"))
    )
    try:
        kept = filter_request_headers(fields)
    except ValueError:
        return
    check_sent_headers(kept)
    assert filter_request_headers(kept) == kept
    for name, _ in without(kept, ["x-api-key"]):
        assert name.replace("_", "-") != "x-api-key"


def arguments(data: bytes) -> None:
    """Any `http_request` arguments: refused as a bad request, or a request that can be decided on."""
    try:
        given = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(given, dict):
        return
    try:
        canonical = canonicalise(POLICY, parse_arguments(given))
    except Refusal as refusal:
        assert refusal.reason in (Reason.BAD_REQUEST, Reason.POLICY_DENIED), refusal
        return
    check_canonical(POLICY, canonical)
    assert isinstance(canonical.body, bytes)
    if canonical.method in ("GET", "HEAD"):
        assert canonical.body == b""
    if canonical.body_type is BodyType.JSON:
        json.loads(canonical.body, parse_constant=_refuse)
    if canonical.path == "/api/checkout" and canonical.method == "POST":
        _check_exact(canonical)


def policy(data: bytes) -> None:
    """Any policy file: refused with positions, or one that can decide."""
    text = data.decode("utf-8", "replace")
    try:
        parsed = parse_policy(text, "fuzz.yaml")
    except DocumentError as error:
        assert error.problems
        assert all(problem.line >= 1 and problem.column >= 1 and problem.message for problem in error.problems)
        return
    for path in ("/api/products/1", "/", "/api/cart/7?x=1", "/api/%2e%2e/admin", "/a%2fb"):
        with contextlib.suppress(Refusal):
            check_canonical(parsed, canonicalise(parsed, Request("GET", path)))


def frames(data: bytes) -> None:
    """Any frames of a host page, one in a line: accepted, answered, or the end of that connection only."""
    connection = mux.ServerConnection()
    connection.receive_data('{"hello":{"ticket":"t"}}')
    connection.receive_data('{"open":{"ref":"1","app":"cart"}}')
    connection.send(mux.Opened("1", VIEW, "ui://cart/app.html", (), "token"))
    connection.send(mux.Message(VIEW, Channel.WEBMCP, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}))
    try:
        for line in data.split(b"\n"):
            for event in connection.receive_data(line.decode("utf-8", "surrogateescape")):
                _check_event(event)
    except MuxError as error:
        assert re.fullmatch(r"[a-z][a-z-]*", error.code), error
        assert connection.ended
    for text in connection.pending_output():
        mux.decode(text)


def answer(data: bytes) -> None:
    """Any answer of a backend: refused, or a result that published clients can read."""
    head, _, body = data.partition(b"\n\n")
    lines = head.split(b"\n")
    fields = tuple(
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, _, value in (line.partition(b":") for line in lines[1:])
    )
    coding = next((value for name, value in fields if name == "content-encoding"), "")
    try:
        collected = Body(coding, 64 * 1024)
        collected.feed(body)
        body = collected.close()
    except Refusal as refusal:
        assert refusal.reason in (Reason.BACKEND_PROTOCOL, Reason.RESPONSE_TOO_LARGE)
        return
    assert len(body) <= 64 * 1024
    canonical = canonicalise(POLICY, Request("GET", "/api/products/1"))
    decision = decide(POLICY, canonical, CALLER)
    shown = answer_headers(POLICY, canonical, decision.obligations, fields, credentialed=True)
    _check_location(canonical, fields)
    status = int(lines[0][:3]) if lines[0][:3].isdigit() else 200
    try:
        content = result(Response(status, shown, body, canonical.url))
    except Refusal as refusal:
        assert refusal.reason is Reason.BACKEND_PROTOCOL
        return
    json.loads(json.dumps(content, allow_nan=False).encode("utf-8"))
    told = content["headers"]
    assert isinstance(told, dict)
    assert not {"set-cookie", "content-length", "transfer-encoding", "gateway-reason"} & told.keys()


def response(data: bytes) -> None:
    """Any bytes of a backend's connection: refused, or one response, the same in any pieces and for aiohttp's client.

    The first byte says how the rest is split. aiohttp takes a line of a space for the end of a head, and a tab for a
    part of a transfer coding; it decodes no content here.
    """
    size, data = data[:1][0] % 16 + 1 if data else 1, data[1:]
    whole = read_by_gateway([data])
    assert read_by_gateway([data[at : at + size] for at in range(0, len(data), size)]) == whole
    other = read_by_aiohttp([data])
    if whole is not None and other is not None and not re.search(rb"(?i)\n \r?\n|\t|content-encoding", data):
        assert whole == other


def requests(data: bytes) -> None:
    """Any bytes on a connection: what the fast path reads of them, aiohttp's parser reads in the same way."""
    end = data.find(b"\r\n\r\n") + 4
    head = read_head(data[:end]) if end >= 4 else None
    if head is not None:
        whole = data[: end + head.length]
        body = data[end:].ljust(head.length, b"x")[: head.length]
        message, stream = _parse(whole[:end] + body)
        assert (message.method, message.path) == (head.method, head.target)
        assert message.raw_headers == head.fields
        assert message.version == HttpVersion11
        assert message.should_close is head.last
        assert (message.upgrade, message.chunked, message.compression) == (False, False, None)
        assert (stream.total_bytes, stream.is_eof()) == (head.length, True)
        assert message.url.path == head.path
    if is_one_request(data):
        with contextlib.suppress(HttpProcessingError):  # refused, and the connection closed
            message, stream = _parse(data)
            assert stream.is_eof()
            assert not message.upgrade


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return a loop that never runs: aiohttp's parser needs one for its streams."""
    return asyncio.new_event_loop()


def _parse(data: bytes) -> tuple[RawRequestMessage, StreamReader]:
    """Return the one request in `data`, as aiohttp's server reads it. Raises `HttpProcessingError`."""
    parser = HttpRequestParser(BaseProtocol(_loop()), _loop(), 2**16)
    messages, upgraded, rest = parser.feed_data(data)
    assert (len(messages), upgraded, rest) == (1, False, b""), (messages, upgraded, rest)
    return messages[0]


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = MappingProxyType(
    {
        "url": url,
        "headers": headers,
        "arguments": arguments,
        "policy": policy,
        "frames": frames,
        "answer": answer,
        "response": response,
        "requests": requests,
    }
)
"""The targets by name; `seeds/<name>/` holds the initial inputs."""


def check_canonical(policy: Policy, canonical: CanonicalRequest) -> None:
    """Check the invariants of a canonical request."""
    path = canonical.path
    assert path.startswith("/"), path
    assert path.isascii(), path
    assert "//" not in path, path
    assert "\\" not in path, path
    assert not {".", ".."} & set(path.split("/")), path
    assert not re.search(r"[\x00-\x20\x7f]", canonical.url), canonical.url
    check_sent_headers(canonical.headers)
    decision = decide(policy, canonical, CALLER)
    if decision.effect is Effect.DENY:
        assert decision.reasons
        return
    spec = policy.backends[canonical.backend]
    target = spec.target(canonical)
    origin = re.match(r"https?://[^/]+", spec.url)
    if origin is None:
        return
    rest = target[origin.end() :]
    assert _SENT_TARGET.fullmatch(rest), rest
    assert URL(target, encoded=True).raw_path_qs == rest, rest
    _check_inside(policy, canonical, decision.route)


def check_sent_headers(kept: Headers) -> None:
    """Check that no field of the gateway or the connection is left, in any spelling, and none that breaks HTTP."""
    for name, value in kept:
        assert re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9a-z]+", name), name
        assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value), (name, value)
        assert name.replace("_", "-") not in _INJECTED, name


def _check_inside(policy: Policy, canonical: CanonicalRequest, route: str | None) -> None:
    """Check that a server which decodes once or twice still stays below the literal beginning of the route."""
    if policy is not POLICY:
        return
    literal = (route or "/").partition("{")[0].removesuffix("**")
    text = canonical.path.encode()
    for _ in range(3):
        below = _resolve(text)
        assert (below + b"/").startswith(literal.rstrip("/").encode() + b"/"), (canonical.path, below, route)
        text = unquote_to_bytes(text)


def _resolve(path: bytes) -> bytes:
    kept: list[bytes] = []
    for segment in re.split(rb"[/\\]", path)[1:]:
        if segment.split(b";")[0] == b"..":
            del kept[-1:]
        elif segment.split(b";")[0] != b".":
            kept.append(segment)
    return b"/" + b"/".join(kept)


def _check_event(event: mux.Frame) -> None:
    if isinstance(event, mux.Message):
        assert event.view == VIEW, "a message of a view that is not open passed"
        assert event.message.get("jsonrpc") == "2.0"
    assert not isinstance(event, (mux.Opened, mux.ErrorFrame)), "a host spoke as the gateway"
    with contextlib.suppress(MuxError):  # an escaped text may be longer than it came
        assert mux.decode(mux.encode(event)) == event


def _check_exact(canonical: CanonicalRequest) -> None:
    """Check that a body read by a rule has one reading, and that the total decided on is the one sent."""
    decision = decide(POLICY, canonical, CALLER)
    sent = json.loads(canonical.body, object_pairs_hook=_unique) if canonical.body else None
    if decision.effect is Effect.ALLOW:
        assert isinstance(sent, dict)
        assert sent["total"] <= 500, sent


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len({name.casefold() for name, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def _check_location(canonical: CanonicalRequest, fields: Headers) -> None:
    for name, value in fields:
        place = redirect_location(POLICY, canonical, value) if name == "location" else None
        if place is not None:
            assert place.backend in POLICY.backends
            assert place.url.startswith("/"), place


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} was sent as JSON")

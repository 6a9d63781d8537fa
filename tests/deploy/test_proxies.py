"""Real nginx and Caddy in front of a gateway, with the files of deploy/."""

from __future__ import annotations

import asyncio
import io
import re
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.callers.tokens import token
from tests.deploy.proxies import CLIENT, DEPLOY, PROXIES, Backend, Deployed, deployed
from tests.world import serving

OWN = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
VISIT = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


POLICY = """
version: 1
backends: {{api: {{url: "http://127.0.0.1:{port}", network: [127.0.0.0/8]}}}}
limits: {{request: 16MiB, timeout: 60s}}
routes:
  - {{path: /api/events, methods: [GET], stream: true}}
  - {{path: "/api/**", methods: [GET, POST]}}
"""


@pytest.fixture(scope="module")
async def backend() -> AsyncIterator[tuple[Backend, int]]:
    """The API and its port."""
    api = Backend()
    async with serving(api.build()) as port:
        yield api, port


@pytest.fixture(scope="module", params=PROXIES)
async def place(
    request: pytest.FixtureRequest, backend: tuple[Backend, int], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployed]:
    """A gateway behind a proxy, with that API."""
    folder = tmp_path_factory.mktemp(request.param)
    async with deployed(folder, request.param, policy=POLICY.format(port=backend[1])) as started:
        yield started


@pytest.fixture
async def api(backend: tuple[Backend, int]) -> Backend:
    """The API, as it is at the start."""
    backend[0].seen.clear()
    backend[0].more.clear()
    return backend[0]


@pytest.fixture(scope="module")
async def shown(place: Deployed) -> dict[str, str]:
    """The headers with a token."""
    return await token(place.world, "proxied", "mcp", "bridge", "app:cart")


async def test_each_site_answers_at_its_name(place: Deployed) -> None:
    """Over TLS, with the port in `Host`; plain HTTP leads to TLS, and other names get no certificate, or 421."""
    async with place.browser() as browser:
        async with browser.get(f"{place.console}/", headers=VISIT, allow_redirects=False) as got:
            assert (got.status, got.headers["content-type"]) == (200, "text/html")
        async with browser.post(f"{place.mcp}/mcp", json={}) as got:
            assert got.status == 401
        async with browser.get(f"{place.site}/", headers=VISIT, allow_redirects=False) as got:
            assert (got.status, got.headers["location"].split("?")[0]) == (302, f"{place.console}/login/site")
        async with browser.get(f"{place.mcp}/healthz") as got:
            assert got.status == 200
        plain = f"http://console.gw.localhost:{place.plain_port}/x?y"
        async with browser.get(plain, allow_redirects=False) as got:
            assert got.status == 308
            assert re.fullmatch(r"https://console\.gw\.localhost[:0-9]*/x\?y", got.headers["location"])
        with pytest.raises((aiohttp.ClientConnectorError, ssl.SSLError)):
            await browser.get(f"https://other.localhost:{place.port}/")
        async with browser.get(f"{place.mcp}/healthz", headers={"host": "other.localhost"}) as got:
            assert (got.status, "status" in await got.text()) == (421, False)


async def test_a_client_cannot_claim_an_address(place: Deployed, shown: dict[str, str]) -> None:
    """The record contains its own one, whichever header names another."""
    claims = {"x-forwarded-for": "192.0.2.1", "forwarded": "for=192.0.2.2", "x-real-ip": "192.0.2.3"}
    async with (
        place.browser() as browser,
        browser.post(f"{place.site}/api/size", headers={**shown, **OWN, **claims}, data=b"x") as got,
    ):
        assert got.status == 200
    assert {line["fields"].get("client") for line in place.world.records() if "client" in line["fields"]} == {CLIENT}


async def test_events_arrive_as_they_are_sent(place: Deployed, api: Backend, shown: dict[str, str]) -> None:
    """The first one, while the stream is open."""
    async with place.browser() as browser, browser.get(f"{place.site}/api/events", headers={**shown, **OWN}) as got:
        assert await got.content.readline() == b"data: first\n"
        api.more.set()
        assert await got.content.read() == b"\ndata: second\n\n"


async def test_large_bodies_and_headers(place: Deployed, shown: dict[str, str]) -> None:
    """10 MiB, and a header field of 7,000 bytes arrive; one of 20,000 is refused, by whichever hop."""
    size = 10 * 2**20
    async with place.browser() as browser:
        headers = {**shown, **OWN, "x-much": "m" * 20_000}
        async with browser.get(f"{place.site}/api/size", headers=headers) as got:
            assert 400 <= got.status < 500
        headers = {**shown, **OWN, "x-much": "m" * 7_000}
        async with browser.post(f"{place.site}/api/size", headers=headers, data=io.BytesIO(b"x" * size)) as got:
            assert await got.json() == {"size": size}


async def test_a_model_s_client(place: Deployed, shown: dict[str, str]) -> None:
    """The Python SDK lists tools, and calls one, in both eras."""
    for mode in ("2026-07-28", "legacy"):
        async with (
            place.http(shown) as http,
            Client(streamable_http_client(f"{place.mcp}/mcp", http_client=http), mode=mode) as client,
        ):
            assert isinstance((await client.list_tools()).tools, list)


async def test_a_caller_who_leaves(place: Deployed, api: Backend, shown: dict[str, str]) -> None:
    """The gateway hears of it through the proxy, and records a request that was cut off."""
    host = f"cart.apps.localhost:{place.port}"
    more = "".join(f"{key}: {value}\r\n" for key, value in {**shown, **OWN}.items())
    _, writer = await connection(place)
    writer.write(f"POST /api/slow HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: 0\r\n\r\n".encode())
    async with asyncio.timeout(60):
        while not api.seen:
            await asyncio.sleep(0.01)
    writer.transport.abort()
    async with asyncio.timeout(60):
        while not any(line["fields"].get("reason") == "cancelled" for line in place.world.records()):
            await asyncio.sleep(0.05)


async def connection(place: Deployed) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the site of the cart, for bytes that no HTTP client sends."""
    trusted = ssl.create_default_context(cafile=str(place.ca))
    return await asyncio.open_connection("127.0.0.1", place.port, ssl=trusted, server_hostname="cart.apps.localhost")


SMUGGLED = {
    "both lengths": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "both lengths, coding first": "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    "coding in capitals with a space": "Content-Length: 4\r\nTransfer-Encoding : chunked\r\n",
    "coding after a tab": "Content-Length: 4\r\nTransfer-Encoding:\tchunked\r\n",
    "coding with a vertical tab": "Content-Length: 4\r\nTransfer-Encoding: \x0bchunked\r\n",
    "folded coding": "Content-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n",
    "two codings": "Content-Length: 4\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
    "unknown coding": "Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n",
    "two lengths": "Content-Length: 4\r\nContent-Length: 60\r\n",
    "list of lengths": "Content-Length: 4, 60\r\n",
    "length with a sign": "Content-Length: +4\r\n",
    "length in hexadecimal": "Content-Length: 0x4\r\n",
    "length of a negative number": "Content-Length: -1\r\n",
    "coding after a bare line feed": "Content-Length: 4\nTransfer-Encoding: chunked\r\n",
    "coding in the line of another field": "X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    "coding before a null": "Content-Length: 4\r\nTransfer-Encoding: chunked\x00\r\n",
    "coding twice in a list": "Content-Length: 4\r\nTransfer-Encoding: chunked, chunked\r\n",
    "coding that does not end the list": "Content-Length: 4\r\nTransfer-Encoding: chunked, identity\r\n",
    "folded length": "Content-Length: 4\r\n 60\r\n",
    "chunk with a bare line feed": "Transfer-Encoding: chunked\r\n\r\n2\nab\n",
    "chunk size with a sign": "Transfer-Encoding: chunked\r\n\r\n+2\r\nab\r\n",
    "chunk size beyond 64 bits": "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\nab\r\n",
    "chunk that is longer than its size": "Transfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n",
    "chunk extension with a line": "Transfer-Encoding: chunked\r\n\r\n2;a=\nb\r\nab\r\n",
}
INSIDE = "0\r\n\r\nPOST /api/size?smuggled HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{more}\r\n"


@pytest.mark.parametrize("name", list(SMUGGLED))
async def test_no_request_is_smuggled(place: Deployed, api: Backend, shown: dict[str, str], name: str) -> None:
    """Proxy and gateway agree on where a body ends: nothing inside of it arrives as a request."""
    host = f"cart.apps.localhost:{place.port}"
    more = "".join(f"{key}: {value}\r\n" for key, value in {**shown, **OWN}.items())
    inside = INSIDE.format(host=host, more=more)
    framing = SMUGGLED[name].replace("60", str(len(inside)))
    head = f"POST /api/size?first HTTP/1.1\r\nHost: {host}\r\n{more}{framing}"
    head += "" if "\r\n\r\n" in framing else "\r\n"
    reader, writer = await connection(place)
    writer.write((head + inside).encode("latin-1"))
    writer.write(f"GET /api/size?last HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n".encode())
    try:
        async with asyncio.timeout(60):
            answers = await reader.read()
    finally:
        writer.close()
    assert len(api.seen) <= answers.count(b"HTTP/1.1 200"), api.seen  # each was a request to the proxy, too
    await check_next(place, shown)


async def check_next(place: Deployed, shown: dict[str, str]) -> None:
    """Nothing was left on the gateway's connections before the next request."""
    async with (
        place.browser() as browser,
        browser.post(f"{place.site}/api/size?other", headers={**shown, **OWN}, data=b"another") as got,
    ):
        assert await got.json() == {"size": 7}


def number_in(prefix: int, bits: int) -> bytes:
    """An integer of HPACK (RFC 7541, 5.1) below 2**14, at the end of an empty first byte."""
    most = 2**bits - 1
    if prefix < most:
        return bytes([prefix])
    low, high = (prefix - most) & 127, (prefix - most) >> 7
    return bytes([most, low | 128, high]) if high else bytes([most, low])


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def http2_request(fields: list[tuple[str, str]], body: bytes) -> bytes:
    """A connection of HTTP/2 with one request, whose fields may have bytes that no client sends."""
    texts = [[text.encode("latin-1") for text in field] for field in fields]
    block = b"".join(b"\x00" + b"".join(number_in(len(text), 7) + text for text in field) for field in texts)
    opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    return opening + frame(1, 4, 1, block) + frame(0, 1, 1, body)


DOWNGRADED = {
    "none": ("x-a", "b"),
    "length below the body": ("content-length", "4"),
    "length above the body": ("content-length", "9999"),
    "two lengths": ("content-length", "4, 60"),
    "a coding": ("transfer-encoding", "chunked"),
    "lines in a value": ("x-a", "b\r\ntransfer-encoding: chunked"),
    "a line feed in a value": ("x-a", "b\ntransfer-encoding: chunked"),
    "lines in a name": ("x-a: b\r\ntransfer-encoding", "chunked"),
    "a colon in a name": ("transfer-encoding: chunked\r\nx", "y"),
    "an upgrade": ("upgrade", "websocket"),
    "lines in the path": (":path", "/api/size HTTP/1.1\r\nhost: {host}\r\n\r\nPOST /api/size?smuggled"),
    "lines in the method": (":method", "GET /api/size?smuggled HTTP/1.1\r\nhost: {host}\r\n\r\nPOST"),
    "lines in the authority": (":authority", "{host}\r\ntransfer-encoding: chunked"),
}


@pytest.mark.parametrize("name", list(DOWNGRADED))
async def test_no_request_of_http_2_is_smuggled(
    place: Deployed, api: Backend, shown: dict[str, str], name: str
) -> None:
    """The proxy turns HTTP/2 into HTTP/1.1 for the gateway: fields that would end a message early are refused."""
    host = f"cart.apps.localhost:{place.port}"
    usual = {":method": "POST", ":scheme": "https", ":authority": host, ":path": "/api/size?first", **shown, **OWN}
    field, value = DOWNGRADED[name]
    more = "".join(f"{key}: {text}\r\n" for key, text in {**shown, **OWN}.items())
    inside = INSIDE.format(host=host, more=more).encode()
    trusted = ssl.create_default_context(cafile=str(place.ca))
    trusted.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", place.port, ssl=trusted, server_hostname="cart.apps.localhost"
    )
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
    fields = list((usual | {field: value.format(host=host)}).items())
    writer.write(http2_request(fields, inside))
    ended = False
    async with asyncio.timeout(60):
        while not ended:  # the answer, a reset stream, the end of the connection
            try:
                head = await reader.readexactly(9)
                await reader.readexactly(int.from_bytes(head[:3], "big"))
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                break
            ended = head[3] in (3, 7) or (head[3] in (0, 1) and bool(head[4] & 1))
    writer.close()
    assert [path for _, path in api.seen if "smuggled" in path] == []
    assert name != "none" or api.seen == [("POST", "/api/size?first")]
    await check_next(place, shown)


def test_the_files_wait_longer_than_an_approval() -> None:
    """An approval may take an hour; the proxies' own limits would end it after a minute."""
    for name in ("nginx.conf", "Caddyfile"):
        text = (DEPLOY / name).read_text("utf-8")
        assert re.search(r"(proxy_read_timeout|response_header_timeout)\s+1h", text), name

"""Tests of `gateway.backends.connect`: connections go only to allowed addresses, however these are written."""

from __future__ import annotations

import gzip
import random
import socket
import ssl
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from gateway.backends.connect import PROBE_SECONDS, Connections
from gateway.backends.http import HttpBackend
from gateway.errors import Reason, Refusal
from gateway.model import Outbound, Response
from tests.backends.peers import LOOPBACK, NOWHERE, Allowing, Names, Shop, raw_peer
from tests.certificates import self_signed
from tests.world import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


async def ask(url: str, network: Allowing, names: Names | None = None) -> Response:
    async with Connections(resolver=names) as connections:
        return await HttpBackend(Shop(network), connections).send(Outbound("GET", url))


async def reason(url: str, network: Allowing, names: Names | None = None) -> Reason:
    with pytest.raises(Refusal) as caught:
        await ask(url, network, names)
    return caught.value.reason


async def test_allowed_literal() -> None:
    """An address that the network allows is connected to."""
    async with raw_peer(OK) as peer:
        assert (await ask(peer.url(), LOOPBACK)).body == b"ok"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "localhost"])
async def test_denied_loopback(host: str) -> None:
    """Loopback is not reachable if the network does not allow it, as a literal or as a name."""
    async with raw_peer(OK) as peer:
        assert await reason(f"http://{host}:{peer.port}/", NOWHERE) is Reason.ADDRESS_DENIED
        assert peer.connections == 0


@pytest.mark.parametrize(
    "host", ["2130706433", "127.1", "0177.0.0.1", "0x7f.1", "0x7f000001", "localhost.", "127.0.0.1."]
)
async def test_other_spellings_of_an_address(host: str) -> None:
    """Short, octal, decimal and hexadecimal spellings never lead to an address that is not allowed."""
    async with raw_peer(OK) as peer:
        refused = await reason(f"http://{host}:{peer.port}/", NOWHERE)
        assert refused in {Reason.ADDRESS_DENIED, Reason.BACKEND_UNREACHABLE}
        assert peer.connections == 0


async def test_name_that_resolves_to_loopback() -> None:
    """A public name that resolves to loopback is denied, with the remedy in the detail."""
    names = Names(shop_example=[["127.0.0.1", "::1"]])
    async with raw_peer(OK) as peer:
        with pytest.raises(Refusal, match="`network`") as caught:
            await ask(f"http://shop.example:{peer.port}/", Allowing(frozenset({"203.0.113.1"})), names)
        assert caught.value.reason is Reason.ADDRESS_DENIED
        assert "127.0.0.1" not in caught.value.detail
        assert peer.connections == 0


async def test_allowed_address_among_denied_ones() -> None:
    """Of several addresses of a name, only the allowed one is tried, and its error is the one reported."""
    names = Names(shop_example=[["127.0.0.1", "203.0.113.9"]])
    only = Allowing(frozenset({"127.0.0.1"}))
    async with raw_peer(OK) as peer:
        assert (await ask(f"http://shop.example:{peer.port}/", only, names)).status == 200
    assert await reason(f"http://shop.example:{free_port()}/", only, names) is Reason.BACKEND_UNREACHABLE


async def test_name_that_resolves_differently_later() -> None:
    """A name that now resolves to a denied address is denied at its next connection."""
    names = Names(shop_example=[["127.0.0.1"], ["127.0.0.2"]])
    async with raw_peer(OK) as peer, Connections(resolver=names) as connections:
        backend = HttpBackend(Shop(LOOPBACK), connections)
        request = Outbound("GET", f"http://shop.example:{peer.port}/")
        assert (await backend.send(request)).status == 200
        connector = connections.open(LOOPBACK).connector
        assert connector is not None
        connector.clear_dns_cache()  # type: ignore[attr-defined]  # a TCPConnector
        with pytest.raises(Refusal) as caught:
            await backend.send(request)
        assert caught.value.reason is Reason.ADDRESS_DENIED
        assert peer.connections == 1


async def test_a_resolver_that_gives_no_address() -> None:
    """A resolver's answer that is not an address (which the system would resolve again) is denied."""
    names = Names(shop_example=[["localhost"]])
    async with raw_peer(OK) as peer:
        everything = Allowing(frozenset({"localhost", "127.0.0.1", "::1"}))
        assert await reason(f"http://shop.example:{peer.port}/", everything, names) is Reason.ADDRESS_DENIED


async def test_a_connection_that_is_silent_is_asked_whether_it_is_there() -> None:
    """TCP keep-alive is on: an event stream from a vanished backend would otherwise wait forever."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n"
    async with (
        raw_peer(head) as peer,
        Connections() as connections,
        connections.open(LOOPBACK).get(peer.url()) as answer,
    ):
        assert answer.connection is not None
        assert answer.connection.transport is not None
        made = answer.connection.transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == PROBE_SECONDS


async def test_networks_do_not_share_connections() -> None:
    """A connection opened under one network is not reused for another that would not allow it."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/", hello)
    async with TestServer(app) as server, Connections() as connections:
        url = str(server.make_url("/"))
        await HttpBackend(Shop(LOOPBACK), connections).send(Outbound("GET", url))
        with pytest.raises(Refusal) as caught:
            await HttpBackend(Shop(NOWHERE), connections).send(Outbound("GET", url))
    assert caught.value.reason is Reason.ADDRESS_DENIED


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70 + ".example", "xn--0.example"])
async def test_names_that_do_not_resolve(host: str) -> None:
    """A name that does not resolve, or is invalid, is an unreachable backend."""
    assert await reason(f"http://{host}:9/", LOOPBACK) is Reason.BACKEND_UNREACHABLE


async def test_nobody_listens() -> None:
    """A refused connection is an unreachable backend."""
    assert await reason(f"http://127.0.0.1:{free_port()}/", LOOPBACK) is Reason.BACKEND_UNREACHABLE


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY and similar variables have no effect."""
    async with raw_peer(OK) as peer, raw_peer(b"HTTP/1.1 500 No\r\n\r\n") as proxy:
        monkeypatch.setenv("http_proxy", proxy.url())
        monkeypatch.setenv("ALL_PROXY", proxy.url())
        assert (await ask(peer.url(), LOOPBACK)).status == 200


async def test_after_the_end() -> None:
    """A request after the connections were closed is refused, and raises no error of aiohttp."""
    async with Connections() as connections:
        backend = HttpBackend(Shop(), connections)
    with pytest.raises(Refusal) as caught:
        await backend.send(Outbound("GET", "http://127.0.0.1:9/"))
    assert caught.value.reason is Reason.BACKEND_UNAVAILABLE


def certificate(folder: Path) -> Path:
    """A self-signed certificate for `localhost`, with its key, in one file."""
    file = folder / "localhost.pem"
    file.write_bytes(b"".join(self_signed("localhost")))
    return file


async def https(pem: Path, handler: Handler) -> TestServer:
    """A TLS server with `handler`."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pem)
    app = web.Application()
    app.router.add_get("/", handler)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=serving)
    return server


async def test_certificates_are_verified(tmp_path: Path) -> None:
    """A certificate of an unknown authority is refused; one of a given authority is accepted, for its name only."""

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    pem = certificate(tmp_path)
    server = await https(pem, hello)
    url = f"https://localhost:{server.port}/"
    with pytest.raises(Refusal, match="self-signed") as caught:
        await ask(url, LOOPBACK)
    assert caught.value.reason is Reason.BACKEND_UNREACHABLE
    async with Connections(tls=ssl.create_default_context(cafile=str(pem))) as connections:
        backend = HttpBackend(Shop(), connections)
        assert (await backend.send(Outbound("GET", url))).body == b"ok"
        with pytest.raises(Refusal) as caught:
            await backend.send(Outbound("GET", f"https://127.0.0.1:{server.port}/"))
        assert caught.value.reason is Reason.BACKEND_UNREACHABLE
    await server.close()


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_what_is_read_bit_by_bit_may_be_there_before_the_connection_ends(tmp_path: Path, framing: str) -> None:
    """A server that closes at once is noticed within TLS, also while reading is paused."""
    body = random.Random(1).randbytes(200_000)

    async def much(request: web.Request) -> web.Response:
        answer = web.Response(body=gzip.compress(body), headers={"Content-Encoding": "gzip"})
        answer.force_close()
        if framing == "chunked":
            answer.enable_chunked_encoding()
        return answer

    pem = certificate(tmp_path)
    server = await https(pem, much)
    async with Connections(tls=ssl.create_default_context(cafile=str(pem))) as connections:
        url = f"https://localhost:{server.port}/"
        assert (await HttpBackend(Shop(), connections).send(Outbound("GET", url))).body == body
    await server.close()

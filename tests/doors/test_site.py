"""An app's own site serves its files, and its page at the paths of the app's router, to clients that disconnect."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from tests.apps.packing import write
from tests.backends.peers import raw_peer
from tests.world import running, serving

TO_A_PAGE = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
SCRIPT = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}


async def test_a_browser_that_leaves_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is gone when its file is ready to be sent: no error is raised."""
    failed: list[str] = []
    asked = asyncio.Event()
    prepare = web.FileResponse.prepare

    async def late(self: web.FileResponse, request: web.BaseRequest) -> AbstractStreamWriter | None:
        asked.set()
        while request.transport is not None:
            await asyncio.sleep(0)
        return await prepare(self, request)

    monkeypatch.setattr(web.FileResponse, "prepare", late)
    async with running(tmp_path) as world:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: failed.append(str(said)))
        _, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        host = world.site.removeprefix("http://")
        writer.write(f"GET / HTTP/1.1\r\nhost: {host}\r\nwebmcp-gateway-client: 1\r\n\r\n".encode())
        await asked.wait()
        writer.transport.abort()
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert failed == []


async def test_a_path_of_the_router_that_is_loaded_is_the_page(tmp_path: Path) -> None:
    """For a navigation to a path under which no route begins and which names no file; scripts follow the policy."""
    asked = [
        ("/products/7", TO_A_PAGE),
        ("/nothing.js", TO_A_PAGE),
        ("/api/nothing", TO_A_PAGE),
        ("/products/7", SCRIPT),
    ]
    async with running(tmp_path) as world, world.client() as client:
        async with client.get(world.site, headers=TO_A_PAGE) as page:
            whole = await page.text()
        found = []
        for path, headers in asked:
            async with client.get(world.site + path, headers=headers) as answer:
                found.append((answer.status, await answer.text() == whole))
    assert found == [(200, True), (403, False), (403, False), (403, False)]


async def test_a_folder_is_at_its_address(tmp_path: Path) -> None:
    """With its index page; without a slash the browser is redirected, so that relative URLs in the page work."""
    pages = write(tmp_path / "web", index__html="first", a_of_b_of_index__html="second", a_of_c__txt="third")
    write(pages, api_of_index__html="fourth")
    async with running(tmp_path, source=pages) as world, world.client() as client:

        async def asked(path: str, headers: dict[str, str] = TO_A_PAGE) -> tuple[int, str]:
            url = URL(f"{world.site}{path}", encoded=True)
            async with client.get(url, headers=headers, allow_redirects=False) as answer:
                return answer.status, answer.headers.get("location") or (await answer.text())[:6]

        assert await asked("/a/b/") == (200, "second")
        assert await asked("/a/b?x=%2f&y") == (301, "./b/?x=%2f&y")
        assert [(await asked(path, SCRIPT))[0] for path in ("/a/b", "/api")] == [301, 403]
        assert await asked("/api") == (301, "./api/")
        assert await asked("/a%2Fb/") == await asked("/a%2fb") == (200, "first")  # an encoded slash is no separator
        assert (await asked("/a%2Fc.txt", SCRIPT))[0] == 400
        assert [(await asked(path))[1] for path in ("/a", "/a/", "/a/c.txt/", "/a/b/index.html/", "/none")] == [
            "first"
        ] * 5


async def test_a_header_in_utf_8_arrives_as_it_was(tmp_path: Path) -> None:
    """Its bytes are those of the backend: browsers read file names so."""
    said = 'attachment; filename="märz.csv"'

    async def report(_: web.Request) -> web.Response:
        return web.Response(text="a,b", headers={"content-disposition": said})

    backend = web.Application()
    backend.router.add_get("/api/report", report)
    async with serving(backend) as port:
        policy = (
            f"version: 1\nbackends: {{shop: {{url: 'http://127.0.0.1:{port}', network: private}}}}\n"
            "routes: [{path: /api/report, methods: [GET]}]\n"
        )
        async with (
            running(tmp_path, policy=policy) as world,
            world.client() as client,
            client.get(f"{world.site}/api/report", headers=SCRIPT) as answer,
        ):
            assert (await answer.text(), answer.headers["content-disposition"]) == ("a,b", said)


IDS = [b"abc", "\u65e5".encode(), b"\xff\xe9", b"a\x01b", b"\x7f\x0b\x1f", b"a, b"]


async def test_the_id_of_an_event_stream_arrives_as_it_was(tmp_path: Path) -> None:
    """All its bytes, also after other requests on the connection; other headers have no control characters."""
    answered = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n"

    async def script(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answered)

    async with raw_peer(script) as peer:
        policy = (
            f"version: 1\nbackends: {{shop: {{url: 'http://127.0.0.1:{peer.port}', network: private}}}}\n"
            "routes: [{path: /events, methods: [GET], stream: true}, {path: /other, methods: [POST]}]\n"
        )
        async with running(tmp_path, policy=policy) as world:
            host = world.site.removeprefix("http://")
            fields = "".join(f"{name}: {value}\r\n" for name, value in SCRIPT.items())
            fields = f"host: {host}\r\norigin: {world.site}\r\naccept: text/event-stream\r\n{fields}"

            def request(more: bytes, target: str = "GET /events") -> bytes:
                return f"{target} HTTP/1.1\r\n{fields}connection: keep-alive\r\n".encode() + more + b"\r\n"

            reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)

            async def ask(data: bytes) -> int:
                writer.write(data)
                head = await reader.readuntil(b"\r\n\r\n")
                if b"transfer-encoding: chunked" in head.lower():
                    await reader.readuntil(b"0\r\n\r\n")
                else:
                    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                    await reader.readexactly(int(length.partition(b":")[2]))
                return int(head.split(b" ")[1])

            for last in IDS:
                assert await ask(request(b"Last-Event-ID: " + last + b"\r\n")) == 200
                assert b"\r\nlast-event-id: " + last + b"\r\n" in peer.requests[-1]
                assert await ask(request(b"content-length: 2\r\n", "POST /other") + b"ab") == 200
            assert await ask(request(b"webmcp-gateway-event-id: 610d0a62\r\n")) == 400
            assert await ask(request(b"x-a: a\x01b\r\n")) == 400
            writer.close()


@pytest.mark.parametrize("fast", [True, False])
async def test_an_answer_205_has_no_content(tmp_path: Path, fast: bool) -> None:
    """Browsers read none (RFC 9110, 15.3.6): what the backend sends would stand before the connection's next answer."""
    reset = b"HTTP/1.1 205 Reset\r\nContent-Type: text/event-stream\r\nContent-Length: 2\r\n\r\nhi"
    async with raw_peer(reset) as peer:
        policy = (
            f"version: 1\nbackends: {{shop: {{url: 'http://127.0.0.1:{peer.port}', network: private}}}}\n"
            "routes: [{path: /streamed, methods: [GET], stream: true}, {path: /whole, methods: [GET]}]\n"
        )
        async with running(tmp_path, policy=policy, fast_path=fast) as world:
            fields = "".join(f"{name}: {value}\r\n" for name, value in SCRIPT.items())
            fields = f"host: {world.site.removeprefix('http://')}\r\norigin: {world.site}\r\n{fields}"
            reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
            for path in ("/streamed", "/whole", "/streamed"):
                writer.write(f"GET {path} HTTP/1.1\r\n{fields}\r\n".encode())
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert head.startswith(b"http/1.1 205 ")
                assert b"\r\ncontent-length: 0\r\n" in head
                assert b"transfer-encoding" not in head
            writer.close()


@pytest.mark.parametrize("fast", [True, False])
async def test_a_method_in_another_case_is_read_wherever_a_request_begins(tmp_path: Path, fast: bool) -> None:
    """Also after a request whose head came before its body, which arrives as it was."""
    received: list[tuple[str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        received.append((request.method, await request.read()))
        return web.Response(text="ok")

    backend = web.Application()
    backend.router.add_route("*", "/api", take)
    async with serving(backend) as port:
        policy = (
            f"version: 1\nbackends: {{shop: {{url: 'http://127.0.0.1:{port}', network: private}}}}\n"
            "routes: [{path: /api, methods: [PATCH, POST]}]\n"
        )
        async with running(tmp_path, policy=policy, fast_path=fast) as world:
            fields = "".join(f"{name}: {value}\r\n" for name, value in SCRIPT.items())
            fields = f"host: {world.site.removeprefix('http://')}\r\norigin: {world.site}\r\n{fields}"
            body = b"patch /api HTTP/1.1\r\n\r\n"
            reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
            for method in ("patch", "POST", "Patch", "POST", "patch"):
                writer.write(f"{method} /api HTTP/1.1\r\n{fields}content-length: {len(body)}\r\n\r\n".encode())
                if method == "POST":
                    await asyncio.sleep(0.3)  # so that the gateway reads the head alone
                writer.write(body)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert head.startswith(b"http/1.1 200 ")
                assert await reader.readexactly(2) == b"ok"
            writer.close()
    assert received == [(method, body) for method in ("PATCH", "POST", "PATCH", "POST", "PATCH")]

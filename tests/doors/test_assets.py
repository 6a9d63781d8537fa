"""The gateway's browser files are served from memory; an app's files are closed although a client disconnects."""

import asyncio
import gc
import re
import warnings

import pytest

from tests.world import World

CLIENT = {"webmcp-gateway-client": "1"}


@pytest.fixture
def world(shared_world: World) -> World:
    """One world for all tests: they change nothing in it."""
    return shared_world


async def script_of(world: World) -> str:
    """Return the path of the console's script, which contains a hash of its content."""
    async with world.client(headers=CLIENT) as client, client.get(f"{world.console}/") as answer:
        found = re.search(r'src="\.(/assets/[^"]+\.js)"', await answer.text())
    assert found is not None
    return found[1]


async def test_a_file_that_the_browser_has_is_not_sent_again(world: World) -> None:
    """The browser names its copy's ETag and gets 304 (RFC 9110, 13.1.2)."""
    places = {
        world.console + await script_of(world): "public, max-age=31536000, immutable",
        f"{world.console}/": "no-cache",
        f"{world.console}/host/mcp-app.js": "no-cache",
    }
    async with world.client(headers=CLIENT) as client:
        for url, kept in places.items():
            async with client.get(url) as answer:
                body, tag = await answer.read(), answer.headers["etag"]
                assert (answer.status, answer.headers["cache-control"]) == (200, kept)
                assert (len(body) > 100, answer.headers["x-content-type-options"]) == (True, "nosniff")
            async with client.get(url, headers={"if-none-match": f'"other", {tag}'}) as answer:
                assert (answer.status, await answer.read(), answer.headers["etag"]) == (304, b"", tag)
            async with client.get(url, headers={"if-none-match": '"other"'}) as answer:
                assert (answer.status, await answer.read()) == (200, body)


async def test_the_script_for_host_pages_is_open_to_pages_of_any_origin(world: World) -> None:
    """And nothing else of the console is: no other file, no data, no other method."""
    foreign = {"origin": "https://chat.example", "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    script = f"{world.console}/host/mcp-app.js"
    async with world.client(headers=foreign) as client:
        async with client.get(script) as answer:
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")
            assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
        async with client.post(script) as answer:
            assert answer.status in (403, 405)
        for path, status in {"/host/none.js": 404, "/api/state": 403, "/assets/none.js": 403, "/": 403}.items():
            async with client.get(world.console + path) as answer:
                assert (path, answer.status) == (path, status)


@pytest.mark.parametrize("path", ["/assets/none.js", "/assets/index.html", "/assets/", f"/assets/{'a' * 4000}"])
async def test_there_is_no_other_file(world: World, path: str) -> None:
    """For names of any length."""
    async with world.client(headers=CLIENT) as client, client.get(world.console + path) as answer:
        assert answer.status == 404


@pytest.mark.parametrize(("path", "status"), [("/proxy.html", 403), ("//proxy.html", 404), ("/./proxy.html", 404)])
async def test_no_way_leads_to_the_proxy_without_a_policy(world: World, path: str, status: int) -> None:
    """Its page is served only with a signed policy."""
    host = f"sandbox.localhost:{world.gateway.port}"
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {host}\r\nwebmcp-gateway-client: 1\r\n\r\n".encode())
    assert (await reader.readline()).split()[1] == str(status).encode()
    writer.close()
    await writer.wait_closed()


async def test_who_goes_leaves_no_file_open(world: World) -> None:
    """Also if the browser disconnects while a file of an app is being opened."""
    host = world.site.removeprefix("http://")
    asked = f"GET / HTTP/1.1\r\nhost: {host}\r\nwebmcp-gateway-client: 1\r\n\r\n".encode()
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always")
        for _ in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
            writer.write(asked)
            await asyncio.sleep(0)
            writer.transport.abort()
        async with world.client(headers=CLIENT) as client, client.get(world.site) as answer:
            assert answer.status == 200
        gc.collect()
    assert left == []

"""The gateway as a library: an aiohttp application within another one."""

from pathlib import Path

import pytest
from aiohttp import web

from gateway.app import build_app
from gateway.errors import DocumentError, StartError
from tests.world import SECRET, Server, World, listen, read_config, running, write_config

CLIENT = {"webmcp-gateway-client": "1"}
HELD = (
    "connection-allowlist",
    "content-security-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
    "gateway-reason",
    "referrer-policy",
    "x-content-type-options",
)


async def test_it_is_mounted_by_host_in_an_application_of_others(tmp_path: Path) -> None:
    """Its hosts, and their headers, are its own; the rest, and starting and stopping, is the outer application's."""
    async with running(tmp_path) as world:
        before = await headers(world)
        await world.gateway.stop()
        outer = web.Application()

        async def hello(_: web.Request) -> web.Response:
            return web.Response(text="hello")

        outer.router.add_get("/", hello)
        outer.add_domain(f"*.localhost:{world.gateway.port}", build_app(read_config(tmp_path)))
        await world.gateway.start(outer)
        async with world.client(headers=CLIENT) as client:
            async with client.get(world.url) as answer:
                assert await answer.text() == "hello"
            async with client.get(f"{world.console}/api/state") as answer:
                assert [app["id"] for app in (await answer.json())["apps"]] == ["cart"]
            async with client.get(f"{world.site}/api/products") as answer:
                assert answer.status == 200
        assert await headers(world) == before


async def headers(world: World) -> list[tuple[int, dict[str, str]]]:
    """Return the security headers of answers and refusals of each site."""
    found = []
    async with world.client(headers=CLIENT) as client:
        async with client.get(f"{world.console}/api/state") as answer:
            (app,) = (await answer.json())["apps"]
        pages = [f"{site}/{path}" for site in (world.console, world.site) for path in ("", "none")]
        for url in (app["sandbox_url"], *pages):
            async with client.get(url) as answer:
                said = {name.lower(): value for name, value in answer.headers.items()}
            found.append((answer.status, {name: said[name] for name in HELD if name in said}))
    assert [name for name in HELD if not any(name in said for _, said in found)] == []
    return found


async def test_a_backend_type_that_nobody_registers_stops_the_start(tmp_path: Path) -> None:
    """The message lists the known types."""
    policy = "version: 1\nbackends: {shop: {type: carrier-pigeon}}\nroutes: [{path: /api, methods: [GET]}]\n"
    sock = listen()
    write_config(tmp_path, issuer="http://localhost:1", shop_port=1, port=sock.getsockname()[1], policy=policy)
    sock.close()
    with pytest.raises(DocumentError, match=r"'carrier-pigeon'; known: http"):
        build_app(read_config(tmp_path))


@pytest.mark.parametrize("live", [True, False])
async def test_an_author_hears_of_scripts_that_no_browser_can_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, live: bool
) -> None:
    """When the gateway runs in `dev`; the page is shown all the same."""
    source = tmp_path / "page"
    source.mkdir()
    (source / "index.html").write_text("<!doctype html>\n<script>let a = ;</script>", "utf-8")
    async with running(tmp_path, source=source) as world:
        await world.gateway.stop()
        with caplog.at_level("INFO", "gateway.assembly.packing"):
            await world.gateway.start(build_app(read_config(tmp_path), live=live))
        async with world.client(headers=CLIENT) as client, client.get(f"{world.console}/api/state") as answer:
            assert [app["id"] for app in (await answer.json())["apps"]] == ["cart"]
    assert ("index.html:2:17: Unexpected token ';'" in caplog.text) is live


async def test_two_processes_do_not_share_a_journal(tmp_path: Path) -> None:
    """The second fails to start with the remedy; the first continues."""
    async with running(tmp_path) as world:
        second = Server()
        try:
            with pytest.raises(StartError, match="journal"):
                await second.start(build_app(read_config(tmp_path)))
        finally:
            await second.stop()
        async with world.client(headers=CLIENT) as client, client.get(f"{world.site}/api/products") as answer:
            assert answer.status == 200


def test_a_configuration_does_not_show_its_secrets(tmp_path: Path) -> None:
    """Not even when printed."""
    write_config(tmp_path, issuer="http://localhost:1", shop_port=1, port=8080)
    assert SECRET not in repr(read_config(tmp_path))

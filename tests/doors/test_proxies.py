"""A trusted proxy names the caller or the caller's address; no other peer can, and a remote caller is never local."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.callers.doors import answer, knocks, mcp_call, statuses
from tests.callers.people import NAVIGATION
from tests.callers.tokens import token
from tests.world import World, running

PROXY = """
auth:
  - {{type: proxy, name: front, header: X-User, roles_header: X-Groups, proxies: [{proxy}]}}
roles: {{approver: [ops], admin: [root]}}
"""


@pytest.fixture
async def fronted(tmp_path: Path) -> AsyncIterator[World]:
    """Yield the cart behind a proxy that names the caller."""
    async with running(tmp_path, extra=PROXY.format(proxy="127.0.0.1")) as world:
        yield world


async def test_a_trusted_proxy_names_the_caller(fronted: World) -> None:
    """At every door, with roles; its headers go no further."""
    shown = {"x-user": "alice@example.com", "x-groups": "ops, staff"}
    assert not {name for name, status in (await statuses(fronted, shown)).items() if status == 401}
    _, _, body = await answer(knocks(fronted)["console"], shown)
    state = json.loads(body)
    assert state["principal"]["id"] == "proxy:front|proxy|alice@example.com"
    assert state["may"] == {"answer": True, "logout": False}
    sent = fronted.arrived()
    assert sent
    assert "alice@example.com" not in json.dumps(sent)


@pytest.mark.parametrize("shown", [{}, {"x-user": ""}, {"x-user": " "}, {"x-groups": "root"}, {"x-user": "a" * 1025}])
async def test_a_proxy_that_names_nobody_lets_nobody_in(fronted: World, shown: dict[str, str]) -> None:
    """An empty name is invalid."""
    assert set((await statuses(fronted, shown)).values()) == {401}


async def test_the_header_of_somebody_else_is_nothing(tmp_path: Path) -> None:
    """From another address than the proxy's it neither names a caller nor goes out."""
    extra = PROXY.format(proxy="203.0.113.7").replace("roles:", "  - token\nroles:")
    async with running(tmp_path, extra=extra) as world:
        assert set((await statuses(world, {"x-user": "alice"})).values()) == {401}
        shown = {**await token(world, "client", "app"), "x-user": "alice", "x-groups": "root"}
        assert (await answer(knocks(world)["site's api"], shown))[0] == 200
        assert "alice" not in json.dumps(world.arrived())


@pytest.mark.parametrize(
    ("path", "headers", "status", "remedy"),
    [
        ("/", {"host": "127.0.0.1:1"}, 421, "must pass Host on unchanged; its names are server.public_url"),
        ("/", {"host": "gateway.localhost"}, 421, "must pass Host on unchanged"),  # without its port
        ("/bridge", {"upgrade": ""}, 426, "must pass Upgrade, Connection and the fields Sec-WebSocket-* on"),
    ],
)
async def test_what_a_proxy_spoils_is_refused_with_the_remedy(
    world: World, path: str, headers: dict[str, str], status: int, remedy: str
) -> None:
    """A name that it rewrites, and an upgrade that it strips."""
    socket = {"connection": "upgrade", "sec-websocket-version": "13", "sec-websocket-key": "a" * 22 + "=="}
    sent = {**socket, "origin": world.console, **headers}
    async with world.client() as client, client.get(f"{world.console}{path}", headers=sent) as got:
        assert (got.status, remedy in (await got.json())["detail"]) == (status, True)


async def test_everybody_on_this_machine_is_local_but_those_of_elsewhere(tmp_path: Path) -> None:
    """`none` is for loopback only: a trusted proxy that names another address is not loopback."""
    extra = "auth: [token, none]\n"
    async with running(tmp_path, extra=extra) as world:
        file = world.folder / "gateway.yaml"
        text = file.read_text("utf-8").replace("listen:", "trusted_proxies: [127.0.0.1]\n  listen:", 1)
        file.write_text(text, "utf-8")
        await world.gateway.stop()
        await world.start_gateway()
        knock = mcp_call(f"{world.url}/mcp")
        assert (await answer(knock, {}))[0] == 200
        assert (await answer(knock, {"x-forwarded-for": "127.0.0.1, 203.0.113.5"}))[0] == 401
        assert (await answer(knock, {"forwarded": "for=203.0.113.5"}))[0] == 401
        for lie in ("for=127.0.0.2", 'for="[::1]"'):  # the client's own field, which a proxy of the other kind passes
            assert (await answer(knock, {"forwarded": lie, "x-forwarded-for": "203.0.113.5"}))[0] == 401
        assert (await answer(knock, {"authorization": "Bearer wrong"}))[0] == 401  # a wrong token never counts as none


async def test_a_person_behind_a_proxy_without_authentication_is_told_why_and_not_sent_around(world: World) -> None:
    """The site and the login of the console answer, instead of leading to each other; this machine is let in."""
    forwarded = {**NAVIGATION, "x-forwarded-for": "203.0.113.9"}
    async with world.client() as browser:
        for url, status in ((f"{world.site}/", 401), (f"{world.console}/login?to=/", 403)):
            async with browser.get(url, headers=forwarded, allow_redirects=False) as answer:
                assert (answer.status, "Name token, oauth or proxy under" in await answer.text()) == (status, True)
        async with browser.get(f"{world.console}/login?to=/", headers=NAVIGATION) as answer:
            assert answer.status == 200
        async with browser.get(f"{world.site}/", headers=NAVIGATION, allow_redirects=False) as answer:
            assert answer.status == 200

"""Assertions as grants (RFC 7523) through a whole gateway, at a real authorization server: Authlib's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import load_config
from tests.callers.doors import answer, mcp_call
from tests.callers.tokens import token
from tests.credentials.bearer_server import Bearers, bearers
from tests.credentials.house import KEY, PUBLIC
from tests.resource import Resource, resource
from tests.world import SECRET, World, running

POLICY = """
version: 1
backends:
  robot: {url: "URL", network: private, credential: robot}
  person: {url: "URL", network: private, credential: person}
routes:
  - {path: /robot, methods: [GET], backend: robot}
  - {path: /person, methods: [GET], backend: person}
"""
CREDENTIALS = """
  robot: {{type: jwt_bearer, {common}, subject: cart-robot}}
  person: {{type: jwt_bearer, {common}, subject_claim: sub}}
"""


@asynccontextmanager
async def place(folder: Path, *people: str, more: str = "") -> AsyncIterator[tuple[World, Bearers, Resource]]:
    """A gateway whose key is registered at the server."""
    (folder / "robot.pem").write_text(KEY)
    async with bearers(PUBLIC, *people) as server, resource() as behind:
        common = f'issuer: "{server.url}", client_id: robot, private_key: "${{file:robot.pem}}", network: private'
        credentials = CREDENTIALS.format(common=f"{common}, scope: [cart]{more}")
        policy = POLICY.replace("URL", behind.url)
        async with running(folder, policy=policy, credentials=credentials, extra="auth: [token]\n") as world:
            yield world, server, behind


async def get(world: World, path: str, shown: dict[str, str]) -> bytes:
    """The answer to a client's `http_request`."""
    params = {"name": "http_request", "arguments": {"url": path, "method": "GET"}}
    return (await answer(mcp_call(f"{world.url}/mcp/cart", "tools/call", params, "http_request"), shown))[2]


async def test_the_gateway_speaks_for_itself_and_for_each_person(tmp_path: Path) -> None:
    """The gateway has one token, and each person another, cached until it expires, for its own subject."""
    async with place(tmp_path, "cart-robot", "ann", "bob") as (world, server, behind):
        ann, bob = [await token(world, f"of {name}", "mcp", person=name) for name in ("ann", "bob")]
        for shown in (ann, bob, ann):
            assert b'"status":200' in await get(world, "/robot", shown)
            assert b'"status":200' in await get(world, "/person", shown)
    tokens = [fields["authorization"].removeprefix("Bearer ") for fields in behind.seen]
    subjects = [server.granted[shown] for shown in tokens]
    assert subjects == ["cart-robot", "ann", "cart-robot", "bob", "cart-robot", "ann"]
    assert len(set(tokens)) == len(server.granted) == 3
    assert server.refused == []


async def test_whom_the_server_does_not_know_it_does_not_serve(tmp_path: Path) -> None:
    """The refusal is reported without the server's text."""
    async with place(tmp_path, "ann") as (world, server, behind):
        eve = await token(world, "of eve", "mcp", person="eve")
        told = await get(world, "/person", eve)
        shared = await get(world, "/person", await token(world, "kiosk", "mcp", person=None))
    assert b"credential-failed" in told
    assert b"invalid_grant" in told
    assert b"assertion" not in told
    assert b"belongs to persons" in shared
    assert server.refused == ["invalid_grant: Invalid 'sub' value in assertion"]
    assert behind.seen == []


async def test_an_assertion_for_another_server_is_refused(tmp_path: Path) -> None:
    """`audience` sets the audience."""
    async with place(tmp_path, "cart-robot", more=', audience: "https://elsewhere.test"') as (world, server, behind):
        assert b"credential-failed" in await get(world, "/robot", await token(world, "client", "mcp"))
    assert [why.partition(":")[0] for why in server.refused] == ["invalid_grant"]
    assert behind.seen == []


async def test_one_token_for_many_calls(tmp_path: Path) -> None:
    """The calls are concurrent."""
    async with place(tmp_path, "cart-robot") as (world, server, _):
        shown = await token(world, "client", "mcp")
        found = await asyncio.gather(*(get(world, "/robot", shown) for _ in range(50)))
    assert all(b'"status":200' in one for one in found)
    assert len(server.granted) == 1


@pytest.mark.parametrize("key", ["", "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"])
async def test_a_key_that_is_none_stops_the_start(tmp_path: Path, key: str) -> None:
    """The line is reported, and nothing of the key."""
    async with place(tmp_path) as (world, _, _):
        (tmp_path / "robot.pem").write_text(key)
        with pytest.raises(Exception, match=r"robot\.pem is empty|is not a private key in PEM") as wrong:
            load_config(world.folder / "gateway.yaml", {"SHOP_SECRET": SECRET})
    assert "AAAA" not in str(wrong.value)

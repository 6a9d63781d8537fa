"""Connect links that reach another person, and logins that another person finishes: no account changes hands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest

from gateway.exchange import connecting
from gateway.policy import Rate
from tests.callers.doors import answer, mcp_call
from tests.callers.tokens import link, token
from tests.credentials.test_absent import provider, with_account
from tests.oidc.sign_in import sign_in
from tests.resource import Resource, resource
from tests.world import World, running

NAVIGATION = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
OWN = {"sec-fetch-site": "same-origin"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[World, Resource]]:
    """A shop for which each person needs an account."""
    async with running(tmp_path, extra="auth: [token]\n") as world, resource() as behind, provider(world) as server:
        await with_account(world, behind.url, server)
        yield world, behind


async def log_in(browser: aiohttp.ClientSession, world: World, person: str) -> None:
    """Log in by a link; from then on `browser` is the console's page."""
    async with browser.get(await link(world, person), headers=NAVIGATION) as got:
        assert got.status == 200
    async with browser.get(f"{world.console}/api/state", headers=OWN) as got:
        state = await got.json()
    assert state["accounts"] is True
    csrf = state["csrf"]
    browser.headers.update({**OWN, "origin": world.console, "webmcp-gateway-csrf": csrf})


async def post(browser: aiohttp.ClientSession, world: World, path: str, body: Any) -> tuple[int, dict[str, Any]]:
    """The answer of the console to its page."""
    async with browser.post(f"{world.console}/api/connections/{path}", json=body) as got:
        return got.status, await got.json()


async def get(world: World, shown: dict[str, str]) -> dict[str, Any]:
    """The answer of the shop to a person's client."""
    params = {"name": "http_request", "arguments": {"url": "/api/cart", "method": "GET"}}
    told = (await answer(mcp_call(f"{world.url}/mcp/cart", "tools/call", params, "http_request"), shown))[2]
    found: dict[str, Any] = json.loads(told)["result"]["structuredContent"]
    return found


async def test_the_link_of_another_person_starts_nothing(place: tuple[World, Resource]) -> None:
    """Bob opens Ann's link: he gets an error, no login starts, and neither of them has an account."""
    world, _ = place
    ann, bob = [await token(world, f"of {name}", "mcp", person=name) for name in ("ann", "bob")]
    meant = (await get(world, ann))["body"]["connect_url"].partition("for=")[2]
    assert meant != (await get(world, bob))["body"]["connect_url"].partition("for=")[2]
    async with world.client() as browser:
        await log_in(browser, world, "bob")
        status, told = await post(browser, world, "shop-account", {"for": meant})
        assert (status, told["type"]) == (403, "urn:webmcp-gateway:other-person")
    assert [(await get(world, one))["status"] for one in (ann, bob)] == [401, 401]


@pytest.mark.parametrize("who", ["begun by ann", "answered for ann"])
async def test_a_login_ends_for_who_began_it(place: tuple[World, Resource], who: str) -> None:
    """Bob can neither finish Ann's login, nor make her finish his; an attempt invalidates the login."""
    world, _ = place
    ann = await token(world, "of ann", "mcp", person="ann")
    async with world.client() as hers, world.client() as his, aiohttp.ClientSession() as pages:
        await log_in(hers, world, "ann")
        await log_in(his, world, "bob")
        first, second = (hers, his) if who == "begun by ann" else (his, hers)
        _, begun = await post(first, world, "shop-account", {})
        back = await sign_in(pages, begun["location"], "mallory", f"{world.console}/oauth/callback")
        told = {"secret": begun["secret"], "answer": dict(parse_qsl(back.partition("?")[2]))}
        assert (await post(second, world, "finish", told))[0] == 403
        assert (await post(first, world, "finish", told))[0] == 400
    assert (await get(world, ann))["status"] == 401


async def test_each_person_has_their_own_account(place: tuple[World, Resource]) -> None:
    """The account applies to all clients of a person; disconnecting one leaves the other."""
    world, behind = place
    people = ("ann", "bob")
    clients = {name: await token(world, f"of {name}", "mcp", person=name) for name in people}
    browsers = {name: world.client() for name in people}
    try:
        for name, browser in browsers.items():
            await log_in(browser, world, name)
            _, begun = await post(browser, world, "shop-account", {})
            async with aiohttp.ClientSession() as pages:
                back = await sign_in(pages, begun["location"], f"{name}s", f"{world.console}/oauth/callback")
            told = {"secret": begun["secret"], "answer": dict(parse_qsl(back.partition("?")[2]))}
            assert (await post(browser, world, "finish", told))[1]["account"] == f"{name}s@example.com"
        assert [(await get(world, clients[name]))["status"] for name in people] == [200, 200]
        assert len({fields["authorization"] for fields in behind.seen}) == 2
        await post(browsers["ann"], world, "shop-account/disconnect", {})
        assert [(await get(world, clients[name]))["status"] for name in people] == [401, 200]
    finally:
        for browser in browsers.values():
            await browser.close()


@pytest.mark.bound("logins that connect an account")
async def test_who_begins_too_many_logins_is_told_to_wait(
    place: tuple[World, Resource], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the excess login is stored; another person can still start one."""
    monkeypatch.setattr(connecting, "BEGINNING", Rate(2, 600.0))
    world, _ = place
    async with world.client() as ann, world.client() as bob:
        await log_in(ann, world, "ann")
        await log_in(bob, world, "bob")
        found = [await post(ann, world, "shop-account", {}) for _ in range(3)]
        assert [status for status, _ in found] == [200, 200, 429]
        assert "More than 2 logins begun in 600 s. Try again in 300 s." in str(found[2][1])
        assert (await post(bob, world, "shop-account", {}))[0] == 200

"""People log in at a real authorization server; each sees and answers only their own clients' questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from click.testing import CliRunner
from joserfc import jws

from gateway.cli.credential import rotate_key
from gateway.doors import client_limits
from gateway.policy import Rate
from tests.callers.doors import Knock, answer, knocks, mcp_call
from tests.callers.people import CROSSING, NAVIGATION, OWN, Town, get, town
from tests.oidc.sign_in import sign_in
from tests.world import SECRET

DELETE = {"url": "/api/cart/mug", "method": "DELETE"}


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Town]:
    """Yield the gateway and its people."""
    async with town(tmp_path) as started:
        yield started


async def test_a_person_logs_in_with_a_code(place: Town) -> None:
    """Name and roles come from the ID token; the issuer received PKCE, which it requires."""
    async with place.world.client() as browser:
        await place.log_in(browser, "alice")
        status, state = await get(browser, f"{place.world.console}/api/state")
    assert status == 200
    assert state["principal"]["name"] == "alice"
    assert state["principal"]["id"] == f"{place.provider.issuer}|console|alice"
    assert state["may"] == {"answer": True, "logout": True}
    assert [app["id"] for app in state["apps"]] == ["cart"]
    assert state["accounts"] is False  # none can be connected here, so the console shows no link to them


async def test_who_has_no_role_uses_no_app(place: Town) -> None:
    """Eve is authenticated, but authorized for nothing."""
    async with place.world.client() as browser:
        await place.log_in(browser, "eve")
        _, state = await get(browser, f"{place.world.console}/api/state")
    assert state["apps"] == []
    token = await place.token("eve", f"{place.world.url}/mcp")
    assert (await answer(mcp_call(f"{place.world.url}/mcp"), token))[0] == 403


@pytest.mark.parametrize("change", ["state", "iss", "code", "browser", "error", "cookie"])
async def test_an_answer_of_elsewhere_logs_nobody_in(place: Town, change: str) -> None:
    """A wrong state or issuer, an invalid code, another browser, a refusal, an altered cookie."""
    world = place.world
    async with world.client() as browser, world.client() as other, aiohttp.ClientSession() as pages:
        async with browser.get(f"{world.console}/login", headers=NAVIGATION, allow_redirects=False) as got:
            url = got.headers["location"]
        back = await sign_in(pages, url, "alice", f"{world.console}/login/back")
        headers = dict(CROSSING)
        match change:
            case "state":
                back = back.replace("state=", "state=x")
            case "iss":
                back = back.replace("iss=http", "iss=https")
            case "code":
                back = back.replace("code=", "code=x")
            case "error":
                back = back.replace("code=", "error=access_denied&x=")
            case "cookie":
                kept = next(morsel for morsel in browser.cookie_jar if "login" in morsel.key)
                headers["cookie"] = f"{kept.key}={kept.value[:-1]}x"
                browser.cookie_jar.clear()
            case _:
                assert change == "browser"
        coming = other if change == "browser" else browser
        async with coming.get(back, headers=headers) as got:
            assert got.status == 403, await got.text()
            assert "session" not in json.dumps(got.headers.getall("set-cookie", []))


@pytest.mark.bound("look-ups of invalid opaque tokens and login codes at an issuer")
async def test_codes_that_are_made_up_reach_the_issuer_a_few_times(
    place: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone can begin a login, and could otherwise make the gateway poll the issuer."""
    monkeypatch.setattr(client_limits, "WRONG", Rate(3, 3600.0))
    world = place.world
    async with world.client() as browser, aiohttp.ClientSession() as pages:
        statuses = []
        for number in range(5):
            async with browser.get(f"{world.console}/login", headers=NAVIGATION, allow_redirects=False) as got:
                url = got.headers["location"]
            query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
            made_up = {"code": f"made-up-{number}", "state": query["state"], "iss": place.provider.issuer}
            async with browser.get(f"{world.console}/login/back", params=made_up, headers=CROSSING) as got:
                statuses.append(got.status)
                text = await got.text()
        assert statuses == [403, 403, 403, 429, 429]
        assert "Wait a minute" in text
        back = await sign_in(pages, url, "alice", f"{world.console}/login/back")
        async with browser.get(back, headers=CROSSING) as got:
            assert got.status == 429


async def test_a_login_is_answered_once(place: Town) -> None:
    """A second request with the same answer finds the login attempt gone."""
    world = place.world
    async with world.client() as browser, aiohttp.ClientSession() as pages:
        async with browser.get(f"{world.console}/login", headers=NAVIGATION, allow_redirects=False) as got:
            back = await sign_in(pages, got.headers["location"], "alice", f"{world.console}/login/back")
        async with browser.get(back, headers=CROSSING) as got:
            assert got.status == 200
        async with browser.get(back, headers=CROSSING) as got:
            assert got.status == 403


async def test_a_dead_issuer_is_said_to_be(place: Town) -> None:
    """Logins then fail, and the page gives the reason."""
    await place.provider.set_down(True)
    start = f"{place.world.console}/login"
    async with place.world.client() as browser, browser.get(start, headers=NAVIGATION, allow_redirects=False) as got:
        assert got.status == 503
        assert "The authorization server" in await got.text()


async def test_tokens_of_a_real_issuer(place: Town) -> None:
    """JWTs for `/mcp` and one mount, an opaque one, a rotated key, a service, and one with another audience."""
    world = place.world
    everything, cart = mcp_call(f"{world.url}/mcp"), mcp_call(f"{world.url}/mcp/cart")
    whole = await place.token("alice", f"{world.url}/mcp")
    mount = await place.token("alice", f"{world.url}/mcp/cart")
    opaque = await place.token("alice", world.url)
    assert [(await answer(everything, shown))[0] for shown in (whole, mount, opaque)] == [200, 401, 200]
    assert [(await answer(cart, shown))[0] for shown in (whole, mount, opaque)] == [200, 200, 200]
    await place.provider.rotate_keys()
    assert (await answer(everything, await place.token("bob", f"{world.url}/mcp")))[0] == 200
    assert (await answer(everything, await place.service("https://other.test")))[0] == 401
    assert (await answer(everything, await place.service(f"{world.url}/mcp")))[0] == 403  # the service has no role
    assert (await answer(everything, await place.token("alice")))[0] == 401


async def questions(browser: aiohttp.ClientSession, place: Town) -> list[dict[str, Any]]:
    """Return the open questions that the console's event stream first shows."""
    async with browser.get(f"{place.world.console}/api/events", headers=OWN) as stream:
        name = b""
        async for line in stream.content:
            if line.startswith(b"event: "):
                name = line.strip()
            elif line.startswith(b"data: ") and name == b"event: approvals":
                found: list[dict[str, Any]] = json.loads(line[6:])
                return found
    raise AssertionError("the stream ended")


async def approve_status(browser: aiohttp.ClientSession, place: Town, id: str) -> int:
    """Return the status of approving."""
    _, state = await get(browser, f"{place.world.console}/api/state")
    headers = {**OWN, "origin": place.world.console, "webmcp-gateway-csrf": state["csrf"]}
    url = f"{place.world.console}/api/approvals/{id}"
    async with browser.post(url, json={"answer": "approve"}, headers=headers) as got:
        return got.status


@pytest.mark.parametrize("who", ["alice", "olga"])
async def test_a_person_answers_for_their_own_clients(place: Town, who: str) -> None:
    """Alice's MCP client asks; Bob's console neither shows nor answers the question; Alice's and an approver's do."""
    world = place.world
    shown = await place.token("alice", world.url)
    params = {"name": "http_request", "arguments": DELETE}
    call = mcp_call(f"{world.url}/mcp/cart", "tools/call", params, "http_request")
    async with world.client() as bob, world.client() as person, asyncio.TaskGroup() as tasks:
        await place.log_in(bob, "bob")
        await place.log_in(person, who)
        waiting = tasks.create_task(answer(call, shown))
        async with asyncio.timeout(60):
            while not (asked := await questions(person, place)):
                await asyncio.sleep(0.05)
        assert asked[0]["whose"] == (None if who == "alice" else "alice")
        assert await questions(bob, place) == []
        assert await approve_status(bob, place, asked[0]["id"]) == 410
        # the client itself cannot, with its own token
        state = await answer(Knock("GET", f"{world.console}/api/state", {}), shown)
        csrf = json.loads(state[2])["csrf"]
        own = Knock(
            "POST",
            f"{world.console}/api/approvals/{asked[0]['id']}",
            {"origin": world.console, "webmcp-gateway-csrf": csrf},
            '{"answer":"approve"}',
        )
        assert (await answer(own, shown))[0] == 403
        assert await approve_status(person, place, asked[0]["id"]) == 200
        status, _, body = await waiting
    assert status == 200
    assert b"not in the cart" in body  # the shop has answered


async def test_every_door_knows_the_same_person(place: Town) -> None:
    """With one client's token the record of each door has the same id."""
    shown = await place.token("alice", place.world.url)
    for name, knock in knocks(place.world).items():
        assert (await answer(knock, shown))[0] != 401, name
    call = mcp_call(
        f"{place.world.url}/mcp/cart",
        "tools/call",
        {"name": "http_request", "arguments": {"url": "/api/cart"}},
        "http_request",
    )
    await answer(call, shown)
    seen = {line["fields"].get("principal") for line in place.world.records() if line["fields"].get("principal")}
    assert seen == {f"{place.provider.issuer}|desktop|alice"}
    assert shown["authorization"].removeprefix("Bearer ") not in json.dumps(place.world.arrived())


async def test_a_first_key_takes_a_login_of_now(tmp_path: Path) -> None:
    """A session alone adds none, nor a login without forced reauthentication; a login with it does."""
    async with town(tmp_path, extra="approvals: {presence: webauthn}") as place, place.world.client() as browser:
        begin = f"{place.world.console}/api/keys/begin"

        async def begun() -> tuple[int, str]:
            _, state = await get(browser, f"{place.world.console}/api/state")
            headers = {**OWN, "origin": place.world.console, "webmcp-gateway-csrf": state["csrf"]}
            async with browser.post(begin, json={}, headers=headers) as got:
                return got.status, await got.text()

        await place.log_in(browser, "alice")
        status, told = await begun()
        assert (status, "login-too-old" in told) == (401, True)
        await place.log_in(browser, "alice", "&fresh=1")
        status, told = await begun()
        assert (status, "create" in told) == (200, True), told


async def test_a_logout_reaches_the_issuer_after_two_new_keys(tmp_path: Path) -> None:
    """Each rotation encrypts the login's ID token anew; it names the login that the issuer ends."""
    async with town(tmp_path) as place, place.world.client() as browser:
        await place.log_in(browser, "alice")
        for _ in range(2):
            config = str(place.world.folder / "gateway.yaml")
            rotated = await asyncio.to_thread(
                CliRunner().invoke,
                rotate_key,
                ["--config", config, "--json"],
                env={"SHOP_SECRET": SECRET},
            )
            assert (rotated.exit_code, json.loads(rotated.output)["logins"]) == (0, 1), rotated.output
        _, state = await get(browser, f"{place.world.console}/api/state")
        headers = {**OWN, "origin": place.world.console, "webmcp-gateway-csrf": state["csrf"]}
        async with browser.post(f"{place.world.console}/api/logout", headers=headers) as got:
            to = urlsplit((await got.json())["to"])
    assert f"{to.scheme}://{to.netloc}" == place.provider.issuer
    (hint,) = parse_qs(to.query)["id_token_hint"]
    assert json.loads(jws.extract_compact(hint.encode()).payload)["sub"] == "alice"

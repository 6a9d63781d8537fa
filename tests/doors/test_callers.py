"""Callers are authenticated alike at every door: tokens, links, sessions, and missing capabilities."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from gateway.fastpath import connection
from gateway.stores.schema import SESSIONS
from gateway.stores.sql import Database
from tests.callers.doors import Knock, answer, knocks, mcp_call, statuses
from tests.callers.tokens import link, revoke, token
from tests.world import World, running

NAVIGATION = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
OWN = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
CLIENT = {"webmcp-gateway-client": "1"}


@pytest.fixture
async def guarded(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Yield the cart behind a gateway that requires tokens; its parameter is `server.fast_path`."""
    async with running(tmp_path, extra="auth: [token]\n", fast_path=getattr(request, "param", True)) as world:
        yield world


both = pytest.mark.parametrize("guarded", [True, False], ids=["fast", "slow"], indirect=True)
"""With the fast path, and without."""


async def log_in(client: aiohttp.ClientSession, world: World, person: str = "local") -> None:
    """Let the browser `client` follow a login link."""
    async with client.get(await link(world, person), headers=NAVIGATION) as got:
        assert got.status == 200, await got.text()


async def get(client: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any]:
    """Return the console's answer to its own page."""
    async with client.get(url, headers={**OWN, **headers}) as got:
        return got.status, await got.json()


@both
async def test_nobody_comes_in_without_proof(guarded: World) -> None:
    """Every door answers 401, and nothing reaches the shop."""
    assert set((await statuses(guarded, {})).values()) == {401}
    assert guarded.arrived() == []


@pytest.mark.parametrize(
    "authorization",
    [
        "Bearer x",
        "Bearer wmg_" + "A" * 12 + "_" + "b" * 43,
        "Bearer ",
        "Basic bG9jYWw6bG9jYWw=",
        "Bearer a b",
        "bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJsb2NhbCJ9.",
        "Bearer " + "x" * 20000,
    ],
)
async def test_what_is_no_token_opens_no_door(guarded: World, authorization: str) -> None:
    """In any form."""
    for name, knock in knocks(guarded).items():
        status, _, _ = await answer(knock, {"authorization": authorization[:8000]})
        assert status == 401, name


async def test_a_token_opens_what_it_is_for(guarded: World) -> None:
    """A token for MCP opens `/mcp` and its mounts, and gets 403 at doors that know it without the capability."""
    found = await statuses(guarded, await token(guarded, "claude", "mcp"))
    opened = {name for name, status in found.items() if status == 200}
    assert opened == {"mcp", "mcp of an app", "mcp on the console's host", "console", "events", "record"}
    assert {found[name] for name in ("site", "site's api")} == {403}
    assert guarded.arrived() == []


async def test_a_token_is_for_one_app_where_it_says_so(guarded: World) -> None:
    """`app:cart` opens the cart's site; `app:other` does not."""
    site = knocks(guarded)["site's api"]
    assert (await answer(site, await token(guarded, "one", "app:cart")))[0] == 200
    assert (await answer(site, await token(guarded, "other", "app:other")))[0] == 403


async def test_a_revoked_or_expired_token_is_none(guarded: World) -> None:
    """At every door."""
    expired = await token(guarded, "old", "mcp", "app", life=-1.0)
    assert set((await statuses(guarded, expired)).values()) == {401}
    gone = await token(guarded, "gone", "mcp", "app")
    await revoke(guarded, "gone")
    assert set((await statuses(guarded, gone)).values()) == {401}


async def test_a_token_never_goes_out(guarded: World) -> None:
    """The shop receives the gateway's own credential; record and answers contain nothing of the token."""
    shown = await token(guarded, "site", "app", "mcp", "audit:read")
    assert (await answer(knocks(guarded)["site's api"], shown))[0] == 200
    secret = shown["authorization"].removeprefix("Bearer ")
    assert guarded.arrived()
    assert secret not in json.dumps(guarded.arrived())
    assert secret not in guarded.config.journal.read_text()
    assert secret.encode() not in (guarded.folder / "gateway.db").read_bytes()


async def test_a_token_is_not_taken_from_the_address(guarded: World) -> None:
    """RFC 6750 2.3: it would appear in logs."""
    shown = (await token(guarded, "query", "mcp"))["authorization"].removeprefix("Bearer ")
    assert (await answer(mcp_call(f"{guarded.url}/mcp?access_token={shown}"), {}))[0] == 401


async def test_a_login_link_is_good_once(guarded: World) -> None:
    """It sets a strict cookie; the second time it sets none."""
    address = await link(guarded)
    async with guarded.client() as client:
        async with client.get(address, headers=NAVIGATION) as got:
            cookie = got.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Domain" not in cookie
        status, state = await get(client, f"{guarded.console}/api/state")
        assert (status, state["principal"]["name"]) == (200, "local")
    async with guarded.client() as client, client.get(address, headers=NAVIGATION) as got:
        assert got.status == 403
        assert "set-cookie" not in got.headers


@both
async def test_a_session_is_for_its_own_site(guarded: World) -> None:
    """The console's cookie opens neither `/mcp` nor the site of an app, under any name."""
    async with guarded.client() as client:
        await log_in(client, guarded)
        value = "; ".join(f"{morsel.key}={morsel.value}" for morsel in client.cookie_jar)
    assert value
    for name, knock in knocks(guarded).items():
        if name.startswith(("mcp", "site")):
            assert (await answer(knock, {"cookie": value}))[0] == 401, name


@both
async def test_the_site_of_an_app_takes_up_the_consoles_login(guarded: World) -> None:
    """A redirect through the console, a single-use code, and a separate cookie of the site."""
    async with guarded.client() as client:
        await log_in(client, guarded)
        async with client.get(f"{guarded.site}/index.html", headers=NAVIGATION, allow_redirects=False) as got:
            to_console = got.headers["location"]
        assert to_console.startswith(f"{guarded.console}/login/site?")
        crossing = {**NAVIGATION, "sec-fetch-site": "same-origin"}
        async with client.get(to_console, headers=crossing, allow_redirects=False) as got:
            back = got.headers["location"]
        assert back.startswith(f"{guarded.site}/.well-known/webmcp-gateway/session?")
        async with client.get(back, headers={**NAVIGATION, "sec-fetch-site": "cross-site"}) as got:
            assert got.status == 200
            assert "url=/index.html" in await got.text()
        async with client.get(f"{guarded.site}/api/cart", headers=OWN) as got:
            assert got.status == 200
        async with client.get(back, headers={**NAVIGATION, "sec-fetch-site": "cross-site"}) as got:
            assert got.status == 403
    sent = json.dumps(guarded.arrived())
    assert "webmcp-gateway-session" not in sent


async def test_another_browser_cannot_use_the_code_of_a_site(guarded: World) -> None:
    """Otherwise a browser could be logged in as another person (login CSRF)."""
    async with guarded.client() as client, guarded.client() as other:
        await log_in(client, guarded)
        async with client.get(f"{guarded.site}/", headers=NAVIGATION, allow_redirects=False) as got:
            to_console = got.headers["location"]
        crossing = {**NAVIGATION, "sec-fetch-site": "same-origin"}
        async with client.get(to_console, headers=crossing, allow_redirects=False) as got:
            back = got.headers["location"]
        async with other.get(back, headers={**NAVIGATION, "sec-fetch-site": "cross-site"}) as got:
            assert got.status == 403
            assert "set-cookie" not in got.headers


async def enter_site(client: aiohttp.ClientSession, world: World) -> None:
    """Let a browser that is logged in get a session on the site of the app."""
    async with client.get(f"{world.site}/", headers=NAVIGATION, allow_redirects=False) as got:
        to_console = got.headers["location"]
    crossing = {**NAVIGATION, "sec-fetch-site": "same-origin"}
    async with client.get(to_console, headers=crossing, allow_redirects=False) as got:
        back = got.headers["location"]
    async with client.get(back, headers={**NAVIGATION, "sec-fetch-site": "cross-site"}):
        pass


async def log_out(client: aiohttp.ClientSession, world: World) -> None:
    """Log out on the console."""
    _, state = await get(client, f"{world.console}/api/state")
    headers = {**OWN, "origin": world.console, "webmcp-gateway-csrf": state["csrf"]}
    async with client.post(f"{world.console}/api/logout", headers=headers) as got:
        assert got.status == 200


@both
async def test_a_logout_counts_at_once_on_an_open_connection(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection remembers its caller for a while, but not beyond a logout."""
    monkeypatch.setattr(connection, "IDENTIFIED", 3600.0)
    opened = 0

    async def count(*_: object) -> None:
        nonlocal opened
        opened += 1

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(count)
    async with guarded.client() as client, guarded.client(limit=1, trace_configs=[tracing]) as page:
        await log_in(client, guarded)
        await enter_site(client, guarded)
        cookie = client.cookie_jar.filter_cookies(URL(guarded.site)).output(header="", sep=";")

        async def cart() -> int:
            async with page.get(f"{guarded.site}/api/cart", headers={**OWN, "cookie": cookie.strip()}) as got:
                await got.read()
                return got.status

        assert [await cart(), await cart()] == [200, 200]
        await log_out(client, guarded)
        assert (await cart(), opened) == (401, 1)


@both
async def test_logout_ends_every_session_of_the_login(guarded: World) -> None:
    """The console's and the sites' sessions; the old cookies are invalid."""
    async with guarded.client() as client:
        await log_in(client, guarded)
        await enter_site(client, guarded)
        kept = [(morsel.key, morsel.value) for morsel in client.cookie_jar]
        await log_out(client, guarded)
    cookie = "; ".join(f"{key}={value}" for key, value in dict(kept).items())
    assert (await answer(knocks(guarded)["console"], {"cookie": cookie}))[0] == 401
    sessions = {value for key, value in kept if "session" in key}
    assert len(sessions) == 2
    for value in sessions:
        name = next(key for key, given in kept if given == value)
        assert (await answer(knocks(guarded)["site's api"], {"cookie": f"{name}={value}"}))[0] == 401


async def test_a_person_sees_what_is_their_own(guarded: World) -> None:
    """Alice's console shows the records of her own clients only; the gateway's local person sees all."""
    alice = await token(guarded, "alices client", "mcp", "app", person="alice")
    bob = await token(guarded, "bobs client", "mcp", "app", person="bob")
    for shown in (alice, bob):
        assert (await answer(knocks(guarded)["site's api"], shown))[0] == 200
    async with guarded.client() as client:
        await log_in(client, guarded)
        async with asyncio.timeout(60):  # the database is filled from the journal
            while len(await principals(client, guarded)) < 2:
                await asyncio.sleep(0.05)
    async with guarded.client() as client:
        await log_in(client, guarded, "alice")
        assert await principals(client, guarded) == {"local|token:alices client|alice"}


async def principals(client: aiohttp.ClientSession, world: World) -> set[str]:
    """Return the principals whose records the console shows to `client`."""
    status, found = await get(client, f"{world.console}/api/audit")
    assert status == 200
    return {record["fields"]["principal"] for record in found["records"]}


async def test_a_login_of_elsewhere_leads_nowhere_else(guarded: World) -> None:
    """`to` must be a path of the console."""
    for to in ("//evil.test", "https://evil.test", "/\\evil.test", "javascript:alert(1)", "/%0d%0ax: y"):
        async with guarded.client() as client:
            address = f"{await link(guarded)}&to={to}"
            async with client.get(address, headers=NAVIGATION, allow_redirects=False) as got:
                text = await got.text()
                assert "evil.test" not in text
                assert "javascript" not in text


async def test_tokens_for_mcp_answer_no_approval(guarded: World) -> None:
    """Nor does any token without the capability for it, for its own person either."""
    shown = await token(guarded, "program", "bridge", "app", "audit:read")
    async with guarded.client() as client:
        status, state = await get(client, f"{guarded.console}/api/state", **shown)
        assert status == 200
        assert state["may"] == {"answer": False, "logout": False}


async def test_metrics_are_for_admins(guarded: World) -> None:
    """From another machine; a client's token does not grant them there."""
    knock = Knock("GET", f"{guarded.url}/metrics", {"x-forwarded-for": "203.0.113.9"})
    assert (await answer(knock, {}))[0] == 403
    assert (await answer(knock, await token(guarded, "claude", "mcp")))[0] == 403
    assert (await answer(knock, await token(guarded, "prometheus", "admin")))[0] == 200


async def test_a_link_that_another_site_opens_logs_nobody_in_by_itself(guarded: World) -> None:
    """Its maker would choose the browser's identity; a person may still confirm."""
    async with guarded.client() as browser:
        url = await link(guarded, "mallory")
        for where in ("cross-site", "same-site"):
            async with browser.get(url, headers={**NAVIGATION, "sec-fetch-site": where}) as got:
                assert "Another web site opened this login link" in await got.text()
                assert "set-cookie" not in got.headers
        async with browser.get(url, headers={**NAVIGATION, "sec-fetch-site": "same-origin"}) as got:
            assert "session" in got.headers["set-cookie"]


async def test_a_token_chooses_no_accounts(guarded: World) -> None:
    """A model's client that holds a person's token can neither connect nor disconnect accounts for them."""
    shown = await token(guarded, "claude", "mcp")
    _, _, body = await answer(Knock("GET", f"{guarded.console}/api/state", {}), shown)
    headers = {**shown, "webmcp-gateway-csrf": json.loads(body)["csrf"]}
    for path in ("finish", "shop-account", "shop-account/disconnect"):
        knock = Knock("POST", f"{guarded.console}/api/connections/{path}", headers, '{"secret": "x"}')
        status, _, body = await answer(knock, {})
        assert (status, json.loads(body)["type"]) == (403, "urn:webmcp-gateway:not-allowed"), path


async def test_a_client_does_not_see_what_another_client_of_its_person_does(guarded: World) -> None:
    """The record and the questions of all clients are for the person, on the console."""
    one, other = await token(guarded, "one", "mcp"), await token(guarded, "other", "mcp")
    arguments = {"url": "/api/products", "method": "GET"}
    params = {"name": "http_request", "arguments": arguments}
    call = mcp_call(f"{guarded.url}/mcp/cart", "tools/call", params, "http_request")
    assert (await answer(call, one))[0] == 200

    async def lines(headers: dict[str, str]) -> list[bytes]:
        """Return the lines of the record in the event stream, up to the first event of another kind."""
        found: list[bytes] = []
        async with guarded.client() as client, client.get(f"{guarded.console}/api/events", headers=headers) as got:
            name = b""
            async for line in got.content:
                if line.startswith(b"event: "):
                    name = line.strip()
                if name not in (b"", b"event: record"):
                    return found
                if line.startswith(b"data: "):
                    found.append(line)
        return found

    assert any(b"/api/products" in line for line in await lines(one))
    assert not await lines(other)
    async with guarded.client() as browser:
        await log_in(browser, guarded)
        async with browser.get(f"{guarded.console}/api/events", headers=OWN) as got:
            assert b"event: record" in await got.content.readline()


async def test_holders_of_a_shared_token_do_not_find_each_others_views(guarded: World) -> None:
    """Views are listed by their handle alone, and their tools never by name."""
    shown = await token(guarded, "kiosk", "mcp", person=None)

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        _, _, body = await answer(mcp_call(f"{guarded.url}/mcp/cart", "tools/call", params, tool), shown)
        found: dict[str, Any] = json.loads(body)["result"]
        return found

    opened = await call("open_cart")
    attached = (await call("webmcp_attach", launch=opened["_meta"]["webmcp-gateway/launch"]))["structuredContent"]
    assert (await call("list_view_tools"))["structuredContent"] == {"views": []}
    found = (await call("list_view_tools", view=attached["view"]))["structuredContent"]["views"]
    assert [view["view"] for view in found] == [attached["view"]]


async def test_what_is_open_ends_with_its_token(guarded: World) -> None:
    """A stream of the console, one of MCP, a WebSocket of the bridge, and a call that waits for a person."""
    shown = await token(guarded, "gone", "mcp", "bridge", "app")
    call = mcp_call(
        f"{guarded.url}/mcp/cart",
        "tools/call",
        {"name": "http_request", "arguments": {"url": "/api/cart/mug", "method": "DELETE"}},
        "http_request",
    )
    async with guarded.client(headers=shown) as client:
        _, state = await get(client, f"{guarded.console}/api/state")
        csrf = {**OWN, "origin": guarded.console, "webmcp-gateway-csrf": state["csrf"]}
        async with client.post(f"{guarded.console}/bridge/tickets", json={"apps": ["cart"]}, headers=csrf) as got:
            ticket = (await got.json())["ticket"]
        events = await client.get(f"{guarded.console}/api/events", headers=OWN)
        socket = await client.ws_connect(
            f"{guarded.console}/bridge", headers={**OWN, "origin": guarded.console}, protocols=("webmcp-gateway.v1",)
        )
        await socket.send_str(json.dumps({"hello": {"ticket": ticket}}))
        await socket.send_str(json.dumps({"open": {"ref": "1", "app": "cart"}}))
        assert "opened" in await socket.receive_str()
        waiting = asyncio.ensure_future(answer(call, shown))
        async for line in events.content:  # until the call waits for a person
            if b'"target"' in line:
                break
        await revoke(guarded, "gone")
        async with asyncio.timeout(60):
            with pytest.raises(aiohttp.ClientError):
                await waiting
            with pytest.raises(aiohttp.ClientError):
                await events.content.read()
            events.close()
            while (received := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                pass
            assert received.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    assert guarded.arrived() == []


async def test_what_is_open_ends_with_its_login(guarded: World) -> None:
    """Also if another process of the gateway ended the login."""
    async with guarded.client() as client:
        await log_in(client, guarded)
        events = await client.get(f"{guarded.console}/api/events", headers=OWN)
        async with Database(guarded.config.database.reveal()) as database, database.connect() as connection:
            await connection.execute(SESSIONS.delete())
            await connection.commit()
        async with asyncio.timeout(60):
            with pytest.raises(aiohttp.ClientError):
                await events.content.read()
            events.close()

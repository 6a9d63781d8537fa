"""Issuers of access tokens: metadata for clients, key rotation, dead and malicious servers, opaque tokens, roles."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.caches import EACH
from gateway.callers.methods import OAuthIssuer, Roles
from gateway.credentials import ALGORITHMS
from gateway.doors import client_limits, issuers
from gateway.doors.issuers import EARLY_FETCHES, REMEMBERED
from gateway.doors.issuers import Issuer as Taker
from gateway.errors import Unidentified
from gateway.model import Secret
from gateway.policy import Network, Rate, parse_network
from tests.callers.doors import Knock, answer, knocks, mcp_call, statuses
from tests.callers.issuer import Issuer, issuer
from tests.leaks.marks import MARK
from tests.world import World, running

AUTH = """
auth:
  - {{type: oauth, issuer: "{issuer}", network: private, scope: [mcp:use],
      client_id: gateway, client_secret: s3cret-k4naRieZq9}}
roles: {{approver: [ops], admin: [root], auditor: [audit]}}
upstreams: {{everything: {{server: "tests.interop.everything:server"}}}}
"""


@pytest.fixture
async def evil() -> AsyncIterator[Issuer]:
    """Yield the issuer."""
    async with issuer() as started:
        yield started


@pytest.fixture
async def guarded(tmp_path: Path, evil: Issuer) -> AsyncIterator[World]:
    """Yield the cart behind a gateway that accepts the issuer's tokens."""
    async with running(tmp_path, extra=AUTH.format(issuer=evil.url)) as world:
        yield world


def bearer(token: str) -> dict[str, str]:
    """Return the header with this token."""
    return {"authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", ["", "/mcp", "/mcp/cart"])
async def test_a_client_learns_where_to_get_a_token(guarded: World, evil: Issuer, path: str) -> None:
    """The 401 of each mount names the metadata of that very mount (RFC 9728 3.3)."""
    document = f"{guarded.url}/.well-known/oauth-protected-resource{path}"
    if path:
        status, headers, _ = await answer(mcp_call(f"{guarded.url}{path}"), {})
        challenge = headers["WWW-Authenticate"]
        assert status == 401
        assert f'resource_metadata="{document}"' in challenge
        assert 'scope="mcp:use"' in challenge
        assert "error=" not in challenge
    status, _, body = await answer(Knock("GET", document, {}), {})
    told = json.loads(body)
    assert (status, told["resource"]) == (200, f"{guarded.url}{path}")
    assert told["authorization_servers"] == [evil.url]
    assert told["scopes_supported"] == ["mcp:use"]


async def test_there_are_no_metadata_of_what_is_not_there(guarded: World) -> None:
    """For a mount that does not exist, or without a configured issuer."""
    unknown = Knock("GET", f"{guarded.url}/.well-known/oauth-protected-resource/mcp/none", {})
    assert (await answer(unknown, {}))[0] == 404


async def test_a_wrong_token_is_told_so(guarded: World, evil: Issuer) -> None:
    """RFC 6750 3.1: `invalid_token`, and `insufficient_scope` with 403."""
    expired = evil.sign(evil.claims(guarded.url, exp=1))
    _, headers, _ = await answer(mcp_call(f"{guarded.url}/mcp"), bearer(expired))
    assert 'error="invalid_token"' in headers["WWW-Authenticate"]
    status, headers, _ = await answer(mcp_call(f"{guarded.url}/mcp"), bearer(evil.sign(evil.claims(guarded.url))))
    assert status == 403
    assert 'error="insufficient_scope"' in headers["WWW-Authenticate"]


@pytest.mark.parametrize("mount", ["/mcp", "/mcp/cart", "/mcp/everything"])
@pytest.mark.parametrize("token", ["", "Bearer none"])
@pytest.mark.bound("body bytes of an unauthenticated caller")
async def test_nothing_of_a_strangers_large_call_is_waited_for(guarded: World, mount: str, token: str) -> None:
    """It is refused after its head, before its body arrives or is stored."""
    fields = {
        "host": f"localhost:{guarded.gateway.port}",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "content-length": "1000000",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "http_request" if mount != "/mcp/everything" else "test_simple_text",
        **({"authorization": token} if token else {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", guarded.gateway.port)
    writer.write(f"POST {mount} HTTP/1.1\r\n{head}\r\n{{".encode())
    async with asyncio.timeout(60):
        assert (await reader.readline()).split()[1] == b"401"
    writer.close()


async def test_a_token_for_one_mount_is_for_no_other(guarded: World, evil: Issuer) -> None:
    """The audience of a token is the resource that the client requested it for (RFC 8707)."""
    shown = bearer(evil.sign(evil.claims(f"{guarded.url}/mcp/cart", scope="mcp:use")))
    found = {name: (await answer(knock, shown))[0] for name, knock in knocks(guarded).items()}
    assert {name for name, status in found.items() if status == 200} == {"mcp of an app"}
    assert set(found.values()) == {200, 401}


async def test_roles_of_a_token_never_answer_or_administer(guarded: World, evil: Issuer) -> None:
    """A model's client holds it: these need a login, or a token issued for them."""
    shown = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use", roles=["ops", "root"])))
    _, _, body = await answer(knocks(guarded)["console"], shown)
    assert json.loads(body)["may"]["answer"] is False
    metrics = Knock("GET", f"{guarded.url}/metrics", {"x-forwarded-for": "203.0.113.9"})
    assert (await answer(metrics, shown))[0] == 200  # an administrator may read the record, and therefore the metrics
    plain = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use")))
    assert (await answer(metrics, plain))[0] == 403


async def test_a_rotated_key_is_found_and_the_old_one_forgotten(guarded: World, evil: Issuer) -> None:
    """At every door without a restart; tokens of the old key are then refused."""
    old = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use")))
    assert 401 not in (await statuses(guarded, old)).values()
    evil.rotate("rsa-new")
    new = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use"), "rsa-new"))
    assert 401 not in (await statuses(guarded, new)).values()
    again = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use", jti="again")))
    assert set((await statuses(guarded, again)).values()) == {401}


async def test_unknown_keys_do_not_make_the_gateway_ask_for_ever(
    guarded: World, evil: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many tokens name an unknown key at the same time."""
    monkeypatch.setattr(issuers, "EARLY_FETCH_SPACING", 3600.0)
    tokens = [evil.sign(evil.claims(guarded.url), kid=f"unknown-{number}") for number in range(40)]
    await asyncio.gather(*(answer(mcp_call(f"{guarded.url}/mcp"), bearer(token)) for token in tokens))
    assert evil.asked["/jwks"] <= 1 + EARLY_FETCHES


async def test_many_callers_ask_for_the_keys_once(guarded: World, evil: Issuer) -> None:
    """The first callers that arrive together share one fetch."""
    tokens = [evil.sign(evil.claims(guarded.url, scope="mcp:use", jti=str(number))) for number in range(20)]
    found = await asyncio.gather(*(answer(mcp_call(f"{guarded.url}/mcp"), bearer(token)) for token in tokens))
    assert {status for status, _, _ in found} == {200}
    assert evil.asked["/jwks"] == 1


@pytest.mark.parametrize("lie", ["dead", "issuer", "redirect", "large", "no-keys", "http-keys", "private", "secret"])
async def test_a_dead_or_lying_issuer_lets_nobody_in(guarded: World, evil: Issuer, lie: str) -> None:
    """503 if the issuer fails, since it is not the caller's fault, or 401 if its keys are unusable."""
    match lie:
        case "dead":
            evil.status = 500
        case "issuer":
            evil.metadata["issuer"] = "https://evil.test"
        case "redirect":
            evil.redirect = "http://127.0.0.1:1/jwks"
        case "large":
            evil.padding = 300_000
        case "no-keys":
            del evil.metadata["jwks_uri"]
        case "http-keys":
            evil.metadata["jwks_uri"] = "http://keys.test/jwks"
        case "private":
            evil.published = [{**evil.keys["rsa"].as_dict(private=True), "kid": "rsa"}]
        case _:
            evil.published = [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}]
    token = evil.sign(evil.claims(guarded.url, scope="mcp:use"))
    expected = 401 if lie in ("private", "secret") else 503
    for name, knock in knocks(guarded).items():
        assert (await answer(knock, bearer(token)))[0] == expected, name
    assert guarded.arrived() == []


async def test_the_log_says_why_an_issuer_cannot_be_reached(
    tmp_path: Path, evil: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the setting that would admit its address; the caller learns only that it does not answer."""
    settings = AUTH.format(issuer=evil.url).replace("network: private, ", "")
    async with running(tmp_path, extra=settings) as world:
        for _ in range(2):
            status, _, text = await answer(mcp_call(f"{world.url}/mcp"), bearer(good(evil, world, "1")))
            assert status == 503
            assert b"its `network`" not in text
    lines = [record.getMessage() for record in caplog.records if record.name == issuers.__name__]
    assert [line for line in lines if "metadata" in line] == lines[:1]
    assert f"issuer {evil.url}: metadata: The authorization server does not answer. " in lines[0]
    assert "at an address that its `network` does not allow" in lines[0]


async def test_keys_that_are_known_outlive_their_server(guarded: World, evil: Issuer) -> None:
    """For a limited time."""
    assert (await answer(mcp_call(f"{guarded.url}/mcp"), bearer(good(evil, guarded, "1"))))[0] == 200
    evil.status = 500
    assert (await answer(mcp_call(f"{guarded.url}/mcp"), bearer(good(evil, guarded, "2"))))[0] == 200


def good(evil: Issuer, world: World, id: str) -> str:
    """Return a valid token."""
    return evil.sign(evil.claims(world.url, scope="mcp:use", jti=id))


async def test_opaque_tokens_are_introspected(evil: Issuer, http_client: str) -> None:
    """Once while cached; only an active token for this gateway that is not sender-constrained."""
    spec = oauth(evil)
    claims = evil.claims("https://gateway.test")
    texts = {name: str(value) if name in ("exp", "iat", "nbf") else value for name, value in claims.items()}
    evil.introspected = {
        "good": {**evil.claims("https://gateway.test"), "active": True, "token_type": "Bearer"},
        "other": {**evil.claims("https://other.test"), "active": True},
        "foreign": {**evil.claims("https://gateway.test", iss="https://evil.test"), "active": True},
        "bound": {**evil.claims("https://gateway.test"), "active": True, "cnf": {"jkt": "x"}},
        "dpop": {**evil.claims("https://gateway.test"), "active": True, "token_type": "DPoP"},
        "text": {**evil.claims("https://gateway.test"), "active": "true"},
        "number": {**evil.claims("https://gateway.test"), "active": 1},
        "null": {**evil.claims("https://gateway.test"), "active": None},
        "silent": evil.claims("https://gateway.test"),
        "endless": {**evil.claims("https://gateway.test", exp=None), "active": True},
        "texts": {**texts, "active": True, "token_type": None},
        "expired": {**texts, "exp": "1000000000", "active": True},
        "never": {**texts, "exp": 10**400, "active": True},
        "later": {**texts, "nbf": "9999999999", "active": True},
    }
    async with Connections(use_aiohttp=http_client == "aiohttp") as connections:
        taker = Taker(spec, Roles(), HttpBackend(_Named("auth", parse_network(["private"])), connections))
        found = {}
        for token in (*evil.introspected, "unknown", "good"):
            try:
                principal = await taker.principal(token, frozenset())
                found[token] = principal.subject if principal is not None else None
            except Unidentified as error:
                found[token] = str(error.status)
    assert found == {
        "good": "alice",
        "other": "401",
        "foreign": "401",
        "bound": "401",
        "dpop": None,
        "text": "503",
        "number": "503",
        "null": "503",
        "silent": "503",
        "endless": "401",
        "texts": "alice",
        "expired": "401",
        "never": "401",
        "later": "401",
        "unknown": None,
    }
    assert evil.asked["/introspect"] == 15


async def test_who_was_good_is_no_guess(evil: Issuer) -> None:
    """Also among others' guesses from its address; and no guess is counted while introspection is impossible."""
    now, asked = 0.0, list[str]()
    evil.introspected["good"] = {**evil.claims("https://gateway.test"), "active": True}

    async def may_ask() -> bool:
        asked.append(token)
        return not asked[1:]

    async with Connections() as connections:
        backend = HttpBackend(_Named("auth", parse_network(["private"])), connections)
        taker = Taker(oauth(evil), Roles(), backend, steady=lambda: now)
        for token in ("good", "other", "good"):
            assert (await taker.principal(token, frozenset(), may_ask) is not None) is (token == "good")
            now += REMEMBERED
        assert (asked, evil.asked["/introspect"]) == (["good", "other"], 2)
        evil.status = 500
        with pytest.raises(Unidentified):
            await Taker(oauth(evil), Roles(), backend).principal("new", frozenset(), may_ask)
        assert asked == ["good", "other"]


@pytest.mark.bound(
    "opaque tokens of open streams, introspected repeatedly",
    "cached look-ups of tokens and logins",
)
async def test_who_shows_many_tokens_ends_nothing_of_others(evil: Issuer) -> None:
    """Only the owner's own cached results are evicted; an open stream of the owner stays, too."""
    now, many = 0.0, EACH + 50
    evil.introspected["ann"] = {**evil.claims("https://gateway.test", sub="ann"), "active": True}
    for number in range(many):
        evil.introspected[f"eve-{number}"] = {**evil.claims("https://gateway.test", sub="eve"), "active": True}
    async with Connections() as connections:
        backend = HttpBackend(_Named("auth", parse_network(["private"])), connections)
        taker = Taker(oauth(evil), Roles(), backend, steady=lambda: now)
        ann = await taker.principal("ann", frozenset())
        assert ann is not None
        proofs = []
        for number in range(many):
            eve = await taker.principal(f"eve-{number}", frozenset())
            assert eve is not None
            proofs.append(eve.proof.partition(":")[2])
            assert await taker.active(proofs[0], anew=False) is True  # her first stream is checked all the time
        asked = evil.asked["/introspect"]
        assert await taker.principal("ann", frozenset()) == ann
        assert evil.asked["/introspect"] == asked
        now += REMEMBERED
        assert await taker.active(ann.proof.partition(":")[2], anew=True) is True
        known = [await taker.active(proof, anew=False) is not None for proof in proofs]
        assert known == [True, *[False] * 50, *[True] * (EACH - 1)]


async def test_wrong_tokens_make_the_gateway_ask_so_often_for_an_address(
    tmp_path: Path, evil: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted over all doors. Cached and signed tokens still work there, and other addresses have their own limit."""
    monkeypatch.setattr(client_limits, "WRONG", Rate(5, 3600.0))
    extra = AUTH.replace("client_id", "introspection: true, client_id").format(issuer=evil.url)
    here, there = {"x-forwarded-for": "2001:db8::1"}, {"x-forwarded-for": "2001:db8:0:1::1"}
    async with running(tmp_path, extra=extra) as world:
        file = tmp_path / "gateway.yaml"
        file.write_text(
            file.read_text("utf-8").replace("listen:", "trusted_proxies: [127.0.0.1]\n  listen:", 1), "utf-8"
        )
        await world.gateway.stop()
        await world.start_gateway()
        for number in range(20):
            claims = evil.claims(world.url, scope="mcp:use", sub=f"person-{number}")
            evil.introspected[f"good-{number}"] = {**claims, "active": True}
            assert (await answer(mcp_call(f"{world.url}/mcp"), {**here, **bearer(f"good-{number}")}))[0] == 200
        calls = [mcp_call(f"{world.url}/mcp") for _ in range(20)]
        shown = [{"x-forwarded-for": f"2001:db8::{number}", **bearer(f"wrong-{number}")} for number in range(20)]
        found = await asyncio.gather(*(answer(call, headers) for call, headers in zip(calls, shown, strict=True)))
        assert sorted(status for status, _, _ in found) == [401] * 5 + [429] * 15
        assert {headers.get("Retry-After") for status, headers, _ in found if status == 429} == {"1"}
        assert set((await statuses(world, {**here, **bearer("another")})).values()) == {429}
        assert evil.asked["/introspect"] == 20 + 5
        known = [bearer("good-1"), bearer(evil.sign(evil.claims(world.url, scope="mcp:use")))]
        for headers in known:
            assert (await answer(calls[0], {**here, **headers}))[0] == 200
        evil.introspected["late"] = evil.introspected["good-1"]
        assert (await answer(calls[0], {**here, **bearer("late")}))[0] == 429
        assert (await answer(calls[0], {**there, **bearer("late")}))[0] == 200


@pytest.mark.parametrize("fast_path", ["true", "false"])
async def test_a_wrong_token_is_introspected_and_counted_once(tmp_path: Path, evil: Issuer, fast_path: str) -> None:
    """Also where the fast path reads the request first, and leaves the refusal to aiohttp's handlers."""
    extra = AUTH.replace("client_id", "introspection: true, client_id").format(issuer=evil.url)
    async with running(tmp_path, extra=extra) as world:
        file = tmp_path / "gateway.yaml"
        file.write_text(file.read_text("utf-8").replace("listen:", f"fast_path: {fast_path}\n  listen:", 1), "utf-8")
        await world.gateway.stop()
        await world.start_gateway()
        call = mcp_call(f"{world.url}/mcp/cart", "tools/call", {"name": "http_request", "arguments": {"_view": "x"}})
        call.headers["mcp-name"] = "http_request"
        for number, knock in enumerate((call, knocks(world)["site's api"]), 1):
            assert (await answer(knock, bearer(f"wrong-{number}")))[0] == 401
            assert evil.asked["/introspect"] == number
        evil.status = 500
        assert (await answer(call, bearer("wrong-3")))[0] == 503
        assert evil.asked["/introspect"] == 3


@pytest.mark.parametrize("dead", [0, 1])
async def test_an_issuer_that_is_away_locks_out_nobody_of_another(tmp_path: Path, dead: int) -> None:
    """In any order in the configuration; a token that the unavailable issuer may know is not called invalid."""
    async with issuer() as first, issuer() as second:
        entry = (
            '  - {{type: oauth, issuer: "{}", network: private, introspection: true, client_id: g, client_secret: s}}\n'
        )
        extra = "auth:\n" + entry.format(first.url) + entry.format(second.url)
        async with running(tmp_path, extra=extra) as world:
            for number, server in enumerate((first, second)):
                server.introspected[f"of-{number}"] = {**server.claims(world.url), "active": True}
            (first, second)[dead].status = 500
            found = [(await answer(mcp_call(f"{world.url}/mcp"), bearer(f"of-{number}")))[0] for number in (0, 1)]
            assert found == ([503, 200] if dead == 0 else [200, 503])
            assert (await answer(mcp_call(f"{world.url}/mcp"), bearer("wrong")))[0] == 503


def oauth(evil: Issuer, **more: Any) -> OAuthIssuer:
    """Return an `oauth` method with the optional keys."""
    said: dict[str, Any] = {
        "issuer": evil.url,
        "audience": ("https://gateway.test",),
        "algorithms": ALGORITHMS,
        "scope": (),
        "roles_claim": "roles",
        "client_id": "gateway",
        "client_secret": Secret(f"s3cret-{MARK}"),
        "login_scope": ("openid",),
        "introspection": True,
        "skew": 30.0,
        "session": 3600.0,
        "logout_there": True,
        "network": parse_network(["private"]),
    }
    return OAuthIssuer(**{**said, **more})


class _Named:
    def __init__(self, name: str, network: Network) -> None:
        self.name = name
        self.network = network


@pytest.mark.parametrize("mount", ["/mcp", "/mcp/cart", "/mcp/everything"])
async def test_a_session_of_mcp_is_its_principals_alone(guarded: World, evil: Issuer, mount: str) -> None:
    """Another person with its id can neither call, nor listen, nor end it (protocol 2025-11-25)."""
    url = f"{guarded.url}{mount}"
    alice = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use")))
    mallory = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use", sub="mallory")))
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    said = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with aiohttp.ClientSession() as client:
        async with client.post(url, json=said, headers={**headers, **alice}) as got:
            assert got.status == 200, await got.text()
            session = {"mcp-session-id": got.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        listed = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
        for method in ("GET", "DELETE"):
            async with client.request(method, url, headers={**headers, **session, **mallory}) as got:
                assert got.status == 404, method
        for shown, expected in ((mallory, 404), ({}, 401), (alice, 200)):
            async with client.post(url, json=listed, headers={**headers, **session, **shown}) as got:
                assert got.status == expected, shown


async def test_a_view_is_its_principals_alone(guarded: World, evil: Issuer) -> None:
    """Another person gets nothing with its handle, its proof or its launch value; nor does their own client."""

    async def call(shown: dict[str, str], tool: str, /, **arguments: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        _, _, body = await answer(mcp_call(f"{guarded.url}/mcp/cart", "tools/call", params, tool), shown)
        found: dict[str, Any] = json.loads(body)["result"]
        return found

    alice = bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use")))
    others = [
        bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use", sub="mallory"))),
        bearer(evil.sign(evil.claims(guarded.url, scope="mcp:use", client_id="tablet"))),
    ]
    launch = (await call(alice, "open_cart"))["_meta"]["webmcp-gateway/launch"]
    for other in others:
        taken = (await call(other, "webmcp_attach", launch=launch)).get("structuredContent", {})
        assert taken.get("proven") is not True
    attached = (await call(alice, "webmcp_attach", launch=launch))["structuredContent"]
    assert attached["proven"] is True
    key = base64.urlsafe_b64decode(attached["key"] + "=")
    signature = base64.urlsafe_b64encode(hmac.digest(key, b"1", hashlib.sha256)).rstrip(b"=").decode()
    for other in others:
        listed = (await call(other, "list_view_tools", view=attached["view"]))["structuredContent"]
        assert listed == {"views": []}
        gone = await call(other, "call_view_tool", view=attached["view"], tool="add_to_cart", arguments={})
        assert gone["isError"] is True
        proof = f"{attached['view']}.1.{signature}"
        stolen = (await call(other, "http_request", url="/api/cart", _view=proof))["structuredContent"]
        assert (stolen["status"], stolen["headers"]["gateway-reason"]) == (403, "view-unproven")
    assert guarded.arrived() == []

"""Pages of other origins that show views: the tokens that their back ends exchange, and the doors that take these."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

import aiohttp
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey

from gateway import mux
from gateway.callers import token_exchange
from gateway.callers.methods import HostSite
from gateway.callers.token_exchange import ACCESS_TOKEN, ASSERTION, GRANT, PREFIX
from gateway.doors import client_limits, host_pages, issuers
from gateway.doors.host_pages import LONGEST_TOKEN, HostPages
from gateway.model import Channel, Principal, Secret
from gateway.policy import Rate
from gateway.stores.sealing import GivenKeys, KeyRing, new_key
from tests.callers.doors import statuses
from tests.callers.issuer import Issuer, issuer
from tests.clock import Clock
from tests.world import World, running

CHAT, CANVAS, EVIL = "http://chat.example.localhost:7777", "http://canvas.localhost:7777", "https://evil.example"
SECRET = "the secret of the chat: 100%+"
HOSTS = f"""
hosts:
  - {{origin: '{CHAT}', name: Company chat, apps: [cart], issuer: '{{issuer}}', client_id: chat,
     client_secret: '{SECRET}'}}
  - {{origin: '{CANVAS}', apps: [cart], attest: true, issuer: '{{issuer}}', client_id: canvas, jwks: canvas.json}}
auth:
  - {{type: oauth, issuer: '{{issuer}}', audience: https://gateway.example, network: private, introspection: true,
     client_id: gateway, client_secret: gateway-secret}}
roles: {{approver: [ops], admin: [ops]}}
"""


Answer: TypeAlias = tuple[int, dict[str, Any]]


@dataclass
class Hosted:
    """A gateway with two host sites, and the issuer of their people."""

    world: World
    issuer: Issuer
    key: ECKey

    def subject(self, **more: Any) -> str:
        """An access token of Alice, who is an approver and administrator."""
        return self.issuer.sign(self.issuer.claims("https://gateway.example", roles=["ops"], **more))

    def assertion(self, **more: Any) -> str:
        """The assertion of the canvas's back end."""
        now = int(time.time())
        claims = {"iss": "canvas", "sub": "canvas", "aud": f"{self.world.url}/oauth/token", "exp": now + 60, "jti": "1"}
        return jwt.encode({"alg": "ES256", "kid": "c"}, {**claims, **more}, self.key, algorithms=["ES256"])

    async def ask(self, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Answer:
        """Send a token request as it is."""
        url = f"{self.world.url}/oauth/token"
        async with self.world.client() as http, http.post(url, data=dict(form), headers=headers) as answer:
            found: dict[str, Any] = await answer.json()
            assert answer.headers["cache-control"] == "no-store"
            return answer.status, found

    async def ticket(self, headers: Mapping[str, str]) -> int:
        """The status of a page's request for a ticket."""
        url = f"{self.world.console}/bridge/tickets"
        async with self.world.client() as http, http.post(url, json={"apps": ["cart"]}, headers=headers) as answer:
            return answer.status

    async def exchange(self, **more: str | None) -> Answer:
        """Exchange Alice's token as the chat's back end; parameters that are given as None are left out."""
        form = {"grant_type": GRANT, "subject_token": self.subject(), "subject_token_type": ACCESS_TOKEN, **more}
        return await self.ask({name: value for name, value in form.items() if value is not None}, basic("chat", SECRET))

    async def token(self) -> dict[str, str]:
        """The headers of a page of the chat."""
        status, answer = await self.exchange()
        assert status == 200, answer
        return page(answer["access_token"])


def basic(id: str, secret: str) -> dict[str, str]:
    """The header with which a back end authenticates."""
    quoted = ":".join(quote_plus(part) for part in (id, secret))
    return {"authorization": f"Basic {base64.b64encode(quoted.encode()).decode()}"}


def page(token: str, origin: str = CHAT) -> dict[str, str]:
    """The headers of a request that a browser sends for a page of `origin`."""
    return {"authorization": f"Bearer {token}", "origin": origin, "sec-fetch-site": "cross-site"}


@asynccontextmanager
async def hosted(folder: Path, **options: Any) -> AsyncIterator[Hosted]:
    """The cart behind a gateway with both host sites."""
    key = ECKey.generate_key("P-256")
    (folder / "canvas.json").write_text(json.dumps({"keys": [{**key.as_dict(private=False), "kid": "c"}]}))
    async with issuer() as made, running(folder, extra=HOSTS.replace("{issuer}", made.url), **options) as world:
        yield Hosted(world, made, key)


async def socket_of(
    world: World, headers: Mapping[str, str], http: aiohttp.ClientSession
) -> tuple[aiohttp.ClientWebSocketResponse, mux.ClientConnection]:
    """A page's WebSocket, after its greeting."""
    async with http.post(f"{world.console}/bridge/tickets", json={"apps": ["cart"]}, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        ticket = (await answer.json())["ticket"]
    socket = await http.ws_connect(
        f"{world.console}/bridge", protocols=["webmcp-gateway.v1"], headers={"origin": headers["origin"]}
    )
    connection = mux.ClientConnection()
    for frame in (mux.Hello(ticket), mux.Open("r1", "cart")):
        connection.send(frame)
    for text in connection.pending_output():
        await socket.send_str(text)
    return socket, connection


async def call(
    socket: aiohttp.ClientWebSocketResponse, connection: mux.ClientConnection, **message: Any
) -> tuple[mux.Opened, dict[str, Any]]:
    """Return the opened view, and its answer to one request."""
    opened: mux.Opened | None = None
    while True:
        for frame in connection.receive_data(await socket.receive_str(timeout=60)):
            if isinstance(frame, mux.Opened):
                opened = frame
                connection.send(mux.Message(frame.view, Channel.UI, {"jsonrpc": "2.0", "id": 1, **message}))
                for text in connection.pending_output():
                    await socket.send_str(text)
            elif isinstance(frame, mux.Message) and frame.message.get("id") == 1 and frame.channel is Channel.UI:
                assert opened is not None
                return opened, frame.message
            assert not isinstance(frame, mux.ErrorFrame), frame


REQUEST = {"method": "tools/call", "params": {"name": "http_request", "arguments": {"url": "/api/cart"}}}


async def test_a_page_of_another_origin_shows_views_for_its_person(tmp_path: Path) -> None:
    """With a token of five minutes: the sandbox's address, a view, its requests, with the back end in the record."""
    async with hosted(tmp_path) as host, host.world.client() as http:
        world = host.world
        async with http.get(f"{world.url}/.well-known/oauth-authorization-server") as answer:
            metadata = await answer.json()
        assert (metadata["issuer"], metadata["token_endpoint"]) == (world.url, f"{world.url}/oauth/token")
        assert metadata["grant_types_supported"] == [GRANT]
        status, told = await host.exchange(scope="bridge:cart", audience=world.console)
        assert status == 200
        assert told.pop("access_token").startswith("wmh_")
        assert told == {
            "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": told["expires_in"],
            "scope": "bridge:cart",
        }
        assert 290 < told["expires_in"] <= 300
        headers = await host.token()
        preflight = {
            "origin": CHAT,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization",
            "sec-fetch-site": "cross-site",
        }
        async with http.options(f"{world.console}/bridge/tickets", headers=preflight) as answer:
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, CHAT)
            assert "access-control-allow-credentials" not in answer.headers
        async with http.get(f"{world.console}/api/state", headers=headers) as answer:
            state = await answer.json()
            assert (answer.headers["access-control-allow-origin"], answer.headers["vary"]) == (CHAT, "origin")
        assert set(state) == {"principal", "sandbox", "apps", "upstreams", "host"}
        query = parse_qs(urlsplit(state["apps"][0]["sandbox_url"]).query)
        assert query["host"] == [CHAT]
        assert query["csp"][0].endswith(f"frame-ancestors {CHAT}")
        framed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
        async with http.get(state["apps"][0]["sandbox_url"], headers=framed) as answer:
            assert answer.headers["content-security-policy"].endswith(f"frame-ancestors {CHAT}")
        socket, connection = await socket_of(world, headers, http)
        opened, answered = await call(socket, connection, **REQUEST)
        assert answered["result"]["structuredContent"]["status"] in (200, 401), answered
        for offer in ({"url": "https://evil.example/"}, {"files": [{"name": "a", "size": 1}], "answered": False}):
            kind, body = "links" if "url" in offer else "downloads", {"view": opened.view, **offer}
            async with http.post(f"{world.console}/api/{kind}", json=body, headers=headers) as answer:
                assert answer.status == (403 if kind == "links" else 200)  # the policy allows no such link
        await socket.close()
        lines = [line["fields"] for line in world.records()]
        sent = next(one for one in lines if one.get("url") == "/api/cart")
        assert (sent["act"], sent["principal"].endswith("|desktop|alice"), sent["initiator"]) == ("chat", True, "page")
        traded = next(one for one in lines if one["kind"] == "exchange")
        assert (traded["act"], traded["origin"], traded["scope"]) == ("chat", CHAT, ["bridge:cart"])


async def test_a_token_of_a_page_is_good_for_its_origin_and_bridge_alone(tmp_path: Path) -> None:
    """Not at any other door, not of another origin, not without one; it never goes out, and never approves."""
    async with hosted(tmp_path) as host, host.world.client() as http:
        world, headers = host.world, await host.token()
        bare = {"authorization": headers["authorization"]}
        before = len(world.arrived()), host.issuer.asked.get("/introspect", 0)
        assert set((await statuses(world, bare)).values()) == {401}
        assert (len(world.arrived()), host.issuer.asked.get("/introspect", 0)) == before
        async with http.post(f"{world.console}/bridge/tickets", json={"apps": ["cart"]}, headers=headers) as answer:
            ticket = (await answer.json())["ticket"]
        for origin in (CANVAS, EVIL, "null", world.console):
            wrong = {**headers, "origin": origin}
            async with http.get(f"{world.console}/api/state", headers=wrong) as answer:
                assert answer.status in (401, 403)
                allowed = answer.headers.get("access-control-allow-origin")
            assert allowed == (CANVAS if origin == CANVAS else None)
        for path in ("api/events", "api/audit", "api/approvals/x", "api/connections", "mcp", "login", "connect/x"):
            async with http.post(f"{world.console}/{path}", json={}, headers=headers) as answer:
                assert answer.status == 403, path
                assert "access-control-allow-origin" not in answer.headers
        for asked in ([], ["cart", "nothing"], ["nothing"], ["cart", 5], "cart"):
            async with http.post(f"{world.console}/bridge/tickets", json={"apps": asked}, headers=headers) as answer:
                assert answer.status == (200 if asked in ([], ["cart", "nothing"]) else 400)
        spoken = ["webmcp-gateway.v1"]
        async with http.ws_connect(f"{world.console}/bridge", protocols=spoken, headers={"origin": CANVAS}) as socket:
            await socket.send_str(mux.encode(mux.Hello(ticket)))
            assert json.loads(await socket.receive_str(timeout=60))["error"]["code"] == "bad-ticket"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await http.ws_connect(f"{world.console}/bridge", protocols=spoken, headers={"origin": EVIL})


async def test_without_authentication_a_named_page_needs_no_token(tmp_path: Path) -> None:
    """On this machine its people are `local`, who may do there nothing but open these apps."""
    extra = f"hosts: [{{origin: '{CHAT}', apps: [cart]}}]\n"
    async with running(tmp_path, extra=extra) as world, world.client() as http:
        headers = {"origin": CHAT, "sec-fetch-site": "cross-site"}
        socket, connection = await socket_of(world, headers, http)
        await call(socket, connection, **REQUEST)
        await socket.close()
        far = {**headers, "x-forwarded-for": "203.0.113.7"}
        for wrong, path in ((far, "api/state"), ({**headers, "origin": EVIL}, "api/state"), (headers, "api/audit")):
            async with http.get(f"{world.console}/{path}", headers=wrong) as answer:
                assert answer.status in (401, 403)
        async with http.get(f"{world.url}/.well-known/oauth-authorization-server") as answer:
            assert answer.status == 404


REFUSED: dict[str, tuple[dict[str, str | None], str]] = {
    "another grant": ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
    "no grant": ({"grant_type": None}, "invalid_request"),
    "no subject": ({"subject_token": None}, "invalid_request"),
    "an ID token": ({"subject_token_type": "urn:ietf:params:oauth:token-type:id_token"}, "invalid_request"),
    "a refresh token": ({"requested_token_type": "urn:ietf:params:oauth:token-type:refresh_token"}, "invalid_request"),
    "an actor token": ({"actor_token": "x", "actor_token_type": ACCESS_TOKEN}, "invalid_request"),
    "another resource": ({"resource": "https://elsewhere.example"}, "invalid_target"),
    "another audience": ({"audience": "shop"}, "invalid_target"),
    "another scope": ({"scope": "approve"}, "invalid_scope"),
    "another app": ({"scope": "bridge:cart bridge:other"}, "invalid_scope"),
    "garbage": ({"subject_token": "garbage"}, "invalid_request"),
    "two ways": ({"client_secret": SECRET, "client_id": "chat"}, "invalid_request"),
    "another client id": ({"client_id": "canvas"}, "invalid_request"),
}

SUBJECTS: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_700_000_000},
    "another audience": {"aud": "https://elsewhere.example"},
    "another issuer": {"iss": "https://elsewhere.example"},
    "no person": {"sub": "desktop"},
    "another party may act": {"may_act": {"sub": "canvas"}},
    "an unknown party may act": {"may_act": {"sub": "chat", "iss": "https://elsewhere.example"}},
    "delegated before": {"act": {"sub": "chat"}},
    "a chain of actors": {"act": {"sub": "chat", "act": {"sub": "other"}}},
    "a bound token": {"cnf": {"jkt": "x"}},
}


async def test_a_wrong_request_gets_the_error_of_its_rfc(tmp_path: Path) -> None:
    """RFC 6749 5.2 and RFC 8693 2.2.2; a token of another issuer, audience, client, or actor is invalid."""
    async with hosted(tmp_path) as host, issuer() as foreign:
        for name, (change, error) in REFUSED.items():
            status, told = await host.exchange(**change)
            assert (status, told["error"]) == (400, error), name
        for name, claims in SUBJECTS.items():
            status, told = await host.exchange(subject_token=host.subject(**claims))
            assert (status, told["error"]) == (400, "invalid_request"), name
        foreigner = foreign.sign(foreign.claims("https://gateway.example"))
        assert (await host.exchange(subject_token=foreigner))[1]["error"] == "invalid_request"
        assert (await host.exchange(subject_token=host.subject(may_act={"sub": "chat"})))[0] == 200
        form = {"grant_type": GRANT, "subject_token": host.subject(), "subject_token_type": ACCESS_TOKEN}
        for headers in (
            basic("chat", "wrong"),
            basic("nobody", SECRET),
            basic("canvas", ""),
            {"authorization": "Basic ="},
        ):
            status, told = await host.ask(form, headers)
            assert (status, told["error"]) == (401, "invalid_client")
        for wrong in (await host.token(), {"authorization": f"Bearer {host.subject()}"}):
            assert (await host.ask(form, {"authorization": wrong["authorization"]}))[0] == 401
        for unproven in (
            {},
            {"client_id": "chat"},
            {"client_assertion": "x.y.z"},
            {"client_assertion_type": ASSERTION},
        ):
            status, told = await host.ask({**form, **unproven})
            assert (status, told["error"]) == (401, "invalid_client"), unproven
        _, told = await host.exchange(scope='bridge:\u00fc"')
        assert told["error"] == "invalid_scope"
        assert re.fullmatch(r"[ !#-\[\]-~]+", told["error_description"])
        assert (await host.ask({**form, "client_id": "chat", "client_secret": SECRET}))[0] == 200
        async with host.world.client() as http:
            body = "&".join(["grant_type=a", "grant_type=b"])
            kind = {"content-type": "application/x-www-form-urlencoded", **basic("chat", SECRET)}
            for data, status in ((body, 400), ("%ff", 400), ("x" * (host_pages.FORM + 1), 413)):
                async with http.post(f"{host.world.url}/oauth/token", data=data, headers=kind) as answer:
                    assert answer.status == status
            async with http.post(
                f"{host.world.url}/oauth/token", data="", headers={**kind, "authorization": ""}
            ) as answer:
                assert answer.status == 401
                assert answer.headers["www-authenticate"].startswith("Basic ")
            for resources, status in ((["", "/mcp"], 200), (["", "/other"], 400)):
                named = [("resource", f"{host.world.url}{path}") for path in resources]
                data = urlencode([*form.items(), *named])
                async with http.post(f"{host.world.url}/oauth/token", data=data, headers=kind) as answer:
                    assert answer.status == status, await answer.text()
            async with http.post(f"{host.world.url}/oauth/token", json={}, headers=basic("chat", SECRET)) as answer:
                assert (await answer.json())["error"] == "invalid_request"
            async with http.post(f"{host.world.console}/oauth/token", data=form, headers={"origin": EVIL}) as answer:
                assert answer.status == 403
        refused = [line["fields"] for line in host.world.records() if line["fields"]["kind"] == "caller"]
        assert {"invalid-client", "invalid-request", "invalid-scope"} <= {one["reason"] for one in refused}


async def test_a_back_end_may_sign_instead_of_sharing_a_secret(tmp_path: Path) -> None:
    """private_key_jwt (RFC 7523): each assertion is for this endpoint, short, and good once."""
    async with hosted(tmp_path) as host:
        form = {
            "grant_type": GRANT,
            "subject_token": host.subject(),
            "subject_token_type": ACCESS_TOKEN,
            "client_assertion_type": ASSERTION,
        }
        now = int(time.time())
        for changes, expected in (
            ({"jti": "a"}, 200),
            ({"jti": "a"}, 401),
            ({"jti": "b", "aud": "https://elsewhere.example"}, 401),
            ({"jti": "c", "exp": now - 60}, 401),
            ({"jti": "d", "exp": now + 3600}, 401),
            ({"jti": "e", "iss": "chat"}, 401),
            ({"jti": "f", "sub": "chat"}, 401),
            ({"jti": ""}, 401),
        ):
            status, told = await host.ask({**form, "client_assertion": host.assertion(**changes)})
            assert status == expected, (changes, told)
        other = Hosted(host.world, host.issuer, ECKey.generate_key("P-256"))
        assert (await host.ask({**form, "client_assertion": other.assertion(jti="g")}))[0] == 401
        signed = {**form, "client_assertion": host.assertion(jti="h"), "client_assertion_type": "urn:example:saml"}
        assert (await host.ask(signed))[0] == 401


async def test_what_a_page_has_open_ends_with_its_person_and_its_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revoked token of the person cuts the views once it is looked up; a changed entry under `hosts` does at once."""
    monkeypatch.setattr(issuers, "REMEMBERED", 1.0)  # instead of half a minute
    async with hosted(tmp_path) as host, host.world.client() as http, asyncio.timeout(120):
        opaque = host.issuer.claims("https://gateway.example", active=True)
        host.issuer.introspected["opaque"] = opaque
        status, told = await host.exchange(subject_token="opaque")
        assert status == 200, told
        headers = page(told["access_token"])
        socket, connection = await socket_of(host.world, headers, http)
        await call(socket, connection, **REQUEST)
        host.issuer.introspected["opaque"] = {"active": False}
        while not socket.closed:
            await socket.receive(timeout=60)
        assert await host.ticket(headers) == 401
        headers = await host.token()
        socket, connection = await socket_of(host.world, headers, http)
        await call(socket, connection, **REQUEST)
        settings = tmp_path / "gateway.yaml"
        settings.write_text(settings.read_text().replace(f"'{CHAT}'", "'http://other.localhost:7777'"))
        while not socket.closed:
            await socket.receive(timeout=60)
        assert await host.ticket(headers) == 403


@pytest.mark.bound("exchanged tokens of pages of hosts")
@pytest.mark.bound("token exchanges")
@pytest.mark.bound("used assertions of clients that exchange tokens")
@pytest.mark.bound("token requests")
async def test_exchanges_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By client and by address; the oldest token of a person is evicted, and one is no longer good after its time."""
    monkeypatch.setattr(host_pages, "TOKENS_EACH", 2)
    monkeypatch.setattr(host_pages, "EXCHANGES", Rate(5, 3600.0))
    monkeypatch.setattr(host_pages, "ASSERTIONS", 1)
    monkeypatch.setattr(client_limits, "WRONG", Rate(4, 3600.0))
    async with hosted(tmp_path) as host, host.world.client() as http:
        state = f"{host.world.console}/api/state"
        tokens = [await host.token() for _ in range(3)]
        found = []
        for headers in tokens:
            async with http.get(state, headers=headers) as answer:
                found.append(answer.status)
        assert found == [401, 200, 200]
        form = {"grant_type": GRANT, "subject_token": host.subject(), "subject_token_type": ACCESS_TOKEN}
        signed = {**form, "client_assertion_type": ASSERTION}
        assert (await host.ask({**signed, "client_assertion": host.assertion(jti="a")}))[0] == 200
        assert (await host.ask({**signed, "client_assertion": host.assertion(jti="b")}))[0] == 429
        with monkeypatch.context() as short:
            short.setattr(token_exchange, "LIFE", 0.0)
            short.setattr(host_pages, "LIFE", 0.0)
            async with http.get(state, headers=await host.token()) as answer:
                assert answer.status == 401
        assert (await host.exchange())[0] == 200
        assert (await host.exchange())[0] == 429
        kind = {"content-type": "application/x-www-form-urlencoded", **basic("chat", SECRET)}
        async with http.post(f"{host.world.url}/oauth/token", data="x" * 70_000, headers=kind) as answer:
            assert answer.status == 413
        assert (await host.ask(form, basic("chat", "wrong")))[0] in (401, 429)
        assert (await host.ask(form, basic("chat", SECRET)))[0] == 429


async def test_a_token_of_several_processes_is_for_its_site_as_it_is_configured() -> None:
    """Another process with the same keys knows it, until it expires; it is of no other origin, site or key."""
    clock = Clock()
    site = HostSite("http://host.test", "host", ("cart",), issuer="https://id.test", client_id="host")
    ring, other = (KeyRing(GivenKeys("KEYS", Secret(new_key()))) for _ in "12")
    ann = Principal("https://id.test", "host", "ann", capabilities=frozenset({"bridge:cart"}), expires=clock.now + 60)
    token, seconds = HostPages(lambda: (site,), ring, clock).issue(ann, site.origin)
    assert (seconds, len(token) <= LONGEST_TOKEN) == (60, True)
    same = HostPages(lambda: (site,), ring, clock)._find_token(token, site.origin)
    assert same is not None
    assert (same.principal, same.principal.capabilities, same.expires) == (ann, ann.capabilities, clock.now + 60)
    changed = replace(site, apps=("cart", "notes"))
    for pages, shown, origin in (
        (HostPages(lambda: (changed,), ring, clock), token, site.origin),
        (HostPages(lambda: (), ring, clock), token, site.origin),
        (HostPages(lambda: (site,), other, clock), token, site.origin),
        (HostPages(lambda: (site,), ring, clock), token, "http://another.test"),
        (HostPages(lambda: (site,), ring, clock), f"{token[:-8]}AAAAAAAA", site.origin),
        (HostPages(lambda: (site,), ring, clock), f"{PREFIX}é.é", site.origin),
        (HostPages(lambda: (site,), ring, clock), PREFIX, site.origin),
    ):
        assert pages._find_token(shown, origin) is None
    large = replace(ann, claims={"groups": ["x" * 40] * 300})
    assert len(HostPages(lambda: (site,), ring, clock).issue(large, site.origin)[0]) <= LONGEST_TOKEN
    clock.now += 60
    assert HostPages(lambda: (site,), ring, clock)._find_token(token, site.origin) is None

"""The same caller, however authenticated, is the same principal with the same refusals at every door."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from gateway import mux
from gateway.cli.stdio.command import TOKEN as TOKEN_VARIABLE
from gateway.doors.identify import SessionCookies
from gateway.stores.sessions import IssuedTokens
from gateway.stores.sql import Database
from tests.attacks.bridge_door import BridgeDoor
from tests.attacks.calls import AttackedDoor
from tests.attacks.doors import SiteDoor
from tests.attacks.mcp_doors import HttpDoor, StdioDoor
from tests.attacks.world import APP, CSRF, TOKEN, AttackWorld, Loopback, running_world
from tests.callers.issuer import Issuer, issuer
from tests.callers.people import NAVIGATION
from tests.leaks.watch import environment
from tests.world import local_client

EXTRA = """
  theirs: {{type: authorization_code, issuer: "{issuer}", client_id: gateway, network: private}}
auth:
  - type: oauth
    issuer: "{issuer}"
    network: private
    introspection: true
    client_id: us
    client_secret: s3cret-k4naRieZq9
  - token
  - {{type: proxy, name: front, header: X-User, roles_header: X-Groups, proxies: [127.0.0.1]}}
  - none
"""
POLICY = """
version: 1
backends:
  main: {{url: "http://127.0.0.1:{main}", credential: attack, network: [127.0.0.0/8]}}
  theirs: {{url: "http://127.0.0.1:{other}", credential: theirs, network: [127.0.0.0/8]}}
routes:
  - {{path: /api/open, methods: [GET], backend: main}}
  - {{path: /api/alice, methods: [GET], backend: main, when: 'principal.id.endsWith("|alice")'}}
  - {{path: /api/buyers, methods: [GET], backend: main, when: '"buyer" in principal.roles'}}
  - {{path: /api/never, deny: "not for apps"}}
  - {{path: /api/mine, methods: [GET], backend: theirs}}
"""
AS_APP_DATA = {"X-User": "mallory", "x-groups": "root", "x_user": "mallory", "Authorization": "Bearer mine"}
WISHES = ("/api/open", "/api/alice", "/api/buyers", "/api/never", "/api/mine", "/api/unknown")
DOORS = ("modern", "modern-sdk", "legacy", "stdio", "bridge", "site")
GOOD, DENIED = (200, None), (403, "policy-denied")

OUTCOMES: Mapping[tuple[str, str], Sequence[tuple[int, str | None]]] = {
    # (kind, person): open, alice's, buyers', never, an account of their own, unknown
    ("token", "alice"): (GOOD, GOOD, DENIED, DENIED, (401, "credential-needed"), DENIED),
    ("token", "bob"): (GOOD, DENIED, DENIED, DENIED, (401, "credential-needed"), DENIED),
    ("jwt", "alice"): (GOOD, GOOD, GOOD, DENIED, (401, "credential-needed"), DENIED),
    ("jwt", "bob"): (GOOD, DENIED, DENIED, DENIED, (401, "credential-needed"), DENIED),
    ("opaque", "alice"): (GOOD, GOOD, GOOD, DENIED, (401, "credential-needed"), DENIED),
    ("opaque", ""): (GOOD, DENIED, DENIED, DENIED, (502, "credential-failed"), DENIED),
    ("proxy", "alice"): (GOOD, GOOD, GOOD, DENIED, (401, "credential-needed"), DENIED),
    ("proxy", "bob"): (GOOD, DENIED, DENIED, DENIED, (401, "credential-needed"), DENIED),
    ("login", "alice"): (GOOD, GOOD, GOOD, DENIED, (401, "credential-needed"), DENIED),
    ("login", "bob"): (GOOD, DENIED, DENIED, DENIED, (401, "credential-needed"), DENIED),
    ("none", "local"): (GOOD, DENIED, DENIED, DENIED, (401, "credential-needed"), DENIED),
}


@dataclass(frozen=True, slots=True)
class Street:
    """A gateway that accepts callers of every kind, and their issuer."""

    world: AttackWorld
    issuer: Issuer

    async def proof(self, kind: str, person: str, door: str = "") -> tuple[dict[str, str], str]:
        """Return the header fields that authenticate `person` at this door, and the id of the resulting principal."""
        client = {} if person else {"sub": "desktop"}
        roles = ["buyer"] if person == "alice" else []
        claims = self.issuer.claims(f"http://localhost:{self.world.port}", roles=roles, **({"sub": person} | client))
        match kind:
            case "token":
                return await self._token(person), f"local|token:of {person}|{person}"
            case "jwt":
                return bearer(self.issuer.sign(claims)), f"{self.issuer.url}|desktop|{person}"
            case "opaque":
                self.issuer.introspected[f"opaque-{person}"] = {"active": True, "token_type": "Bearer", **claims}
                return bearer(f"opaque-{person}"), f"{self.issuer.url}|desktop|{person}"
            case "proxy":
                groups = {"x-groups": "buyer, staff"} if person == "alice" else {}
                return {"x-user": person, **groups}, f"proxy:front|proxy|{person}"
            case "login":
                return await self._cookie(person, roles, door), f"{self.issuer.url}|us|{person}"
            case _:
                return {}, "local|local|local"

    async def _cookie(self, person: str, roles: list[str], door: str) -> dict[str, str]:
        """Return the cookie of a browser that logged in at the issuer; an app's site has a separate one."""
        self.issuer.person = {"sub": person, "roles": roles, "client_id": None}
        console, site = (f"http://{self.world.hosts[name]}" for name in ("console", "app"))
        async with local_client(headers=NAVIGATION) as browser:
            async with browser.get(f"{console}/login?issuer=0&to=/") as got:
                assert got.status == 200, await got.text()
            state = "s" * 43  # a site does not redirect to the console where `none` admits everybody
            browser.cookie_jar.update_cookies({SessionCookies(site).name("state"): state}, URL(site))
            async with browser.get(f"{console}/login/site?app={APP}&to=/&state={state}") as got:
                assert got.status == 200, await got.text()
            kept = browser.cookie_jar.filter_cookies(URL(site if door == "site" else console))
        return {"cookie": "; ".join(f"{name}={morsel.value}" for name, morsel in kept.items())}

    async def _token(self, person: str) -> dict[str, str]:
        async with Database(self.world.config.database.reveal()) as database:
            now, may = time.time(), {"mcp", "bridge", "app"}
            tokens = IssuedTokens(database)
            await tokens.revoke(f"of {person}", now)
            made = await tokens.create(f"of {person}", may, person, now=now, expires=now + 600)
        return bearer(made.reveal())


def bearer(token: str) -> dict[str, str]:
    """Return the header with this token."""
    return {"authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
async def street(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Street]:
    """One street for all tests."""
    folder: Path = tmp_path_factory.mktemp("street")
    async with issuer() as there, running_world(folder, POLICY, EXTRA.format(issuer=there.url)) as world:
        yield Street(world, there)


@asynccontextmanager
async def opened(name: str, world: AttackWorld, shown: Mapping[str, str]) -> AsyncIterator[AttackedDoor]:
    """Open a door whose requests all carry the same proof."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback())) as client:
        match name:
            case "site":
                yield ShownSite(world, shown)
            case "bridge":
                client.headers.update(shown)
                bridge = BridgeDoor(world, client)
                await bridge.open()
                yield bridge
                await bridge.close()
            case "stdio":
                async with piped(world, shown) as process:
                    pipe = StdioDoor(world, client, modern=True, process=process)
                    await pipe.open()
                    yield pipe
            case _:
                more = {**shown, **({"last-event-id": "0"} if name == "modern-sdk" else {})}
                door = HttpDoor(world, client, modern=name != "legacy", more=more)
                await door.open()
                yield door


@dataclass(slots=True)
class ShownSite:
    """The app's own site."""

    world: AttackWorld
    shown: Mapping[str, str]

    async def ask(self, case: dict[str, Any]) -> Any:
        """Send the proof beside the app's own header fields, except those that a proxy overwrites."""
        headers = {name: value for name, value in case["headers"].items() if name.lower() not in self.shown}
        site = {"headers": list(self.shown.items())}
        return await SiteDoor(self.world).ask({**case, "headers": headers, "site": site})


@asynccontextmanager
async def piped(world: AttackWorld, shown: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Open the stdio pipe that desktop clients start, with the token in its environment."""
    token = {TOKEN_VARIABLE: shown["authorization"].removeprefix("Bearer ")} if shown else {}
    program = (
        "-c",
        "from gateway.cli import main; main()",
        "stdio",
        "--url",
        f"http://localhost:{world.port}/mcp/{APP}",
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        stdin=pipe,
        stdout=pipe,
        stderr=asyncio.subprocess.DEVNULL,
        env={**environment(), **token},
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


NOT_THERE = {"proxy": {"stdio"}, "login": {"modern", "modern-sdk", "legacy", "stdio"}}
"""Doors without a way to send a proof: no proxy is in front of a pipe, and MCP clients are not browsers."""

TABLE = [
    (kind, person, door) for kind, person in OUTCOMES for door in DOORS if door not in NOT_THERE.get(kind, frozenset())
]


@pytest.mark.parametrize(("kind", "person", "name"), TABLE)
async def test_the_same_at_every_door(street: Street, kind: str, person: str, name: str) -> None:
    """Outcomes and principal; identity headers of the app are dropped; the credential goes out, the proof does not."""
    world = street.world
    shown, principal = await street.proof(kind, person, name)
    # identity headers that a browser's page adds to its own proof are for the proxy, or the gateway, to judge
    written = {**AS_APP_DATA} if name != "site" else {"x_user": "mallory"}
    if name == "site" and kind not in ("proxy", "none"):
        written |= {"x-user": "mallory", "x-groups": "root"}
    async with opened(name, world, shown) as door:
        world.take_arrived()
        world.take_records()
        answers = [await door.ask({"url": url, "headers": written}) for url in WISHES]
    assert [(answer.status, answer.reason) for answer in answers] == list(OUTCOMES[kind, person])
    requests = [line["fields"] for line in world.take_records() if line["fields"].get("kind") == "http"]
    assert {fields["principal"] for fields in requests} == {principal}
    assert {fields["url"] for fields in requests} == set(WISHES)
    arrived = world.take_arrived()
    assert len(arrived) == sum(outcome == GOOD for outcome in OUTCOMES[kind, person])
    for request in arrived:
        assert f"Bearer {TOKEN}".encode() in request.raw
        assert not any(word in request.raw for word in (b"mallory", b"root", b"x-user", b"X-User", b"mine"))
        assert not any(value in said for value in shown.values() for _, said in request.headers)


@pytest.mark.parametrize("name", sorted(NOT_THERE["login"] - {"stdio"}))
async def test_a_login_proves_nothing_to_a_mount(street: Street, name: str) -> None:
    """Mounts ignore cookies: a caller with only a cookie is unauthenticated."""
    world = street.world
    shown, _ = await street.proof("login", "alice")
    async with opened(name, world, shown) as door:
        world.take_records()
        answer = await door.ask({"url": "/api/alice", "headers": {}})
    assert (answer.status, answer.reason) == DENIED
    assert {line["fields"].get("principal") for line in world.take_records()} >= {"local|local|local"}


WRONG = ("token", "expired", "audience", "stranger", "unsigned", "opaque", "proxy", "two")
NO_LOGIN = ("ended", "twice")


async def no_proof(street: Street, kind: str, door: str = "") -> tuple[dict[str, str], dict[str, str]]:
    """Return a valid proof, and header fields with an invalid one."""
    good, _ = await street.proof("login" if kind in NO_LOGIN else "token", "alice", door)
    if kind in NO_LOGIN:
        cookie = good["cookie"]
        return good, {"cookie": f"{cookie[:-1]}_" if kind == "ended" else f"{cookie}; {cookie}"}
    ours = f"http://localhost:{street.world.port}"
    claims = street.issuer.claims(ours)
    head, body, _ = street.issuer.sign(claims).split(".")
    other = street.issuer.sign(street.issuer.claims(ours)).split(".")[2]
    return good, {
        "token": {"authorization": good["authorization"][:-1] + "_"},
        "expired": bearer(street.issuer.sign(street.issuer.claims(ours, exp=int(time.time()) - 60))),
        "audience": bearer(street.issuer.sign(street.issuer.claims("https://elsewhere.example"))),
        "stranger": bearer(f"{head}.{body}.{other[:-8]}AAAAAAAA"),
        "unsigned": bearer(f"eyJhbGciOiJub25lIn0.{body}."),
        "opaque": bearer("nobody-knows-this"),
        "proxy": {"x-user": " "},
        "two": {**good, "authorization": f"{good['authorization']}, Bearer x"},
    }[kind]


PROOFS = [(kind, name) for kind in WRONG for name in ("modern", "modern-sdk", "legacy", "site")]


@pytest.mark.parametrize(("kind", "name"), [*PROOFS, *((kind, "site") for kind in NO_LOGIN)])
async def test_what_is_no_proof_is_none_anywhere(street: Street, kind: str, name: str) -> None:
    """Although `none` admits callers without a proof, an invalid proof never counts as none."""
    world = street.world
    good, wrong = await no_proof(street, kind, name)
    async with opened(name, world, good) as door:
        if isinstance(door, HttpDoor):
            door.more = {**door.more, **wrong} if kind != "proxy" else wrong
        elif isinstance(door, ShownSite):
            door.shown = wrong
        world.take_arrived()
        answer = await door.ask({"url": "/api/open", "headers": {}})
    assert answer.status == 401 or answer.error == "HTTP 401"
    assert world.take_arrived() == []


@pytest.mark.parametrize("kind", [kind for kind in WRONG if kind != "proxy"])
async def test_what_is_no_proof_opens_no_pipe(street: Street, kind: str) -> None:
    """The process that desktop clients start answers calls with the gateway's 401, and forwards none."""
    world = street.world
    _, wrong = await no_proof(street, kind)
    world.take_arrived()
    call = '"name":"http_request","arguments":{"url":"/api/open"}'
    async with aiohttp.ClientSession() as client, piped(world, wrong) as process:
        pipe = StdioDoor(world, client, modern=True, process=process)
        told = [json.loads((await pipe.post(*said))[1]) for said in (("tools/call", call), ("resources/list", '"x":1'))]
    for message in told:
        assert "result" not in message
        assert "401" in message["error"]["message"]
    assert world.take_arrived() == []


@pytest.mark.parametrize("kind", [*WRONG, *NO_LOGIN])
async def test_what_is_no_proof_opens_no_bridge(street: Street, kind: str) -> None:
    """Neither ticket nor body; a WebSocket's proof is its ticket, and without one it opens nothing."""
    world = street.world
    good, wrong = await no_proof(street, kind)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback())) as client:
        bridge = BridgeDoor(world, client)
        async with client.get(f"{bridge.origin}/api/state", headers={**bridge.own, **good}) as answer:
            own = {**bridge.own, CSRF: (await answer.json())["csrf"]}
        for method, path in (("POST", "tickets"), ("PUT", f"bodies/{'a' * 32}")):
            body = '{"apps": ["target"]}'
            url = f"{bridge.origin}/bridge/{path}"
            async with client.request(method, url, headers={**own, **wrong}, data=body) as answer:
                assert answer.status == 401, path
        client.headers.update(wrong)
        socket = await bridge.connect()
        bridge.connection.send(mux.Hello("made-up"))
        for text in bridge.connection.pending_output():
            await socket.send_str(text)
        (told,) = bridge.connection.receive_data(await socket.receive_str())
        assert isinstance(told, mux.ErrorFrame)
        assert told.code == "bad-ticket"

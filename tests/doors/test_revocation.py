"""Revocation with several sources of credentials: one that is down, hangs or lies does not affect the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.callers.methods import OAuthIssuer, Roles
from gateway.credentials import ALGORITHMS
from gateway.doors import revocation as module
from gateway.doors.issuers import INTROSPECTED, REMEMBERED, Issuer
from gateway.doors.revocation import LONGEST_PAUSE, UNCHECKED, IntrospectingIssuer, Revocations
from gateway.errors import Unidentified
from gateway.model import LOCAL, Principal, Secret
from gateway.policy import Network, parse_network
from gateway.ports.sessions import SessionKind
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database
from tests.callers.issuer import issuer
from tests.clock import Clock


@dataclass
class Told:
    """An issuer with a set answer for each token; an exception is raised, None hangs."""

    of: Mapping[str, bool | Exception | None] = field(default_factory=dict)
    asked: int = 0

    def __str__(self) -> str:
        """Return a name of its own, as each issuer has."""
        return f"https://issuer-{id(self)}.example"

    def now(self, id: str, said: bool | Exception) -> None:
        """From now on answer this."""
        self.of = {**self.of, id: said}

    async def active(self, id: str, *, anew: bool) -> bool | None:
        """Return the test's answer."""
        if id not in self.of:
            return None
        self.asked += 1
        said = self.of[id]
        if said is None:
            await asyncio.Event().wait()
        if isinstance(said, Exception):
            raise said
        return said


@dataclass(frozen=True)
class _Named:
    name: str
    network: Network


class Room:
    """A gateway's logins and tokens, and the open streams of their callers."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.tokens = IssuedTokens(database)
        self.sessions = DatabaseSessions(database)
        self.open = AsyncExitStack()
        self.cut: list[str] = []

    def standing(self, *issuers: IntrospectingIssuer) -> Revocations:
        """Return the revocation check over all of them."""
        return Revocations(self.tokens, self.sessions, lambda: issuers, self.clock, self.clock)

    def stream(self, standing: Revocations, proof: str) -> None:
        """Open a stream that depends on `proof`."""
        principal = replace(LOCAL, subject=proof, proof=proof)
        self.open.enter_context(standing.hold(principal, lambda: self.cut.append(proof)))

    async def token(self, name: str) -> str:
        """Return the proof of a token that the gateway issued."""
        await self.tokens.create(name, ["mcp"], None, now=self.clock(), expires=self.clock() + 3600)
        return next(f"token:{grant.id}" for grant in await self.tokens.list_all() if grant.name == name)

    async def login(self) -> str:
        """Return the proof of a login."""
        shown = await self.sessions.put(SessionKind.CONSOLE, LOCAL, now=self.clock(), life=3600)
        kept = await self.sessions.find(SessionKind.CONSOLE, shown.reveal(), self.clock())
        assert kept is not None
        return f"session:{kept.family}"


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """Yield a room with a real database and a stopped clock."""
    async with Database(f"sqlite:///{tmp_path / 'gateway.db'}") as database:
        made = Room(database, Clock())
        async with made.open:
            yield made


DOWN = [Unidentified("It does not answer.", status=503), OSError("refused"), RuntimeError("a fault of ours"), None]


@pytest.mark.parametrize("how", DOWN, ids=["unavailable", "refused", "fault", "hangs"])
async def test_a_dead_issuer_delays_the_end_of_nothing_that_others_know(
    room: Room, how: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One check cuts all that is revoked: own tokens, logins, tokens of another issuer, and others of this one."""
    dead = Told({f"dead-{number}": how for number in range(3)} | {"dead-revoked": False})
    well = Told({f"well-{number}": False for number in range(20)} | {"well-good": True})
    standing = room.standing(dead, well)
    for proof in (*(f"{INTROSPECTED}:{id}" for id in (*dead.of, *well.of)),):
        room.stream(standing, proof)
    revoked = [await room.token(f"t{number}") for number in range(20)]
    login, kept, alive = await room.login(), await room.token("kept"), await room.login()
    for proof in (*revoked, login, kept, alive):
        room.stream(standing, proof)
    for number in range(20):
        await room.tokens.revoke(f"t{number}", room.clock())
    await room.sessions.end(login.partition(":")[2])
    ended = {f"{INTROSPECTED}:{id}" for id in ("dead-revoked", *(f"well-{number}" for number in range(20)))}
    check = asyncio.create_task(standing.look())
    async with asyncio.timeout(60):
        while not {*revoked, login, *ended} <= set(room.cut):
            await asyncio.sleep(0.01)
    if how is None:
        assert not check.done()
    check.cancel()
    await asyncio.wait([check])
    monkeypatch.setattr(module, "ANSWER", 0.1)  # the next check ends although an issuer hangs
    await standing.look()
    assert set(room.cut) == {*revoked, login, *ended}


async def test_a_database_that_is_down_delays_no_issuer(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    """Streams that only it can check stay open for five minutes, which is logged, then end. It is retried meanwhile."""
    well = Told({"gone": False, "good": True})
    standing = room.standing(well)
    own, other = await room.token("own"), await room.login()
    for proof in (own, other, f"{INTROSPECTED}:gone", f"{INTROSPECTED}:good"):
        room.stream(standing, proof)
    await room.database.__aexit__(None, None, None)
    with caplog.at_level(logging.WARNING, "gateway.doors.revocation"):
        await standing.look()
    assert room.cut == [f"{INTROSPECTED}:gone"]
    assert f"are closed after {UNCHECKED:g} seconds without an answer" in caplog.text
    room.clock.now += UNCHECKED - 1
    await standing.look()
    assert room.cut == [f"{INTROSPECTED}:gone"] * 2
    room.clock.now += 1
    await standing.look()
    assert {own, other} <= set(room.cut)
    assert f"{INTROSPECTED}:good" not in room.cut


async def test_an_answer_begins_the_five_minutes_anew(room: Room) -> None:
    """An issuer that answers in time keeps its valid tokens' streams open."""
    flaky = Told({"x": OSError("refused")})
    standing = room.standing(flaky)
    room.stream(standing, f"{INTROSPECTED}:x")
    await standing.look()
    room.clock.now += UNCHECKED - 1
    flaky.now("x", True)
    await standing.look()
    flaky.now("x", OSError("refused"))
    room.clock.now += UNCHECKED - 1
    await standing.look()
    room.clock.now += LONGEST_PAUSE
    await standing.look()
    assert room.cut == []
    room.clock.now += UNCHECKED
    await standing.look()
    assert room.cut == [f"{INTROSPECTED}:x"]


async def test_a_token_that_no_issuer_remembers_is_not_good_for_ever(room: Room) -> None:
    """A full table evicts; a token that cannot be looked up ends like one whose issuer does not answer."""
    standing = room.standing(Told(), Told())
    room.stream(standing, f"{INTROSPECTED}:forgotten")
    await standing.look()
    assert room.cut == []
    room.clock.now += UNCHECKED
    await standing.look()
    assert room.cut == [f"{INTROSPECTED}:forgotten"]


async def test_a_dead_issuer_is_asked_less_often(room: Room) -> None:
    """After two seconds, four, eight, sixteen; once it answers, at each check."""
    dead = Told({"x": OSError("refused")})
    standing = room.standing(dead)
    room.stream(standing, f"{INTROSPECTED}:x")
    for _ in range(60):
        await standing.look()
        room.clock.now += 1
    assert dead.asked == 6  # at 0, 2, 6, 14, 30, 46
    dead.now("x", True)
    room.clock.now += LONGEST_PAUSE
    for _ in range(3):
        await standing.look()
    assert dead.asked == 9


@pytest.mark.parametrize(
    ("how", "said"),
    [(DOWN[0], "valid: It does not answer. Their"), (None, "valid: no answer within 0.1 seconds. Their")],
)
async def test_the_log_tells_why_an_issuer_says_nothing(
    room: Room, how: Exception | None, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In one sentence, also if it does not answer at all."""
    monkeypatch.setattr(module, "ANSWER", 0.1)
    standing = room.standing(Told({"x": how}))
    room.stream(standing, f"{INTROSPECTED}:x")
    await standing.look()
    assert said in caplog.text


async def test_tokens_that_hang_keep_no_others_waiting(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of them than are checked concurrently, in a check with a time limit: the next checks reach all."""
    monkeypatch.setattr(module, "ROUND", 0.2)
    slow = Told({f"slow-{number}": None for number in range(2 * module.AT_ONCE)} | {"late": False, "good": True})
    standing = room.standing(slow)
    for id in slow.of:
        room.stream(standing, f"{INTROSPECTED}:{id}")
    for _ in range(3):
        await standing.look()
        room.clock.now += LONGEST_PAUSE
    assert room.cut == [f"{INTROSPECTED}:late"]


async def test_what_cannot_be_ended_keeps_nothing_else_open(room: Room) -> None:
    """An exception while one stream is ended does not affect the next."""
    standing = room.standing(Told({"x": False}))

    def stuck() -> None:
        raise RuntimeError("stuck")

    principal = replace(LOCAL, proof=f"{INTROSPECTED}:x")
    with standing.hold(principal, stuck), standing.hold(replace(LOCAL, expires=room.clock()), stuck):
        room.stream(standing, principal.proof)
        await standing.look()
    assert room.cut == [principal.proof]


async def test_it_goes_on_looking(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a running gateway: a source that hangs delays only its own checks."""
    monkeypatch.setattr(module, "LOOK", 0.01)
    hung, well = Told({"x": None}), Told({"y": True})
    standing = room.standing(hung, well)
    ended = asyncio.Event()
    room.stream(standing, f"{INTROSPECTED}:x")
    with standing.hold(replace(LOCAL, proof=f"{INTROSPECTED}:y"), ended.set):
        running = asyncio.create_task(standing.run())
        while well.asked < 3:
            await asyncio.sleep(0)
        well.now("y", False)
        async with asyncio.timeout(60):
            await ended.wait()
        assert hung.asked == 1
    running.cancel()
    await asyncio.wait({running})


async def test_real_issuers_and_one_of_them_dead(room: Room) -> None:
    """Over HTTP: opaque tokens of two issuers, one of them dead; the other's revoked token ends at the next check."""
    async with issuer() as first, issuer() as second, Connections() as connections:
        takers = []
        for name, server in (("first", first), ("second", second)):
            server.introspected[name] = {**server.claims("https://gateway.test"), "active": True}
            backend = HttpBackend(_Named("auth", parse_network(["private"])), connections)
            takers.append(Issuer(_oauth(server.url), Roles(), backend, steady=room.clock))
        standing = room.standing(*takers)
        ended: list[str] = []
        for name, taker in zip(("first", "second"), takers, strict=True):
            principal = await taker.principal(name, frozenset())
            assert principal is not None
            room.open.enter_context(standing.hold(principal, _append(ended, name)))
        assert {str(taker) for taker in takers} == {first.url, second.url}
        first.status = 500
        room.clock.now += REMEMBERED
        await standing.look()
        assert ended == []
        second.introspected.clear()
        room.clock.now += REMEMBERED
        await standing.look()
        assert ended == ["second"]


def _append(ended: list[str], name: str) -> Callable[[], None]:
    return lambda: ended.append(name)


def _oauth(url: str) -> OAuthIssuer:
    return OAuthIssuer(
        issuer=url,
        audience=("https://gateway.test",),
        algorithms=ALGORITHMS,
        scope=(),
        roles_claim="roles",
        network=parse_network(["private"]),
        introspection=True,
        client_id="gateway",
        client_secret=Secret("secret"),
        login_scope=("openid",),
        session=3600.0,
        logout_there=True,
        skew=30.0,
    )


async def test_callers_whose_credential_has_no_end_are_ended_by_a_changed_configuration_alone(room: Room) -> None:
    """The local principal of a gateway without authentication, and the persons of proxies."""
    standing, ended = room.standing(), list[str]()
    other = Principal("proxy:front", "proxy", "ann", capabilities=frozenset({"app"}))
    with (
        standing.hold(LOCAL, lambda: ended.append("local")),
        standing.hold(other, lambda: ended.append("app"), needs="app"),
        standing.hold(other, lambda: ended.append("any")),
    ):
        await standing.look()
        assert ended == []
        await standing.reconsider(lambda principal, needs, _: principal == other and needs == "app")
    assert ended == ["local", "any"]

"""The port `Grants`: for whom and how long they are valid, how many there are, and that a revocation counts at once."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from gateway.exchange import approvals
from gateway.exchange.approvals import MemoryGrants
from gateway.exchange.shared_grants import DatabaseGrants
from gateway.model import LOCAL, Caller, Door, Initiator, Principal, Question
from gateway.ports.approvals import Grant, Grants
from gateway.stores.sealing import KeyRing
from gateway.stores.sql import Database
from tests.clock import Clock
from tests.ports.conftest import at

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.MODEL, "model-call", view="v1", proven=True)
RULE, VERSION = "DELETE /api/cart/{item}", "sha256:1"
ANN = replace(LOCAL, subject="ann")

Make = Callable[[Clock], Grants]
"""Makes an implementation with this wall clock."""


@pytest.fixture
def make(shared: Database | None, ring: KeyRing) -> Make:
    """Each implementation."""
    if shared is None:
        return MemoryGrants
    return lambda clock: DatabaseGrants(shared, ring, clock, now=at(clock))


@pytest.fixture
def held(make: Make, clock: Clock) -> Grants:
    """No grants yet."""
    return make(clock)


def question(rule: str = RULE, principal: Principal = LOCAL, lasts: float | None = 600.0) -> Question:
    """Return a question that may be answered for `lasts` seconds."""
    return Question(
        id="q1",
        principal=principal.id,
        app="cart",
        view="v1",
        message="Remove tea?",
        method="DELETE",
        target="/api/cart/tea",
        headers=(),
        body="",
        size=0,
        digest="digest",
        policy_version=VERSION,
        initiator=Initiator.MODEL,
        evidence="model-call",
        created=0.0,
        expires=120.0,
        grant=lasts,
        rule=rule,
    )


async def give_grant(held: Grants, rule: str = RULE, principal: Principal = LOCAL) -> Grant:
    """Let a person allow the calls that `rule` covers."""
    return await held.give(question(rule, principal), principal, "ann")


async def covers(held: Grants, rule: str = RULE, principal: Principal = LOCAL) -> bool:
    """Return whether a call of `principal` under `rule` runs without a question."""
    return await held.covering(structs.replace(CALLER, principal=principal), rule, VERSION) is not None


async def test_a_grant_ends_and_gains_no_time_by_a_clock_that_is_set_back(held: Grants, clock: Clock) -> None:
    """It is valid from its beginning until its time is over."""
    began = clock.now
    await give_grant(held)
    found = []
    for past in (0, 599, 600, -1):
        clock.now = began + past
        found.append(await covers(held))
    assert found == [True, True, False, False]


@pytest.mark.bound("grants")
async def test_grants_of_one_principal_are_bounded(held: Grants, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is evicted; another principal's stays."""
    monkeypatch.setattr(approvals, "MOST", 2)
    await give_grant(held, principal=ANN)
    for rule in "abc":
        await give_grant(held, rule)
    assert [await covers(held, rule) for rule in "abc"] == [False, True, True]
    assert await covers(held, principal=ANN)


@pytest.mark.parametrize("asked", [question(lasts=None), question(rule="")])
async def test_a_policy_that_allows_no_grant_gives_none(held: Grants, asked: Question) -> None:
    """The answer cannot ask for one."""
    with pytest.raises(ValueError, match="allows no grant"):
        await held.give(asked, LOCAL, "ann")
    assert held.now() == []


async def test_a_grant_covers_its_principal_app_rule_and_version_alone(held: Grants) -> None:
    """A call that differs in one of them needs a question."""
    await give_grant(held)
    for caller in (structs.replace(CALLER, principal=ANN), structs.replace(CALLER, app="notes")):
        assert await held.covering(caller, RULE, VERSION) is None
    assert await held.covering(CALLER, "DELETE /api/cart", VERSION) is None
    assert await held.covering(CALLER, RULE, "sha256:2") is None
    assert await held.covering(structs.replace(CALLER, view="v2"), RULE, VERSION) is not None


async def test_a_revoked_grant_covers_nothing_and_is_revoked_once(held: Grants) -> None:
    """Of concurrent revocations one succeeds; an unknown id is an error, too."""
    grant, other = await give_grant(held), await give_grant(held, "other")
    outcomes = await asyncio.gather(*[held.revoke(grant.id) for _ in range(8)], return_exceptions=True)
    assert [outcome for outcome in outcomes if not isinstance(outcome, KeyError)] == [grant]
    assert not await covers(held)
    assert held.now() == [other]
    with pytest.raises(KeyError):
        await held.revoke("unknown")


async def test_grants_are_listed_oldest_first_until_they_end(held: Grants, clock: Clock) -> None:
    """With the person who gave them, and with when they end."""
    first = await give_grant(held, principal=ANN)
    clock.now += 300
    second = await give_grant(held)
    assert held.now() == [first, second]
    assert (first.principal, first.by, first.created, first.expires) == (ANN, "ann", 1000.0, 1600.0)
    clock.now += 300
    assert held.now() == [second]


async def test_a_new_policy_ends_the_grants_under_older_ones(held: Grants) -> None:
    """Grants for other apps stay."""
    await give_grant(held)
    kept = await held.give(replace(question(), app="notes"), LOCAL, "ann")
    held.cancel_outdated("cart", VERSION)
    assert len(held.now()) == 2
    held.cancel_outdated("cart", "sha256:2")
    assert held.now() == [kept]


async def test_watchers_are_called_for_each_change_until_they_unregister(held: Grants) -> None:
    """A grant that comes, and one that is revoked."""
    seen: list[int] = []
    stop = held.watch(lambda: seen.append(len(held.now())))
    await held.revoke((await give_grant(held)).id)
    stop()
    await give_grant(held)
    assert seen == [1, 0]

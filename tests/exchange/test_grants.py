"""Grants: for whom and how long they are valid, and how many there are."""

from dataclasses import replace

import pytest
from msgspec import structs

from gateway.exchange import grants
from gateway.exchange.approve import Approvals, Ask
from gateway.exchange.grants import Grants
from gateway.model import LOCAL, Caller, Door, Initiator, Principal
from tests.clock import Clock

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.MODEL, "model-call", view="v1", proven=True)
ASK = Ask("Remove tea?", "DELETE", "/api/cart/tea", "digest", "sha256:1", grant=600.0, rule="DELETE /api/cart/{item}")


@pytest.fixture
def clock() -> Clock:
    """A stopped clock."""
    return Clock()


def given(held: Grants, rule: str = ASK.rule, principal: Principal = LOCAL) -> None:
    """Let a person allow the calls that `rule` covers."""
    caller = structs.replace(CALLER, principal=principal)
    held.give(Approvals(120.0).park(replace(ASK, rule=rule), caller).question, principal, "ann")


def covers(held: Grants, rule: str = ASK.rule, principal: Principal = LOCAL) -> bool:
    """Return whether a call of `principal` under `rule` runs without a question."""
    return held.covering(structs.replace(CALLER, principal=principal), rule, ASK.policy_version) is not None


def test_a_grant_ends_and_gains_no_time_by_a_clock_that_is_set_back(clock: Clock) -> None:
    """It is valid from its beginning until its time is over."""
    held, began = Grants(clock), clock.now
    given(held)
    found = []
    for past in (0, 599, 600, -1):
        clock.now = began + past
        found.append(covers(held))
    assert found == [True, True, False, False]


@pytest.mark.bound("grants")
def test_grants_of_one_principal_are_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is evicted; another principal's stays."""
    monkeypatch.setattr(grants, "MOST", 2)
    held, ann = Grants(clock), replace(LOCAL, subject="ann")
    given(held, principal=ann)
    for rule in "abc":
        given(held, rule)
    assert [covers(held, rule) for rule in "abc"] == [False, True, True]
    assert covers(held, principal=ann)

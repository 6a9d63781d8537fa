"""Approvals are bound to a call, expire with their caller, are answered once, and run at most once."""

import asyncio
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.exchange.approve import (
    ASKING,
    KEPT,
    PER_PRINCIPAL,
    PER_VIEW,
    SHOWN,
    SILENCE,
    Approvals,
    ApprovalState,
    Ask,
    Parked,
)
from gateway.exchange.approvers import Ways
from gateway.exchange.decisions import ApprovalAnswers
from gateway.exchange.grants import Grants
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import LOCAL, Caller, Door, Initiator, Question
from gateway.stores.journal import Journal
from tests.clock import Clock
from tests.exchange.house import ends_when_cancelled

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.MODEL, "model-call", view="v1", proven=True)
ASK = Ask("Remove tea from the cart?", "DELETE", "/api/cart/tea", "digest", "sha256:1")


@pytest.fixture
def clock() -> Clock:
    """A stopped clock."""
    return Clock()


@pytest.fixture
def approvals(clock: Clock) -> Approvals:
    """Approvals without a question."""
    return Approvals(timeout=120.0, clock=clock, steady=clock)


def parked(approvals: Approvals, caller: Caller = CALLER, ask: Ask = ASK) -> Parked:
    """Ask a question; return the waiting call."""
    return approvals.find(approvals.park(ask, caller).question.id, caller)


def reason(refused: pytest.ExceptionInfo[Refusal]) -> Reason:
    """Return the reason of the refusal."""
    return refused.value.reason


def test_what_a_person_types_begins_with_no_dash(approvals: Approvals) -> None:
    """On a command line it would be read as an option, not as the id of a question or a grant."""
    question = parked(approvals, ask=replace(ASK, grant=60.0, rule="DELETE /api/cart/{item}")).question
    for id in (question.id, Grants().give(question, LOCAL, "ann").id):
        assert re.fullmatch("[0-9a-f]{32}", id)


def test_an_approved_call_is_dispatched_once(approvals: Approvals) -> None:
    """A second dispatch of the same approval is refused with its reason."""
    call = parked(approvals)
    assert approvals.answer(call.question.id, True, "ann") is ApprovalState.APPROVED
    approvals.take(call, ASK.digest, ASK.policy_version)
    with pytest.raises(Refusal, match="another just like it took it") as refused:
        approvals.take(call, ASK.digest, ASK.policy_version)
    assert reason(refused) is Reason.APPROVAL_EXPIRED


def test_nothing_is_dispatched_without_a_yes(approvals: Approvals) -> None:
    """An open question does not approve."""
    with pytest.raises(Refusal):
        approvals.take(parked(approvals), ASK.digest, ASK.policy_version)


@pytest.mark.parametrize(("digest", "version"), [("other", ASK.policy_version), (ASK.digest, "sha256:2")])
def test_a_yes_holds_for_what_was_shown_only(approvals: Approvals, digest: str, version: str) -> None:
    """Another request, or another policy, needs another approval; the first is used up."""
    call = parked(approvals)
    approvals.answer(call.question.id, True, "ann")
    with pytest.raises(Refusal) as refused:
        approvals.take(call, digest, version)
    assert reason(refused) is Reason.APPROVAL_EXPIRED
    with pytest.raises(Refusal, match="the call, or its policy, is another"):
        approvals.take(call, ASK.digest, ASK.policy_version)


def test_the_first_answer_counts(approvals: Approvals) -> None:
    """A no after a yes changes nothing."""
    call = parked(approvals)
    approvals.answer(call.question.id, True, "ann")
    assert approvals.answer(call.question.id, False, "bob") is ApprovalState.APPROVED


def test_a_no_refuses(approvals: Approvals) -> None:
    """The caller learns that a person declined."""
    call = parked(approvals)
    approvals.answer(call.question.id, False, "ann")
    with pytest.raises(Refusal) as refused:
        approvals.take(call, ASK.digest, ASK.policy_version)
    assert reason(refused) is Reason.APPROVAL_DECLINED


def test_the_same_call_of_the_same_view_joins(approvals: Approvals) -> None:
    """A person is asked once; another view is another question."""
    first = approvals.park(ASK, CALLER)
    assert approvals.park(ASK, CALLER) == first
    assert approvals.park(ASK, structs.replace(CALLER, view="v2")) != first


def test_a_caller_that_is_silent_is_gone(approvals: Approvals, clock: Clock) -> None:
    """Its call is void, and can no longer be approved."""
    call = parked(approvals)
    clock.now += SILENCE + 1
    assert approvals.open_questions() == []
    assert approvals.answer(call.question.id, True, "ann") is ApprovalState.VOID


def test_an_approved_call_whose_caller_is_gone_is_void(approvals: Approvals, clock: Clock) -> None:
    """A yes is not kept for a caller that comes back later."""
    call = parked(approvals)
    approvals.answer(call.question.id, True, "ann")
    clock.now += SILENCE + 1
    approvals.sweep()
    with pytest.raises(Refusal):
        approvals.take(call, ASK.digest, ASK.policy_version)


async def test_waiting_counts_as_asking(approvals: Approvals, clock: Clock) -> None:
    """While the caller's connection waits, its question stays open."""
    call = parked(approvals)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(approvals.wait(call.question.id, CALLER, 60))
        await asyncio.sleep(0)
        clock.now += SILENCE + 1
        assert approvals.answer(call.question.id, True, "ann") is ApprovalState.APPROVED
    assert (await waiting).state is ApprovalState.APPROVED


@pytest.mark.parametrize("turns", range(4))
async def test_who_waits_and_is_cancelled_ends_also_as_the_answer_comes(approvals: Approvals, turns: int) -> None:
    """When the gateway stops, it cancels a waiter only once."""
    call = parked(approvals)
    await ends_when_cancelled(
        approvals.wait(call.question.id, CALLER, 60), lambda: approvals.answer(call.question.id, True, "ann"), turns
    )


def test_a_question_expires(approvals: Approvals, clock: Clock) -> None:
    """However often its caller polls."""
    call = parked(approvals)
    clock.now += 121
    approvals.sweep()
    assert call.state is ApprovalState.EXPIRED


@pytest.mark.parametrize("patience", [1.0, 3600.0, 24 * 3600.0])
@pytest.mark.parametrize("timeout", [1.0, 120.0, 24 * 3600.0])
async def test_a_question_ends_when_its_person_was_told(timeout: float, patience: float) -> None:
    """With a rule's timeout that is longer or shorter than the configured one; also while a caller waits."""
    clock = Clock()
    approvals = Approvals(timeout, clock=clock, steady=clock)
    call = parked(approvals, ask=replace(ASK, patience=patience))
    call.holding = 1
    assert call.question.expires - call.question.created == patience
    clock.now += patience - 0.5
    approvals.sweep()
    assert call.state is ApprovalState.OPEN
    assert approvals.answer(call.question.id, True, "ann") is ApprovalState.APPROVED
    late = parked(approvals, ask=replace(ASK, patience=patience, digest="late"))
    late.holding = 1
    clock.now += patience
    assert approvals.answer(late.question.id, True, "ann") is ApprovalState.EXPIRED


async def test_who_waits_to_the_end_finds_the_question_ended() -> None:
    """Although a timer may fire early: the result is never that the question is still open."""
    clock = Clock()  # stopped, as if no time had passed
    approvals = Approvals(0.01, clock=clock, steady=clock)
    call = parked(approvals)
    assert (await approvals.wait(call.question.id, CALLER, math.inf)).state is ApprovalState.EXPIRED


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_is_set_gives_a_question_no_more_time(jump: float) -> None:
    """Set back, question and caller's silence end on time by the steady clock; set ahead, both end at once."""
    day, steady = Clock(), Clock()
    approvals = Approvals(timeout=120.0, clock=day, steady=steady)
    call, other = parked(approvals), parked(approvals, structs.replace(CALLER, view="v2"))
    call.holding = 1  # its caller still polls, the other does not
    day.now += jump
    steady.now += SILENCE + 1
    approvals.sweep()
    assert other.state is (ApprovalState.VOID if jump < 0 else ApprovalState.EXPIRED)
    steady.now += 120
    approvals.sweep()
    assert call.state is ApprovalState.EXPIRED


@pytest.mark.parametrize(
    "other",
    [structs.replace(CALLER, view="v2"), structs.replace(CALLER, app="notes"), structs.replace(CALLER, view=None)],
)
def test_nobody_else_can_take_it_up(approvals: Approvals, other: Caller) -> None:
    """Another view, another app or a client without a view does not even learn that it exists."""
    call = parked(approvals)
    with pytest.raises(Refusal):
        approvals.find(call.question.id, other)


def test_another_principal_can_not_take_it_up(approvals: Approvals) -> None:
    """The same view id from another principal is another caller."""
    call = parked(approvals)
    with pytest.raises(Refusal):
        approvals.find(call.question.id, structs.replace(CALLER, principal=replace(LOCAL, subject="eve")))


def test_two_at_most_wait_for_a_view(approvals: Approvals) -> None:
    """A page cannot flood a person with questions."""
    for number in range(PER_VIEW):
        approvals.park(replace(ASK, digest=str(number)), CALLER)
    with pytest.raises(Refusal) as refused:
        approvals.park(ASK, CALLER)
    assert reason(refused) is Reason.APPROVAL_UNAVAILABLE


@pytest.mark.bound("questions that are open")
def test_ten_at_most_wait_for_a_principal(approvals: Approvals) -> None:
    """Over any number of its views; another principal may still ask."""
    for number in range(PER_PRINCIPAL):
        approvals.park(ASK, structs.replace(CALLER, view=f"v{number}"))
    with pytest.raises(Refusal) as refused:
        approvals.park(ASK, structs.replace(CALLER, view="another"))
    assert reason(refused) is Reason.APPROVAL_UNAVAILABLE
    approvals.park(ASK, structs.replace(CALLER, principal=replace(LOCAL, subject="ann")))


@pytest.mark.bound("questions that are asked anew, whatever became of those before")
def test_who_asks_and_gives_up_all_the_time_is_told_to_wait(approvals: Approvals, clock: Clock) -> None:
    """Over any number of views; a caller may still join an open question, and another principal may ask."""
    told: list[int] = []
    approvals.watch(lambda: told.append(len(approvals.open())))
    for number in range(ASKING.count):
        approvals.cancel(parked(approvals, structs.replace(CALLER, view=f"v{number}")))
    with pytest.raises(Refusal, match="Try again in 1 s") as refused:
        approvals.park(ASK, structs.replace(CALLER, view="another"))
    assert (reason(refused), dict(refused.value.headers)) == (Reason.APPROVAL_UNAVAILABLE, {"retry-after": "1"})
    assert len(told) == 2 * ASKING.count
    approvals.park(ASK, structs.replace(CALLER, principal=replace(LOCAL, subject="ann")))
    clock.now += ASKING.period / ASKING.count
    question = approvals.park(ASK, CALLER).question
    assert approvals.park(ASK, CALLER).question == question


@pytest.mark.bound("questions after a person said no")
def test_three_refusals_in_five_minutes_refuse_the_view(approvals: Approvals, clock: Clock) -> None:
    """Questions of a view that insists are refused for a while."""
    for number in range(3):
        call = parked(approvals, ask=replace(ASK, digest=str(number)))
        approvals.answer(call.question.id, False, "ann")
    with pytest.raises(Refusal) as refused:
        approvals.park(ASK, CALLER)
    assert reason(refused) is Reason.APPROVAL_DECLINED
    approvals.park(ASK, structs.replace(CALLER, view="v2"))
    clock.now += 301
    approvals.park(ASK, CALLER)


def test_a_closed_view_voids_its_questions(approvals: Approvals) -> None:
    """Its questions do not outlive it."""
    call = parked(approvals)
    approvals.cancel_view("v1")
    assert call.state is ApprovalState.VOID


def test_what_has_ended_is_forgotten(approvals: Approvals, clock: Clock) -> None:
    """Finished questions are removed."""
    call = parked(approvals)
    approvals.cancel(call)
    clock.now += KEPT + 1
    with pytest.raises(Refusal):
        approvals.find(call.question.id, CALLER)


def test_nobody_approves_what_cannot_be_shown(approvals: Approvals) -> None:
    """The question contains the whole body and its headers; otherwise it is refused."""
    shown = approvals.park(replace(ASK, body=b"x" * SHOWN, headers=(("x-tenant", "other"),)), CALLER).question
    assert (len(shown.body), shown.size, shown.headers) == (SHOWN, SHOWN, (("x-tenant", "other"),))
    with pytest.raises(Refusal) as refused:
        approvals.park(replace(ASK, digest="large", body=b"x" * (SHOWN + 1)), CALLER)
    assert reason(refused) is Reason.APPROVAL_UNAVAILABLE


def test_a_caller_whose_login_has_ended_sends_nothing(approvals: Approvals, clock: Clock) -> None:
    """The caller's credential is checked again immediately before sending."""
    caller = structs.replace(CALLER, principal=replace(LOCAL, expires=clock.now + 5))
    call = parked(approvals, caller)
    clock.now += 6
    approvals.answer(call.question.id, True, "ann")
    with pytest.raises(Refusal) as refused:
        approvals.take(call, ASK.digest, ASK.policy_version)
    assert reason(refused) is Reason.APPROVAL_EXPIRED


class Broken:
    """An approval channel that raises in each of its methods."""

    name = "broken"

    async def ask(self, question: Question) -> bool | None:
        """Raise before it asks."""
        raise RuntimeError("a fault of ours")

    async def over(self, question: Question, state: ApprovalState) -> None:
        """Raise at the end."""
        raise RuntimeError("a fault of ours")


class Well(Broken):
    """A channel that works, and keeps what it receives."""

    name = "well"

    def __init__(self) -> None:
        self.asked = asyncio.Queue[str]()
        self.told = asyncio.Queue[str]()

    async def ask(self, question: Question) -> bool | None:
        """Keep the question, and leave the answer to others."""
        self.asked.put_nowait(question.id)
        return None

    async def over(self, question: Question, state: ApprovalState) -> None:
        """Keep how the question ended."""
        self.told.put_nowait(f"{question.id} {state}")


async def test_a_way_to_ask_that_fails_ends_no_other_way_and_no_other_question(
    approvals: Approvals, tmp_path: Path
) -> None:
    """Neither when it asks, nor when it is notified that a question has ended."""
    well = Well()
    async with Journal(tmp_path / "journal") as journal:
        answers = ApprovalAnswers(approvals, Grants(), Recorder(journal, Hooks([], tmp_path), OnFailure.CONTINUE))
        running = asyncio.create_task(Ways(approvals, answers, [Broken(), well, Broken()]).run())
        async with asyncio.timeout(20):
            for view in ("v1", "v2"):
                call = parked(approvals, structs.replace(CALLER, view=view))
                assert await well.asked.get() == call.question.id
                approvals.answer(call.question.id, False, "ann")
                assert await well.told.get() == f"{call.question.id} declined"
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})

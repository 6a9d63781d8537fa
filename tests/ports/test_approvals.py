"""The port `Approvals`: bound to a call, expiring with their caller, answered once, run at most once."""

import asyncio
import math
import re
from dataclasses import replace
from typing import Protocol

import pytest
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.exchange.approvals import (
    ASKING,
    KEPT,
    PER_PRINCIPAL,
    PER_VIEW,
    SHOWN,
    SILENCE,
    MemoryApprovals,
    MemoryGrants,
    Still,
)
from gateway.exchange.shared_approvals import DatabaseApprovals
from gateway.model import LOCAL, Caller, Door, Initiator, Principal
from gateway.ports.approvals import Approvals, ApprovalState, Ask, ParkedCall
from gateway.stores.sealing import KeyRing
from gateway.stores.sql import Database
from tests.clock import Clock
from tests.exchange.house import ends_when_cancelled
from tests.ports.conftest import at

CALLER = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.MODEL, "model-call", view="v1", proven=True)
ASK = Ask("Remove tea from the cart?", "DELETE", "/api/cart/tea", "digest", "sha256:1")


class Make(Protocol):
    """Makes an implementation; `day` is the wall clock, `steady` the monotonic one, `still` looks credentials up."""

    def __call__(self, timeout: float, day: Clock, steady: Clock, still: Still | None = None) -> Approvals: ...


@pytest.fixture
def make(shared: Database | None, ring: KeyRing) -> Make:
    """Each implementation."""

    def make(timeout: float, day: Clock, steady: Clock, still: Still | None = None) -> Approvals:
        if shared is None:
            return MemoryApprovals(timeout, day, still, steady)
        return DatabaseApprovals(shared, ring, timeout, day, still, steady, now=at(day))

    return make


@pytest.fixture
def approvals(make: Make, clock: Clock) -> Approvals:
    """Approvals without a question."""
    return make(120.0, clock, clock)


async def park(approvals: Approvals, caller: Caller = CALLER, ask: Ask = ASK) -> ParkedCall:
    """Ask a question; return the waiting call."""
    return approvals.find((await approvals.park(ask, caller)).question.id, caller)


def reason(refused: pytest.ExceptionInfo[Refusal]) -> Reason:
    """Return the reason of the refusal."""
    return refused.value.reason


async def test_what_a_person_types_begins_with_no_dash(approvals: Approvals) -> None:
    """On a command line it would be read as an option, not as the id of a question or a grant."""
    question = (await park(approvals, ask=replace(ASK, grant=60.0, rule="DELETE /api/cart/{item}"))).question
    for id in (question.id, (await MemoryGrants().give(question, LOCAL, "ann")).id):
        assert re.fullmatch("[0-9a-f]{32}", id)


async def test_an_approved_call_is_dispatched_once(approvals: Approvals) -> None:
    """A second dispatch of the same approval is refused with its reason."""
    call = await park(approvals)
    assert await approvals.answer(call.question.id, True, "ann") is ApprovalState.APPROVED
    await approvals.dispatch(call, ASK.digest, ASK.policy_version)
    with pytest.raises(Refusal, match="another just like it took it") as refused:
        await approvals.dispatch(call, ASK.digest, ASK.policy_version)
    assert reason(refused) is Reason.APPROVAL_EXPIRED


async def test_nothing_is_dispatched_without_a_yes(approvals: Approvals) -> None:
    """An open question does not approve."""
    with pytest.raises(Refusal):
        await approvals.dispatch(await park(approvals), ASK.digest, ASK.policy_version)


@pytest.mark.parametrize(("digest", "version"), [("other", ASK.policy_version), (ASK.digest, "sha256:2")])
async def test_a_yes_holds_for_what_was_shown_only(approvals: Approvals, digest: str, version: str) -> None:
    """Another request, or another policy, needs another approval; the first is used up."""
    call = await park(approvals)
    await approvals.answer(call.question.id, True, "ann")
    with pytest.raises(Refusal) as refused:
        await approvals.dispatch(call, digest, version)
    assert reason(refused) is Reason.APPROVAL_EXPIRED
    with pytest.raises(Refusal, match="the call, or its policy, is another"):
        await approvals.dispatch(call, ASK.digest, ASK.policy_version)


async def test_the_first_answer_counts(approvals: Approvals) -> None:
    """A no after a yes changes nothing, and whoever gives it learns that it came too late."""
    call = await park(approvals)
    await approvals.answer(call.question.id, True, "ann")
    assert await approvals.answer(call.question.id, False, "bob") is None
    assert (call.state, call.answered_by) == (ApprovalState.APPROVED, "ann")


async def test_a_no_refuses(approvals: Approvals) -> None:
    """The caller learns that a person declined."""
    call = await park(approvals)
    await approvals.answer(call.question.id, False, "ann")
    with pytest.raises(Refusal) as refused:
        await approvals.dispatch(call, ASK.digest, ASK.policy_version)
    assert reason(refused) is Reason.APPROVAL_DECLINED


async def test_the_same_call_of_the_same_view_joins(approvals: Approvals) -> None:
    """A person is asked once; another view is another question."""
    first = await approvals.park(ASK, CALLER)
    assert await approvals.park(ASK, CALLER) == first
    assert await approvals.park(ASK, structs.replace(CALLER, view="v2")) != first


async def test_a_caller_that_is_silent_is_gone(approvals: Approvals, clock: Clock) -> None:
    """Its call is void, and can no longer be approved."""
    call = await park(approvals)
    clock.now += SILENCE + 1
    assert approvals.open() == []
    assert await approvals.answer(call.question.id, True, "ann") is None
    assert approvals.state(call.question.id) is ApprovalState.VOID


async def test_an_approved_call_whose_caller_is_gone_is_void(approvals: Approvals, clock: Clock) -> None:
    """A yes is not kept for a caller that comes back later."""
    call = await park(approvals)
    await approvals.answer(call.question.id, True, "ann")
    clock.now += SILENCE + 1
    approvals.sweep()
    with pytest.raises(Refusal):
        await approvals.dispatch(call, ASK.digest, ASK.policy_version)


async def test_waiting_counts_as_asking(approvals: Approvals, clock: Clock) -> None:
    """While the caller's connection waits, its question stays open."""
    call = await park(approvals)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(approvals.wait(call.question.id, CALLER, 3600))
        await asyncio.sleep(0)
        clock.now += SILENCE + 1
        assert await approvals.answer(call.question.id, True, "ann") is ApprovalState.APPROVED
        async with asyncio.timeout(60):  # the answer wakes it: by itself it would wait for two minutes
            assert (await waiting).state is ApprovalState.APPROVED


@pytest.mark.parametrize("turns", range(5))
async def test_who_waits_and_is_cancelled_ends_also_as_the_answer_comes(approvals: Approvals, turns: int) -> None:
    """When the gateway stops, it cancels a waiter only once."""
    call = await park(approvals)
    answer = approvals.answer(call.question.id, True, "ann")
    await ends_when_cancelled(
        approvals.wait(call.question.id, CALLER, 60), lambda: asyncio.ensure_future(answer), turns
    )


async def test_a_question_expires(approvals: Approvals, clock: Clock) -> None:
    """However often its caller polls."""
    call = await park(approvals)
    clock.now += 121
    approvals.sweep()
    assert call.state is ApprovalState.EXPIRED


@pytest.mark.parametrize("patience", [1.0, 3600.0, 24 * 3600.0])
@pytest.mark.parametrize("timeout", [1.0, 120.0, 24 * 3600.0])
async def test_a_question_ends_when_its_person_was_told(make: Make, timeout: float, patience: float) -> None:
    """With a rule's timeout that is longer or shorter than the configured one; also while a caller waits."""
    clock = Clock()
    approvals = make(timeout, clock, clock)
    call = await park(approvals, ask=replace(ASK, question_timeout=patience))
    call.holding = 1
    assert call.question.expires - call.question.created == patience
    clock.now += patience - 0.5
    approvals.sweep()
    assert call.state is ApprovalState.OPEN
    assert await approvals.answer(call.question.id, True, "ann") is ApprovalState.APPROVED
    late = await park(approvals, ask=replace(ASK, question_timeout=patience, digest="late"))
    late.holding = 1
    clock.now += patience
    assert await approvals.answer(late.question.id, True, "ann") is None
    assert late.state is ApprovalState.EXPIRED


async def test_who_waits_to_the_end_finds_the_question_ended(make: Make) -> None:
    """Although a timer may fire early: the result is never that the question is still open."""
    clock = Clock()  # stopped, as if no time had passed
    approvals = make(0.01, clock, clock)
    call = await park(approvals)
    assert (await approvals.wait(call.question.id, CALLER, math.inf)).state is ApprovalState.EXPIRED


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_gives_a_question_no_more_time(make: Make, jump: float) -> None:
    """Set back, question and caller's silence end on time by the steady clock; set ahead, both end at once."""
    day, steady = Clock(), Clock()
    approvals = make(120.0, day, steady)
    call, other = await park(approvals), await park(approvals, structs.replace(CALLER, view="v2"))
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
async def test_nobody_else_can_take_it_up(approvals: Approvals, other: Caller) -> None:
    """Another view, another app or a client without a view does not even learn that it exists."""
    call = await park(approvals)
    with pytest.raises(Refusal):
        approvals.find(call.question.id, other)


async def test_another_principal_can_not_take_it_up(approvals: Approvals) -> None:
    """The same view id from another principal is another caller."""
    call = await park(approvals)
    with pytest.raises(Refusal):
        approvals.find(call.question.id, structs.replace(CALLER, principal=replace(LOCAL, subject="eve")))


async def test_two_at_most_wait_for_a_view(approvals: Approvals) -> None:
    """A page cannot flood a person with questions."""
    for number in range(PER_VIEW):
        await approvals.park(replace(ASK, digest=str(number)), CALLER)
    with pytest.raises(Refusal) as refused:
        await approvals.park(ASK, CALLER)
    assert reason(refused) is Reason.APPROVAL_UNAVAILABLE


@pytest.mark.bound("open questions")
async def test_ten_at_most_wait_for_a_principal(approvals: Approvals) -> None:
    """Over any number of its views; another principal may still ask."""
    for number in range(PER_PRINCIPAL):
        await approvals.park(ASK, structs.replace(CALLER, view=f"v{number}"))
    with pytest.raises(Refusal) as refused:
        await approvals.park(ASK, structs.replace(CALLER, view="another"))
    assert reason(refused) is Reason.APPROVAL_UNAVAILABLE
    await approvals.park(ASK, structs.replace(CALLER, principal=replace(LOCAL, subject="ann")))


@pytest.mark.bound("new questions")
async def test_who_asks_and_gives_up_all_the_time_is_told_to_wait(approvals: Approvals, clock: Clock) -> None:
    """Over any number of views; a caller may still join an open question, and another principal may ask."""
    told: list[int] = []
    approvals.watch(lambda: told.append(len(approvals.open())))
    for number in range(ASKING.count):
        approvals.cancel(await park(approvals, structs.replace(CALLER, view=f"v{number}")))
    with pytest.raises(Refusal, match="Try again in 1 s") as refused:
        await approvals.park(ASK, structs.replace(CALLER, view="another"))
    assert (reason(refused), dict(refused.value.headers)) == (Reason.APPROVAL_UNAVAILABLE, {"retry-after": "1"})
    assert len(told) == 2 * ASKING.count
    await approvals.park(ASK, structs.replace(CALLER, principal=replace(LOCAL, subject="ann")))
    clock.now += ASKING.period / ASKING.count
    question = (await approvals.park(ASK, CALLER)).question
    assert (await approvals.park(ASK, CALLER)).question == question


@pytest.mark.bound("refusals before questions are suppressed")
async def test_three_refusals_in_five_minutes_refuse_the_view(approvals: Approvals, clock: Clock) -> None:
    """Questions of a view that insists are refused for a while."""
    for number in range(3):
        call = await park(approvals, ask=replace(ASK, digest=str(number)))
        await approvals.answer(call.question.id, False, "ann")
    with pytest.raises(Refusal) as refused:
        await approvals.park(ASK, CALLER)
    assert reason(refused) is Reason.APPROVAL_DECLINED
    await approvals.park(ASK, structs.replace(CALLER, view="v2"))
    clock.now += 301
    await approvals.park(ASK, CALLER)


async def test_a_closed_view_voids_its_questions(approvals: Approvals) -> None:
    """Its questions do not outlive it."""
    call = await park(approvals)
    approvals.cancel_view("v1")
    assert call.state is ApprovalState.VOID


async def test_questions_of_those_who_may_not_use_the_app_any_more_are_void(approvals: Approvals) -> None:
    """Open ones and approved ones; others stay."""
    bob = structs.replace(CALLER, principal=replace(LOCAL, subject="bob"), view="v2")
    approved, open_one, other = [await park(approvals, one) for one in (CALLER, bob, structs.replace(bob, app="notes"))]
    await approvals.answer(approved.question.id, True, "ann")
    approvals.cancel_excluded(lambda principal, app: app == "notes")
    assert [call.state for call in (approved, open_one, other)] == ["void", "void", "open"]


async def test_what_has_ended_is_forgotten(approvals: Approvals, clock: Clock) -> None:
    """Finished questions are removed."""
    call = await park(approvals)
    approvals.cancel(call)
    clock.now += KEPT + 1
    with pytest.raises(Refusal):
        approvals.find(call.question.id, CALLER)


async def test_nobody_approves_what_cannot_be_shown(approvals: Approvals) -> None:
    """The question contains the whole body and its headers; otherwise it is refused."""
    shown = (await approvals.park(replace(ASK, body=b"x" * SHOWN, headers=(("x-tenant", "other"),)), CALLER)).question
    assert (len(shown.body), shown.size, shown.headers) == (SHOWN, SHOWN, (("x-tenant", "other"),))
    with pytest.raises(Refusal) as refused:
        await approvals.park(replace(ASK, digest="large", body=b"x" * (SHOWN + 1)), CALLER)
    assert reason(refused) is Reason.APPROVAL_UNAVAILABLE


async def test_a_caller_whose_login_has_ended_sends_nothing(approvals: Approvals, clock: Clock) -> None:
    """The caller's credential is checked again immediately before sending."""
    caller = structs.replace(CALLER, principal=replace(LOCAL, expires=clock.now + 5))
    call = await park(approvals, caller)
    clock.now += 6
    await approvals.answer(call.question.id, True, "ann")
    with pytest.raises(Refusal) as refused:
        await approvals.dispatch(call, ASK.digest, ASK.policy_version)
    assert reason(refused) is Reason.APPROVAL_EXPIRED


async def test_of_concurrent_answers_one_counts(approvals: Approvals) -> None:
    """The others learn that theirs came too late."""
    call = await park(approvals)
    answers = [approvals.answer(call.question.id, number % 2 == 0, f"person {number}") for number in range(16)]
    counted = [state for state in await asyncio.gather(*answers) if state is not None]
    assert counted == [call.state]


async def test_of_concurrent_dispatches_one_runs(make: Make, clock: Clock) -> None:
    """Also while the credential of the caller is looked up."""

    async def still(_: Principal) -> bool:
        await asyncio.sleep(0)
        return True

    approvals = make(120.0, clock, clock, still)
    call = await park(approvals)
    await approvals.answer(call.question.id, True, "ann")
    tried = [approvals.dispatch(call, ASK.digest, ASK.policy_version) for _ in range(16)]
    outcomes = await asyncio.gather(*tried, return_exceptions=True)
    assert outcomes.count(None) == 1
    assert all(outcome is None or isinstance(outcome, Refusal) for outcome in outcomes)


async def test_a_revoked_caller_sends_nothing(make: Make, clock: Clock) -> None:
    """The approval is void, although a person gave it."""

    async def revoked(_: Principal) -> bool:
        return False

    approvals = make(120.0, clock, clock, revoked)
    call = await park(approvals)
    await approvals.answer(call.question.id, True, "ann")
    with pytest.raises(Refusal, match="login or token of the caller ended") as refused:
        await approvals.dispatch(call, ASK.digest, ASK.policy_version)
    assert (reason(refused), call.state) == (Reason.APPROVAL_EXPIRED, ApprovalState.VOID)


async def test_an_unknown_question_has_no_state_and_no_answer(approvals: Approvals) -> None:
    """An id that was never issued is refused like one that has ended."""
    assert await approvals.question("unknown") is None
    assert await approvals.answer("unknown", True, "ann") is None
    assert approvals.state("unknown") is None
    with pytest.raises(Refusal) as refused:
        await approvals.wait("unknown", CALLER, 1)
    assert reason(refused) is Reason.APPROVAL_EXPIRED


async def test_open_questions_are_listed_oldest_first_with_their_principal(approvals: Approvals) -> None:
    """Answered questions are not among them."""
    ann = replace(LOCAL, subject="ann")
    calls = [await park(approvals, structs.replace(CALLER, view=view, principal=ann)) for view in "abc"]
    await approvals.answer(calls[1].question.id, False, "ann")
    assert [(one.question.view, one.principal) for one in approvals.open()] == [("a", ann), ("c", ann)]
    assert await approvals.question(calls[0].question.id) == approvals.open()[0]
    assert await approvals.question(calls[1].question.id) is None


async def test_questions_end_with_their_cause_and_their_policy(approvals: Approvals) -> None:
    """Questions caused by a cancelled call of the model are void, and so are those under an older policy."""
    caused = await park(approvals, structs.replace(CALLER, view="v1", cause="call"))
    outdated = await park(approvals, structs.replace(CALLER, view="v2"), replace(ASK, policy_version="sha256:0"))
    stays = await park(approvals, structs.replace(CALLER, view="v3"))
    approvals.cancel_caused("call")
    approvals.cancel_outdated("cart", ASK.policy_version)
    assert [call.state for call in (caused, outdated, stays)] == ["void", "void", "open"]
    assert [approvals.asks_about(view) for view in ("v1", "v2", "v3")] == [False, False, True]


async def test_a_process_that_stops_asks_nobody_and_sends_what_was_approved(approvals: Approvals) -> None:
    """Its open questions are void at once, and each caller learns why."""
    asked = await park(approvals)
    approved = await park(approvals, ask=replace(ASK, digest="other", target="/api/cart/cup"))
    await approvals.answer(approved.question.id, True, "alice")
    waiting = asyncio.ensure_future(approvals.wait(asked.question.id, CALLER, math.inf))
    await asyncio.sleep(0)
    approvals.stop()
    async with asyncio.timeout(60):
        assert (await waiting).state is ApprovalState.VOID
    for step in (approvals.dispatch(asked, ASK.digest, ASK.policy_version), approvals.park(ASK, CALLER)):
        with pytest.raises(Refusal) as refused:
            await step
        assert refused.value.reason is Reason.STOPPING
    assert approvals.open() == []
    await approvals.dispatch(approved, "other", ASK.policy_version)


async def test_watchers_are_called_for_each_change_until_they_unregister(approvals: Approvals) -> None:
    """A question that comes, and one that ends."""
    seen: list[int] = []
    stop = approvals.watch(lambda: seen.append(len(approvals.open())))
    call = await park(approvals)
    await approvals.answer(call.question.id, True, "ann")
    stop()
    await park(approvals, structs.replace(CALLER, view="v2"))
    assert seen == [1, 0]

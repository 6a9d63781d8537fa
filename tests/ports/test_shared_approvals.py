"""Approvals and grants of two processes on one PostgreSQL: who owns, who answers, and what a writer of rows can do."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from sqlalchemy import delete, insert, select, update

from gateway.errors import Reason, Refusal
from gateway.exchange import shared_approvals
from gateway.exchange.approvals import ASKING, PER_PRINCIPAL
from gateway.exchange.shared_approvals import DatabaseApprovals
from gateway.exchange.shared_grants import DatabaseGrants
from gateway.model import LOCAL, Caller, Door, Initiator, Json, Secret
from gateway.ports.approvals import ApprovalState, Ask, ParkedCall
from gateway.stores.schema import APPROVALS, GRANTS
from gateway.stores.sealing import GivenKeys, KeyRing, new_key
from gateway.stores.sql import Database
from tests.ports.conftest import empty_database
from tests.postgresql import PostgreSQL, postgresql

CALLER = Caller(LOCAL, "cart", Door.MCP, Initiator.MODEL, "model-call")
ASK = Ask("Remove tea?", "DELETE", "/api/cart/tea", "digest", "sha256:1", grant=600.0, rule="DELETE /api/cart/{item}")


@pytest.fixture
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """What someone who can write the database sees of it."""
    async with Database(await empty_database("postgresql", request, tmp_path)) as opened:
        yield opened


@pytest.fixture
def one(rows: Database, ring: KeyRing) -> DatabaseApprovals:
    """The approvals of one process."""
    return DatabaseApprovals(rows, ring, 120.0, owner="one")


@pytest.fixture
async def two(rows: Database, server: PostgreSQL, ring: KeyRing) -> AsyncIterator[DatabaseApprovals]:
    """Those of another process."""
    async with Database(server.url) as opened:
        yield DatabaseApprovals(opened, ring, 120.0, owner="two")


@asynccontextmanager
async def kept(*running: DatabaseApprovals) -> AsyncIterator[None]:
    """Let these processes renew their leases and read the rows."""
    tasks = [asyncio.create_task(each.keep()) for each in running]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def park(approvals: DatabaseApprovals, ask: Ask = ASK, caller: Caller = CALLER) -> ParkedCall:
    """Ask a question; return the waiting call."""
    return approvals.find((await approvals.park(ask, caller)).question.id, caller)


async def row(rows: Database, id: str) -> dict[str, Json]:
    """Return the row of a question."""
    async with rows.connect() as connection:
        return dict((await connection.execute(select(APPROVALS).where(APPROVALS.c.id == id))).one()._mapping)


async def write(rows: Database, id: str, **values: object) -> None:
    """Change the row of a question as someone does who can write the database, and has no key."""
    async with rows.connect() as connection:
        await connection.execute(update(APPROVALS).where(APPROVALS.c.id == id).values(values))
        await connection.commit()


async def test_one_process_asks_and_the_other_lists_and_answers(one: DatabaseApprovals, two: DatabaseApprovals) -> None:
    """The owner alone dispatches; the answer comes back once the call is sent."""
    async with kept(one, two):
        call = await park(one)
        async with asyncio.timeout(30):
            while not two.open():
                await asyncio.sleep(0.05)
        assert two.open() == one.open()
        assert (two.own(), two.state(call.question.id)) == ([], ApprovalState.OPEN)
        answering = asyncio.create_task(two.answer(call.question.id, True, "ann"))
        assert (await one.wait(call.question.id, CALLER, 60)).state is ApprovalState.APPROVED
        await one.dispatch(call, ASK.digest, ASK.policy_version)
        assert await answering is ApprovalState.DISPATCHED
    assert (call.answered_by, call.state) == ("ann", ApprovalState.DISPATCHED)
    with pytest.raises(Refusal):
        await one.dispatch(call, ASK.digest, ASK.policy_version)


async def test_an_answer_for_a_caller_that_has_gone_says_so(one: DatabaseApprovals, two: DatabaseApprovals) -> None:
    """The person does not read that their yes was used."""
    call = await park(one)
    answering = asyncio.create_task(two.answer(call.question.id, True, "ann"))
    while (await row(one._database, call.question.id))["state"] == "open":
        await asyncio.sleep(0.02)
    one.cancel(call)
    await one.refresh()
    assert await answering is None


async def test_of_answers_at_both_processes_one_counts(one: DatabaseApprovals, two: DatabaseApprovals) -> None:
    """Whoever comes too late learns it."""
    async with kept(one, two):
        for turn in range(5):
            call = await park(one, replace(ASK, digest=str(turn)), structs.replace(CALLER, view=f"v{turn}"))
            answers = [each.answer(call.question.id, each is one, "ann") for each in (one, two) for _ in range(4)]
            assert sum(state is not None for state in await asyncio.gather(*answers)) == 1
            one.cancel(call)


@pytest.mark.parametrize("state", ["approved", "dispatched"])
@pytest.mark.parametrize("answer", [None, "", "null", '["ann", "00"]', '["ann"]', "[", "{}", '[1, "00"]'])
async def test_a_yes_that_was_written_into_the_row_is_none(
    one: DatabaseApprovals, rows: Database, state: str, answer: str | None
) -> None:
    """Nothing is dispatched."""
    call = await park(one)
    await write(rows, call.question.id, state=state, answer=answer)
    await one.refresh()
    assert call.state in (ApprovalState.VOID, ApprovalState.OPEN)
    with pytest.raises(Refusal):
        await one.dispatch(call, ASK.digest, ASK.policy_version)


async def test_the_answer_to_another_question_is_none(one: DatabaseApprovals, rows: Database) -> None:
    """Nor is a no that was made a yes."""
    approved, other = await park(one), await park(one, replace(ASK, digest="other"))
    await one.answer(approved.question.id, True, "ann")
    stolen = (await row(rows, approved.question.id))["answer"]
    await write(rows, other.question.id, state="approved", answer=stolen)
    await one.refresh()
    assert (approved.state, other.state) == (ApprovalState.APPROVED, ApprovalState.VOID)
    third = await park(one, replace(ASK, digest="third"))
    await DatabaseApprovals(rows, KeyRing(GivenKeys("KEYS", Secret(new_key()))), 60.0).answer(
        third.question.id, True, "eve"
    )
    await one.refresh()
    assert third.state is not ApprovalState.APPROVED


async def test_a_used_approval_is_not_used_again_although_its_row_is_restored(
    one: DatabaseApprovals, two: DatabaseApprovals, rows: Database
) -> None:
    """Neither where it was dispatched, nor at another process at which the same call comes."""
    async with kept(one, two):
        call = await park(one)
        await two_answers(two, one, call)
        approved = await row(rows, call.question.id)
        await one.dispatch(call, ASK.digest, ASK.policy_version)
        restored = {name: value for name, value in approved.items() if name != "id"}
        await write(rows, call.question.id, **restored)
        with pytest.raises(Refusal):
            await one.dispatch(call, ASK.digest, ASK.policy_version)
        with pytest.raises(Refusal, match="waits for a person's approval already"):
            await two.park(ASK, CALLER)
    with pytest.raises(Refusal):
        two.find(call.question.id, CALLER)


async def two_answers(two: DatabaseApprovals, one: DatabaseApprovals, call: ParkedCall) -> None:
    """Let a person approve at one process, and the owner read it."""
    answering = asyncio.create_task(two.answer(call.question.id, True, "ann"))
    async with asyncio.timeout(30):
        while call.state is not ApprovalState.APPROVED:
            await one.refresh()
    answering.cancel()
    with suppress(asyncio.CancelledError):
        await answering


async def test_a_question_whose_text_was_changed_is_not_shown(
    one: DatabaseApprovals, two: DatabaseApprovals, rows: Database
) -> None:
    """A person approves only what the owner asked."""
    shown, other = await park(one), await park(one, replace(ASK, digest="other"))
    await write(rows, shown.question.id, sealed=(await row(rows, other.question.id))["sealed"])
    await two.refresh()
    assert [each.question.id for each in two.open()] == [other.question.id]
    assert await two.question(shown.question.id) is None
    assert await two.answer(shown.question.id, True, "ann") is None


async def test_the_questions_of_a_process_that_has_gone_cannot_be_answered(
    one: DatabaseApprovals, two: DatabaseApprovals, rows: Database
) -> None:
    """And when it wakes again, it dispatches nothing: its lease has lapsed meanwhile."""
    asked, approved = await park(one), await park(one, replace(ASK, digest="other"))
    await one.answer(approved.question.id, True, "ann")
    for call in (asked, approved):
        await write(rows, call.question.id, seen=time.time() - 11)
    await two.refresh()
    assert two.open() == []
    assert await two.answer(asked.question.id, True, "ann") is None
    with pytest.raises(Refusal):
        await one.dispatch(approved, "other", ASK.policy_version)
    await one.refresh()
    assert (asked.state, approved.state) == (ApprovalState.VOID, ApprovalState.VOID)


async def test_a_process_that_slept_beyond_its_lease_dispatches_nothing(
    one: DatabaseApprovals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own steady clock, before it asks the database."""
    call = await park(one)
    await one.answer(call.question.id, True, "ann")
    monkeypatch.setattr(shared_approvals, "STALE", -1.0)
    with pytest.raises(Refusal) as refused:
        await one.dispatch(call, ASK.digest, ASK.policy_version)
    assert (refused.value.status, call.state) == (503, ApprovalState.VOID)


async def test_bounds_count_over_all_processes(one: DatabaseApprovals, two: DatabaseApprovals) -> None:
    """Open questions, refusals and new questions."""
    for number in range(PER_PRINCIPAL):
        await park((one, two)[number % 2], ASK, structs.replace(CALLER, view=f"v{number}"))
    for each in (one, two):
        with pytest.raises(Refusal, match="Too many calls wait"):
            await each.park(ASK, CALLER)
    ann = structs.replace(CALLER, principal=replace(LOCAL, subject="ann"), view="v1")
    for number in range(3):
        call = await park((one, two)[number % 2], replace(ASK, digest=str(number)), ann)
        await (one, two)[number % 2].answer(call.question.id, False, "ann")
    with pytest.raises(Refusal) as refused:
        await two.park(ASK, ann)
    assert refused.value.reason is Reason.APPROVAL_DECLINED
    bob = structs.replace(CALLER, principal=replace(LOCAL, subject="bob"))
    asked = [await ask_and_cancel((one, two)[number % 2], bob, f"v{number}") for number in range(ASKING.count + 20)]
    assert ASKING.count <= asked.count(True) < ASKING.count + 20


async def ask_and_cancel(approvals: DatabaseApprovals, caller: Caller, view: str) -> bool:
    """Ask a question and give it up; return False if that was one too many."""
    try:
        approvals.cancel(await park(approvals, ASK, structs.replace(caller, view=view)))
    except Refusal as refusal:
        return "questions in" not in refusal.detail
    return True


async def test_a_call_that_is_repeated_elsewhere_is_handed_over(one: DatabaseApprovals, two: DatabaseApprovals) -> None:
    """With its question, answered or not; it is void where it waited before."""
    async with kept(one, two):
        call = await park(one)
        taken = await park(two)
        assert (taken.question.id, call.state) == (call.question.id, ApprovalState.VOID)
        await two.answer(taken.question.id, True, "ann")
        back = await park(one)
        assert (back.state, back.answered_by, taken.state) == (ApprovalState.APPROVED, "ann", ApprovalState.VOID)
        with pytest.raises(Refusal):
            await two.dispatch(taken, ASK.digest, ASK.policy_version)
        await one.dispatch(back, ASK.digest, ASK.policy_version)


async def test_a_call_that_waits_on_a_connection_is_not_taken_from_it(
    one: DatabaseApprovals, two: DatabaseApprovals
) -> None:
    """The repeated one is told to come back."""
    async with kept(one, two):
        call = await park(one)
        waiting = asyncio.create_task(one.wait(call.question.id, CALLER, 60))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="already") as refused:
            await two.park(ASK, CALLER)
        assert (refused.value.status, call.state) == (202, ApprovalState.OPEN)
        await two.answer(call.question.id, False, "ann")
        assert (await waiting).state is ApprovalState.DECLINED


async def test_nothing_is_decided_while_the_database_is_down(ring: KeyRing) -> None:
    """Each step is refused with its status, and works again afterwards; grants cover nothing."""
    with postgresql() as server:
        async with Database(server.url) as database:
            approvals, grants = DatabaseApprovals(database, ring, 120.0), DatabaseGrants(database, ring)
            open_one, approved = await park(approvals), await park(approvals, replace(ASK, digest="other"))
            await approvals.answer(approved.question.id, True, "ann")
            await grants.give(open_one.question, LOCAL, "ann")
            server.stop()
            for step in (
                approvals.park(replace(ASK, digest="third"), CALLER),
                approvals.answer(open_one.question.id, True, "ann"),
                approvals.dispatch(approved, "other", ASK.policy_version),
                approvals.question("unknown"),
            ):
                with pytest.raises(Refusal) as refused:
                    await step
                assert (refused.value.reason, refused.value.status) == (Reason.APPROVAL_UNAVAILABLE, 503)
            assert await grants.covering(CALLER, ASK.rule, ASK.policy_version) is None
            server.start()
            await database.reconnect()
            await approvals.dispatch(approved, "other", ASK.policy_version)
            assert await grants.covering(CALLER, ASK.rule, ASK.policy_version) is not None


@pytest.fixture
def both(rows: Database, ring: KeyRing) -> tuple[DatabaseGrants, DatabaseGrants]:
    """The grants of two processes."""
    return DatabaseGrants(rows, ring), DatabaseGrants(rows, ring)


async def test_a_revocation_counts_everywhere_at_once(
    one: DatabaseApprovals, both: tuple[DatabaseGrants, DatabaseGrants], rows: Database
) -> None:
    """A row that is restored afterwards restores no grant in a process that has seen it go."""
    first, second = both
    given = await first.give((await park(one)).question, LOCAL, "ann")
    assert await second.covering(CALLER, ASK.rule, ASK.policy_version) == given
    await second.refresh()
    async with rows.connect() as connection:
        copied = dict((await connection.execute(select(GRANTS))).one()._mapping)
    await first.revoke(given.id)
    assert await second.covering(CALLER, ASK.rule, ASK.policy_version) is None
    await second.refresh()
    async with rows.connect() as connection:
        await connection.execute(insert(GRANTS).values(copied))
        await connection.commit()
    for grants in both:
        assert await grants.covering(CALLER, ASK.rule, ASK.policy_version) is None
        await grants.refresh()
        assert grants.now() == []


async def test_a_grant_that_was_written_into_the_database_covers_nothing(
    one: DatabaseApprovals, both: tuple[DatabaseGrants, DatabaseGrants], rows: Database
) -> None:
    """Neither one for another rule, nor one of other keys, nor one that was prolonged."""
    first, _ = both
    question = (await park(one)).question
    foreign = DatabaseGrants(rows, KeyRing(GivenKeys("KEYS", Secret(new_key()))))
    await foreign.give(replace(question, rule="GET /api"), LOCAL, "eve")
    assert await first.covering(CALLER, "GET /api", ASK.policy_version) is None
    given = await first.give(question, LOCAL, "ann")
    async with rows.connect() as connection:
        other = (await connection.execute(select(GRANTS.c.call).where(GRANTS.c.id != given.id))).scalar_one()
        await connection.execute(delete(GRANTS).where(GRANTS.c.id != given.id))
        await connection.execute(update(GRANTS).values(call=other, expires=time.time() + 1e6))
        await connection.commit()
    assert await first.covering(CALLER, "GET /api", ASK.policy_version) is None

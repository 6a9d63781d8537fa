"""The steps of a call of a tool, against a tool of the test: their order, and the record of each way to end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.exchange.approval_step import ApprovalStep
from gateway.exchange.approvals import MemoryApprovals, MemoryGrants
from gateway.exchange.limit import Limiter, MemoryRates
from gateway.exchange.record import OnFailure, Record, Recorder
from gateway.exchange.tool_calls import RECORDED, ToolCalls
from gateway.hooks import Hooks
from gateway.model import LOCAL, Caller, Door, Effect, Initiator, Json, Visit
from gateway.policy import Decision, Limit, Obligations, Per, Rate
from gateway.ports.approvals import ApprovalState, Ask
from gateway.stores.journal import Journal
from gateway.stores.sql import Database
from gateway.stores.usage import DatabaseQuotas
from gateway.traces import Trace

MODEL = Caller(LOCAL, "cart", Door.MCP, Initiator.MODEL, "model-call", view="v1")
FREE = Obligations()
ASKING = Obligations(confirm="Clear it?")
ONCE = Obligations(limits=(Limit(Rate(1, 60.0), Per.PRINCIPAL, "clear"),))


class Broken(Exception):
    """An error that the tool's owner reports."""


@dataclass
class Tool:
    """One call of a tool that notes its steps; `failing` are the steps that raise an error."""

    obligations: Obligations = FREE
    effect: Effect = Effect.ALLOW
    arguments: Mapping[str, Any] = field(default_factory=dict)
    failing: dict[str, Exception] = field(default_factory=dict)
    offered: Sequence[str] | None = ("Clear the cart",)
    version: str = "1"
    running: Callable[[str], Awaitable[None]] | None = None
    steps: list[str] = field(default_factory=list)

    name = "clear"
    caller = MODEL
    fields: Mapping[str, Json] = field(default_factory=lambda: {"upstream": "shop"})
    step = "tool"
    typed = True

    def _note(self, step: str) -> None:
        self.steps.append(step)
        if step in self.failing:
            raise self.failing[step]

    def decide(self) -> tuple[Decision, str | None]:
        """Return the decision that the test wants."""
        self._note("decide")
        return Decision(self.effect, ("so says the test",), self.name, self.obligations), "1"

    def check(self) -> None:
        """Note it."""
        self._note("check")

    def counts_for(self) -> Caller:
        """Note it."""
        self._note("limit")
        return self.caller

    async def prepare(self, record: Record) -> None:
        """Note it."""
        self._note("prepare")

    def definition(self) -> Sequence[str] | None:
        """Return the texts that the test wants."""
        return self.offered

    def rule(self) -> str:
        """Return a rule that a grant can cover."""
        self._note("approve")
        return "tool clear"

    def policy_version(self) -> str:
        """Return the version that the test wants."""
        return self.version

    async def run(self, id: str, trace: Trace | None) -> str:
        """Note it, and do what the test wants."""
        self._note("run")
        if self.running is not None:
            await self.running(id)
        return "done"

    def status(self, result: str) -> int:
        """Return a status that no step sets."""
        return 207

    def refusal_result(self, refusal: Refusal, id: str) -> str:
        """Return the reason and the id of the record."""
        return f"{refusal.reason} {id}"

    def failure(self, error: Exception) -> str | None:
        """Know one error."""
        return f"the tool said {error}" if isinstance(error, Broken) else None


@dataclass
class House:
    """The steps with their collaborators."""

    calls: ToolCalls
    approvals: MemoryApprovals
    journal: Journal

    def lines(self) -> list[tuple[str, dict[str, Any]]]:
        """Return phase and fields of each line about a call."""
        found = [json.loads(line) for line in self.journal.path.read_text("utf-8").splitlines()]
        return [(line["phase"], {**line["fields"], "id": line["id"]}) for line in found if line["phase"] != "note"]

    def outcome(self) -> dict[str, Any]:
        """Return the fields of the one outcome."""
        (fields,) = [fields for phase, fields in self.lines() if phase == "outcome"]
        return fields

    async def question(self) -> str:
        """Return the id of the open question, as soon as there is one."""
        async with asyncio.timeout(60):
            while not self.approvals.open():
                await asyncio.sleep(0.001)
        return self.approvals.open()[0].question.id


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Yield them, with a record on disk."""
    async with Journal(tmp_path / "journal") as journal, Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        approvals = MemoryApprovals(120)
        recorder = Recorder(journal, Hooks([], tmp_path), OnFailure.REFUSE_UNSAFE)
        step = ApprovalStep(approvals, MemoryGrants(), "http://console.test/approvals/")
        yield House(
            ToolCalls(step, limiter=Limiter(MemoryRates(), DatabaseQuotas(database)), recorder=recorder),
            approvals,
            journal,
        )


async def test_the_steps_have_one_order(house: House) -> None:
    """The intent is written before the run, the outcome after it; the record has each step."""

    async def look(id: str) -> None:
        assert [(phase, fields["id"]) for phase, fields in house.lines()] == [("intent", id)]

    tool = Tool(ASKING, running=look, arguments={"what": "all"})
    calling = asyncio.ensure_future(house.calls.call(tool))
    await house.approvals.answer(await house.question(), True, "ann")
    assert await calling == "done"
    assert tool.steps == ["decide", "check", "limit", "prepare", "approve", "run"]
    outcome = house.outcome()
    assert (outcome["status"], outcome["arguments"], outcome["answered_by"]) == (207, {"what": "all"}, "ann")
    assert (outcome["kind"], outcome["tool"], outcome["upstream"]) == ("tool", "clear", "shop")
    assert list(outcome["timing"]) == ["decide", "limit", "approve", "tool"]


async def test_a_denied_call_goes_no_further(house: House) -> None:
    """It counts against no limit and asks nobody; its arguments are recorded, so that it can be decided again."""
    tool = Tool(ASKING, Effect.DENY, arguments={"what": "all"})
    outcome = await house.calls.call(tool), house.outcome()
    assert outcome[0] == f"policy-denied {outcome[1]['id']}"
    assert (outcome[1]["status"], outcome[1]["arguments"]) == (403, {"what": "all"})
    assert (tool.steps, house.approvals.open()) == (["decide"], [])
    assert [phase for phase, _ in house.lines()] == ["outcome"]


@pytest.mark.parametrize(
    ("failing", "steps"), [("check", ["decide", "check"]), ("prepare", ["decide", "check", "limit", "prepare"])]
)
async def test_a_step_that_refuses_ends_the_call(house: House, failing: str, steps: list[str]) -> None:
    """Nobody is asked about a call that cannot run anyway; the refusal is the result, and recorded."""
    tool = Tool(ASKING, failing={failing: Refusal(Reason.BAD_REQUEST, "not like this")})
    assert (await house.calls.call(tool)).startswith("bad-request ")
    assert (tool.steps, house.approvals.open()) == (steps, [])
    assert (house.outcome()["status"], house.outcome()["detail"]) == (400, "not like this")


async def test_wrong_arguments_do_not_count_and_what_counts_is_refused_before_it_is_prepared(house: House) -> None:
    """The limit of one call a minute is met by the first call whose arguments are right."""
    wrong = Tool(ONCE, failing={"check": Refusal(Reason.BAD_REQUEST, "not like this")})
    assert (await house.calls.call(wrong)).startswith("bad-request")
    assert await house.calls.call(Tool(ONCE)) == "done"
    again = Tool(ONCE)
    assert (await house.calls.call(again)).startswith("rate-limited")
    assert again.steps == ["decide", "check", "limit"]


async def test_a_declined_call_does_not_run(house: House) -> None:
    """The record has the person and the reason, and no intent."""
    tool = Tool(ASKING)
    calling = asyncio.ensure_future(house.calls.call(tool))
    await house.approvals.answer(await house.question(), False, "ann")
    assert (await calling).startswith("approval-declined")
    assert "run" not in tool.steps
    assert (house.outcome()["reason"], house.outcome()["answered_by"]) == ("approval-declined", "ann")
    assert [phase for phase, _ in house.lines()] == ["outcome"]


async def test_a_call_that_is_cancelled_while_a_person_is_asked_ends_with_its_question(house: House) -> None:
    """A later yes has no effect, and the record is closed."""
    tool = Tool(ASKING)
    calling = asyncio.ensure_future(house.calls.call(tool))
    id = await house.question()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await house.approvals.answer(id, True, "ann")
    assert house.approvals.state(id) is ApprovalState.VOID
    assert "run" not in tool.steps
    assert (house.outcome()["status"], house.outcome()["reason"]) == (499, "cancelled")


@pytest.mark.parametrize("change", [{"offered": ("Clear everything",)}, {"offered": None}, {"version": "2"}])
async def test_only_the_tool_that_was_shown_runs(house: House, change: dict[str, Any]) -> None:
    """Another definition, none, or another policy voids the approval."""
    tool = Tool(ASKING)
    calling = asyncio.ensure_future(house.calls.call(tool))
    id = await house.question()
    for name, value in change.items():
        setattr(tool, name, value)
    await house.approvals.answer(id, True, "ann")
    assert (await calling).startswith("approval-expired")
    assert "run" not in tool.steps


async def test_nobody_is_asked_about_a_tool_that_is_gone(house: House) -> None:
    """A page may drop its tool while the call is decided."""
    assert (await house.calls.call(Tool(ASKING, offered=None))).startswith("connection-lost")
    assert house.approvals.open() == []


async def test_cancelling_a_running_call_ends_the_questions_that_it_caused(house: House) -> None:
    """Also those about requests of its page, of which its client is notified with `tell`."""
    visits: list[Visit] = []

    async def ask(id: str) -> None:
        caused = structs.replace(MODEL, evidence="unproven-view", cause=id)
        await house.approvals.park(Ask("Remove tea?", "DELETE", "/api/cart/tea", "digest", "1"), caused)
        await asyncio.sleep(60)

    calling = asyncio.ensure_future(house.calls.call(Tool(running=ask), visits.append))
    id = await house.question()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert house.approvals.state(id) is ApprovalState.VOID
    assert [(visit.id, visit.typed, visit.over) for visit in visits] == [(id, False, False), (id, False, True)]
    assert house.outcome()["reason"] == "cancelled"


async def test_an_error_of_the_owner_is_recorded_and_goes_on(house: House) -> None:
    """Its client gets it as it is."""
    with pytest.raises(Broken):
        await house.calls.call(Tool(failing={"run": Broken("no")}))
    assert (house.outcome()["status"], house.outcome()["detail"]) == (502, "the tool said no")


@pytest.mark.parametrize("failing", ["decide", "prepare", "run"])
async def test_an_unexpected_error_ends_the_call_alone(
    house: House, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    """It is logged; the caller learns that the gateway failed, and the record is closed."""
    with caplog.at_level(logging.ERROR):
        result = await house.calls.call(Tool(failing={failing: KeyError("secret")}))
    assert result == f"internal {house.outcome()['id']}"
    assert (house.outcome()["status"], house.outcome()["reason"]) == (500, "internal")
    assert "the tool clear failed" in caplog.text
    assert "secret" not in result


@pytest.mark.parametrize(
    ("text", "recorded"),
    [("x" * (RECORDED - 12), True), ("x" * (RECORDED - 11), False), ("ü" * (RECORDED // 2), False)],
)
async def test_arguments_are_measured_in_bytes(house: House, text: str, recorded: bool) -> None:
    """Up to 2 KiB are recorded, of longer ones their size, whatever their characters."""
    await house.calls.call(Tool(arguments={"what": text}))
    size = len(json.dumps({"what": text}, ensure_ascii=False).encode())
    assert house.outcome()["request_size"] == size
    assert house.outcome()["arguments"] == ({"what": text} if recorded else f"{size} bytes")


async def test_large_arguments_are_measured_in_bytes_too(house: House) -> None:
    """They are measured in pieces, in a thread."""
    await house.calls.call(Tool(arguments={"what": "ü" * 300_000}))
    assert house.outcome()["request_size"] == 600_011


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), [1] * 10_000 + [float("inf")]], ids=["nan", "inf", "large"]
)
async def test_values_that_json_cannot_represent_are_refused_first(house: House, value: object) -> None:
    """Also in large arguments."""
    tool = Tool(arguments={"what": value})
    assert (await house.calls.call(tool)).startswith("bad-request")
    assert (tool.steps, house.outcome()["status"]) == ([], 400)


async def test_a_call_may_go_on_in_the_background(house: House) -> None:
    """The client gets an answer before the result; the record is closed once the call has ended."""
    goes_on, tasks = asyncio.Event(), list[asyncio.Task[str]]()

    async def run(id: str) -> None:
        await goes_on.wait()

    async def deliver(running: Coroutine[Any, Any, str]) -> str:
        tasks.append(asyncio.create_task(running))
        return "later"

    assert await house.calls.call(Tool(running=run), deliver=deliver) == "later"
    assert [phase for phase, _ in house.lines()] == ["intent"]
    goes_on.set()
    assert await tasks[0] == "done"
    assert house.outcome()["status"] == 207

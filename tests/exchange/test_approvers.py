"""Approvers are asked in parallel: one that fails affects no other, and no other question."""

import asyncio
from pathlib import Path

from msgspec import structs

from gateway.exchange.approval_answers import ApprovalAnswers
from gateway.exchange.approvals import MemoryApprovals, MemoryGrants
from gateway.exchange.approvers import Approvers
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import Question
from gateway.ports.approvals import ApprovalState, Ask
from gateway.stores.journal import Journal
from tests.exchange.house import MODEL

ASK = Ask("Remove tea from the cart?", "DELETE", "/api/cart/tea", "digest", "sha256:1")


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
    tmp_path: Path,
) -> None:
    """Neither when it asks, nor when it is notified that a question has ended."""
    well, approvals = Well(), MemoryApprovals(120)
    async with Journal(tmp_path / "journal") as journal:
        answers = ApprovalAnswers(approvals, MemoryGrants(), Recorder(journal, Hooks([], tmp_path), OnFailure.CONTINUE))
        running = asyncio.create_task(Approvers(approvals, answers, lambda: [Broken(), well, Broken()]).run())
        async with asyncio.timeout(60):
            for view in ("v1", "v2"):
                question = (await approvals.park(ASK, structs.replace(MODEL, view=view))).question
                assert await well.asked.get() == question.id
                await approvals.answer(question.id, False, "ann")
                assert await well.told.get() == f"{question.id} declined"
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})

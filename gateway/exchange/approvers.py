"""Asks persons through the configured approvers, in order; the first answer wins, the others are notified."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from gateway.errors import Refusal
from gateway.exchange.decisions import ApprovalAnswers
from gateway.model import Question
from gateway.ports.approvals import Approvals, ApprovalState

log = logging.getLogger(__name__)


class NamedApprover(Protocol):
    """One approver with its name, which is also notified how a question ended."""

    @property
    def name(self) -> str: ...

    async def ask(self, question: Question) -> bool | None:
        """Return True for yes, False for no, None without an answer. Cancelled when the question is over."""
        ...

    async def over(self, question: Question, state: ApprovalState) -> None:
        """The question needs no answer any more."""
        ...


class Ways:
    """Sends each new question to every approver."""

    def __init__(self, approvals: Approvals, answers: ApprovalAnswers, ways: Sequence[NamedApprover]) -> None:
        self._approvals = approvals
        self._answers = answers
        self._ways = ways

    async def run(self) -> None:
        """Ask until cancelled."""
        if not self._ways:
            return
        changed = asyncio.Event()
        stop = self._approvals.watch(changed.set)
        asked: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    for question in [one.question for one in self._approvals.open()]:
                        if question.id not in asked:
                            asked[question.id] = tasks.create_task(self._put(question))
                    asked = {id: task for id, task in asked.items() if not task.done()}
                    await changed.wait()
                    changed.clear()
        finally:
            stop()

    async def _put(self, question: Question) -> None:
        """Ask about one question until it is over, then notify every approver."""
        over = asyncio.Event()

        def look() -> None:
            if self._approvals.state(question.id) is not ApprovalState.OPEN:
                over.set()

        stop = self._approvals.watch(look)
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = [tasks.create_task(self._ask(way, question)) for way in self._ways]
                look()
                await over.wait()
                for task in asking:
                    task.cancel()
            state = self._approvals.state(question.id) or ApprovalState.VOID
            async with asyncio.TaskGroup() as tasks:
                for way in self._ways:
                    tasks.create_task(self._over(way, question, state))
        finally:
            stop()

    async def _ask(self, way: NamedApprover, question: Question) -> None:
        """Ask one approver. Its failure counts as no answer, and affects no other approver or question."""
        try:
            answer = await way.ask(question)
            if answer is not None:
                await self._answers.trusted(question.id, answer, way.name)
        except Refusal as refusal:
            log.warning("the answer of %s was not taken: %s", way.name, refusal.detail)
        except Exception:
            log.exception("a question could not be asked by %s; it goes on without that", way.name)

    async def _over(self, way: NamedApprover, question: Question, state: ApprovalState) -> None:
        try:
            await way.over(question, state)
        except Exception:
            log.exception("%s could not be told that a question is over", way.name)

"""The approval step that requests, tools of views and tools of upstreams share: grant, park, notify, wait, dispatch.

A question stays open for exactly as long as its person is told, whichever way its caller waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.exchange.approve import Approvals, Ask, Parked, State
from gateway.exchange.grants import Grants
from gateway.exchange.record import Record
from gateway.model import Caller, Question, Request, Tell, Visit

PATIENCE: Final = 50.0
"""Seconds that a call waits for a person where its caller's own deadline is unknown; repeating it goes on waiting."""

AS_LONG_AS_IT_IS_OPEN: Final = math.inf
"""For callers whose connection is known to be open: the question ends when its rule says."""

STILL_WAITS: Final = "This call still waits for a person's approval. Repeat the very same call to go on waiting."


@dataclass(frozen=True, slots=True)
class ApprovalStep:
    """The questions of calls. `page` and an id show a person one of them."""

    approvals: Approvals
    grants: Grants
    page: str

    def granted(self, ask: Ask, caller: Caller, record: Record) -> bool:
        """Whether a person has allowed every call under this rule for a while."""
        grant = self.grants.covering(caller, ask.rule, ask.policy_version) if ask.grant else None
        if grant is None:
            return False
        record.note(grant=grant.id, answered_by=grant.by)
        return True

    def park(self, ask: Ask, caller: Caller, record: Record, request: Request | None = None) -> Question:
        """Ask a person, or join the open question about the same call. Raises `Refusal`."""
        question = self.approvals.park(ask, caller, request).question
        record.note(approval=question.id)
        record.leads(question.id)
        return question

    def visit(self, question: Question, *, typed: bool = False) -> Visit:
        """Where a person answers; `typed` says that a trusted client may take a typed code instead."""
        return Visit(question.id, self.page + question.id, question.message, typed=typed)

    async def wait(
        self, question: Question, caller: Caller, seconds: float, tell: Tell | None = None, *, typed: bool = False
    ) -> Parked:
        """The call after a person answered it, or after `seconds`. `tell` notifies its client meanwhile.

        The question dies with a call that is given up, unless the same call of another connection waits for it, too.
        """
        parked = self.approvals.find(question.id, caller)
        visit = self.visit(question, typed=typed)
        if tell is not None:
            tell(visit)
        try:
            return await self.approvals.wait(question.id, caller, seconds)
        except asyncio.CancelledError:
            self.abandon(parked)
            raise
        finally:
            if tell is not None:
                tell(replace(visit, over=True))

    def abandon(self, parked: Parked) -> None:
        """One caller no longer waits."""
        if not parked.holding:
            self.approvals.cancel(parked)

    async def tool(
        self,
        ask: Ask,
        caller: Caller,
        record: Record,
        now: Callable[[], tuple[str, str]],
        tell: Tell | None = None,
        *,
        typed: bool = False,
    ) -> None:
        """Return once the call of a tool may run. Raises `Refusal`.

        A model repeats a call that still waits; where `tell` notifies its client, that one waits until the question is
        over. `now` gives the digest of the call, and the version of its policy, right before it runs.
        """
        if self.granted(ask, caller, record):
            return
        question = self.park(ask, caller, record)
        seconds = PATIENCE if tell is None else AS_LONG_AS_IT_IS_OPEN
        parked = await self.wait(question, caller, seconds, tell, typed=typed)
        if parked.state is State.OPEN:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, STILL_WAITS, status=202)
        record.note(answered_by=parked.answered_by)
        await self.approvals.dispatch(parked, *now())


def digest_of(*parts: str) -> str:
    """What binds an approval to a call: no two lists of texts have the same."""
    sha = hashlib.sha256()
    for text in parts:
        part = text.encode("utf-8", "surrogatepass")
        sha.update(b"%d:" % len(part))
        sha.update(part)
    return sha.hexdigest()

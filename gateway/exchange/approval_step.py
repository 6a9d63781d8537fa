"""The approval step that requests, tools of views and tools of upstreams share: grant, park, notify, wait, dispatch.

A question stays open for exactly as long as its person is told, however its caller waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from gateway.errors import Reason, Refusal
from gateway.exchange.record import Record
from gateway.model import Caller, Question, Request, Tell, Visit
from gateway.ports.approvals import Approvals, ApprovalState, Ask, Grants, Parked

PATIENCE: Final = 50.0
"""Seconds that a call waits for a person if its caller's own deadline is unknown; a repeated call continues to wait."""

AS_LONG_AS_IT_IS_OPEN: Final = math.inf
"""For callers whose connection is known to be open: the question ends at the time that its rule sets."""

UNPROVEN: Final = "unproven-view"
"""Evidence of a request whose view is unproven: its client may not take a typed code."""

STILL_WAITS: Final = "This call still waits for a person's approval. Repeat the very same call to go on waiting."


@dataclass(frozen=True, slots=True)
class ApprovalStep:
    """Asks persons about calls. `page` followed by an id is the URL of one question."""

    approvals: Approvals
    grants: Grants
    page: str

    async def granted(self, ask: Ask, caller: Caller, record: Record) -> bool:
        """Whether a grant covers the call, so that no question is needed."""
        grant = await self.grants.covering(caller, ask.rule, ask.policy_version) if ask.grant else None
        if grant is None:
            return False
        record.note(grant=grant.id, answered_by=grant.by)
        return True

    async def park(self, ask: Ask, caller: Caller, record: Record, request: Request | None = None) -> Question:
        """Ask a person, or join the open question about the same call. Raises `Refusal`."""
        question = (await self.approvals.park(ask, caller, request)).question
        record.note(approval=question.id)
        record.leads(question.id)
        return question

    def visit(self, question: Question, *, typed: bool = False) -> Visit:
        """Return the page where a person answers; `typed` permits a trusted client to take a typed code instead."""
        return Visit(question.id, self.page + question.id, question.message, typed=typed)

    async def wait(
        self, question: Question, caller: Caller, seconds: float, tell: Tell | None = None, *, typed: bool = False
    ) -> Parked:
        """Return the call after a person answered it, or after `seconds`. `tell` notifies its client meanwhile.

        The question ends with a call that is abandoned, unless the same call waits on another connection, too.
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
        """Cancel the call if no other caller waits for it."""
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

        A model repeats a call that still waits; if `tell` notifies its client, the call waits until the question is
        over. `now` gives the digest of the call and the version of its policy right before it runs.
        """
        if await self.granted(ask, caller, record):
            return
        question = await self.park(ask, caller, record)
        seconds = PATIENCE if tell is None else AS_LONG_AS_IT_IS_OPEN
        parked = await self.wait(question, caller, seconds, tell, typed=typed)
        if parked.state is ApprovalState.OPEN:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, STILL_WAITS, status=202)
        record.note(answered_by=parked.answered_by)
        await self.approvals.dispatch(parked, *now())


def digest_of(*parts: str) -> str:
    """Return the digest that binds an approval to a call; different lists of texts have different digests."""
    sha = hashlib.sha256()
    for text in parts:
        part = text.encode("utf-8", "surrogatepass")
        sha.update(b"%d:" % len(part))
        sha.update(part)
    return sha.hexdigest()

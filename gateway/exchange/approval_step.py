"""The approval step that requests, tools of views and tools of upstreams share: grant, park, notify, wait, dispatch.

A question stays open until the time that its person is shown, however long its caller waits.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from gateway.contract import problem
from gateway.crypto import frame_parts
from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import DecidedRequest
from gateway.exchange.record import Record
from gateway.jsontext.writing import plain_json
from gateway.model import Caller, Question, Request, Response, Tell, Visit
from gateway.policy import Policy
from gateway.ports.approvals import Approvals, ApprovalState, Ask, Grants, ParkedCall, Pending

CALLER_WAIT: Final = 50.0
"""Seconds that a call waits for a person if its caller's own deadline is unknown; a repeated call continues to wait."""

AS_LONG_AS_IT_IS_OPEN: Final = math.inf
"""For callers whose connection is known to be open: the question ends at the time that its rule sets."""

SECRET: Final = b"(secret: its route keeps the body from people)"
"""Shown to a person in place of the body of a request whose route is `secret`."""

UNPROVEN: Final = "unproven-view"
"""Evidence of a request whose view is unproven: its client may not take a typed code."""

STILL_WAITS: Final = "This call still waits for a person's approval. Repeat the very same call to go on waiting."


@dataclass(frozen=True, slots=True)
class ApprovalStep:
    """Asks persons about calls. `page` followed by an id is the URL of one question."""

    approvals: Approvals
    grants: Grants
    page: str

    async def is_granted(self, ask: Ask, caller: Caller, record: Record) -> bool:
        """Return whether a grant covers the call, so that no question is needed."""
        grant = await self.grants.covering(caller, ask.rule, ask.policy_version) if ask.grant else None
        if grant is None:
            return False
        record.note(grant=grant.id, answered_by=grant.by)
        return True

    async def park(self, ask: Ask, caller: Caller, record: Record, request: Request | None = None) -> Question:
        """Ask a person, or join the open question about the same call. Raises `Refusal`."""
        question = (await self.approvals.park(_mask_tokens(ask, record.mask()), caller, request)).question
        record.note(approval=question.id)
        record.leads(question.id)
        return question

    def visit(self, question: Question, *, typed: bool = False) -> Visit:
        """Return the page where a person answers; `typed` permits a trusted client to take a typed code instead."""
        return Visit(question.id, self.page + question.id, question.message, typed=typed)

    async def wait(
        self, question: Question, caller: Caller, seconds: float, tell: Tell | None = None, *, typed: bool = False
    ) -> ParkedCall:
        """Return the call after a person answered it, or after `seconds`. `tell` notifies its client meanwhile.

        The question ends with a call that is abandoned, unless the same call waits on another connection, too.
        """
        parked_call = self.approvals.find(question.id, caller)
        visit = self.visit(question, typed=typed)
        if tell is not None:
            tell(visit)
        try:
            return await self.approvals.wait(question.id, caller, seconds)
        except asyncio.CancelledError:
            self.abandon(parked_call)
            raise
        finally:
            if tell is not None:
                tell(replace(visit, over=True))

    def abandon(self, parked_call: ParkedCall) -> None:
        """Cancel the call if no other caller waits for it."""
        if not parked_call.holding:
            self.approvals.cancel(parked_call)

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
        if await self.is_granted(ask, caller, record):
            return
        question = await self.park(ask, caller, record)
        seconds = CALLER_WAIT if tell is None else AS_LONG_AS_IT_IS_OPEN
        parked_call = await self.wait(question, caller, seconds, tell, typed=typed)
        if parked_call.state is ApprovalState.OPEN:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, STILL_WAITS, status=202)
        record.note(answered_by=parked_call.answered_by)
        await self.approvals.dispatch(parked_call, *now())


def _mask_tokens(ask: Ask, mask: Callable[[str], str] | None) -> Ask:
    """Return the call as people see it, wherever they are asked: without tokens of the caller's pages."""
    if mask is None:
        return ask
    body = mask(ask.body.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    headers = tuple((name, mask(value)) for name, value in ask.headers)
    return replace(ask, message=mask(ask.message), target=mask(ask.target), headers=headers, body=body)


def digest_of(*parts: str) -> str:
    """Return the digest that binds an approval to a call; different lists of texts have different digests."""
    return hashlib.sha256(frame_parts(*parts)).hexdigest()


TakeUp = Callable[[Request, ParkedCall], Awaitable[Response]]
"""Resumes a parked request after a person has answered."""


class RequestApprovals:
    """Requests that wait for a person; `step` asks."""

    def __init__(self, step: ApprovalStep) -> None:
        self._approvals = step.approvals
        self._step = step

    async def approve(
        self,
        policy: Policy,
        decided_request: DecidedRequest,
        caller: Caller,
        parked_call: ParkedCall | None,
        record: Record,
    ) -> Pending | None:
        """Return None if the request may continue now. Raises `Refusal` if it was declined or timed out."""
        message = decided_request.obligations.confirm
        if message is None:
            return None
        if parked_call is None:
            ask = _ask(message, decided_request, policy)
            if await self._step.is_granted(ask, caller, record):
                return None
            # An answer that several callers may poll is not streamed; a WebSocket has one caller.
            opens_socket, exact = decided_request.canonical.opens_socket, decided_request.request.stream
            request = structs.replace(decided_request.request, stream=opens_socket, exact=exact)
            return Pending(await self._step.park(ask, caller, record, request))
        record.note(approval=parked_call.question.id, answered_by=parked_call.answered_by)
        await self._approvals.dispatch(parked_call, decided_request.canonical.digest, policy.version)
        return None

    async def answer(
        self, pending: Pending, caller: Caller, seconds: float, take_up: TakeUp, tell: Tell | None = None
    ) -> Response:
        """Return the answer if a person is quick; else a description of what the caller waits for.

        A caller that gives `seconds` waits in the call itself: the question ends with it, or a while later if the same
        request is not repeated. `tell` notifies its client of the page to answer on. Raises `Refusal` if the question
        is still open.
        """
        if not seconds:
            return self._pending_answer(pending)
        parked_call = await self._step.wait(pending.question, caller, seconds, tell)
        if parked_call.state is ApprovalState.OPEN:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, STILL_WAITS)
        try:
            return await _answer_once(parked_call, take_up)
        except asyncio.CancelledError:
            self._step.abandon(parked_call)
            raise

    async def resume(self, id: str, caller: Caller, seconds: float, cancel: bool, take_up: TakeUp) -> Response:
        """Return the answer to a parked request after a person has answered; its pending state if that takes longer.

        `cancel` abandons it. Raises `Refusal` if it is not this caller's.
        """
        parked_call = self._approvals.find(id, caller)
        if cancel:
            self._approvals.cancel(parked_call)
        await self._approvals.wait(id, caller, seconds)
        if parked_call.state is ApprovalState.OPEN:
            return self._pending_answer(Pending(parked_call.question))
        return await _answer_once(parked_call, take_up)

    def _pending_answer(self, pending: Pending) -> Response:
        """Return the 202 for a caller that can poll: the id to poll with, and the page where a person answers."""
        question = pending.question
        body = {
            "id": question.id,
            "message": question.message,
            "url": self._step.page + question.id,
            "expires": question.expires,
        }
        headers = (
            ("content-type", "application/json"),
            ("cache-control", "private, no-store"),
            ("gateway-pending", question.id),
        )
        return Response(202, headers, plain_json(body).encode(), question.target)


async def _answer_once(parked_call: ParkedCall, take_up: TakeUp) -> Response:
    """Run the parked request, or return the answer of the run that another caller began."""
    if parked_call.request is None:
        raise Refusal(Reason.BAD_REQUEST, "A tool call cannot be resumed here: repeat it.")
    if parked_call.result is None:
        parked_call.result = asyncio.get_running_loop().create_future()
        try:
            parked_call.result.set_result(await take_up(parked_call.request, parked_call))
        finally:
            if not parked_call.result.done():
                refusal = Refusal(Reason.CANCELLED, "The caller gave up while this request was sent.")
                parked_call.result.set_result(problem(refusal, parked_call.question.id, parked_call.request.url))
    return await asyncio.shield(parked_call.result)


def _ask(message: str, decided_request: DecidedRequest, policy: Policy) -> Ask:
    canonical = decided_request.canonical
    return Ask(
        message=message,
        method=canonical.shown_method,
        target=canonical.url,
        digest=canonical.digest,
        policy_version=policy.version,
        headers=canonical.headers,
        body=SECRET if decided_request.obligations.secret and canonical.body else canonical.body,
        grant=decided_request.obligations.grant,
        question_timeout=decided_request.obligations.question_timeout,
        rule=f"{canonical.shown_method} {decided_request.decision.route or ''}",
    )

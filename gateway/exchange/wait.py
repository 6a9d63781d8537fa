"""The approve step: a request that needs a person is parked, its caller waits or polls, and it runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from gateway.contract import problem
from gateway.errors import Reason, Refusal
from gateway.exchange.approval_step import STILL_WAITS, ApprovalStep
from gateway.exchange.decided_request import Leg
from gateway.exchange.record import Record
from gateway.jsontext.writing import plain_json
from gateway.model import Caller, Response, Tell
from gateway.policy import Policy
from gateway.ports.approvals import ApprovalState, Ask, Parked, Pending

TakenUp = Callable[[Parked], Awaitable[Response]]
"""Resumes a parked request after a person has answered."""


class Waiting:
    """Requests that wait for a person; `step` asks."""

    def __init__(self, step: ApprovalStep) -> None:
        self._approvals = step.approvals
        self._step = step

    async def approve(
        self, policy: Policy, leg: Leg, caller: Caller, parked: Parked | None, record: Record
    ) -> Pending | None:
        """Return None if the request may continue now. Raises `Refusal` if it was declined or timed out."""
        message = leg.obligations.confirm
        if message is None:
            return None
        if parked is None:
            ask = _ask(message, leg, policy)
            if await self._step.granted(ask, caller, record):
                return None
            # An answer that several callers may poll is not streamed.
            request = structs.replace(leg.request, stream=False)
            return Pending(await self._step.park(ask, caller, record, request))
        record.note(approval=parked.question.id, answered_by=parked.answered_by)
        await self._approvals.dispatch(parked, leg.canonical.digest, policy.version)
        return None

    async def answer(
        self, pending: Pending, caller: Caller, seconds: float, take_up: TakenUp, tell: Tell | None = None
    ) -> Response:
        """Return the answer if a person is quick; else a description of what the caller waits for.

        A caller that gives `seconds` waits in the call itself: the question ends with it, or a while later if the same
        request is not repeated. `tell` notifies its client of the page to answer on. Raises `Refusal` if the question
        is still open.
        """
        if not seconds:
            return self._told(pending)
        parked = await self._step.wait(pending.question, caller, seconds, tell)
        if parked.state is ApprovalState.OPEN:
            raise Refusal(Reason.APPROVAL_UNAVAILABLE, STILL_WAITS)
        try:
            return await _answer_once(parked, take_up)
        except asyncio.CancelledError:
            self._step.abandon(parked)
            raise

    async def resume(self, id: str, caller: Caller, seconds: float, cancel: bool, take_up: TakenUp) -> Response:
        """Return the answer to a parked request after a person has answered; its pending state if that takes longer.

        `cancel` abandons it. Raises `Refusal` if it is not this caller's.
        """
        parked = self._approvals.find(id, caller)
        if cancel:
            self._approvals.cancel(parked)
        await self._approvals.wait(id, caller, seconds)
        if parked.state is ApprovalState.OPEN:
            return self._told(Pending(parked.question))
        return await _answer_once(parked, take_up)

    def _told(self, pending: Pending) -> Response:
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


async def _answer_once(parked: Parked, take_up: TakenUp) -> Response:
    """Run the parked request, or return the answer of the run that another caller began."""
    if parked.request is None:
        raise Refusal(Reason.BAD_REQUEST, "A tool call is not taken up here: repeat it.")
    if parked.result is None:
        parked.result = asyncio.get_running_loop().create_future()
        try:
            parked.result.set_result(await take_up(parked))
        finally:
            if not parked.result.done():
                refusal = Refusal(Reason.CANCELLED, "The caller gave up while this request was sent.")
                parked.result.set_result(problem(refusal, parked.question.id, parked.request.url))
    return await asyncio.shield(parked.result)


def _ask(message: str, leg: Leg, policy: Policy) -> Ask:
    canonical = leg.canonical
    return Ask(
        message=message,
        method=canonical.method,
        target=canonical.url,
        digest=canonical.digest,
        policy_version=policy.version,
        headers=canonical.headers,
        body=canonical.body,
        grant=leg.obligations.grant,
        patience=leg.obligations.patience,
        rule=f"{canonical.method} {leg.decision.route or ''}",
    )

"""The whole way of one request: canonicalise, decide, limit, approve, open the record, authenticate, send, filter,
close the record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.contract import problem
from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.approve import Approvals, Ask, Parked, Pending, State
from gateway.exchange.authenticate import Authenticator
from gateway.exchange.filter import filtered
from gateway.exchange.limit import Limiter
from gateway.exchange.record import Record, Recorder
from gateway.exchange.redirect import HOPS, following
from gateway.exchange.send import outbound, send
from gateway.hooks import Hooks
from gateway.model import Backend, Caller, CanonicalRequest, Effect, Request, Response
from gateway.policy import SAFE_METHODS, Decision, Policy, canonicalise, decide


@dataclass(frozen=True, slots=True)
class Guarded:
    """One app as the exchange knows it: its policy, and its backends by name."""

    policy: Policy
    backends: Mapping[str, Backend]


@dataclass(frozen=True, slots=True)
class Leg:
    """One request to one backend, decided: the first, or where a redirect led."""

    request: Request
    canonical: CanonicalRequest
    decision: Decision


class Exchange:
    """Carries the requests of every app to its backends. `approval_url` and an id show one question to a person."""

    def __init__(
        self,
        apps: Mapping[str, Guarded],
        *,
        limiter: Limiter,
        approvals: Approvals,
        recorder: Recorder,
        authenticator: Authenticator,
        hooks: Hooks,
        approval_url: str,
    ) -> None:
        self._apps = apps
        self._limiter = limiter
        self._approvals = approvals
        self._recorder = recorder
        self._authenticator = authenticator
        self._hooks = hooks
        self._approval_url = approval_url

    async def run(self, request: Request, caller: Caller, *, wait: float = 0.0) -> Response:
        """The backend's answer, or the gateway's own: a refusal, or what the request waits for.

        `wait` is how many seconds the call itself may wait for a person; a caller that can ask again gives 0.
        """
        outcome = await self._carry(request, caller, None)
        if isinstance(outcome, Pending) and wait:
            return await self._wait(outcome, caller, wait)
        return self._told(outcome)

    async def resume(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response:
        """The answer to a parked request, once a person has answered; what it waits for, if that takes longer.

        `cancel` gives it up. The answer is kept a while for a caller that asks again; nothing runs twice.
        """
        try:
            parked = self._approvals.find(id, caller)
            if cancel:
                self._approvals.cancel(parked)
            await self._approvals.wait(id, caller, wait)
            if parked.state is State.OPEN:
                return self._told(Pending(parked.question))
            return await self._answer_once(parked)
        except Refusal as refusal:
            return problem(refusal, id, "")

    async def refuse(self, refusal: Refusal, caller: Caller, method: str, url: str) -> Response:
        """The answer to what a door could not make a request of; it stands in the record like every other."""
        record = self._recorder.start("http", caller, safe=True)
        record.note(method=method[:32], url=url[:2048])
        await record.close(status=refusal.status, reason=refusal.reason, detail=refusal.detail)
        return problem(refusal, record.id, url)

    async def _wait(self, pending: Pending, caller: Caller, seconds: float) -> Response:
        """Wait in the call itself: its caller will not ask again, so the question dies with the call."""
        id = pending.question.id
        parked = self._approvals.find(id, caller)
        try:
            await self._approvals.wait(id, caller, seconds)
            if parked.state is State.OPEN:
                self._approvals.cancel(parked)
            return await self._answer_once(parked)
        except asyncio.CancelledError:
            self._approvals.cancel(parked)
            raise

    async def _answer_once(self, parked: Parked) -> Response:
        """Run the parked request, or hand out the answer of the run that another caller began."""
        if parked.request is None:
            raise Refusal(Reason.BAD_REQUEST, "A tool call is not taken up here: repeat it.")
        if parked.result is None:
            parked.result = asyncio.get_running_loop().create_future()
            try:
                parked.result.set_result(self._told(await self._carry(parked.request, parked.caller, parked)))
            finally:
                if not parked.result.done():
                    refusal = Refusal(Reason.CANCELLED, "The caller gave up while this request was sent.")
                    parked.result.set_result(problem(refusal, parked.question.id, parked.request.url))
        return await asyncio.shield(parked.result)

    async def _carry(self, request: Request, caller: Caller, parked: Parked | None) -> Response | Pending:
        """The one way of every request; with `parked` it is taken up again after a person answered."""
        app = self._apps[caller.app]
        record = self._recorder.start("http", caller, safe=request.method.upper() in SAFE_METHODS)
        record.note(method=request.method[:32], url=request.url[:2048], policy_version=app.policy.version)
        try:
            canonical = canonicalise(app.policy, request)
            leg = _decided(app.policy, request, canonical, caller, record)
            if parked is None:
                await self._limit(leg, caller, record)
            waits = self._approve(app.policy, leg, caller, parked, record)
            if waits is not None:
                await record.close(status=STATUS[Reason.REPORTED_TO_MODEL], detail="waits for a person")
                return waits
            await self._hooks.check_request(canonical, caller)
            await record.open()
            response = await self._fetch(app, leg, caller, record)
            await record.close(status=response.status)
            return response
        except Refusal as refusal:
            await record.close(status=refusal.status, reason=refusal.reason, detail=refusal.detail)
            return problem(refusal, record.id, request.url)
        except asyncio.CancelledError:
            await record.close(status=STATUS[Reason.CANCELLED], reason=Reason.CANCELLED)
            raise

    async def _limit(self, leg: Leg, caller: Caller, record: Record) -> None:
        exceeded = await self._limiter.take(leg.decision.obligations, caller)
        if exceeded is not None:
            record.report(exceeded)
        record.mark("limit")

    def _approve(
        self, policy: Policy, leg: Leg, caller: Caller, parked: Parked | None, record: Record
    ) -> Pending | None:
        """None where the request may go on now. Raises `Refusal` where a person, or nobody, has said so."""
        message = leg.decision.obligations.confirm
        if message is None:
            return None
        if parked is None:
            pending = self._approvals.park(_ask(message, leg.canonical, policy), caller, leg.request)
            record.note(approval=pending.question.id)
            return pending
        record.note(approval=parked.question.id, answered_by=parked.answered_by)
        self._approvals.dispatch(parked, leg.canonical.digest, policy.version)
        return None

    async def _fetch(self, app: Guarded, leg: Leg, caller: Caller, record: Record) -> Response:
        """Authenticate, send, filter; and again where the answer leads to another place inside the policy."""
        first = leg
        for _ in range(HOPS + 1):
            spec = app.policy.backends[leg.canonical.backend]
            credentials = await self._authenticator.headers(spec.credential)
            record.note(credential=spec.credential)
            record.mark("authenticate")
            response = await send(
                app.backends[spec.name],
                outbound(spec, leg.canonical, leg.decision, credentials),
                credentials,
                self._authenticator,
                spec.credential,
            )
            record.mark("send")
            hop = following(app.policy, leg.request, leg.canonical, response)
            if hop is None:
                record.note(response_size=len(response.body))
                return filtered(
                    app.policy,
                    leg.canonical,
                    leg.decision,
                    response,
                    credentials=credentials,
                    redirected=leg is not first,
                )
            canonical = canonicalise(app.policy, hop.request, hop.backend)
            leg = _decided(app.policy, hop.request, canonical, caller, record)
            if leg.decision.obligations.confirm is not None:
                raise Refusal(Reason.REDIRECT_DENIED, "The backend redirects to a place that needs an approval.")
            await self._limit(leg, caller, record)
        raise Refusal(Reason.REDIRECT_DENIED, f"The backend redirects more than {HOPS} times.")

    def _told(self, outcome: Response | Pending) -> Response:
        return outcome if isinstance(outcome, Response) else _waiting(outcome, self._approval_url)


def _decided(policy: Policy, request: Request, canonical: CanonicalRequest, caller: Caller, record: Record) -> Leg:
    """The request with its decision, which allows it. Raises `Refusal` where it does not."""
    decision = decide(policy, canonical, caller)
    record.note(
        method=canonical.method,
        url=canonical.url,
        backend=canonical.backend,
        request_size=len(canonical.body),
        route=decision.route,
        decision=decision.effect,
        reasons=list(decision.reasons),
    )
    record.mark("decide")
    if decision.effect is Effect.DENY:
        raise decision.refusal()
    if len(canonical.body) > decision.obligations.request_limit:
        limit = decision.obligations.request_limit
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"The body has {len(canonical.body)} bytes; {limit} are allowed here.")
    return Leg(request, canonical, decision)


def _ask(message: str, canonical: CanonicalRequest, policy: Policy) -> Ask:
    return Ask(
        message=message,
        method=canonical.method,
        target=canonical.url,
        digest=canonical.digest,
        policy_version=policy.version,
        headers=canonical.headers,
        body=canonical.body,
    )


def _waiting(pending: Pending, approval_url: str) -> Response:
    """What a caller that can ask again is told: the id to ask with, and where a person answers."""
    question = pending.question
    body = {
        "id": question.id,
        "message": question.message,
        "url": approval_url + question.id,
        "expires": question.expires,
    }
    headers = (
        ("content-type", "application/json"),
        ("cache-control", "private, no-store"),
        ("gateway-pending", question.id),
    )
    return Response(202, headers, json.dumps(body).encode(), question.target)

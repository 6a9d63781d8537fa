"""The steps of a request: canonicalise, decide, limit, approve, record, authenticate, send, filter, close record."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gateway.apps import own_file
from gateway.contract import problem
from gateway.errors import STATUS, Reason, Refusal
from gateway.exchange.approval_step import Waiting
from gateway.exchange.decided_request import BackendAnswer, Idempotency, Leg, decided
from gateway.exchange.filter import filtered, hidden
from gateway.exchange.limit import Limiter
from gateway.exchange.record import Record, Recorder
from gateway.exchange.redirect import FOLLOWED, HOPS, broken, following, landed
from gateway.exchange.send import Sender
from gateway.exchange.streams import PREFIX, Stream, Streams, failed
from gateway.hooks import Hooks
from gateway.model import Backend, Caller, Part, Request, Response, Tell
from gateway.policy import SAFE_METHODS, Policy, without
from gateway.ports.approvals import Parked, Pending
from gateway.traces import Trace, read_trace

log = logging.getLogger(__name__)

_NOTHING: Final = nullcontext()
"""Takes the place of an exit stack for an answer that is not streamed."""

_WHOLE = Part("", last=True)
"""The only part of an answer that is complete in one part."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """One app in the exchange: its policy, its backends by name, and the files of its own site by path."""

    policy: Policy
    backends: Mapping[str, Backend]
    files: Mapping[str, Path] = field(default_factory=dict)


class Exchange:
    """Sends the requests of every app to its backends. `now` is the time of day, in seconds since the epoch.

    `proof` are the header fields, in lower case, by which reverse proxies identify the caller: they are never
    forwarded.
    """

    def __init__(
        self,
        apps: Mapping[str, Guarded],
        *,
        limiter: Limiter,
        idempotency: Idempotency,
        waiting: Waiting,
        recorder: Recorder,
        sender: Sender,
        streams: Streams,
        hooks: Hooks,
        proof: Collection[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._apps = apps
        self._limiter = limiter
        self._idempotency = idempotency
        self._waiting = waiting
        self._recorder = recorder
        self._sender = sender
        self._streams = streams
        self._hooks = hooks
        self._proof = frozenset(proof)
        self._now = now

    async def run(self, request: Request, caller: Caller, *, wait: float = 0.0, tell: Tell | None = None) -> Response:
        """Return the backend's answer, or its first part; or the gateway's own: a refusal, or a pending approval.

        `wait` is for how many seconds the call itself may wait for a person: 0 for a caller that can poll, infinity for
        one whose connection is known to be open. `tell` notifies its client of the page where that person answers.
        """
        outcome = await self.open(request, caller, wait=wait, tell=tell)
        if not isinstance(outcome, Response):
            return await self._streams.begin(outcome, caller)
        # A caller that can join parts reads bytes: mark a complete answer as one part for it, too.
        exact = request.stream and outcome.part is None and outcome.header("gateway-pending") is None
        return replace(outcome, part=_WHOLE) if exact else outcome

    async def open(
        self, request: Request, caller: Caller, *, wait: float = 0.0, tell: Tell | None = None
    ) -> Response | Stream:
        """Run a request for a caller that can read a stream itself, and closes it."""
        outcome = await self._carry(self._without_proof(request), caller, None, tell)
        if isinstance(outcome, Pending):
            try:
                return await self._waiting.answer(outcome, caller, wait, self._take_up, tell)
            except Refusal as refusal:
                return await self.refuse(refusal, caller, request.method, request.url)
        return outcome

    async def resume(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response:
        """Return the next part of a stream, or the answer to a parked request; `cancel` abandons it.

        The answer is kept for a while for a caller that polls again; nothing runs twice.
        """
        try:
            if id.startswith(PREFIX):
                return await self._streams.next(id, caller, wait=wait, cancel=cancel)
            return await self._waiting.resume(id, caller, wait, cancel, self._take_up)
        except Refusal as refusal:
            return await self.refuse(refusal, caller, "", "")

    async def refuse(self, refusal: Refusal, caller: Caller, method: str, url: str) -> Response:
        """Record a refusal by a door that could not build a request, and return its answer."""
        record = self._recorder.start("http", caller, safe=True)
        record.note(method=method[:32], url=url[:2048])
        return await _answered(refusal, record, url)

    async def _take_up(self, parked: Parked) -> Response:
        """Resume a request after a person has answered."""
        if parked.request is None:
            raise Refusal(Reason.BAD_REQUEST, "A tool call cannot be resumed here: repeat it.")
        outcome = await self._carry(parked.request, parked.caller, parked)
        if isinstance(outcome, Response):
            return outcome
        raise Refusal(Reason.APPROVAL_EXPIRED, "The call needs another approval than the one that it had.")

    def _without_proof(self, request: Request) -> Request:
        """Return the request without the header fields that identify the caller, whoever wrote them."""
        if not self._proof:
            return request
        return replace(request, headers=without(request.headers, self._proof))

    async def _carry(
        self, request: Request, caller: Caller, parked: Parked | None, tell: Tell | None = None
    ) -> Response | Stream | Pending:
        """Run every step of one request; with `parked`, resume it after a person answered."""
        app = self._apps.get(caller.app)  # once: it may be replaced while the request runs
        if app is None:
            gone = Refusal(Reason.CONNECTION_LOST, "This app is no longer served here.")
            return await self.refuse(gone, caller, request.method, request.url)
        file = _own(app, request) if app.files else None
        own = await asyncio.to_thread(own_file, *file) if file is not None else None
        if own is not None:
            return own
        policy = app.policy
        safe, after = request.method.upper() in SAFE_METHODS, parked.question.id if parked is not None else None
        record = self._recorder.start("http", caller, safe=safe, came=_came(request), after=after)
        record.note(method=request.method[:32], url=request.url[:2048], policy_version=policy.version)
        try:
            async with AsyncExitStack() if request.stream else _NOTHING as held:
                leg = await decided(policy, request, caller, record, self._now())
                if parked is None:
                    leg = await self._limit(leg, caller, record, held)
                leg = await self._idempotency.keyed(leg, caller)
                if parked is None and leg.obligations.confirm is not None:  # do not ask in vain
                    await self._sender.ready(leg, policy.backends[leg.canonical.backend], caller, tell)
                pending = await self._waiting.approve(policy, leg, caller, parked, record)
                if pending is not None:
                    await record.close(status=STATUS[Reason.REPORTED_TO_MODEL], detail="waits for a person")
                    return pending
                await self._hooks.check_request(leg.canonical, caller)
                await record.open(lasting=leg.streams)
                last, answer = await self._send(app, leg, caller, record, held, tell)
                answer = filtered(policy, last, answer, record, redirected=last is not leg)
                if last.obligations.mask:
                    answer = await hidden(answer, last.obligations.mask)
                if answer.parts is not None and held is not None:
                    return Stream(answer.response, answer.parts, record, held.pop_all())
            await record.close(status=answer.response.status)
            return answer.response
        except Refusal as refusal:
            return await _answered(refusal, record, request.url)
        except asyncio.CancelledError:
            await record.cancel()
            raise
        except (Exception, SystemExit):  # a plugin's backend may raise anything: caller and record get an answer
            log.exception("the request %s failed", record.id)
            return await _answered(failed(), record, request.url)

    async def _limit(self, leg: Leg, caller: Caller, record: Record, held: AsyncExitStack | None) -> Leg:
        """Return the leg after taking limits and a stream slot; without a slot, only an event stream fails.

        Another answer is then sent whole.
        """
        record.report(*await self._limiter.take(leg.obligations, caller))
        if held is not None and leg.streams:
            try:
                held.enter_context(self._streams.place(caller))
            except Refusal:
                if leg.wants_events:
                    raise
                leg = replace(leg, request=replace(leg.request, stream=False))
        record.mark("limit")
        return leg

    async def _send(
        self, app: Guarded, leg: Leg, caller: Caller, record: Record, held: AsyncExitStack | None, tell: Tell | None
    ) -> tuple[Leg, BackendAnswer]:
        """Return the answer and its leg; a redirect inside the policy is followed as a request decided anew."""
        for _ in range(HOPS + 1):
            spec = app.policy.backends[leg.canonical.backend]
            answer = await self._sender.send(leg, app.backends[spec.name], spec, caller, record, held, tell)
            hop = following(app.policy, leg, answer)
            if hop is None:
                record.note(response_size=len(answer.response.body))
                return leg, answer
            await answer.close()
            await record.open()  # the intent contains the first URL; the outcome will contain the last one
            target = await decided(app.policy, hop.request, caller, record, self._now(), hop.backend)
            leg = await self._limit(landed(leg, target), caller, record, held)
            await self._hooks.check_request(leg.canonical, caller)
        FOLLOWED.exceeded(caller.principal.id)
        raise broken(f"The backend redirects more than {HOPS} times.")


def _own(app: Guarded, request: Request) -> tuple[Path, str, str, int] | None:
    """Return a file of the app's own site, which is part of the app and not subject to the policy."""
    file = app.files.get(request.url.partition("?")[0])
    method = request.method.upper()
    if file is None or method not in ("GET", "HEAD"):
        return None
    return file, method, request.url, app.policy.defaults.response_limit


def _came(request: Request) -> Trace | None:
    """Return the trace context that the app's request contains."""
    if not request.headers:
        return None
    said = {name: value for name, value in request.headers if name in ("traceparent", "tracestate")}
    return read_trace(said.get("traceparent"), said.get("tracestate")) if said else None


async def _answered(refusal: Refusal, record: Record, url: str) -> Response:
    """Close the record with a refusal and return its answer."""
    await record.refuse(refusal)
    return problem(refusal, record.id, url)

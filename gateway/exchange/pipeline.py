"""The steps of a request: canonicalise, decide, limit, add the idempotency key, approve, ask plugins, send, filter.

Its entry in the record is opened before anything is sent, and closed whatever happens.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from gateway.apps import CARRIED, FRAME, own_file
from gateway.callers.entitlements import Admits, admit_all
from gateway.contract import problem
from gateway.errors import NOT_SERVED, STATUS, Reason, Refusal
from gateway.exchange.approval_step import RequestApprovals
from gateway.exchange.decided_request import BackendAnswer, DecidedRequest, Idempotency, decide_request
from gateway.exchange.drain import RunningCalls
from gateway.exchange.filter import filter_answer, mask_answer
from gateway.exchange.limit import Limiter
from gateway.exchange.pages import after_redirect, is_of_page, with_page
from gateway.exchange.record import Record, Recorder
from gateway.exchange.redirect import FOLLOWED, HOPS, continue_at, next_hop, redirect_broken
from gateway.exchange.send import Sender
from gateway.exchange.sockets import Message, OpenSocket, Sockets
from gateway.exchange.streams import PREFIX, SOCKET, Stream, Streams, internal_error
from gateway.hooks import Hooks
from gateway.model import WEBSOCKET, Backend, Caller, Part, Request, Response, Tell
from gateway.policy import SAFE_METHODS, Policy, without
from gateway.ports.approvals import ParkedCall, Pending
from gateway.traces import Trace, read_trace

log = logging.getLogger(__name__)

_NOTHING: Final = nullcontext()
"""Takes the place of an exit stack for an answer that is not streamed."""

_WHOLE = Part("", last=True)
"""The only part of an answer that is complete in one part."""


def _as_part(answer: Response, request: Request) -> Response:
    """Return the answer; for a caller that can join parts, who reads bytes, a complete one is a part, too."""
    exact = (request.stream or request.exact) and answer.header("gateway-pending") is None
    return replace(answer, part=_WHOLE) if exact and answer.part is None else answer


@dataclass(frozen=True, slots=True)
class ExchangeApp:
    """One app in the exchange: its policy, its backends by name, and the files of its own site by path.

    `pages` means that a backend renders its pages. Else `frame` returns what its page gives to those in its frames.
    """

    policy: Policy
    backends: Mapping[str, Backend]
    files: Mapping[str, Path] = field(default_factory=dict)
    pages: bool = False
    frame: Callable[[], bytes] | None = None


class Exchange:
    """Sends the requests of every app to its backends. `now` is the time of day, in seconds since the epoch.

    `proof` returns the header fields, in lower case, by which reverse proxies identify the caller: they are never
    forwarded. An app does not exist for callers that it does not admit, by `admits`.
    """

    def __init__(
        self,
        apps: Mapping[str, ExchangeApp],
        *,
        limiter: Limiter,
        idempotency: Idempotency,
        waiting: RequestApprovals,
        recorder: Recorder,
        sender: Sender,
        streams: Streams,
        hooks: Hooks,
        proof: Callable[[], frozenset[str]] = frozenset,
        admits: Admits = admit_all,
        running: RunningCalls | None = None,
        sockets: Sockets | None = None,
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
        self._proof = proof
        self._admits = admits
        self._running = running or RunningCalls()
        self._sockets = sockets or Sockets(limiter, recorder.metrics, self._running)
        self._now = now

    async def run(self, request: Request, caller: Caller, *, wait: float = 0.0, tell: Tell | None = None) -> Response:
        """Return the backend's answer, or its first part; or the gateway's own: a refusal, or a pending approval.

        `wait` is for how many seconds the call itself may wait for a person: 0 for a caller that can poll, infinity for
        one whose connection is known to be open. `tell` notifies its client of the page where that person answers.
        """
        outcome = await self.open(request, caller, wait=wait, tell=tell)
        if not isinstance(outcome, Response):
            outcome = await self._streams.begin(outcome, caller)
        return _as_part(outcome, request)

    async def open(
        self, request: Request, caller: Caller, *, wait: float = 0.0, tell: Tell | None = None
    ) -> Response | Stream:
        """Run a request for a caller that can read a stream itself, and closes it."""
        with self._running.call():
            outcome = await self._run_steps(_prepare(self._without_proof(request)), caller, None, tell)
            if isinstance(outcome, Pending):
                try:
                    with self._running.refusing_cuts:
                        answer = await self._waiting.answer(outcome, caller, wait, self._take_up, tell)
                        return self._streams.release(answer) or answer
                except Refusal as refusal:
                    return await self.refuse(refusal, caller, request.method, request.url)
            return outcome

    async def resume(self, id: str, caller: Caller, *, wait: float, cancel: bool = False) -> Response:
        """Return the next part of a stream, or the answer to a parked request; `cancel` abandons it.

        The answer is kept for a while for a caller that polls again; nothing runs twice.
        """
        with self._running.call():
            try:
                with self._running.refusing_cuts:
                    if not self._admits(caller.principal, caller.app):
                        raise Refusal(Reason.CONNECTION_LOST, NOT_SERVED)
                    if id.startswith((PREFIX, SOCKET)):
                        return await self._streams.next(id, caller, wait=wait, cancel=cancel)
                    return await self._waiting.resume(id, caller, wait, cancel, self._take_up)
            except Refusal as refusal:
                return await self.refuse(refusal, caller, "", "")

    async def read_on(self, id: str, caller: Caller) -> bytes:
        """Return the next bytes of a stream if they are there at once; nothing at its end, which `resume` reports."""
        if not self._admits(caller.principal, caller.app):
            return b""
        return await self._streams.more(id, caller)

    async def send(self, id: str, caller: Caller, number: int, messages: Sequence[Message]) -> None:
        """Send the messages of a page on its WebSocket `id`: they are numbered from 0 on, and `number` is the first.

        Returns once there is room for more. Raises `Refusal`, `connection-lost` for a WebSocket that is not open.
        """
        with self._running.call(), self._running.refusing_cuts:
            if not self._admits(caller.principal, caller.app):
                raise Refusal(Reason.CONNECTION_LOST, NOT_SERVED)
            socket = self._streams.find(id, caller)
            if not isinstance(socket, OpenSocket):
                raise Refusal(Reason.CONNECTION_LOST, "This WebSocket is not open any more.")
            try:
                await socket.send_numbered(number, messages, caller)
            except ConnectionError as error:
                raise Refusal(Reason.CONNECTION_LOST, "This WebSocket is not open any more.") from error

    def recheck_sockets(self) -> None:
        """End the WebSockets that the current policies do not allow."""

        def policy(app: str) -> Policy | None:
            app_exchange = self._apps.get(app)
            return app_exchange.policy if app_exchange is not None else None

        self._sockets.recheck(policy, self._now())

    async def refuse(self, refusal: Refusal, caller: Caller, method: str, url: str) -> Response:
        """Record a refusal by a door that could not build a request, and return its answer."""
        record = self._recorder.start("http", caller, safe=True)
        record.note(method=method[:32], url=url[:2048])
        return await _refuse(refusal, record, url)

    async def _take_up(self, request: Request, parked_call: ParkedCall) -> Response:
        """Resume a request after a person has answered."""
        outcome = await self._run_steps(request, parked_call.caller, parked_call)
        if isinstance(outcome, Response):
            return _as_part(outcome, request)
        if isinstance(outcome, OpenSocket):
            return self._streams.keep(outcome, parked_call.caller)
        raise Refusal(Reason.APPROVAL_EXPIRED, "The call needs another approval than the one that it had.")

    def _without_proof(self, request: Request) -> Request:
        """Return the request without the header fields that identify the caller, whoever wrote them."""
        proof = self._proof()
        return replace(request, headers=without(request.headers, proof)) if proof else request

    async def _run_steps(
        self, request: Request, caller: Caller, parked_call: ParkedCall | None, tell: Tell | None = None
    ) -> Response | Stream | Pending:
        """Run every step of one request; with `parked_call`, resume it after a person answered."""
        app = self._apps.get(caller.app)  # once: it may be replaced while the request runs
        if app is None or not self._admits(caller.principal, caller.app):
            gone = Refusal(Reason.CONNECTION_LOST, NOT_SERVED)
            return await self.refuse(gone, caller, request.method, request.url)
        read = _own_file(app, request)
        try:
            own = await asyncio.to_thread(read) if read is not None else None
        except Refusal as too_large:
            return await self.refuse(too_large, caller, request.method, request.url)
        if own is not None:
            return own
        if request.page is None and (app.pages or is_of_page(request)):
            request = with_page(request, shares_cookies=app.pages)
        self._sender.notice_token(request, caller)
        policy = app.policy
        safe = request.method.upper() in SAFE_METHODS
        after = parked_call.question.id if parked_call is not None else None
        record = self._recorder.start("http", caller, safe=safe, came=_arrival_trace(request), after=after)
        record.note(method=request.method[:32], url=request.url[:2048], policy_version=policy.version)
        try:
            with self._running.refusing_cuts:
                async with AsyncExitStack() if request.stream else _NOTHING as stack:
                    decided_request = await decide_request(policy, request, caller, record, self._now())
                    if parked_call is None:
                        decided_request = await self._limit(decided_request, caller, record, stack)
                    decided_request = await self._idempotency.add_key(decided_request, caller)
                    if parked_call is None and decided_request.obligations.confirm is not None:  # do not ask in vain
                        await self._sender.ready(
                            decided_request, policy.backends[decided_request.canonical.backend], caller, tell
                        )
                    pending = await self._waiting.approve(policy, decided_request, caller, parked_call, record)
                    if pending is not None:
                        await record.close(status=STATUS[Reason.REPORTED_TO_MODEL], detail="waits for a person")
                        return pending
                    # The claims of a parked request's caller were looked up meanwhile.
                    if parked_call is not None and not self._admits(caller.principal, caller.app):
                        raise Refusal(Reason.CONNECTION_LOST, NOT_SERVED)
                    await self._hooks.check_request(decided_request.canonical, caller)
                    await record.open(lasting=decided_request.streams)
                    last, answer = await self._send(app, decided_request, caller, record, stack, tell)
                    if answer.socket is not None and stack is not None:
                        rest = stack.pop_all()
                        return self._sockets.open(policy, last, answer, answer.socket, caller, record, rest)
                    answer = filter_answer(policy, last, answer, record, redirected=last is not decided_request)
                    if last.obligations.mask:
                        answer = await mask_answer(answer, last.obligations.mask)
                    if answer.parts is not None and stack is not None:
                        return Stream(answer.response, answer.parts, record, stack.pop_all(), self._running)
                await record.close(status=answer.response.status)
                return answer.response
        except Refusal as refusal:
            return await _refuse(refusal, record, request.url)
        except asyncio.CancelledError:
            await record.cancel()
            raise
        except (Exception, SystemExit):  # a plugin's backend may raise anything: caller and record get an answer
            log.exception("the request %s failed", record.id)
            return await _refuse(internal_error(), record, request.url)

    async def _limit(
        self, decided_request: DecidedRequest, caller: Caller, record: Record, stack: AsyncExitStack | None
    ) -> DecidedRequest:
        """Return the request after taking limits and a stream slot; without a slot, only an event stream fails.

        Another answer is then sent whole.
        """
        record.report(*await self._limiter.take(decided_request.obligations, caller))
        if stack is not None and decided_request.streams:
            try:
                stack.enter_context(self._streams.place(caller))
            except Refusal:
                if decided_request.wants_events:
                    raise
                decided_request = replace(decided_request, request=replace(decided_request.request, stream=False))
        record.mark("limit")
        return decided_request

    async def _send(
        self,
        app: ExchangeApp,
        decided_request: DecidedRequest,
        caller: Caller,
        record: Record,
        stack: AsyncExitStack | None,
        tell: Tell | None,
    ) -> tuple[DecidedRequest, BackendAnswer]:
        """Return the answer, and the request that it answers: redirects inside the policy are decided anew."""
        for _ in range(HOPS + 1):
            spec = app.policy.backends[decided_request.canonical.backend]
            answer = await self._sender.send(
                decided_request, app.backends[spec.name], spec, caller, record, stack, tell
            )
            hop = next_hop(app.policy, decided_request, answer) if not decided_request.canonical.opens_socket else None
            if hop is None:
                record.note(response_size=len(answer.response.body))
                return decided_request, answer
            await answer.close()
            await record.open()  # the intent contains the first URL; the outcome will contain the last one
            target = await decide_request(
                app.policy, after_redirect(hop.request), caller, record, self._now(), hop.backend
            )
            decided_request = await self._limit(continue_at(decided_request, target), caller, record, stack)
            await self._hooks.check_request(decided_request.canonical, caller)
        FOLLOWED.report(caller.principal.id)
        raise redirect_broken(f"The backend redirects more than {HOPS} times.")


def _prepare(request: Request) -> Request:
    """Return the request as it is decided: that for a WebSocket is answered by a stream, for one caller."""
    if request.method.upper() != WEBSOCKET:
        return request
    return replace(request, method=WEBSOCKET, body=b"", stream=True, once=secrets.token_urlsafe(16))


def _own_file(app: ExchangeApp, request: Request) -> Callable[[], Response | None] | None:
    """Return what reads a file of the app's own site, which is part of the app and not subject to the policy."""
    method = request.method.upper()
    if method not in ("GET", "HEAD"):
        return None
    if app.frame is not None and request.url == FRAME:
        return partial(_frame_config, app.frame)
    file = app.files.get(request.url.partition("?")[0])
    limit = max(app.policy.defaults.response_limit, CARRIED)
    return partial(own_file, file, method, request.url, limit) if file is not None else None


def _frame_config(frame: Callable[[], bytes]) -> Response:
    headers = (("content-type", "application/json"), ("cache-control", "no-cache"))
    return Response(200, headers, frame(), FRAME, reason_phrase="OK")


def _arrival_trace(request: Request) -> Trace | None:
    """Return the trace context that the app's request contains."""
    if not request.headers:
        return None
    fields = {name: value for name, value in request.headers if name in ("traceparent", "tracestate")}
    return read_trace(fields.get("traceparent"), fields.get("tracestate")) if fields else None


async def _refuse(refusal: Refusal, record: Record, url: str) -> Response:
    """Close the entry with a refusal and return its answer."""
    await record.refuse(refusal)
    return problem(refusal, record.id, url)

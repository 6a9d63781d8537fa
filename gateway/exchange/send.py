"""Sends a decided request to its backend with credential and cookies, through its circuit breaker, with retries."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct, structs

from gateway.errors import Reason, Refusal
from gateway.exchange.authenticate import Authenticator, InjectedFields, MissingAccounts
from gateway.exchange.backend_protection import FAILING_REASONS, FAILING_STATUSES, BreakerState, Circuits, Turns
from gateway.exchange.cookies import (
    MemoryCookieJars,
    allowed_sites,
    jar_key,
    open_jar,
    store_answer,
    visible_cookies,
)
from gateway.exchange.decided_request import FIELD, BackendAnswer, DecidedRequest, do_nothing
from gateway.exchange.filter import NAME
from gateway.exchange.page_tokens import PageTokens
from gateway.exchange.pages import origin_of, page_answer, page_fields, page_url
from gateway.exchange.record import Record
from gateway.model import (
    Backend,
    Caller,
    Headers,
    Json,
    Outbound,
    Request,
    Response,
    SocketBackend,
    StreamingBackend,
    Tell,
    Upgraded,
)
from gateway.policy import SAFE_METHODS, BackendSpec, without
from gateway.ports.cookies import CookieJars, JarKey

Attempt = Callable[[float], Awaitable[BackendAnswer]]
"""One attempt, with its timeout in seconds."""


class Retries:
    """Repeats attempts. `clock` is steady, `now` the time of day, in seconds; `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._chance = chance

    async def send(
        self, decided_request: DecidedRequest, attempt: Attempt, go_on: Callable[[], bool], record: Record
    ) -> BackendAnswer:
        """Return the first answer that needs no retry, or the last one. `go_on` is false if a retry would be pointless.

        The outcome of each attempt is recorded in `attempts`. Raises `Refusal` as the last attempt does.
        """
        retry = decided_request.obligations.retry
        if retry is None or decided_request.canonical.method not in retry.methods:
            return await attempt(decided_request.obligations.timeout)
        ends = self._clock() + decided_request.obligations.timeout
        outcomes: list[Json] = []
        while True:
            outcome = await _send_attempt(
                attempt, ends - self._clock() if outcomes else decided_request.obligations.timeout
            )
            came_to = outcome.reason if isinstance(outcome, Refusal) else outcome.response.status
            outcomes.append(came_to)
            if len(outcomes) > 1:
                record.note(attempts=outcomes)
            pause = self._pause(retry.backoff, len(outcomes), outcome)
            last = len(outcomes) >= retry.attempts or came_to not in retry.on or not go_on()
            if last or self._clock() + pause >= ends:
                return _unwrap(outcome)
            if isinstance(outcome, BackendAnswer):
                await outcome.close()
            await self._sleep(pause)

    def _pause(self, backoff: float, attempts: int, outcome: BackendAnswer | Refusal) -> float:
        """Return an exponential backoff with jitter, but at least the backend's Retry-After."""
        own = backoff * 2.0 ** (attempts - 1) * (0.5 + self._chance() / 2)
        retry_after = outcome.response.header("retry-after") if isinstance(outcome, BackendAnswer) else None
        return max(own, _seconds(retry_after, self._now())) if retry_after else own


async def _send_attempt(attempt: Attempt, timeout: float) -> BackendAnswer | Refusal:
    try:
        return await attempt(timeout)
    except Refusal as refusal:
        return refusal


def _unwrap(outcome: BackendAnswer | Refusal) -> BackendAnswer:
    if isinstance(outcome, Refusal):
        raise outcome
    return outcome


def _seconds(text: str, now: float) -> float:
    """Return the wait of a Retry-After field (RFC 9110 10.2.3); 0 if it is invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0") or "0"
        return float(digits) if len(digits) < 10 else math.inf
    try:
        when: float = parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return max(0.0, when - now)


JAR: Final = "cookie jar"
"""The name for secrets that are cookies of a backend, among the names of credentials."""

Begun: TypeAlias = tuple[Response, AsyncIterator[bytes] | None, Callable[[], Awaitable[None]]]
"""A response, the rest of its body if it is streamed, and the function that discards it."""


class SendTarget(Struct, frozen=True):
    """One request of a caller with its backend, at `url`; `inject` gives its credential for one attempt.

    `stack` closes the resources of a streamed answer, None without streaming.
    """

    decided_request: DecidedRequest
    backend: Backend
    spec: BackendSpec
    caller: Caller
    url: str
    inject: Callable[[], Awaitable[InjectedFields]]
    stack: AsyncExitStack | None


class Sender:
    """Sends requests to all backends. `check` raises `Refusal` if this process may not send any more."""

    def __init__(
        self,
        authenticator: Authenticator,
        jars: CookieJars | None = None,
        circuits: Circuits | None = None,
        retries: Retries | None = None,
        absences: MissingAccounts | None = None,
        page_tokens: PageTokens | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._check = check
        self._authenticator = authenticator
        self._jars: CookieJars = jars or MemoryCookieJars()
        self._circuits = circuits or Circuits()
        self._retries = retries or Retries()
        self._absences = absences or MissingAccounts()
        self._page_tokens = page_tokens
        self._turns = Turns()

    async def send(
        self,
        decided_request: DecidedRequest,
        backend: Backend,
        spec: BackendSpec,
        caller: Caller,
        record: Record,
        stack: AsyncExitStack | None,
        tell: Tell | None = None,
    ) -> BackendAnswer:
        """Return the backend's answer to `decided_request`. Raises `Refusal` if there is none.

        `tell` notifies the caller's client of the page to connect a missing account.
        """
        spec = _for(decided_request, spec)
        name, place = spec.credential, (caller.app, spec.name)
        record.note(credential=name)
        url, obligations = spec.target(decided_request.canonical), decided_request.obligations
        try:
            self._circuits.look(place, obligations.circuit)  # no credential for a request that is not sent
        except Refusal:
            record.note(circuit=BreakerState.OPEN)
            raise
        inject = self._injecting(decided_request, spec, caller, url, record)
        credential_fields = (
            await inject() if name is None else await self._absences.wait_for(inject, caller, name, tell)
        )
        way = SendTarget(decided_request, backend, spec, caller, url, inject, stack)
        if obligations.retry is None and obligations.circuit is None:
            return await self._send_authenticated(way, credential_fields, obligations.timeout, record)

        first: InjectedFields | None = credential_fields

        async def attempt(timeout: float) -> BackendAnswer:
            nonlocal first
            body, first = first, None
            with self._circuits.passage(place, obligations.circuit) as passage:
                if passage.state is not BreakerState.CLOSED:
                    record.note(circuit=passage.state)
                try:
                    answer = await self._send_authenticated(way, body or await inject(), timeout, record)
                except Refusal as refusal:
                    passage.success = _backend_outcome(decided_request, refusal)
                    raise
                passage.success = answer.response.status not in FAILING_STATUSES
                return answer

        try:
            return await self._retries.send(decided_request, attempt, lambda: not self._circuits.is_open(place), record)
        except Refusal as refusal:
            if refusal.reason is Reason.BACKEND_UNAVAILABLE:
                record.note(circuit=BreakerState.OPEN)
            raise

    def _injecting(
        self, decided_request: DecidedRequest, spec: BackendSpec, caller: Caller, url: str, record: Record
    ) -> Callable[[], Awaitable[InjectedFields]]:
        """Return what gives the credential of the backend for one attempt, or else the page's own authorization."""
        if spec.credential is not None or self._page_tokens is None or not decided_request.request.headers:
            name = spec.credential
            return partial(self._authenticator.inject, name, caller.principal, decided_request.canonical.method, url)
        page = self._page_tokens

        async def inject() -> InjectedFields:
            return page.inject(decided_request, spec, caller, record)

        return inject

    def notice_token(self, request: Request, caller: Caller) -> None:
        """Remember the token that a page sends, so that it is masked in what is recorded and shown of its requests."""
        if self._page_tokens is not None:
            self._page_tokens.notice(request.headers, caller)

    async def ready(
        self, decided_request: DecidedRequest, spec: BackendSpec, caller: Caller, tell: Tell | None = None
    ) -> None:
        """Return once the account is connected; wait for its person if their client can be told. Raises `Refusal`."""
        name = _for(decided_request, spec).credential
        if name is not None:
            ready = partial(self._authenticator.ready, name, caller.principal)
            await self._absences.wait_for(ready, caller, name, tell)

    async def _send_authenticated(
        self, way: SendTarget, credential_fields: InjectedFields, timeout: float, record: Record
    ) -> BackendAnswer:
        """Make one attempt; repeat a safe request once after 401 if another credential can be sent."""
        answer, changed = await self._once(way, credential_fields, timeout, record)
        if not changed or way.decided_request.canonical.method not in SAFE_METHODS:
            return answer
        await answer.close()
        return (await self._once(way, await way.inject(), timeout, record))[0]

    async def _once(
        self, way: SendTarget, credential_fields: InjectedFields, timeout: float, record: Record
    ) -> tuple[BackendAnswer, bool]:
        """Return the answer, and whether another attempt would carry another credential."""
        self._check()
        url, name, principal = way.url, way.spec.credential, way.caller.principal
        jar = jar_key(
            way.decided_request, way.caller, way.spec, credential_fields.account
        )  # may differ at each attempt
        secrets = dict.fromkeys(credential_fields.secrets, name or NAME)
        later: Callable[[], Sequence[str]] = tuple
        if self._page_tokens is not None:
            later = partial(self._page_tokens.vaulted, way.spec, way.caller)
            secrets |= dict.fromkeys(later(), NAME)
        cookies: Headers = ()
        page = way.decided_request.request.page
        if jar is not None:
            opened = await open_jar(self._jars, jar, url, page)
            allowed = allowed_sites(way.decided_request.request, way.decided_request.canonical.method)
            cookies = opened.field(url, time.time(), allowed)
            secrets = dict.fromkeys(opened.secrets(), JAR) | secrets
        record.mark("authenticate")
        trace = record.span.going_out("send").headers() if way.spec.trace else ()
        if page is not None:
            cookies += page_fields(page, way.decided_request.canonical.method, origin_of(way.spec.url))
        request = outbound_request(url, way.decided_request, credential_fields.headers + cookies, timeout, trace)
        if way.decided_request.canonical.protocols is not None:
            self._check()
            return await self._open_socket(way, request, credential_fields, jar, secrets, later)
        if self._page_tokens is not None and way.decided_request.obligations.vault is not None:
            body, secrets_in_body = self._page_tokens.open_body(way.decided_request, way.spec, way.caller)
            request = structs.replace(request, body=body)
            secrets |= dict.fromkeys(secrets_in_body, NAME)
        if way.decided_request.streams:
            self._check()
            response, parts, close = await _begin_answer(way, request)
        else:
            turn = (principal.id, way.caller.app, way.spec.name)
            await self._turns.enter(turn, timeout)
            try:
                self._check()  # again: the jar and the turn may have taken longer than the lease
                response, parts, close = await way.backend.send(request), None, do_nothing
            finally:
                self._turns.leave(turn)
        answer = BackendAnswer(
            response,
            secrets,
            parts,
            close,
            bool(credential_fields.headers) or jar is not None,
            dropped=credential_fields.dropped,
            later=later,
        )
        if self._page_tokens is not None:
            answer = await self._page_tokens.seal(answer, way.decided_request, way.spec, way.caller)
        record.mark("send")
        status, headers = answer.response.status, answer.response.headers
        visible: str | None = None
        if jar is not None:
            try:
                await store_answer(self._jars, jar, url, headers)
                if page is not None and page.shares_cookies:
                    visible = await visible_cookies(self._jars, jar, page_url(page, url))
            except Refusal:
                await answer.close()
                raise
        if page is not None:
            answer = structs.replace(answer, page=page_answer(visible, headers))
        return answer, await self._authenticator.take_response(name, principal, credential_fields, url, status, headers)

    async def _open_socket(
        self,
        way: SendTarget,
        request: Outbound,
        credential_fields: InjectedFields,
        jar: JarKey | None,
        secrets: Mapping[str, str],
        later: Callable[[], Sequence[str]],
    ) -> tuple[BackendAnswer, bool]:
        """Return the answer to the opening request of a WebSocket, and the same as `_once`."""
        upgrade, close = await _upgrade(way, request)
        head = upgrade.head
        if jar is not None:
            try:
                await store_answer(self._jars, jar, way.url, head.headers)
            except Refusal:
                await close()
                raise
        name, principal = way.spec.credential, way.caller.principal
        changed = await self._authenticator.take_response(
            name, principal, credential_fields, way.url, head.status, head.headers
        )
        return BackendAnswer(head, secrets, None, close, True, upgrade.socket, later=later), changed


async def _upgrade(way: SendTarget, request: Outbound) -> tuple[Upgraded, Callable[[], Awaitable[None]]]:
    rule, protocols = way.decided_request.obligations.socket, way.decided_request.canonical.protocols
    if way.stack is None or rule is None or protocols is None or not isinstance(way.backend, SocketBackend):
        detail = f"backend {way.spec.name!r}: backends of the type {way.spec.type} open no WebSockets"
        raise Refusal(Reason.BACKEND_PROTOCOL, detail)
    stack = await way.stack.enter_async_context(AsyncExitStack())
    upgrade = await stack.enter_async_context(way.backend.upgrade(request, protocols, rule.message))
    return upgrade, stack.aclose


def outbound_request(
    url: str, decided_request: DecidedRequest, credential_headers: Headers, timeout: float, trace: Headers = ()
) -> Outbound:
    """Return the request as it is sent: the canonical bytes, and the injected fields, which win over the app's."""
    canonical, obligations = decided_request.canonical, decided_request.obligations
    if decided_request.key is not None:
        credential_headers = (*credential_headers, (FIELD, decided_request.key))
    headers = canonical.headers
    if headers:
        hidden_names = {FIELD, "traceparent", "tracestate", *(name for name, _ in credential_headers)}
        if obligations.mask:
            hidden_names |= {"range", "if-range"}  # a range of JSON cannot be parsed, and so not masked
        headers = without(headers, hidden_names)
    return Outbound(
        method=canonical.method,
        url=url,
        headers=headers + trace + credential_headers,
        body=canonical.body,
        timeout=timeout,
        response_limit=obligations.response_limit,
    )


def _for(decided_request: DecidedRequest, spec: BackendSpec) -> BackendSpec:
    return replace(spec, credential=None) if decided_request.request.anonymous else spec


async def _begin_answer(way: SendTarget, request: Outbound) -> Begun:
    """Return an answer whose head has arrived. Earlier attempts shorten the wait for the head only."""
    if way.stack is None or not isinstance(way.backend, StreamingBackend):
        return await way.backend.send(request), None, do_nothing
    stack = await way.stack.enter_async_context(AsyncExitStack())
    without_timeout = structs.replace(request, timeout=way.decided_request.obligations.timeout)
    try:
        async with asyncio.timeout(request.timeout):
            arriving = await stack.enter_async_context(way.backend.stream(without_timeout))
    except TimeoutError as error:
        raise Refusal(Reason.BACKEND_TIMEOUT, f"backend {way.spec.name!r} did not answer in time") from error
    return arriving.head, arriving.parts, stack.aclose


def _backend_outcome(decided_request: DecidedRequest, refusal: Refusal) -> bool | None:
    """Return False if the backend failed, else None. A timeout that the app lowered is not the backend's failure."""
    lowered = (
        decided_request.canonical.timeout is not None
        and decided_request.canonical.timeout <= decided_request.obligations.timeout
    )
    if refusal.reason not in FAILING_REASONS or (refusal.reason is Reason.BACKEND_TIMEOUT and lowered):
        return None
    return False

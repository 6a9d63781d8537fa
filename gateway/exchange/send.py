"""Send a decided request to its backend: with its credential and cookies, through its breaker, again if it helps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Final, TypeAlias

from msgspec import Struct, structs

from gateway.errors import Reason, Refusal
from gateway.exchange.absent import Absences
from gateway.exchange.answer import Answer, nothing
from gateway.exchange.authenticate import Authenticator
from gateway.exchange.circuit import FAILING_REASONS, FAILING_STATUSES, Circuits, State
from gateway.exchange.cookies import CookieJars, JarKey, jar_key
from gateway.exchange.idempotency import FIELD
from gateway.exchange.leg import Leg
from gateway.exchange.record import Record
from gateway.exchange.retry import Retries
from gateway.model import Backend, Caller, Headers, Outbound, Principal, Response, StreamingBackend, Tell
from gateway.policy import SAFE_METHODS, BackendSpec, without

JAR: Final = "cookie jar"
"""Stands for the cookies that a backend gave, where credentials have their names: it is none of these."""

Begun: TypeAlias = tuple[Response, AsyncIterator[bytes] | None, Callable[[], Awaitable[None]]]
"""A response, the parts of its body where they are still to come, and what gives these up."""


class Way(Struct, frozen=True):
    """One leg with the backend that it goes to; `held` ends what a streamed answer needs, where one is wanted."""

    leg: Leg
    backend: Backend
    spec: BackendSpec
    principal: Principal
    jar: JarKey | None
    held: AsyncExitStack | None


class Sender:
    """The way to all backends."""

    def __init__(
        self,
        authenticator: Authenticator,
        jars: CookieJars | None = None,
        circuits: Circuits | None = None,
        retries: Retries | None = None,
        absences: Absences | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._jars = jars or CookieJars()
        self._circuits = circuits or Circuits()
        self._retries = retries or Retries()
        self._absences = absences or Absences()

    async def send(
        self,
        leg: Leg,
        backend: Backend,
        spec: BackendSpec,
        caller: Caller,
        record: Record,
        held: AsyncExitStack | None,
        tell: Tell | None = None,
    ) -> Answer:
        """The backend's answer to `leg`. Raises `Refusal` where there is none.

        `tell` tells the caller's client where its person connects an account that is missing.
        """
        spec = _for(leg, spec)
        record.note(credential=spec.credential)
        version = await self.account(leg, spec, caller, tell)
        jar = jar_key(leg, caller, spec, version)
        way = Way(leg, backend, spec, caller.principal, jar, held)
        place = (caller.app, spec.name)

        obligations = leg.obligations
        if obligations.retry is None and obligations.circuit is None:
            return await self._authenticated(way, obligations.timeout, record)

        async def attempt(timeout: float) -> Answer:
            with self._circuits.passage(place, obligations.circuit) as passage:
                if passage.state is not State.CLOSED:
                    record.note(circuit=passage.state)
                try:
                    answer = await self._authenticated(way, timeout, record)
                except Refusal as refusal:
                    passage.worked = _worked(leg, refusal)
                    raise
                passage.worked = answer.response.status not in FAILING_STATUSES
                return answer

        try:
            return await self._retries.send(leg, attempt, lambda: not self._circuits.is_open(place), record)
        except Refusal as refusal:
            if refusal.reason is Reason.BACKEND_UNAVAILABLE:
                record.note(circuit=State.OPEN)
            raise

    async def account(self, leg: Leg, spec: BackendSpec, caller: Caller, tell: Tell | None = None) -> str:
        """Which account is used; where its person has to connect it first, and can be sent there, after they did."""
        name = _for(leg, spec).credential
        try:
            return await self._authenticator.version(name, caller.principal)
        except Refusal as refusal:
            if name is None or refusal.connect_url is None:
                raise
            with self._absences.needed(caller, name, refusal.connect_url, tell) as need:
                while need is not None and await need.again():
                    with suppress(Refusal):  # not there yet; the last word is the one above
                        return await self._authenticator.version(name, caller.principal)
            raise

    async def _authenticated(self, way: Way, timeout: float, record: Record) -> Answer:
        """One attempt. A safe request that is answered 401 is repeated once, if something else can be shown then."""
        answer, changed = await self._once(way, timeout, record)
        if not changed or way.leg.canonical.method not in SAFE_METHODS:
            return answer
        await answer.close()
        return (await self._once(way, timeout, record))[0]

    async def _once(self, way: Way, timeout: float, record: Record) -> tuple[Answer, bool]:
        """The answer, and whether another attempt would carry something else."""
        url, name = way.spec.target(way.leg.canonical), way.spec.credential
        injected = await self._authenticator.inject(name, way.principal, way.leg.canonical.method, url)
        cookies = self._jars.cookies(way.jar, url)
        secrets = dict.fromkeys(self._jars.secrets(way.jar), JAR) | dict.fromkeys(injected.secrets, name or "")
        record.mark("authenticate")
        trace = record.span.going_out("send").headers() if way.spec.trace else ()
        request = outbound(url, way.leg, injected.headers + cookies, timeout, trace)
        if way.leg.streams:
            response, parts, close = await _begun(way, request)
        else:
            response, parts, close = await way.backend.send(request), None, nothing
        answer = Answer(response, secrets, parts, close, bool(injected.headers) or way.jar is not None)
        record.mark("send")
        status, headers = answer.response.status, answer.response.headers
        self._jars.keep(way.jar, url, headers)
        return answer, await self._authenticator.answered(name, way.principal, injected, url, status, headers)


def outbound(url: str, leg: Leg, injected: Headers, timeout: float, trace: Headers = ()) -> Outbound:
    """The request as it goes out: the bytes that were decided on, and the injected fields, which win over the app's."""
    canonical, obligations = leg.canonical, leg.obligations
    if leg.key is not None:
        injected = (*injected, (FIELD, leg.key))
    headers = canonical.headers
    if headers:
        dropped = {FIELD, "traceparent", "tracestate", *(name for name, _ in injected)}
        if obligations.mask:
            dropped |= {"range", "if-range"}  # a piece of JSON cannot be read, and so not be masked
        headers = without(headers, dropped)
    return Outbound(
        method=canonical.method,
        url=url,
        headers=headers + trace + injected,
        body=canonical.body,
        timeout=timeout,
        response_limit=obligations.response_limit,
    )


def _for(leg: Leg, spec: BackendSpec) -> BackendSpec:
    return replace(spec, credential=None) if leg.request.anonymous else spec


async def _begun(way: Way, request: Outbound) -> Begun:
    """An answer of which the head is there. What earlier attempts took is taken from the wait for it alone."""
    if way.held is None or not isinstance(way.backend, StreamingBackend):
        return await way.backend.send(request), None, nothing
    held = await way.held.enter_async_context(AsyncExitStack())
    unhurried = structs.replace(request, timeout=way.leg.obligations.timeout)
    try:
        async with asyncio.timeout(request.timeout):
            arriving = await held.enter_async_context(way.backend.stream(unhurried))
    except TimeoutError as error:
        raise Refusal(Reason.BACKEND_TIMEOUT, f"backend {way.spec.name!r} did not answer in time") from error
    return arriving.head, arriving.parts, held.aclose


def _worked(leg: Leg, refusal: Refusal) -> bool | None:
    """Whether the backend is to blame. A timeout that the app lowered says nothing of it."""
    lowered = leg.canonical.timeout is not None and leg.canonical.timeout <= leg.obligations.timeout
    if refusal.reason not in FAILING_REASONS or (refusal.reason is Reason.BACKEND_TIMEOUT and lowered):
        return None
    return False

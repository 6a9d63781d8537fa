"""One request to one backend, decided, and the backend's answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from gateway.errors import Reason, Refusal
from gateway.exchange.record import Record
from gateway.model import Caller, CanonicalRequest, Effect, Request, Response
from gateway.policy import Decision, Obligations, Policy, canonicalise, canonicalising, decide


async def nothing() -> None:
    """Do nothing: the default `close`."""


class BackendAnswer(Struct, frozen=True):
    """A backend's answer: `response` has its body, unless `parts` yield it; `close` discards what was not read.

    `credentialed` is true if the gateway added a credential or cookies to the request; `secrets` maps each text that
    must not reach the app to the name of its credential.
    """

    response: Response
    secrets: Mapping[str, str]
    parts: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] = nothing
    credentialed: bool = False


LONG: Final = 256 * 1024
"""Bytes from which a body is scanned without blocking the event loop."""


class Leg(Struct, frozen=True):
    """A request, its canonical form, and the policy's decision on it.

    `obligations` are those of the decision. `key` is the idempotency key that is sent with it, None without one.
    """

    request: Request
    canonical: CanonicalRequest
    decision: Decision
    obligations: Obligations
    key: str | None = None

    @property
    def streams(self) -> bool:
        """Whether the answer may be sent before it is complete; values can be masked in a complete answer only."""
        return self.request.stream and self.obligations.stream and not self.obligations.mask

    @property
    def wants_events(self) -> bool:
        """Whether an event stream is requested, as by `EventSource`: such an answer has no end to wait for."""
        return any(name == "accept" and "text/event-stream" in value for name, value in self.canonical.headers)


async def decided(
    policy: Policy, request: Request, caller: Caller, record: Record, now: float, backend: str | None = None
) -> Leg:
    """Return the request with the decision that allows it. Raises `Refusal` if it is denied.

    `now` is in seconds since the epoch; `backend` is given if it is already known.
    """
    if len(request.body) > LONG:
        canonical = await _beside(policy, request, backend)
    else:
        canonical = canonicalise(policy, request, backend)
    decision = decide(policy, canonical, caller, now)
    obligations = decision.obligations
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
    if obligations.reported:
        record.report(*decision.reasons)
    if len(canonical.body) > obligations.request_limit:
        limit = obligations.request_limit
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"The body has {len(canonical.body)} bytes; {limit} are allowed here.")
    return Leg(request, canonical, decision, obligations)


async def _beside(policy: Policy, request: Request, backend: str | None) -> CanonicalRequest:
    """Run `canonicalise` in a thread, or in steps that let the event loop run in between."""
    if policy.reads_body:  # a parsed body has no steps
        return await asyncio.to_thread(canonicalise, policy, request, backend)
    # In a thread, the scan would contend for the GIL at each system call of the event loop.
    steps = canonicalising(policy, request, backend)
    canonical = next(steps)
    while canonical is None:
        await asyncio.sleep(0)
        canonical = next(steps)
    return canonical

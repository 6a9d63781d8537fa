"""One request to one backend, decided: the first of an exchange, or where a redirect leads."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from gateway.errors import Reason, Refusal
from gateway.exchange.record import Record
from gateway.model import Caller, CanonicalRequest, Effect, Request
from gateway.policy import Decision, Obligations, Policy, canonicalise, canonicalising, decide

LONG: Final = 256 * 1024
"""Bytes of a body from which others may run while it is looked through."""


class Leg(Struct, frozen=True):
    """What was asked for, the one form of it, and what the policy says of that.

    `obligations` are those of the decision. `key` is the idempotency key that goes out with it, None where there is
    none.
    """

    request: Request
    canonical: CanonicalRequest
    decision: Decision
    obligations: Obligations
    key: str | None = None

    @property
    def streams(self) -> bool:
        """Whether its answer may leave before it is whole; values can be masked in a whole answer only."""
        return self.request.stream and self.obligations.stream and not self.obligations.mask

    @property
    def wants_events(self) -> bool:
        """Whether it asks for an event stream, as `EventSource` does: such an answer has no end to wait for."""
        return any(name == "accept" and "text/event-stream" in value for name, value in self.canonical.headers)


async def decided(
    policy: Policy, request: Request, caller: Caller, record: Record, now: float, backend: str | None = None
) -> Leg:
    """The request with its decision, which allows it. Raises `Refusal` where it does not.

    `now` is in seconds since the epoch; `backend` is given where it is known already.
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
    """`canonicalise`, with what others have to do in between."""
    if policy.reads_body:  # what is parsed has no steps
        return await asyncio.to_thread(canonicalise, policy, request, backend)
    # In a thread, the search would take Python's lock again at each call that the event loop makes to the system.
    steps = canonicalising(policy, request, backend)
    canonical = next(steps)
    while canonical is None:
        await asyncio.sleep(0)
        canonical = next(steps)
    return canonical

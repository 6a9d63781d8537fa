"""The cost of one decision, over policies of growing length; in microseconds, as there is no comparable program."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.errors import BenchmarkError
from benchmarks.gateway_files import policy_text
from gateway.model import LOCAL, BodyType, Caller, CanonicalRequest, Door, Effect, Initiator, Request
from gateway.policy import Policy, canonicalise, decide, parse_policy

PASSES = 5
CALLS = 5_000
_ORDERS = '  - {path: "/api/orders/{item}", methods: [POST], when: request.body.total <= 500}\n'
_CALLER = Caller(LOCAL, "bench", Door.SITE, Initiator.PAGE, "app-origin", proven=True)


@dataclass(frozen=True, slots=True)
class Decided:
    """One policy: `cold_us` is a decision on a new path, `repeated_us` on a repeated request.

    `condition_us` is one with a condition on a number of the body, `canonical_us` the canonicalisation of a request
    before that, `loaded` the time to parse the policy, in seconds.
    """

    routes: int
    cold_us: float
    repeated_us: float
    condition_us: float
    canonical_us: float
    loaded: float


def measure(routes: int, calls: int = CALLS) -> Decided:
    """Return the median of some passes of `calls` over a policy of `routes` routes. Raises `BenchmarkError`."""
    text = policy_text(routes) + _ORDERS
    started = time.perf_counter()
    policy = parse_policy(text, "policy.yaml")
    loaded = time.perf_counter() - started
    cold, repeated, condition, canonical = [], [], [], []
    for number in range(PASSES):
        asked = [_unique_request(routes, number, call) for call in range(calls)]
        started = time.perf_counter()
        requests = [canonicalise(policy, request) for request in asked]
        canonical.append(1e6 * (time.perf_counter() - started) / calls)
        cold.append(_time_each(policy, requests))
        repeated.append(_time_each(policy, requests[:1] * calls))
        condition.append(_time_each(policy, [canonicalise(policy, _order(number, call)) for call in range(calls)]))
    return Decided(
        routes=routes,
        cold_us=statistics.median(cold),
        repeated_us=statistics.median(repeated),
        condition_us=statistics.median(condition),
        canonical_us=statistics.median(canonical),
        loaded=loaded,
    )


def _unique_request(routes: int, number: int, call: int) -> Request:
    """Return a request for a unique path, spread over the policy."""
    route = (call * 7919) % routes
    return Request("GET", f"/api/r{route}/{number}-{call}" if route < routes - 1 else f"/api/items/{number}-{call}")


def _order(number: int, call: int) -> Request:
    """Return a request whose body the policy reads: 78 bytes, as a shop's app sends it."""
    body = f'{{"total": {call % 500}, "currency": "EUR", "items": [{{"id": "{number}-{call}", "count": 1}}]}}'
    return Request(
        "POST", f"/api/orders/{number}-{call}", (("content-type", "application/json"),), body.encode(), BodyType.JSON
    )


def _time_each(policy: Policy, requests: Sequence[CanonicalRequest]) -> float:
    """Return the microseconds for each."""
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        decisions = [decide(policy, request, _CALLER) for request in requests]
        took = time.perf_counter() - started
    finally:
        gc.enable()
    if any(decision.effect is not Effect.ALLOW for decision in decisions):
        raise BenchmarkError("The policy of the benchmark did not allow all of its requests.")
    return 1e6 * took / len(requests)

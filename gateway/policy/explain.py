"""Why a policy decides as it does: each step, each route tried, the remedy; and the tests in the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.errors import Refusal
from gateway.model import Caller, CanonicalRequest, Door, Effect, Principal, Request
from gateway.policy import paths
from gateway.policy.canonical import canonical_method, canonicalise, target
from gateway.policy.decide import decide
from gateway.policy.policy import Policy
from gateway.policy.rules import Decision, PolicyTest, Route

MAX_TRIED: Final = 50


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the normalisation: what it is called, and what was there after it."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A route that was looked at, and what came of it."""

    route: str
    line: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with everything that led to it. `request` is None where the request was refused before."""

    steps: tuple[Step, ...]
    tried: tuple[Tried, ...]
    request: CanonicalRequest | None
    effect: str
    reasons: tuple[str, ...]
    decision: Decision | None
    remedy: str | None


@dataclass(frozen=True, slots=True)
class TestResult:
    """What became of an expectation in the policy file."""

    __test__ = False  # pytest takes it for a test class otherwise

    test: PolicyTest
    passed: bool
    outcome: str
    reasons: tuple[str, ...]


def explain(policy: Policy, request: Request, caller: Caller) -> Explanation:
    """How `policy` comes to its decision on `request` of `caller`."""
    steps = _steps(policy, request)
    try:
        canonical = canonicalise(policy, request)
    except Refusal as refusal:
        return Explanation(steps, (), None, "deny", (refusal.detail,), None, _refused_remedy(refusal))
    decision = decide(policy, canonical, caller)
    tried = _tried(policy, canonical)
    return Explanation(
        steps=steps,
        tried=tried,
        request=canonical,
        effect=outcome(decision),
        reasons=decision.reasons,
        decision=decision,
        remedy=_remedy(policy, canonical, decision),
    )


def run_tests(policy: Policy) -> list[TestResult]:
    """The results of the file's `tests`, in their order."""
    return [_run(policy, test) for test in policy.tests]


def outcome(decision: Decision) -> str:
    """`allow`, `deny` or `confirm`."""
    if decision.effect is Effect.DENY:
        return "deny"
    return "confirm" if decision.obligations.confirm is not None else "allow"


def _run(policy: Policy, test: PolicyTest) -> TestResult:
    subject = test.principal or "test"
    caller = Caller(
        principal=Principal(issuer="policy", client="test", subject=subject),
        app="test",
        door=Door.MCP,
        initiator=test.initiator,
        evidence="a test in the policy file",
        view="test",
        proven=True,
    )
    try:
        decision = decide(policy, canonicalise(policy, Request(test.method, test.url)), caller)
    except Refusal as refusal:
        return TestResult(test, test.expect == "deny", "deny", (refusal.detail,))
    found = outcome(decision)
    return TestResult(test, test.expect == found, found, decision.reasons)


def _steps(policy: Policy, request: Request) -> tuple[Step, ...]:
    """The steps as far as the request can be read."""
    steps = [Step("as given", f"{request.method} {request.url}")]
    try:
        steps.append(Step("method in upper case", canonical_method(request.method)))
        backend, path, query = target(policy, request.url)
        named = f"backend {backend}, named by the URL's origin; " if backend else ""
        steps.append(Step("split, fragment dropped", f"{named}path {path}, query {query or '(none)'}"))
        path = paths.normalised_path(path)
        steps.append(Step("percent-encoding normalised", path))
        path = paths.remove_dots(path)
        steps.append(Step("dot segments removed", path))
        if query:
            steps.append(Step("query normalised", paths.canonical_query(query)))
        canonical = canonicalise(policy, request)
        names = {name for name, _ in canonical.headers}
        dropped = sorted({name.lower() for name, _ in request.headers} - names)
        if dropped:
            steps.append(Step("headers dropped", ", ".join(dropped)))
        steps.append(Step("canonical", f"{canonical.method} {canonical.url} to {canonical.backend or '(no backend)'}"))
    except ValueError as error:
        steps.append(Step("refused", str(error)))
    except Refusal as refusal:
        steps.append(Step("refused", refusal.detail))
    return tuple(steps)


def _tried(policy: Policy, request: CanonicalRequest) -> tuple[Tried, ...]:
    tried: list[Tried] = []
    for route in policy.routes.matching(request.path)[:MAX_TRIED]:
        outcome = _route_outcome(route, request)
        tried.append(Tried(route.template.text, route.line, outcome))
        if outcome in ("allows", "denies"):
            break
    return tuple(tried)


def _route_outcome(route: Route, request: CanonicalRequest) -> str:
    if route.methods is not None and request.method not in route.methods:
        return f"path matches, method does not ({', '.join(sorted(route.methods))})"
    if route.backend is not None and route.backend != request.backend:
        return f"path and method match, backend does not ({route.backend})"
    return "allows" if route.deny is None else "denies"


def _refused_remedy(refusal: Refusal) -> str | None:
    _, colon, remedy = refusal.detail.rpartition(": ")
    return remedy if colon else None


def _remedy(policy: Policy, request: CanonicalRequest, decision: Decision) -> str | None:
    if decision.effect is Effect.ALLOW:
        return None
    there = policy.routes.matching(request.path)
    if decision.route is not None:
        line = next(route.line for route in there if route.deny is not None and route.template.text == decision.route)
        return f"the rule on line {line} denies this on purpose: a route for it would have to stand before that line"
    allowed = next((route for route in there if route.deny is None), None)
    if allowed is not None:
        return f"add {request.method} to `methods` of {allowed.template.text} (line {allowed.line})"
    return f'add to `routes`: {{path: "{request.path}", methods: [{request.method}]}}'

"""Runs the tests of a policy and reports the rules that no test covers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.errors import Refusal
from gateway.model import BodyType, Caller, Door, Headers, Principal, Request
from gateway.policy.canonical import canonicalise
from gateway.policy.decide import decide, decide_tool
from gateway.policy.explain import outcome
from gateway.policy.policy import Policy
from gateway.policy.rules import PolicyTest, Route, ToolRule


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of a test. `route` is the deciding rule; None if there is none, and for tools."""

    __test__ = False  # pytest would collect it as a test class

    test: PolicyTest
    passed: bool
    outcome: str
    reasons: tuple[str, ...]
    route: Route | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """Test coverage of rules. `routes` and `tools` are those that decided no test."""

    routes: tuple[Route, ...]
    tools: tuple[ToolRule, ...]
    all_routes: int
    all_tools: int

    @property
    def of_routes(self) -> float:
        """From 0 to 1; 1 without routes."""
        return 1 - len(self.routes) / self.all_routes if self.all_routes else 1.0

    @property
    def of_tools(self) -> float:
        """From 0 to 1; 1 without tools."""
        return 1 - len(self.tools) / self.all_tools if self.all_tools else 1.0


def run_tests(policy: Policy, tests: Iterable[PolicyTest] | None = None) -> list[TestResult]:
    """Run `tests`, by default those in the policy's own file. Report mode is off."""
    return [_run(policy, test) for test in (policy.tests if tests is None else tests)]


def coverage(policy: Policy, results: Iterable[TestResult]) -> Coverage:
    """Return the coverage of the tests behind `results`."""
    results = tuple(results)
    routes = {result.route.index for result in results if result.route is not None}
    tools = {result.test.url for result in results if result.test.is_tool}
    return Coverage(
        routes=tuple(route for route in policy.routes.all if route.index not in routes),
        tools=tuple(rule for rule in policy.tools.values() if rule.name not in tools),
        all_routes=len(policy.routes.all),
        all_tools=len(policy.tools),
    )


def _run(policy: Policy, test: PolicyTest) -> TestResult:
    caller = _caller(test)
    if test.is_tool:
        decision = decide_tool(policy, test.url, caller, test.arguments)
        found = outcome(decision)
        return TestResult(test, test.expect == found, found, decision.reasons)
    try:
        request = canonicalise(policy, _request(test))
    except Refusal as refusal:
        return TestResult(test, test.expect == "deny", "deny", (refusal.detail,))
    decision = decide(policy, request, caller)
    found = outcome(decision)
    route = policy.routes.find(request.method, request.path, request.backend)
    return TestResult(test, test.expect == found, found, decision.reasons, route)


def _caller(test: PolicyTest) -> Caller:
    subject = test.principal or "test"
    return Caller(
        principal=Principal("policy", "test", subject, roles=test.roles, claims=test.claims),
        app="test",
        door=Door.MCP,
        initiator=test.initiator,
        evidence="a test of the policy",
        view="test",
        proven=True,
    )


def _request(test: PolicyTest) -> Request:
    if test.body is None:
        return Request(test.method, test.url, test.headers)
    headers: Headers = test.headers
    if not any(name == "content-type" for name, _ in headers):
        headers = (*headers, ("content-type", "application/json"))
    return Request(test.method, test.url, headers, test.body.encode(), BodyType.JSON)

"""The tests of a policy: reads expected decisions, runs them, and reports the rules that no test covers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gateway.documents import Section, read_document
from gateway.documents.nodes import quote
from gateway.errors import Refusal
from gateway.model import WEBSOCKET, BodyType, Caller, Door, Headers, Initiator, Json, Principal, Request
from gateway.policy.bodies import write_json
from gateway.policy.canonical import canonical_method, canonicalise
from gateway.policy.decide import decide, decide_tool
from gateway.policy.explain import opened_past, outcome
from gateway.policy.policy import Policy
from gateway.policy.rules import TOOL_CALL, PolicyTest, Route, ToolRule

EXPECTED = ("allow", "deny", "confirm")
SUFFIX = ".test.yaml"
_URL = re.compile("/|https?://", re.IGNORECASE)
"""The beginning of a test's URL; the rest is free, since tests may contain an attacker's URLs."""


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file with only tests; `policy` is the file that they test."""

    __test__ = False  # pytest would collect it as a test class

    policy: Path
    tests: tuple[PolicyTest, ...]


def parse_tests(text: str, path: Path) -> TestFile:
    """Parse the tests in `text`, of the file `path`; without `policy` they test the policy of the same name.

    Raises DocumentError.
    """
    with read_document(text, str(path)) as top:
        policy_file = top.text("policy", f"{path.name.removesuffix(SUFFIX)}.yaml")
        top.require("tests")
        tests = read_tests(top)
    return TestFile(path.parent / policy_file, tests)


def read_tests(top: Section) -> tuple[PolicyTest, ...]:
    """Read the `tests` of a file."""
    return tuple(_test(section) for section in top.sections("tests"))


def _test(section: Section) -> PolicyTest:
    is_tool = "tool" in section
    method, url = (TOOL_CALL, section.text("tool")) if is_tool else _request(section)
    for key in ("request", "headers", "body") if is_tool else ("arguments",):
        if section.get(key) is not None:
            section.problem(f'has no meaning beside "{"tool" if is_tool else "request"}"', key)
    section.require("expect")
    caller = Initiator.MODEL if is_tool else Initiator.PAGE
    subject, roles, claims = _principal(section)
    return PolicyTest(
        method=method,
        url=url,
        initiator=Initiator(section.choice("initiator", tuple(Initiator), caller)),
        principal=subject,
        expect=section.choice("expect", EXPECTED, "deny"),
        line=section.node.line,
        file=section.node.file,
        roles=roles,
        claims=claims,
        headers=_headers(section),
        body=_body(section),
        arguments=_object(section, "arguments"),
    )


def _request(section: Section) -> tuple[str, str]:
    if (section.get("request"), section.get("tool")) == (None, None):
        section.problem('"request" or "tool" is missing')
    method, _, url = section.text("request", "GET /").partition(" ")
    if not url or " " in url:
        section.problem("must be a method and a URL, such as GET /api/products", "request")
        return method, url
    try:
        if method.upper() != WEBSOCKET:
            canonical_method(method)
    except ValueError as error:
        section.problem(str(error).removeprefix("method: "), "request")
    if not _URL.match(url):
        section.problem(f'the URL {quote(url)} must begin with "/", http:// or https://', "request")
    return method, url


def _principal(section: Section) -> tuple[str | None, frozenset[str], dict[str, Json]]:
    """Read `as`: a subject, or a mapping with subject, roles and claims."""
    node = section.get("as")
    if node is None:
        return None, frozenset(), {}
    if isinstance(node.value, str):
        return section.text("as") or None, frozenset(), {}
    rule = section.section("as")
    return rule.text("subject") or None, frozenset(rule.texts("roles")), _object(rule, "claims")


def _headers(section: Section) -> Headers:
    return tuple((name.lower(), str(value)) for name, value in _object(section, "headers").items())


def _body(section: Section) -> str | None:
    node = section.get("body")
    try:
        return None if node is None else write_json(node.plain()).decode()
    except ValueError as error:
        section.problem(str(error), "body")
        return None


def _object(section: Section, key: str) -> dict[str, Json]:
    node = section.get(key)
    if node is None:
        return {}
    value = node.plain()
    if not isinstance(value, dict):
        section.problem(f"must be a mapping, not {node.kind}", key)
        return {}
    return value


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
        effect = outcome(decision)
        return TestResult(test, test.expect == effect, effect, decision.reasons)
    if (opening := opened_past(policy, test.method, test.url)) is not None:
        return TestResult(test, test.expect == "allow", "allow", (opening,))
    try:
        request = canonicalise(policy, _request_of(test))
    except Refusal as refusal:
        return TestResult(test, test.expect == "deny", "deny", (refusal.detail,))
    decision = decide(policy, request, caller)
    effect = outcome(decision)
    route = policy.routes.find(request.method, request.path, request.backend)
    return TestResult(test, test.expect == effect, effect, decision.reasons, route)


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


def asked_protocols(headers: Headers) -> tuple[str, ...]:
    """Return the subprotocols that `sec-websocket-protocol` names (RFC 6455, 11.3.4)."""
    values = ",".join(value for name, value in headers if name == "sec-websocket-protocol")
    return tuple(part.strip() for part in values.split(",") if part.strip())


def _request_of(test: PolicyTest) -> Request:
    if test.body is None:
        return Request(test.method, test.url, test.headers, protocols=asked_protocols(test.headers))
    headers: Headers = test.headers
    if not any(name == "content-type" for name, _ in headers):
        headers = (*headers, ("content-type", "application/json"))
    return Request(test.method, test.url, headers, test.body.encode(), BodyType.JSON)

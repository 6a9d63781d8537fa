"""Report mode lets through what it may, for as long as it may, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from gateway.errors import DocumentError, Refusal
from gateway.model import LOCAL, BodyType, Caller, Door, Effect, Initiator, Request
from gateway.policy import Decision, canonicalise, decide, decide_link, decide_tool, outcome, parse_policy

NOW = datetime(2026, 12, 10, tzinfo=UTC).timestamp()
TEXT = """
version: 1
backends: {shop: {url: https://shop.example.com, cookies: jar}}
limits: {timeout: 3s}
mode: {report: {until: 2026-12-31}}
routes:
  - {path: /cart, methods: [GET, DELETE]}
  - {path: /pay, methods: [POST], when: request.body.total <= 5, confirm: always}
  - {path: "/admin/**", deny: "no"}
tools:
  add: {when: arguments.count <= 3, confirm: {when: page}}
  gone: {deny: "no"}
links: {allow: ["https://shop.example.com/products/**", "https://docs.example.com/"], confirm: {when: model}}
"""
POLICY = parse_policy(TEXT, "p.yaml", now=NOW)
PAGE = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "", view="v1", proven=True)
MODEL = replace(PAGE, initiator=Initiator.MODEL)


def decide_request(
    method: str, url: str, body: bytes = b"", now: float | None = NOW, caller: Caller = PAGE
) -> Decision:
    """Return the decision at a time."""
    headers = (("content-type", "application/json"),) if body else ()
    return decide(POLICY, canonicalise(POLICY, Request(method, url, headers, body, BodyType.JSON)), caller, now)


def test_what_no_rule_allows_is_let_through() -> None:
    """With the denial among the reasons, under the defaults, and marked as reported."""
    decision = decide_request("GET", "/other")
    assert decision.effect is Effect.ALLOW
    assert decision.reasons[0].startswith("no route allows GET /other")
    assert decision.reasons[-1] == "report mode lets it through until 2026-12-31"
    obligations = decision.obligations
    assert (obligations.reported, obligations.report, obligations.timeout, obligations.cookies) == (
        True,
        True,
        3,
        "jar",
    )


def test_conditions_are_reported_and_questions_asked() -> None:
    """A failed condition is recorded; the person is still asked."""
    decision = decide_request("POST", "/pay", b'{"total": 6}')
    assert outcome(decision) == "confirm"
    assert decision.obligations.reported
    assert "it is false" in decision.reasons[0]
    assert decide_tool(POLICY, "add", MODEL, {"count": 4}, NOW).obligations.reported
    assert outcome(decide_tool(POLICY, "add", PAGE, {"count": 4}, NOW)) == "confirm"


def test_what_is_allowed_anyway() -> None:
    """Limits are relaxed there too; the decision itself is not marked as reported."""
    obligations = decide_request("GET", "/cart").obligations
    assert (obligations.report, obligations.reported) == (True, False)


def test_what_is_never_relaxed() -> None:
    """An explicit denial, an unlisted tool, the canonical form, an unproven change without a question."""
    assert decide_request("GET", "/admin/users").effect is Effect.DENY
    assert decide_tool(POLICY, "gone", MODEL, {}, NOW).effect is Effect.DENY
    assert decide_tool(POLICY, "other", MODEL, {}, NOW).effect is Effect.DENY
    with pytest.raises(Refusal):
        decide_request("GET", "/cart%2f..%2fadmin")
    with pytest.raises(Refusal):
        decide_request("POST", "/pay", b'{"total": 1, "total": 6}')
    assert outcome(decide_request("DELETE", "/other", caller=replace(MODEL, proven=False))) == "confirm"


@pytest.mark.parametrize("now", [None, NOW - 11 * 86400, datetime(2027, 1, 1, tzinfo=UTC).timestamp()])
def test_it_ends(now: float | None) -> None:
    """Everything is enforced without a time, more than thirty days before its end, and after it."""
    assert decide_request("GET", "/other", now=now).effect is Effect.DENY
    assert not decide_request("GET", "/cart", now=now).obligations.report


def test_thirty_days_at_most() -> None:
    """A day too far away is a load error."""
    with pytest.raises(DocumentError, match=r"p.yaml:5:\d+: until: 2026-12-31 is more than 30 days away"):
        parse_policy(TEXT, "p.yaml", now=NOW - 11 * 86400)


@pytest.mark.parametrize(
    ("url", "caller", "expected"),
    [
        ("https://shop.example.com/products/7?x=1#y", PAGE, "allow"),
        ("HTTPS://SHOP.example.com:443/products/./7", PAGE, "allow"),
        ("https://shop.example.com/products/7", MODEL, "confirm"),
        ("https://docs.example.com", PAGE, "allow"),
        ("https://docs.example.com/x", PAGE, "deny"),
        ("https://shop.example.com/products/../admin", PAGE, "deny"),
        ("https://shop.example.com/products/..%2fadmin", PAGE, "deny"),
        ("https://shop.example.com.evil.example/products/7", PAGE, "deny"),
        ("https://shop.example.com@evil.example/products/7", PAGE, "deny"),
        ("https://evil.example\\@shop.example.com/products/7", PAGE, "deny"),
        ("http://shop.example.com/products/7", PAGE, "deny"),
        ("javascript:alert(1)//shop.example.com/products/", PAGE, "deny"),
        ("//shop.example.com/products/7", PAGE, "deny"),
        ("https://shop.example.com/products/7\n", PAGE, "deny"),
        ("https://shop.еxample.com/products/7", PAGE, "deny"),
        ("", PAGE, "deny"),
    ],
)
def test_links(url: str, caller: Caller, expected: str) -> None:
    """Only URLs that the policy names are opened, checked as strictly as a request."""
    assert outcome(decide_link(POLICY, url, caller)) == expected

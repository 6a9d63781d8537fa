"""The policy of an organisation: no app loosens its denials, questions and limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.errors import DocumentError
from gateway.model import BodyType, Caller, CanonicalRequest, Door, Effect, Initiator, Principal, Request
from gateway.policy import (
    Decision,
    Organisation,
    Policy,
    any_tool,
    decide,
    decide_tool,
    explain,
    load_organisation,
    may_call_tool,
    parse_organisation,
    parse_policy,
)
from gateway.policy.diff import Change, Turn, diff

ABOVE = """version: 1
limits: {timeout: 5s, request: 10KiB, rate: 100/minute per principal}
responses: {mask: ["$..card"], headers: [etag, content-type]}
routes:
  - {path: "/api/admin/**", deny: "Not for apps"}
  - {path: "/api/**", methods: [DELETE], confirm: always}
  - {path: "/api/pay/**", when: '"buyer" in principal.roles', timeout: 1s, quota: 3/day per principal}
tools:
  "*": {rate: 7/minute per principal}
  wipe: {deny: "Never"}
  pay: {confirm: always, when: '"buyer" in principal.roles'}
"""
APP = """version: 1
backends: {shop: {url: "https://shop.example"}}
limits: {timeout: 60s, request: 1MiB}
responses: {headers: [etag, x-own]}
routes:
  - {path: "/api/admin/x", methods: [GET]}
  - {path: "/api/pay/{id}", methods: [POST], confirm: {when: model, grant: 10m}}
  - {path: "/api/files/{key:encoded}", methods: [DELETE]}
  - {path: "/api/**", methods: [GET, POST, DELETE], timeout: 2s}
tools: {wipe: {}, pay: {}, read: {timeout: 2m}}
mode: {report: {until: 2026-12-31}}
"""
BUYER = Principal("i", "c", "s", roles=frozenset({"buyer"}))


def organisation(text: str = ABOVE) -> Organisation:
    """Parse it."""
    return parse_organisation(text, "organisation.yaml")


def app(text: str = APP, above: str = ABOVE) -> Policy:
    """Parse the policy of an app under it."""
    return parse_policy(text, "app.yaml", organisation=organisation(above))


def decide_request(method: str, path: str, *, by: Initiator = Initiator.PERSON, who: Principal = BUYER) -> Decision:
    """Decide while the app's report mode is active."""
    policy = app()
    assert policy.mode is not None
    request = CanonicalRequest(method, path, "", (), b"", BodyType.NONE, "shop")
    return decide(policy, request, caller(by, who), policy.mode.until - 100)


def caller(by: Initiator = Initiator.PERSON, who: Principal = BUYER) -> Caller:
    """Return a proven caller."""
    return Caller(who, "shop", Door.BRIDGE, by, "test", "v", True)


@pytest.mark.parametrize("path", ["/api/admin/x", "/api/admin", "/api/admin/y/z"])
def test_its_denial_wins(path: str) -> None:
    """Over a route that allows, over report mode, and where no route is."""
    found = decide_request("GET", path)
    assert (found.effect, found.reasons[0]) == (Effect.DENY, "Not for apps")
    assert "(organisation.yaml, line 5)" in found.reasons[1]


def test_the_smaller_limit_holds() -> None:
    """Of the app and of the organisation, for each number; rates, quotas and masks add up."""
    cart = decide_request("GET", "/api/cart").obligations
    assert (cart.timeout, cart.request_limit) == (2.0, 10 * 1024)
    assert cart.response_headers == {"etag"}
    assert [path.text for path in cart.mask] == ["$..card"]
    assert [limit.rate.count for limit in cart.limits] == [100]
    pay = decide_request("POST", "/api/pay/7").obligations
    assert (pay.timeout, [quota.count for quota in pay.quotas]) == (1.0, [3])
    assert app().largest_request == 10 * 1024


def test_its_question_cannot_be_taken_away() -> None:
    """Without a question of the app, and also where a segment is encoded; the app's grant does not cover it."""
    for path in ("/api/cart", "/api/files/a%2Fb"):
        found = decide_request("DELETE", path)
        assert found.obligations.confirm is not None, path
        assert "(organisation.yaml, line 6)" in found.reasons[-1]
    text = APP.replace("methods: [DELETE]}", "methods: [DELETE], confirm: {when: [person, model], grant: 1h}}")
    request = CanonicalRequest("DELETE", "/api/files/a", "", (), b"", BodyType.NONE, "shop")
    assert decide(app(text), request, caller()).obligations.grant is None


def test_its_condition_holds_in_report_mode() -> None:
    """The app's own conditions may be relaxed, the organisation's not."""
    nobody = replace(BUYER, roles=frozenset[str]())
    assert decide_request("POST", "/api/pay/7", who=nobody).effect is Effect.DENY
    assert decide_request("POST", "/api/pay/7").effect is Effect.ALLOW


def test_it_allows_nothing() -> None:
    """A request that no rule of the app allows is denied, also if the organisation has a rule for it."""
    request = CanonicalRequest("GET", "/other", "", (), b"", BodyType.NONE, "shop")
    assert decide(app(), request, caller()).effect is Effect.DENY


def test_tools_are_under_it() -> None:
    """Denied, asked about, limited, and listed accordingly; also those of an upstream without a policy."""
    nobody = replace(BUYER, roles=frozenset[str]())
    for policy in (app(), any_tool(organisation())):
        assert decide_tool(policy, "wipe", caller()).reasons[0] == "Never"
        assert "(organisation.yaml, line 10)" in decide_tool(policy, "wipe", caller()).reasons[1]
        pay = decide_tool(policy, "pay", caller())
        assert (pay.effect, pay.obligations.confirm) == (Effect.ALLOW, "Run pay?")
        assert decide_tool(policy, "pay", caller(who=nobody)).effect is Effect.DENY
        assert [may_call_tool(policy, "pay", who) for who in (BUYER, nobody)] == [True, False]
        assert [limit.rate.count for limit in decide_tool(policy, "read", caller()).obligations.limits] == [7]
    assert app().free_tools == ()


def test_an_explanation_names_it() -> None:
    """The rules that hold beside the route, and the place of the one that denies."""
    found = explain(app(), Request("GET", "/api/admin/x"), caller())
    assert [(one.route, one.place) for one in found.candidates] == [
        ("organisation: /api/admin/**", "organisation.yaml, line 5")
    ]
    assert found.remedy == "the organisation denies this, even if a policy allows it: organisation.yaml, line 5"


@pytest.mark.parametrize(
    ("rules", "lines"),
    [
        ('- {path: "/a/**", deny: x}\n  - {path: /a/b, methods: [GET], confirm: always}', (4, "line 3")),
        ("- {path: /a, confirm: always}\n  - {path: /a, deny: x}", (3, "line 4")),
        ("- {path: /a, deny: x}\n  - {path: /a, methods: [GET], deny: y}", (4, "line 3")),
        ("- {path: /a, timeout: 9s}", (3, "line 1")),
    ],
)
def test_a_contradiction_names_both_lines(rules: str, lines: tuple[int, str]) -> None:
    """A rule that can never hold beside another one."""
    text = f"limits: {{timeout: 5s}}\nroutes:\n  {rules}\nversion: 1\n"
    with pytest.raises(DocumentError) as refused:
        organisation(text)
    assert any(one.line == lines[0] and lines[1] in one.message for one in refused.value.problems)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('tools: {"*": {deny: x}, a: {confirm: always}}', '"a" (organisation.yaml, line 2) contradicts "*"'),
        ("routes: [{path: /a}]", "has no effect: name one of deny"),
        ("routes: [{path: /a, deny: x, confirm: always}]", 'has no meaning beside "deny"'),
        ("routes: [{path: /a, when: request.body.a == 1}]", "read no bodies"),
        ("routes: [{path: /a, stream: true, deny: x}]", 'unknown key "stream"'),
        ("tools: {a: {}}", "has no effect"),
        ('tools: {a: {description: x, deny: "y"}}', "is for the policy of one app"),
        ("mode: {report: {until: 2030-01-01}}", 'unknown key "mode"'),
        ('backends: {a: {url: "https://a"}}', 'unknown key "backends"'),
        ("responses: {headers: [set-cookie]}", "never reaches an app"),
    ],
)
def test_what_an_organisation_cannot_say(text: str, problem: str) -> None:
    """Each problem with its line."""
    with pytest.raises(DocumentError) as refused:
        organisation(f"version: 1\n{text}\n")
    assert any(problem in str(one) for one in refused.value.problems), refused.value.problems


@pytest.mark.parametrize(
    ("before", "after", "turn"),
    [
        ('  - {path: "/api/admin/**", deny: "Not for apps"}\n', "", Turn.OPENED),
        ("confirm: always}\n  - ", "confirm: {when: model}}\n  - ", Turn.OPENED),
        ("timeout: 5s", "timeout: 50s", Turn.CHANGED),
        ("request: 10KiB", "request: 20KiB", Turn.OPENED),
        ("  pay: {confirm: always, when", "  pay: {when", Turn.OPENED),
        ('  wipe: {deny: "Never"}\n', "", Turn.OPENED),
        ("100/minute", "200/minute", Turn.OPENED),
    ],
)
def test_what_it_loosens_is_found(before: str, after: str, turn: Turn) -> None:
    """By the comparison that asks before a loosened policy takes effect; and the other way round, as closed."""
    assert before in ABOVE
    old, new = app(), app(above=ABOVE.replace(before, after))
    assert old.version != new.version
    assert turn in {change.turn for change in diff(old, new)}
    assert Turn.OPENED in {change.turn for change in diff(old, new)} or turn is Turn.CHANGED
    if turn is Turn.OPENED:
        assert Turn.CLOSED in {change.turn for change in diff(new, old)}


def test_a_difference_says_where_it_is_written() -> None:
    """The line of the organisation's file."""
    changes: tuple[Change, ...] = diff(app(), app(above=ABOVE.replace('deny: "Not for apps"', "confirm: always")))
    assert "organisation.yaml, line 5" in {change.place for change in changes}


def test_it_includes_parts(tmp_path: Path) -> None:
    """As policies do."""
    (tmp_path / "part.yaml").write_text('routes: [{path: "/x", deny: "no"}]\n', "utf-8")
    (tmp_path / "above.yaml").write_text("version: 1\ninclude: [part.yaml]\n", "utf-8")
    found = load_organisation(tmp_path / "above.yaml")
    assert [(rule.deny, Path(rule.file).name, rule.line) for rule in found.rules] == [("no", "part.yaml", 1)]

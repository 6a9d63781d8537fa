"""The accesses that one policy opens and closes compared with another."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import METHODS, Policy, parse_policy
from gateway.policy.diff import Turn, diff, routes_differ
from gateway.policy.masks import parse_json_path
from gateway.policy.obligations import (
    Circuit,
    Cookies,
    Limit,
    Obligations,
    Per,
    Quota,
    Redirects,
    Retry,
    SocketRule,
    Window,
)
from gateway.token_buckets import Rate

HEAD = "version: 1\nbackends: {shop: {url: https://shop.example.com}}\n"


def policy(routes: str = "", rest: str = "") -> Policy:
    """Return a policy with these routes."""
    return parse_policy(f"{HEAD}{rest}routes: [{routes}]\n", "policy.yaml")


def changes_between(old: Policy, new: Policy) -> list[tuple[str, tuple[str, ...], str]]:
    """Return the changes, without kinds and lines."""
    return [(change.turn.value, change.subjects, change.detail) for change in diff(old, new)]


CART = "{path: /api/cart, methods: [GET]}"
ANY = '{path: "/api/**", methods: [GET, POST]}'
ADMIN = '{path: "/api/admin/**", deny: no}'


def test_nothing_is_different_in_the_same_policy() -> None:
    """However it is written."""
    assert diff(policy(CART), policy('{methods: ["GET"], path: "/api/cart"}')) == ()


GONE = "no rule allows it any more"
TWO = "{path: /a, methods: [GET, PUT]}"
ONE = "{path: /a, methods: [GET]}"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", CART, [("opened", ("GET /api/cart",), "allowed")]),
        (CART, "", [("closed", ("GET /api/cart",), GONE)]),
        (CART, f"{CART}, {CART}", []),
        (CART, f"{ADMIN}, {CART}", []),
        (ONE, TWO, [("opened", ("PUT /a",), "allowed")]),
        (TWO, ONE, [("closed", ("PUT /a",), GONE)]),
        ('{path: "/a/{x}", methods: [GET]}', '{path: "/a/{renamed}", methods: [GET]}', []),
    ],
)
def test_routes_that_come_and_go(old: str, new: str, expected: list[tuple[str, tuple[str, ...], str]]) -> None:
    """By method and path; a route without effect is not reported."""
    assert changes_between(policy(old), policy(new)) == expected


def test_a_rule_that_moves_before_another_opens_what_both_match() -> None:
    """The same rules in another order are another policy."""
    found = changes_between(policy(f"{ADMIN}, {ANY}"), policy(f"{ANY}, {ADMIN}"))
    assert found == [("opened", ("GET, POST /api/admin/**",), "allowed; it was denied: no")]


def test_a_deny_in_the_middle_of_a_parameter_is_found_where_they_meet() -> None:
    """Neither rule's own path alone shows it."""
    old, deny = '{path: "/api/{x}/users", methods: [GET]}', '{path: "/api/admin/{y}", deny: no}'
    assert changes_between(policy(old), policy(f"{deny}, {old}")) == [
        ("closed", ("GET /api/admin/users",), "denied: no")
    ]


def test_what_a_rule_asks_is_compared() -> None:
    """Questions, rates, sizes: looser counts as opened, stricter as closed."""
    old = "{path: /a, methods: [GET], confirm: {when: model}, rate: 5/minute per principal, request: 1KiB}"
    new = "{path: /a, methods: [GET], rate: 9/minute per principal, request: 512B, timeout: 3s}"
    found = changes_between(policy(old), policy(new))
    assert [(turn, detail) for turn, _, detail in found] == [
        ("opened", "no person is asked first any more"),
        ("opened", "rate of 9/minute per principal (was 5/minute per principal)"),
        ("closed", "requests of up to 512 bytes (was 1024)"),
        ("changed", "timeout: 3.0 (was 10.0)"),
    ]


def test_a_question_for_fewer_is_opened_and_for_more_is_closed() -> None:
    """`when: model` asks less often than `always`."""
    always, model = (f"{{path: /a, methods: [GET], confirm: {when}}}" for when in ("always", "{when: model}"))
    assert diff(policy(always), policy(model))[0].turn is Turn.OPENED
    assert diff(policy(model), policy(always))[0].turn is Turn.CLOSED


def test_a_longer_grant_is_opened_and_a_shorter_one_is_closed() -> None:
    """No grant is the shortest; an unchanged one is not reported."""
    none, short, long, other = (
        policy(f"{{path: /a, methods: [GET], confirm: {{when: model{more}}}}}")
        for more in ("", ", grant: 5m", ", grant: 10m", ", message: Sure?")
    )
    longer = ("opened", ("GET /a",), "a person may allow it for 600 seconds at once (was 300)")
    assert changes_between(short, long) == [longer]
    assert [diff(*pair)[0].turn for pair in ((long, short), (none, short), (short, none))] == [
        "closed",
        "opened",
        "closed",
    ]
    assert changes_between(none, other) == [("changed", ("GET /a",), "the question to a person has another text")]


def test_another_time_for_a_question_is_told() -> None:
    """It counts neither as opened nor as closed."""
    two, five = (policy(f"{{path: /a, methods: [GET], confirm: {{timeout: {minutes}m}}}}") for minutes in (2, 5))
    assert changes_between(two, five) == [
        ("changed", ("GET /a",), "the question to a person stays open for another time")
    ]
    assert diff(two, two) == ()


def test_a_question_that_stays_is_no_change() -> None:
    """Also if it has placeholders."""
    asks = '{path: "/a/{x}", methods: [PUT], confirm: {when: model, message: "Put {params.x}?"}}'
    assert diff(policy(asks), policy(asks)) == ()


def test_another_condition_or_schema_counts_as_opened() -> None:
    """Two of them cannot be compared; an added one counts as closed, a removed one as opened."""
    rules = {"none": "", "low": ", when: 'request.query.n == \"1\"'", "high": ", when: 'request.query.n == \"2\"'"}
    none, low, high = (policy(f"{{path: /a, methods: [GET]{rule}}}") for rule in rules.values())
    assert [diff(*pair)[0].turn for pair in ((low, high), (none, low), (low, none))] == ["opened", "closed", "opened"]
    texts = {"one.json": "{}", "two.json": '{"type": "object"}', "copy.json": "{}"}
    head = "{path: /b, methods: [PUT], body: {schema: "
    one, two, copy = (
        parse_policy(f"{HEAD}routes: [{head}{name}}}}}]\n", "policy.yaml", texts.__getitem__) for name in texts
    )
    assert [change.turn for change in diff(one, two)] == ["opened"]
    assert diff(one, copy) == ()


def test_a_default_that_changes_is_told_once_for_all_its_routes() -> None:
    """One line, not one for each route."""
    routes = ", ".join(f"{{path: /a{n}, methods: [GET]}}" for n in range(5))
    (change,) = diff(policy(routes), policy(routes, "limits: {response: 9MiB}\n"))
    assert (change.turn, len(change.subjects)) == (Turn.OPENED, 5)


def test_tools_and_backends_are_compared() -> None:
    """A listed tool is open to models."""
    old = parse_policy(f"{HEAD}tools: {{a: {{}}, b: {{confirm: always}}, c: {{}}, e: {{}}}}\n", "p")
    text = "version: 1\nbackends: {shop: {url: https://elsewhere.example, network: private}}\n"
    new = parse_policy(f"{text}tools: {{b: {{}}, c: {{deny: no}}, d: {{}}, e: {{timeout: 2m}}}}\n", "p")
    assert changes_between(old, new) == [
        ("opened", ("b",), "no person is asked first any more"),
        ("opened", ("d",), "models may call it"),
        ("opened", ("shop",), "requests go to another place: https://elsewhere.example (was https://shop.example.com)"),
        ("opened", ("shop",), "other addresses may be connected to"),
        ("closed", ("c",), "models may not call it: no"),
        ("closed", ("a",), "models may not call it: it is no longer listed"),
        ("changed", ("e",), "timeout in seconds: 120.0 (was the usual)"),
    ]


def test_frames_are_compared() -> None:
    """Each other site counts."""
    old, new = (parse_policy(f"{HEAD}frames: ['https://{site}.example']\n", "p") for site in ("a", "b"))
    assert {turn for turn, *_ in changes_between(old, new)} == {"opened", "closed"}


RULES = ["methods: [GET]", "methods: [POST]", "methods: [GET, POST]", "deny: no"]


def path_of(parts: list[str]) -> str:
    """Return a path of these segments, whose parameters have unique names."""
    return "/" + "/".join(part.replace("x", f"x{place}") for place, part in enumerate(parts))


PATHS = st.lists(st.sampled_from(["a", "b", "{x}"]), min_size=1, max_size=3).map(path_of)
ROUTES = st.lists(st.tuples(PATHS, st.booleans(), st.sampled_from(RULES)), max_size=5)


@given(ROUTES, ROUTES)
def test_every_path_that_is_decided_otherwise_is_in_the_difference(
    old: list[tuple[str, bool, str]], new: list[tuple[str, bool, str]]
) -> None:
    """All short paths are tried: a change is reported if and only if a path shows it."""
    before, after = (
        policy(", ".join(f'{{path: "{path}{"/**" if rest else ""}", {rule}}}' for path, rest, rule in routes))
        for routes in (old, new)
    )
    turns = {change.turn for change in diff(before, after) if change.turn is not Turn.CHANGED}
    seen = set()
    for length in range(1, 5):
        for parts in itertools.product(["a", "b", "c"], repeat=length):
            for method in METHODS:
                was, now = (allows(one, method, "/" + "/".join(parts)) for one in (before, after))
                if was != now:
                    seen.add(Turn.OPENED if now else Turn.CLOSED)
    assert turns == seen


def allows(one: Policy, method: str, path: str) -> bool:
    """Return whether a route allows it."""
    route = one.routes.find(method, path, None)
    return route is not None and route.deny is None


def test_thousands_of_routes_are_compared() -> None:
    """Also if each of them changed."""
    routes = ", ".join(f'{{path: "/api/thing{n}/{{id}}", methods: [GET, PUT]}}' for n in range(3000))
    before, after = policy(routes), policy(routes, "limits: {response: 9MiB}\n")
    (change,) = diff(before, after)
    assert len(change.subjects) == 3000


SET_OTHERWISE = {"confirm", "grant", "question_timeout", "no_store", "description", "reads_body", "report", "reported"}
"""Obligations that follow from the keys `confirm`, `when`, `body` and `mode`, which are compared, or of tools only."""

OTHER: dict[str, Any] = {
    "limits": (Limit(Rate(3, 60.0), Per.APP),),
    "quotas": (Quota(3, Window.DAY, Per.APP),),
    "timeout": 3.0,
    "request_limit": 3,
    "response_limit": 3,
    "response_headers": frozenset({"x-more"}),
    "idempotent": True,
    "retry": Retry(3, frozenset({503}), 0.1),
    "circuit": Circuit(3, 1.0),
    "cookies": Cookies.JAR,
    "redirects": Redirects.NONE,
    "stream": True,
    "mask": (parse_json_path("$.secret"),),
    "vault": (parse_json_path("$.token"),),
    "secret": True,
    "socket": SocketRule(),
}
"""Another value than by default for each of the other obligations."""


@pytest.mark.parametrize("name", [one.name for one in fields(Obligations) if one.name not in SET_OTHERWISE])
def test_each_obligation_is_compared(name: str) -> None:
    """`policy diff` would call a field that it does not know unchanged."""
    usual = policy(CART).routes.all[0]
    obligations = replace(usual.decision.obligations, **{name: OTHER[name]})
    other = replace(usual, decision=replace(usual.decision, obligations=obligations))
    assert len(list(routes_differ(usual, other))) > 0

"""Conditions are checked at load, see only the facts that they name, and allow only if they are true."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import Reason
from gateway.model import BodyType, Caller, CanonicalRequest, Door, Headers, Initiator, Json, Principal
from gateway.policy.conditions import Failure, parse_condition
from gateway.policy.facts import FactSource, Vocabulary
from gateway.policy.templates import parse_template

ANN = Principal("i", "c", "ann", roles=frozenset({"buyer"}), claims={"age": 3, "o": {"x": [1]}})
CALLER = Caller(ANN, "cart", Door.BRIDGE, Initiator.PAGE, "", view="v1", proven=True)
ROUTE = Vocabulary(("item",))
TOOL = Vocabulary(None)
TEMPLATE = parse_template("/api/{item}")
NO_BODY: Any = object()


def failure(text: str, body: Json = NO_BODY, query: str = "", headers: Headers = ()) -> Failure | None:
    """Return the failure of a request of ann's under the condition `text`, None if it holds."""
    given_body = body is not NO_BODY
    request = CanonicalRequest(
        "POST", "/api/a%20b", query, headers, b"x" if given_body else b"", BodyType.JSON, "shop",
        json=body if given_body else None,
    )  # fmt: skip
    return parse_condition(text, ROUTE).failure(FactSource(CALLER, request, TEMPLATE))


TRUE: list[tuple[str, Json, str]] = [
    ('request.body.total <= 500 && "buyer" in principal.roles', {"total": 499.5}, ""),
    ("!has(request.body.x) || request.body.x == 1", {}, ""),
    ("has(request.body.x) && request.body.x == null", {"x": None}, ""),
    ('request.method in ["GET", "POST"] && request.path == "/api/a%20b" && params.item == "a b"', {}, ""),
    ('app == "cart" && view.id == "v1" && initiator == "page"', {}, ""),
    ('principal.id == "i|c|ann" && principal.claims.age > 2 && principal.claims.o.x[0] == 1', {}, ""),
    ("request.body.items.all(i, i.price < 10 && has(i.name))", {"items": [{"price": 1, "name": "x"}]}, ""),
    ("request.body.items[0].price == 1", {"items": [{"price": 1}]}, ""),
    ("request.body.by[params.item].price == 1", {"by": {"a b": {"price": 1}}}, ""),
    ('request.body["odd name"]["for"] == 1', {"odd name": {"for": 1}}, ""),
    ("request.body.items.all(i, i.for == 1)", {"items": [{"for": 1}]}, ""),
    ("request.body.items.filter(i, i > 1).map(i, i * 2) == [4, 6]", {"items": [1, 2, 3]}, ""),
    ("request.body.items.exists_one(i, i == 2) && size(request.body.items) == 3", {"items": [1, 2, 3]}, ""),
    ("request.body.a - 2 - 1 == 7 && -request.body.a == -10 && 1 + 2 * 3 == 7 && (1 + 2) * 3 == 9", {"a": 10}, ""),
    ("(request.body.a > 5 ? true : false) && !(request.body.a < 5)", {"a": 10}, ""),
    ("request.body.s == 'a\\u00e9\"\\\\\\U0001F600' && request.body.s.contains(r'\\')", {"s": 'aé"\\😀'}, ""),
    ("request.body.s.matches('^[a-z]{2}\\\\d+$') && request.body.s.startsWith('ab')", {"s": "ab12"}, ""),
    ('timestamp(request.body.t) < timestamp("2027-01-01T00:00:00Z")', {"t": "2026-01-01T00:00:00Z"}, ""),
    ('{"buyer": 500}["buyer"] >= int(request.body.total)', {"total": "3"}, ""),
    ("request.body == [1, true]", [1, True], ""),
    ('request.query.page == "1"', {}, "page=%31&other=2"),
    ('request.query.page == ["1", "a b"] && request.query.page.size() == 2', {}, "page=1&page=a+b"),
    ('request.query.page[1] == "2" && "2" in request.query.page', {}, "page=1&page=2"),
    ('request.query.all(k, k in ["a", "b"]) && "a" in request.query && !("c" in request.query)', {}, "a=1&b"),
    (
        '"a" in request.body && !("b" in request.body) && "t" in request.body.l && !("a" in request.body.l)',
        {"a": 1, "l": ["t"]},
        "",
    ),
    ('request.headers["x-a"] == "b" && "x-a" in request.headers', {}, ""),
]


@pytest.mark.parametrize(("text", "body", "query"), TRUE, ids=range(len(TRUE)))
def test_true(text: str, body: Json, query: str) -> None:
    """Every part of the language behaves as in CEL."""
    assert failure(text, body, query, (("x-a", "b"),)) is None


FALSE: list[tuple[str, Json, str, str]] = [
    ("request.body.total <= 500", {"total": 501}, "", "it is false"),
    ("request.body.total <= 500", {}, "", "request.body.total is not there"),
    ("request.body.total <= 500", {"total": "5"}, "", "it failed"),
    ("request.body.total <= 500", NO_BODY, "", "request.body.total is not there"),
    ("request.body.total.x <= 500", {"total": 5}, "", "request.body.total.x is not there"),
    ("!has(request.body.a.b)", {}, "", "has(request.body.a.b) is not there"),
    ("!has(request.body.a.b)", {"a": "text"}, "", "is part of no object"),
    ("!has(request.body.x)", NO_BODY, "", "has(request.body.x) is not there"),
    ("request.body.x", {"x": "yes"}, "", "neither true nor false"),
    ("request.body.x", {"x": 1}, "", "neither true nor false"),
    ("request.body.x == 1", {"x": True}, "", "it is false"),
    ("request.body.n / 0 == 1", {"n": 1}, "", "division by zero"),
    ("request.body.n * request.body.n > 1", {"n": 2**40}, "", "overflow"),
    ("request.body.s == 'x'", {"s": "\ud800"}, "", "it failed"),
    ('request.query.page == "1"', {}, "", "request.query.page is not there"),
    ('request.query.page == "1"', {}, "page=1&page=2", "is there 2 times, and used as one value"),
    ('request.query.page == "1"', {}, "page=1&Page=2", "under another name too"),
    ("!has(request.query.page)", {}, "Page=1", "under another name too"),
    ('!("page" in request.query)', {}, "PAGE=1", "under another name too"),
    ('!("admin" in request.body)', {"Admin": True}, "", "under another name too"),
    ('!("admin" in request.body.user)', {"user": {"ADMIN": True}}, "", "under another name too"),
    ('!("admin" in request.body)', NO_BODY, "", "is not there"),
    ('"a" in request.body.s', {"s": "a"}, "", "is in no object and no list"),
    ('request.query.page == "1"', {}, "page=1;admin=1", 'the query has a ";"'),
    ('request.query.page == "1"', {}, "page=%FF", "the query is not UTF-8"),
]


@pytest.mark.parametrize(("text", "body", "query", "why"), FALSE, ids=range(len(FALSE)))
def test_all_else_fails(text: str, body: Json, query: str, why: str) -> None:
    """A result that is false, missing, ambiguous or an error denies with its reason."""
    found = failure(text, body, query)
    assert found is not None
    assert why in found.why
    assert found.reason is Reason.POLICY_DENIED


REFUSED = [
    ("", "the condition ends too early"),
    ("request.body.a ==", "the condition ends too early"),
    ("request.body.a = 1", "is not part of a condition"),
    ("(1 == 1", '")" is expected'),
    ("1 == 1)", ") is not expected there"),
    ("foo == 1", "foo is unknown here (known: request, params, principal, app, view, initiator)"),
    ("request == 1", "request is not a fact by itself"),
    ("request.bdy == 1", "request.bdy is unknown here"),
    ("request.method.x == 1", "request.method has no parts"),
    ("params.itm == 1", "params.itm is unknown here (known: params.item)"),
    ("principal.name == 1", "principal.name is unknown here"),
    ('request.headers["X-A"] == 1', "in lower case"),
    ("request.query[0] == 1", "holds lists by their names"),
    ("arguments.x == 1", "arguments is unknown here"),
    ("request.body.a.all(i, i.b.all(j, j > 1))", "inside of another is refused"),
    ("request.body.a.all(i, request.body.b.exists(j, j == i))", "inside of another is refused"),
    ("request.body.a.all(i.x, true)", "a name for each item"),
    ("request.body.a.all(app, true)", '"app" cannot name the items'),
    ("request.body.a.all(v0, true)", '"v0" cannot name the items'),
    ("request.body.a.all(i, j)", "j is unknown here"),
    ("request.path.matches(request.body.p)", "must be written out"),
    ("request.path.matches('(a+)+(?=b)')", "is not supported there"),
    ("request.path.matches('(.{100}){100}')", "repetitions multiply"),
    ("1 < 2 < 3", "need parentheses"),
    ("!!true", "needs parentheses"),
    ("has(app)", "has(…) takes a field"),
    ("dyn(1) == 1", "the function dyn is unknown here"),
    ("request.path.split('/') == []", "the method split is unknown here"),
    ("request.path.size(1) == 1", "too many values"),
    ("request.body.?a == 1", "? is not expected there"),
    ("b'a' == b'a'", "is not part of a condition"),
    ("'''a''' == 'a'", "is not expected there"),
    ("'\\d' == 'd'", "\\d is not supported"),
    ("'\\ud800' == ''", "is no character"),
    ("1u == 1", "is not part of a condition"),
    ("request.body.n == 9007199254740993", "beyond 2^53"),
    ("1e999 > 1.0", "too large a number"),
    ("(" * 30 + "true" + ")" * 30, "nested deeper than 24"),
    ("true && " * 128 + "true", "1024 bytes at most"),
    ("true // comment", "is not expected there"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=range(len(REFUSED)))
def test_refused_at_load(text: str, message: str) -> None:
    """A condition that could not be bounded, or would always fail, is refused."""
    with pytest.raises(ValueError) as caught:
        parse_condition(text, ROUTE)
    assert message in str(caught.value)


def test_tools() -> None:
    """A tool's condition names its arguments, and no part of a request."""
    condition = parse_condition('arguments.count <= 3 && tool == "add" && initiator == "page"', TOOL)
    assert condition.failure(FactSource(CALLER, tool="add", arguments={"count": 3})) is None
    assert condition.failure(FactSource(CALLER, tool="add", arguments={"count": 4})) is not None


@pytest.mark.parametrize(
    "arguments",
    [
        {"buy": {"count": 1, "Count": 9}},
        {"buy": {"count": 1}, "BUY": {}},
        {"buy": {"count": 1, "more": [{"a": 1, "A": 1}]}},
        {"buy": {"count": 1, "more": [2**53 + 1]}},
        {"buy": {"count": -(2**60)}},
        {"buy": {"count": 1, "\u017fum": 1, "sum": 1}},
    ],
)
def test_what_servers_read_in_two_ways_is_no_argument(arguments: dict[str, object]) -> None:
    """Some servers ignore the case of keys, or round numbers: they would see other values than the condition."""
    condition = parse_condition('arguments.buy.count <= 3 && arguments.buy != {} && "buy" in arguments', TOOL)
    assert condition.failure(FactSource(CALLER, tool="add", arguments={"buy": {"count": 1}, "Other": 2**60})) is None
    assert condition.failure(FactSource(CALLER, tool="add", arguments=arguments)) is not None
    with pytest.raises(ValueError, match="request is unknown here"):
        parse_condition("request.method == 'GET'", TOOL)


def _deep(levels: int) -> Json:
    value: Json = []
    for _ in range(levels):
        value = [value]
    return value


TOO_MUCH: list[tuple[str, Json]] = [
    ("size(request.body.s) > 0", {"s": "x" * 65_537}),
    ("request.body.s != request.body.t", {"s": "é" * 16_384, "t": "x" * 32_769}),
    ("request.body.l.all(i, i != 1)", {"l": [{}] * 40_000}),
    ("request.body.d != 1", {"d": _deep(65)}),
    ("request.body.d != 1", {"d": _deep(50_000)}),
    ("request.body.l.map(i, i).size() > 0", {"l": [1] * 2000}),
    ("request.body.l.filter(i, i > 0).size() > 0", {"l": [1] * 2000}),
    ("request.body.l.all(i, i in request.body.l)", {"l": [1] * 2000}),
    ("request.body.l.all(i, request.body.s.contains('b'))", {"l": [1] * 8000, "s": "a" * 30_000}),
    ("request.body.l.exists(i, i.matches('^b+$'))", {"l": ["a"] * 3000}),
    ("request.body.l.exists(i, i.matches('^.{1,400}$'))", {"l": ["a"] * 200}),
]


@pytest.mark.parametrize(("text", "body"), TOO_MUCH, ids=range(len(TOO_MUCH)))
def test_too_much(text: str, body: Json) -> None:
    """A value that is larger, deeper or costlier than a condition may read denies at once, with a separate reason."""
    found = failure(text, body)
    assert found is not None
    assert found.reason is Reason.CONDITION_LIMIT


DEAREST: list[tuple[str, Json]] = [
    ("request.body.l.map(i, i).size() > 0", {"l": [1] * 1400}),
    ("request.body.l.all(i, i in request.body.l)", {"l": list(range(1300))}),
    ("request.body.l.exists(i, i.matches('^a+$')) || true", {"l": ["b"] * 1000}),
    ("request.body.l.all(i, i != 1)", {"l": [{}] * 16_000}),
    ("request.body.d != 1", {"d": _deep(60)}),
    (" && ".join(["request.body.l.all(i, i != 1)"] * 20), {"l": [2] * 10_000}),
    ("request.body.s.matches('^[^a]{1,400}$') || request.body.s.matches('^[^b]{1,400}$') || true", {"s": "é" * 30_000}),
]


@pytest.mark.parametrize(("text", "body"), DEAREST, ids=range(len(DEAREST)))
def test_the_dearest_that_are_allowed(text: str, body: Json) -> None:
    """Within the bounds every condition is evaluated to its end."""
    assert failure(text, body) is None


def test_facts_that_are_not_named_cost_nothing() -> None:
    """A condition on a scalar is not denied because of the rest of the body."""
    assert failure("request.body.total == 1", {"total": 1, "rest": ["x" * 1_000_000, _deep(500)]}) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "l"]), inner, max_size=3),
    max_leaves=8,
)
_WORDS = st.sampled_from(
    re.split(
        r"\|",
        "request|.body|.a|.l|.b|[0]|['a']| == | < | && |!|-|(|)|1|'a'| in |true|.all(i, |.map(i, |i|.size()|has("
        "|.query|params.item| ? | : |[|]|.matches('|^a+$|')|, |{|}| % | + |9007199254740992|1.5e300|null|app",
    )
)


@settings(max_examples=400)
@given(st.lists(_WORDS, max_size=12).map("".join) | st.text(max_size=40), _JSON)
def test_any_text_is_a_condition_or_a_problem(text: str, body: Json) -> None:
    """No text and no body raise anything but the error about the text."""
    try:
        condition = parse_condition(text, ROUTE)
    except ValueError:
        return
    request = CanonicalRequest("POST", "/api/7", "a=1", (), b"x", BodyType.JSON, "shop", json=body)
    found = condition.failure(FactSource(CALLER, request, TEMPLATE))
    assert found is None or found.why


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("!has(request.body.admin)", {"Admin": 1}),
        ("!has(request.body.user.admin)", {"user": {"ADMIN": 1}}),
        ("request.body.total < 5", {"Total": 1}),
    ],
)
def test_a_key_in_another_case_is_not_an_absent_one(text: str, body: Json) -> None:
    """Some backends take it for the key that the rule names."""
    assert failure(text, body) is not None

"""`websocket` of a route: which WebSockets it carries, and for whom."""

from typing import Any

import pytest

from gateway.errors import DocumentError
from gateway.model import WEBSOCKET, Caller, Door, Effect, Initiator, Principal, Request
from gateway.policy import Decision, SocketRule, canonicalise, decide, explain, parse_policy, run_tests
from gateway.policy.diff import Turn, diff
from gateway.policy.replay import replay_decision

CHAT = "{path: /chat, methods: [GET], websocket: true}"
GRAPH = "{path: /graph, methods: [GET], websocket: {protocols: [graph, soap]}}"
PLAIN = "{path: /plain, methods: [GET]}"


def policy(routes: str, more: str = "") -> Any:
    """A policy with these routes."""
    return parse_policy(f"version: 1\nbackends: {{a: {{url: 'http://a'}}}}\nroutes: [{routes}]\n{more}", "policy.yaml")


def decision(routes: str, url: str, *protocols: str, more: str = "", proven: bool = True) -> Decision:
    """The decision on the opening of a WebSocket."""
    rules = policy(routes, more)
    initiator = Initiator.PAGE if proven else Initiator.MODEL
    caller = Caller(Principal("i", "c", "s"), "app", Door.MCP, initiator, "test", "view", proven=proven)
    return decide(rules, canonicalise(rules, Request(WEBSOCKET, url, protocols=protocols)), caller, 1_700_000_000.0)


def test_a_route_carries_websockets_if_it_says_so() -> None:
    """A GET of the same path is a decision of its own."""
    assert decision(CHAT, "/chat").obligations.socket == SocketRule()
    denied = decision(PLAIN, "/plain")
    assert (denied.effect, denied.reasons) == (Effect.DENY, ("the route GET /plain (line 3) carries no WebSocket",))
    assert decision(f"{CHAT}, {PLAIN}", "/none").effect is Effect.DENY


@pytest.mark.parametrize(
    ("asked", "effect"),
    [((), Effect.DENY), (("graph",), Effect.ALLOW), (("soap", "graph"), Effect.ALLOW), (("graph", "x"), Effect.DENY)],
)
def test_subprotocols(asked: tuple[str, ...], effect: Effect) -> None:
    """At least one, all of which are listed."""
    assert decision(GRAPH, "/graph", *asked).effect is effect


@pytest.mark.parametrize("asked", [("a b",), ("a", "A"), ("é",), ("",), tuple(map(str, range(17)))])
def test_subprotocols_that_browsers_refuse(asked: tuple[str, ...]) -> None:
    """RFC 6455, 4.1."""
    with pytest.raises(Exception, match="protocols:"):
        decision(CHAT, "/chat", *asked)


def test_who_is_not_proven_asks_a_person() -> None:
    """A WebSocket may carry any change."""
    assert decision(CHAT, "/chat", proven=False).obligations.confirm is not None


def test_report_mode_lets_them_through() -> None:
    """So that they can be learned."""
    more = "mode: {report: {until: 2023-11-20}}"
    found = decision(f"{PLAIN}, {GRAPH}", "/plain", more=more)
    assert (found.effect, found.obligations.reported, found.obligations.socket) == (Effect.ALLOW, True, SocketRule())
    assert decision(GRAPH, "/graph", more=more).obligations.reported
    assert decision(PLAIN, "/none", more=more).obligations.socket == SocketRule()


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("{path: /a, methods: [POST], websocket: true}", "opened by a GET"),
        ("{path: /a, methods: [GET], websocket: yes}", "must be true, or a mapping"),
        ("{path: /a, methods: [GET], websocket: {protocols: []}}", "at least one"),
        ("{path: /a, methods: [GET], websocket: {protocols: [a b]}}", "not a subprotocol"),
        ("{path: /a, methods: [GET], websocket: {message: 17MiB}}", "more than 16MiB"),
        ("{path: /a, methods: [GET], websocket: {model: perhaps}}", "model"),
        ("{path: /a, methods: [GET], websocket: {rate: often}}", "not a rate"),
        ("{path: /a, methods: [GET, POST], when: size(request.body) > 0, websocket: true}", "reads the body"),
        ("{path: /a, methods: [GET], websocket: true}]\nresponses: {mask: [$.secret]}\ntests: [", "responses.mask"),
        ("{path: /a, deny: never, websocket: true}", "websocket"),
    ],
)
def test_what_cannot_be(route: str, problem: str) -> None:
    """Each is an error at its place."""
    with pytest.raises(DocumentError) as error:
        policy(route)
    assert problem in str(error.value)


def test_tests_and_explanations_name_the_method() -> None:
    """With the remedy."""
    tests = "tests: [{request: WEBSOCKET /chat, expect: allow}, {request: WEBSOCKET /plain, expect: deny}]"
    rules = policy(f"{CHAT}, {PLAIN}", tests)
    assert [result.passed for result in run_tests(rules)] == [True, True]
    caller = Caller(Principal("i", "c", "s"), "app", Door.MCP, Initiator.PAGE, "test", "view", proven=True)
    remedies = [explain(rules, Request(WEBSOCKET, url), caller).remedy for url in ("/plain", "/new/7")]
    assert remedies[0] == "add `websocket: true` to /plain (line 3)"
    assert '{path: "/new/{id}", methods: [GET], websocket: true}' in str(remedies[1])


OTHER = [
    ("websocket: true", "websocket: {protocols: [a]}", Turn.CLOSED),
    ("websocket: {protocols: [a]}", "websocket: {protocols: [a, b]}", Turn.OPENED),
    ("websocket: true", "websocket: {message: 2MiB}", Turn.OPENED),
    ("websocket: true", "websocket: {rate: 1/second per view}", Turn.CLOSED),
    ("websocket: true", "websocket: {model: allow}", Turn.OPENED),
    ("websocket: false", "websocket: true", Turn.OPENED),
    ("websocket: true", "websocket: false", Turn.CLOSED),
]


@pytest.mark.parametrize(("before", "after", "turn"), OTHER)
def test_differences(before: str, after: str, turn: Turn) -> None:
    """Each is opened or closed."""
    old, new = (policy(f"{{path: /a, methods: [GET], {one}}}") for one in (before, after))
    assert [change.turn for change in diff(old, new)] == [turn]


def test_a_recorded_opening_is_decided_again() -> None:
    """By `policy replay`."""
    fields: Any = {
        "kind": "http",
        "method": "WEBSOCKET",
        "url": "/graph",
        "policy_version": "1",
        "decision": "allow",
        "protocols": ["graph"],
        "request_size": 0,
        "principal": "i|c|s",
        "initiator": "page",
        "view": "v",
    }
    found = replay_decision(policy(GRAPH), fields)
    assert found is not None
    assert (found.method, found.was, found.would) == ("WEBSOCKET", "allow", "allow")

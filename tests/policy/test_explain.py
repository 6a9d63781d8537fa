"""An explanation shows each step, each route tried and the remedy."""

from __future__ import annotations

import pytest

from gateway.model import LOCAL, Caller, Door, Initiator, Request
from gateway.policy import explain, parse_policy, run_tests

POLICY = parse_policy(
    """
version: 1
backends: {shop: {url: https://shop.example.com, origins: [https://www.shop.example.com]}}
routes:
  - {path: /api/cart, methods: [GET]}
  - {path: "/api/{x}", methods: [PUT]}
  - {path: "/api/admin/**", deny: "no"}
tests:
  - {request: GET /api/cart, expect: allow}
  - {request: PUT /api/cart, expect: deny}
  - {request: GET /api//cart, expect: deny}
""",
    "p.yaml",
)
CALLER = Caller(LOCAL, "cart", Door.MCP, Initiator.PAGE, "")


def test_steps() -> None:
    """Every step of the normalisation is there, in its order."""
    request = Request("get", "https://www.shop.example.com/%61pi/./cart?x=%61#f", (("Host", "x"), ("Accept", "y")))
    found = explain(POLICY, request, CALLER)
    assert [(step.name, step.value) for step in found.steps] == [
        ("as given", "get https://www.shop.example.com/%61pi/./cart?x=%61#f"),
        ("method in upper case", "GET"),
        ("split, fragment dropped", "backend shop, named by the URL's origin; path /%61pi/./cart, query x=%61"),
        ("percent-encoding normalised", "/api/./cart"),
        ("dot segments removed", "/api/cart"),
        ("query normalised", "x=a"),
        ("headers dropped", "host"),
        ("canonical", "GET /api/cart?x=a to shop"),
    ]
    assert found.effect == "allow"


@pytest.mark.parametrize(
    ("method", "url", "tried", "remedy"),
    [
        ("GET", "/api/cart", ["allows"], None),
        ("PUT", "/api/cart", ["path matches, method does not (GET)", "allows"], None),
        (
            "POST",
            "/api/cart",
            ["path matches, method does not (GET)", "path matches, method does not (PUT)"],
            "add POST to `methods` of /api/cart (line 5)",
        ),
        ("GET", "/x", [], 'add to `routes`: {path: "/x", methods: [GET]}'),
        (
            "GET",
            "/api/admin/x",
            ["denies"],
            "the rule on line 7 denies this on purpose: a route for it would have to stand before that line",
        ),
        (
            "GET",
            "/api/a%2fb",
            [],
            "if the API needs it in one segment, write that segment as {name:encoded} in the policy",
        ),
    ],
)
def test_routes_and_remedy(method: str, url: str, tried: list[str], remedy: str | None) -> None:
    """It says what came of each route, and what to write where the request is meant to pass."""
    found = explain(POLICY, Request(method, url), CALLER)
    assert [route.outcome for route in found.tried] == tried
    assert found.remedy == remedy


def test_refused_requests_are_explained() -> None:
    """A request without a canonical form has its last step named."""
    found = explain(POLICY, Request("GET", "/api/cart;x"), CALLER)
    assert (found.effect, found.request, found.steps[-1].name) == ("deny", None, "refused")


def test_tests_of_the_file() -> None:
    """Each expectation is tried; one that fails says what came instead, and why."""
    results = run_tests(POLICY)
    assert [(result.passed, result.outcome) for result in results] == [
        (True, "allow"),
        (False, "allow"),
        (True, "deny"),
    ]
    assert "line 6" in results[1].reasons[0]

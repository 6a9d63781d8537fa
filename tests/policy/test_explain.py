"""An explanation shows each step, each route tried, conditions' facts and the remedy; policy tests report failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.errors import DocumentError
from gateway.model import LOCAL, BodyType, Caller, Door, Initiator, Request
from gateway.policy import coverage, explain, explain_tool, load_tests, parse_policy, run_tests, warnings

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
    """Every step of the normalisation, in order."""
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
    ("backend", "told"),
    [
        ("", "dropped: write `authorization: pass` or `vault` at the backend shop"),
        (", authorization: pass", "sent to shop, as its `authorization` is pass"),
        (", authorization: vault", "sent to shop with the token of its handle, as its `authorization` is vault"),
        (", credential: service", "dropped: the gateway sends its credential service to shop"),
    ],
)
def test_the_pages_own_authorization_is_explained(backend: str, told: str) -> None:
    """Whether its backend gets it, and where it is dropped, why; its value is in no step."""
    policy = parse_policy(
        f"version: 1\nbackends: {{shop: {{url: https://shop.example.com{backend}}}}}\n"
        "routes:\n  - {path: /api/me, methods: [GET]}\n",
        "p.yaml",
    )
    found = explain(policy, Request("GET", "/api/me", (("Authorization", "Bearer t0ken-of-the-page"),)), CALLER)
    (step,) = [step for step in found.steps if step.name == "authorization of the page"]
    assert step.value.startswith(told)
    assert "t0ken-of-the-page" not in str(found.steps)


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
            "DELETE",
            "/x/7/y/52DF8ad0-0001-4a4a-8b8b-0123456789ab",
            [],
            'add to `routes`: {path: "/x/{id}/y/{id2}", methods: [DELETE]} '
            '(the path "/x/7/y/52DF8ad0-0001-4a4a-8b8b-0123456789ab" allows it for this one alone)',
        ),
        (
            "GET",
            "/api/admin/x",
            ["denies"],
            "the rule on line 7 denies this on purpose: a route for it must come before that line",
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
    """The result of each route, and the route to write if the request should pass."""
    found = explain(POLICY, Request(method, url), CALLER)
    assert [route.outcome for route in found.candidates] == tried
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("request_", "reason", "remedy"),
    [
        (
            Request("TEAPOT", "/pay"),
            "method: TEAPOT is not one of the methods of policies",
            "use DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
        ),
        (Request("G: T", "/pay"), "method: 'G: T' is not an HTTP method", "send a word such as GET"),
        (Request("GET", "/" * 9000), "url: longer than 8192 characters", None),
        (Request("GET", "pay"), "url: 'pay' must start with \"/\"", "send a path such as /api/…"),
        (
            Request("POST", "/pay", (("content-type", "application/json"),), b"[1 2]", BodyType.JSON),
            "the body is not JSON (Expecting ',' delimiter, line 1, column 4)",
            None,
        ),
    ],
)
def test_a_reason_is_no_remedy(request_: Request, reason: str, remedy: str | None) -> None:
    """A reason that only names the error is not repeated as the remedy."""
    found = explain(CONDITIONS, request_, CALLER)
    assert found.reasons == (reason if remedy is None else f"{reason}: {remedy}",)
    assert found.remedy == remedy


def test_refused_requests_are_explained() -> None:
    """The last step of a request without a canonical form is named."""
    found = explain(POLICY, Request("GET", "/api/cart;x"), CALLER)
    assert (found.effect, found.request, found.steps[-1].name) == ("deny", None, "refused")


def test_tests_of_the_file() -> None:
    """Each expectation is tried; a failed one shows the actual decision and its reason."""
    results = run_tests(POLICY)
    assert [(result.passed, result.outcome) for result in results] == [
        (True, "allow"),
        (False, "allow"),
        (True, "deny"),
    ]
    assert "line 6" in results[1].reasons[0]


CONDITIONS = parse_policy(
    """
version: 1
backends: {shop: {url: https://shop.example.com}}
routes:
  - {path: /pay, methods: [POST], when: 'request.body.total <= 500 && has(request.body.to) && "x" in request.query'}
  - {path: "/api/**", methods: [GET]}
  - {path: /api/never, methods: [GET]}
tools:
  add: {when: arguments.count <= 3}
  gone: {deny: "no"}
tests:
  - {request: POST /pay?x=1, body: {total: 1, to: ann}, expect: allow}
  - {request: POST /pay?x=1, body: {total: 501, to: ann}, expect: deny}
  - {request: POST /pay?x=1, headers: {Content-Type: text/plain}, body: {total: 1, to: ann}, expect: deny}
  - {tool: add, arguments: {count: 3}, as: {subject: ann, roles: [buyer]}, expect: allow}
  - {tool: add, arguments: {count: 4}, initiator: person, expect: deny}
""",
    "p.yaml",
)


def test_conditions_are_explained() -> None:
    """Each fact that a condition names is shown with its value and the result."""
    body = b'{"total": 700, "to": "ann\\u202e"}'
    request = Request("POST", "/pay?y=1", (("content-type", "application/json"),), body, BodyType.JSON)
    found = explain(CONDITIONS, request, CALLER)
    assert [(step.name, step.value) for step in found.facts] == [
        ("request.body.total", "700"),
        ('when request.body.total <= 500 && has(request.body.to) && "x" in request.query', "it is false"),
    ]
    assert [tried.outcome for tried in found.candidates] == ["denies, since its conditions do not hold"]
    assert found.remedy == "change the request, or the conditions of /pay (line 5)"


@pytest.mark.parametrize(
    ("tool", "count", "effect", "tried", "remedy"),
    [
        ("add", 3, "allow", ["allows"], None),
        (
            "add",
            4,
            "deny",
            ["denies, since its conditions do not hold"],
            "change the arguments, or the condition on line 9",
        ),
        ("gone", 1, "deny", ["denies"], "the rule on line 10 denies this on purpose: change that line"),
        ("other", 1, "deny", [], "add to `tools`: other: {}"),
    ],
)
def test_tools_are_explained(tool: str, count: int, effect: str, tried: list[str], remedy: str | None) -> None:
    """A call of a tool is explained like a request."""
    found = explain_tool(CONDITIONS, tool, CALLER, {"count": count})
    assert (found.effect, [one.outcome for one in found.candidates], found.remedy) == (effect, tried, remedy)
    assert [step.value for step in found.facts[:1]] == ([str(count)] if tool == "add" else [])


def test_coverage() -> None:
    """A rule that no test tries is reported."""
    results = run_tests(CONDITIONS)
    assert all(result.passed for result in results)
    found = coverage(CONDITIONS, results)
    assert [route.line for route in found.routes] == [6, 7]
    assert [tool.name for tool in found.tools] == ["gone"]
    assert (round(found.of_routes, 3), found.of_tools) == (0.333, 0.5)


def test_routes_that_never_decide() -> None:
    """A route behind others that match all its requests is reported; one with requests left is not."""
    policy = parse_policy(
        """
version: 1
backends: {a: {url: https://a.example}, b: {url: https://b.example}}
mode: {report: {until: 2026-12-31}}
routes:
  - {path: "/x/{y}", methods: [GET], backend: a}
  - {path: "/x/{y}", methods: [PUT], backend: a}
  - {path: /x/7, methods: [GET, PUT], backend: a}
  - {path: "/x/{y:encoded}", methods: [GET], backend: a}
  - {path: /x/7, methods: [GET], backend: b}
  - {path: /x/7, methods: [GET, POST], backend: a}
  - {path: /x/, methods: [GET], backend: a}
  - {path: "/x/{y}/**", methods: [GET], backend: a}
  - {path: "/x/{y}/z/**", methods: [GET], backend: a}
  - {path: "/x/**", methods: [GET], backend: a}
  - {path: "/x/**", deny: "no"}
  - {path: "/x/{y:encoded}/w", methods: [DELETE], backend: b}
  - {path: /pay, methods: [POST], backend: a, confirm: {message: "Pay {request.body.total}?"}}
  - {path: /buy, methods: [POST], backend: a, when: request.body.n < 9, confirm: {message: "{request.body.n}?"}}
  - {path: "/a/:id/b", methods: [GET], backend: a}
  - {path: "/a/b:cancel", methods: [POST], backend: a}
""",
        "p.yaml",
    )
    assert [(problem.line, problem.message) for problem in warnings(policy)] == [
        (1, "report mode: what no rule allows is let through until 2026-12-31, and written down"),
        (8, "/x/7 never decides: lines 6, 7 take all that it matches"),
        (14, "/x/{y}/z/** never decides: line 13 takes all that it matches"),
        (17, "/x/{y:encoded}/w never decides: line 16 takes all that it matches"),
        (18, "/pay: the question shows the body, so forms and all else but JSON are refused"),
        (20, "/a/:id/b: :id means itself alone; a parameter is {id}"),
    ]


def test_tests_beside_a_policy(tmp_path: Path) -> None:
    """`x.test.yaml` tests `x.yaml`, or the file it names; its problems have its own lines."""
    file = tmp_path / "pay.test.yaml"
    file.write_text("tests:\n  - {request: GET /api/1, expect: allow}\n")
    found = load_tests(file)
    assert found.policy == tmp_path / "pay.yaml"
    (result,) = run_tests(CONDITIONS, found.tests)
    assert (result.passed, result.test.file, result.test.line) == (True, str(file), 2)
    file.write_text("policy: other.yaml\ntests:\n  - {request: GET /api/1, expect: maybe}\n")
    with pytest.raises(DocumentError, match=r"pay\.test\.yaml:3:\d+: expect: must be one of"):
        load_tests(file)

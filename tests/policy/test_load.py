"""Policy files: their keys, and every problem of an invalid one with its place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import DocumentError
from gateway.model import Initiator
from gateway.policy import Limit, Per, Policy, Rate, load_policy, parse_policy, run_tests, warnings
from gateway.policy.templates import parse_template
from tests.documents.replacing import unknown_keys

CART = """
version: 1
backends:
  shop:
    url: HTTPS://Shop.Example.com:443/v2/
    credential: shop-service
    origins: [https://www.shop.example.com]
    network: [private, 203.0.113.7]
limits: {timeout: 5s, request: 64KiB, response: 2MiB, rate: [20/second per view, 600/minute per principal]}
routes:
  - {path: "/api/products/**", methods: [GET]}
  - {path: /api/cart, methods: [GET, POST], timeout: 1s, request: 1KiB, response: 1MiB, rate: 30/minute per route}
  - path: "/api/cart/{item}"
    methods: [PUT, DELETE]
    confirm: {when: model, message: "Change {params.item} in the cart?"}
  - {path: /api/checkout, methods: [POST], confirm: always}
  - {path: "/api/admin/**", deny: "The admin API is not for apps"}
responses: {headers: [Content-Type, etag]}
tools:
  add_to_cart: {rate: 30/minute per principal}
  get_cart: {}
  clear_cart: {confirm: always, description: "Empty the cart of this person."}
  gone: {deny: "not any more"}
tests:
  - {request: GET /api/products/1, expect: allow}
  - {request: DELETE /api/cart/7, initiator: model, expect: confirm}
  - {request: DELETE /api/cart/7, initiator: person, as: ann, expect: allow}
  - {request: GET /api/admin/users, expect: deny}
"""


def test_whole_policy() -> None:
    """Each key of a policy reaches its field."""
    policy = parse_policy(CART, "cart.yaml")
    shop = policy.backends["shop"]
    assert (shop.url, shop.credential, shop.origins) == (
        "https://shop.example.com/v2",
        "shop-service",
        ("https://www.shop.example.com",),
    )
    assert shop.network.allows("10.0.0.1")
    assert shop.network.allows("203.0.113.7")
    first, cart, *_ = [route.decision.obligations for route in policy.routes.all]
    assert (first.timeout, first.request_limit, first.response_limit) == (5, 65536, 2 * 2**20)
    assert first.limits == (Limit(Rate(20, 1), Per.VIEW), Limit(Rate(600, 60), Per.PRINCIPAL))
    assert first.response_headers == {"content-type", "etag"}
    assert (cart.timeout, cart.request_limit, cart.response_limit) == (1, 1024, 2**20)
    assert [(limit.rate, limit.per) for limit in cart.limits] == [(Rate(30, 60), Per.ROUTE)]
    assert {name: rule.at_gateway_only for name, rule in policy.tools.items()} == {
        "add_to_cart": True,
        "get_cart": False,
        "clear_cart": True,
        "gone": True,
    }
    assert policy.tools["clear_cart"].description == "Empty the cart of this person."
    assert policy.tests[2].initiator is Initiator.PERSON
    assert policy.version.startswith("sha256:")
    assert len(policy.version) == 23
    assert all(result.passed for result in run_tests(policy))


BASE = "version: 1\nbackends: {shop: {url: https://shop.example.com}}\n"

WRONG = [
    ("", "must be a mapping, not nothing"),
    ("backends: {}", '"version" is missing'),
    ("version: 2", "must be the number 1, not the number 2"),
    (BASE + "rutes: []", 'unknown key "rutes", did you mean "routes"?'),
    (BASE + "frames: ['https://maps.example.com/x']", "is not an origin"),
    (BASE + "frames: ['https://[::1]']", "cannot be part of a content security policy"),
    (BASE + "links: {allow: [shop.example.com]}", "is not an origin with a path"),
    (BASE + "links: {allow: ['https://shop.example.com/a?b']}", "is not an origin with a path"),
    (BASE + "links: {allow: ['https://shop.example.com/*']}", "write {name} for one segment"),
    (BASE + "links: {confirm: {message: '{tool}'}}", "{tool} is unknown here (known: link, app"),
    (BASE + "mode: {}", '"report" is missing'),
    (BASE + "mode: learn", "must be enforce, or"),
    (BASE + "mode: {report: {}}", '"until" is missing'),
    (BASE + "mode: {report: {until: tomorrow}}", "is not a day"),
    (BASE + "responses: {mask: [card]}", "is not a path that can be masked"),
    (BASE + "responses: {headers: [set-cookie]}", '"set-cookie" never reaches an app'),
    (BASE + "responses: {headers: ['a b']}", '"a b" never reaches an app'),
    (BASE + "limits: {request: 65MiB}", "no door takes more than 64MiB"),
    (BASE + "limits: {quota: 1/week per principal}", "is not a quota"),
    (BASE + "limits: {quota: 0/day per principal}", "is not a quota"),
    (BASE + "limits: {timeout: 10}", "is not a duration"),
    (BASE + "limits: {request: 1M}", "is not a size"),
    (BASE + "limits: {rate: 0/second per view}", "is not a rate"),
    (BASE + "limits: {rate: [10 per second]}", "is not a rate"),
    (BASE + "limits: {rate: 10/second per tenant}", "is not a rate"),
    (BASE + "limits: {rate: 10}", "rate: must be text such as 30/minute per principal, or a list of such"),
    (BASE + "limits: {quota: {}}", "quota: must be text such as 5/day per principal, or a list of such"),
    *[
        (BASE + f"routes: [{{path: '/a/{{x}}', methods: [{method}], {rest}}}]", message)
        for method, rest, message in [
            ("POST", "when: 'total > 1'", "total is unknown here (known: request, params"),
            ("POST", "when: 'params.y == 1'", "params.y is unknown here (known: params.x)"),
            ("POST", "when: ''", "must not be empty"),
            ("POST", "when: always", "always is unknown here"),
            ("POST", "body: x", "must be a mapping"),
            ("POST", "body: {}", '"schema" is missing'),
            ("POST", "body: {schema: a.json}", "has no files beside it"),
            ("POST", "body: {schema: ../a.json}", "must be a file beside the policy"),
            ("POST", "body: {schema: /etc/passwd}", "must be a file beside the policy"),
            ("POST", "body: {schema: 'https://a/b.json'}", "must be a file beside the policy"),
            ("GET", "when: 'request.body.x == 1'", "GET and HEAD have no body"),
            ("GET", "confirm: {message: '{request.body.x}'}", "GET and HEAD have no body"),
            ("POST", "quota: 5/second per view", "is not a quota"),
            ("POST", "idempotent: yes", "must be true or false"),
            ("GET", "idempotent: true", "has no meaning for methods that change nothing"),
            ("POST", "stream: 1", "must be true or false"),
            ("POST", "snapshot: true", "a snapshot is made of GET requests"),
            ("GET", "snapshot: true", "the path has parameters: list the URLs"),
            ("GET", "snapshot: yes", 'must be true, or a list of URLs such as [/api/products], not the text "yes"'),
            ("GET", "snapshot: [/a/1/2]", "does not match the path of the route"),
            ("GET", "snapshot: [/a/1#x]", "does not match the path of the route"),
            ("GET", "snapshot: ['/a/b;c']", 'a ";"'),
            ("GET", "snapshot: [/a/1], confirm: always", "`confirm` cannot hold"),
            ("GET", "snapshot: [/a/1], when: 'true'", "`when` cannot hold"),
            ("GET", f"snapshot: [{', '.join(f'/a/{n}' for n in range(65))}]", "at most 64 URLs"),
            ("POST", "redirects: all", "must be one of none, safe, same-route"),
        ]
    ],
    (BASE + "routes: [{path: /a, deny: no, when: 'true'}]", 'has no meaning beside "deny"'),
    (BASE + "routes: [{methods: [GET]}]", '"path" is missing'),
    (BASE + "routes: [{path: /a}]", '"methods" is missing'),
    (BASE + "routes: [{path: /a, methods: []}]", "name at least one method"),
    (BASE + "routes: [{path: /a, methods: [get]}]", 'write GET for "get"'),
    (BASE + "routes: [{path: /a, methods: [TRACE]}]", "TRACE is not one of"),
    (BASE + "routes: [{path: /a, methods: POST}]", 'must be a list, not the text "POST"; write [POST]'),
    (BASE + "routes: [{path: /a, methods: [FETCH]}]", ": methods: FETCH is not one of"),
    (BASE + "routes: [{path: /a, methods: [GET], backend: shup}]", 'did you mean "shop"?'),
    (BASE + "routes: [{path: /a, methods: [GET], deny: ~}]", "deny: must be text, not nothing"),
    (BASE + "routes: [{path: /a, methods: [GET], deny: true}]", "deny: must be text"),
    (BASE + "routes: [{path: /a, deny: no, confirm: always}]", 'has no meaning beside "deny"'),
    (
        BASE + "routes: [{path: /a, methods: [GET], confirm: never}]",
        "must be always, or a mapping such as {when: model}",
    ),
    (BASE + "routes: [{path: /a, methods: [GET], confirm: {timeout: 0s}}]", 'timeout: "0s" is not a duration'),
    (BASE + "tools: {pay: {confirm: {timeout: 2h}}}", "more than 0s and at most 1h, such as 5m"),
    (BASE + "links: {confirm: {timeout: 5m}}", "leave timeout out"),
    (
        BASE + "routes: [{path: /a, methods: [GET], confirm: true}]",
        "confirm: must be always, or a mapping such as {when: model}, not true",
    ),
    (BASE + "routes: [{path: /a, methods: [GET], confirm: {when: modell}}]", 'not "modell", did you mean "model"?'),
    (BASE + "routes: [{path: /a, methods: [GET], confirm: {when: []}}]", "must be one of always"),
    (BASE + "routes: [{path: /a, methods: [GET], confirm: {message: '{params.x}'}}]", "{params.x} is unknown here"),
    (BASE + "routes: [{path: /a, methods: [GET], confirm: {message: '{'}}]", "names no value"),
    (BASE + "routes: [{path: /a, methods: [GET], confirm: {wen: model}}]", 'did you mean "when"?'),
    (BASE + "tools: {a: {when: 'request.method == 1'}}", "request is unknown here (known: tool, arguments"),
    (BASE + "tools: {a: {timeout: 0s}}", "is not a duration"),
    (BASE + "tools: {a: {pin: x}}", '"sha256:" and 64 hex digits'),
    (BASE + "tools: {a: {quota: often}}", "is not a quota"),
    (BASE + "tools: {a: ~}", "a: must be a mapping, not nothing; an empty one is {}"),
    (BASE + "tools: [add_to_cart, x]", "tools: must be a mapping, not a list; write {add_to_cart: {}}"),
    (BASE + "tools: {'a b': {}}", "not the name of a WebMCP tool"),
    (BASE + "tools: {a: {confirm: {message: '{params.x}'}}}", "{params.x} is unknown here"),
    (BASE + "tests: [{request: GET, expect: deny}]", "must be a method and a URL"),
    (BASE + "tests: [{request: GET /, expect: no}]", "must be one of allow, deny, confirm"),
    (BASE + "tests: [{request: GET /}]", '"expect" is missing'),
    (BASE + "tests: [{expect: deny}]", '"request" or "tool" is missing'),
    (BASE + "tests: [{request: FETCH /a, expect: deny}]", "request: FETCH is not one of"),
    (BASE + "tests: [{request: GET a, expect: deny}]", 'the URL "a" must begin with "/", http:// or https://'),
    (BASE + "tests: [{request: 'GET ftp://shop.example.com/', expect: deny}]", 'must begin with "/"'),
    (BASE + "tests: [{tool: a, request: GET /, expect: deny}]", 'has no meaning beside "tool"'),
    (BASE + "tests: [{request: GET /, arguments: {}, expect: deny}]", 'has no meaning beside "request"'),
    (BASE + "tests: [{request: GET /, expect: deny, as: {role: x}}]", 'did you mean "roles"?'),
    (BASE + "tests: [{request: GET /, expect: deny, as: {claims: x}}]", "claims: must be a mapping"),
    (BASE + "tests: [{request: GET /, expect: deny, headers: x}]", "headers: must be a mapping"),
    ("version: 1\nroutes: [{path: /a, methods: [GET]}]", "the policy has no backends"),
    ("version: 1\nbackends: {a: {url: http://a}, b: {url: http://b}}\nroutes: [{path: /a, methods: [GET]}]", "of a, b"),
    (
        "version: 1\nbackends: {a: {url: http://a, origins: [http://x]}, b: {url: http://b, origins: [http://x]}}",
        "of a and",
    ),
    ("version: 1\nbackends: {A b: {url: http://a}}", "is not a name"),
    ("version: 1\nbackends: {a: {}}", '"url" is missing'),
    ("version: 1\nbackends: {a: {type: asgi}}", '"app" is missing'),
    ("version: 1\nbackends: {a: {type: asgi, app: shop}}", 'must be "module:name"'),
    (
        BASE + "routes: [{path: /a/**, methods: [GET]}, {path: /a/b, methods: [GET], snapshot: true}]",
        "/a/b is decided by the route GET /a/** (line 3), which comes first",
    ),
    *[
        (f"version: 1\nbackends: {{a: {{url: http://a, {rest}}}}}", message)
        for rest, message in [
            ("cookies: all", "must be one of jar, none"),
            ("retry: 2", "must be a mapping"),
            ("retry: {}", '"attempts" is missing'),
            ("retry: {attempts: 9}", "whole number from 2 to 5"),
            ("retry: {attempts: 2, on: [404]}", '"404" is not worth another attempt'),
            ("retry: {attempts: 2, on: [policy-denied]}", "is not worth another attempt"),
            ("circuit: {failures: 0, reset: 1s}", "whole number from 1"),
            ("circuit: {failures: 5}", '"reset" is missing'),
        ]
    ],
    ("version: 1\nbackends: {a: {url: http://a, network: everything}}", "is not public, private, or a block"),
    ("version: 1\nbackends: {a: {url: http://a, network: []}}", "must name public, private"),
    ("version: 1\nbackends: {a: {url: http://a, origins: [http://x/]}}", "is not an origin"),
    ("version: 1\nbackends: {a: {url: http://a, origins: [http://x/y]}}", "is not an origin"),
    ("version: 1\nbackends: {a: {url: http://a, origins: ['*']}}", "is not an http or https URL"),
    *[
        (f"version: 1\nbackends: {{a: {{url: '{url}'}}}}", message)
        for url, message in [
            ("ftp://a", "is not an http or https URL"),
            ("//a", "is not an http or https URL"),
            ("http://a?x", "is not an http or https URL"),
            ("http://a/#x", "is not an http or https URL"),
            ("http://user:pass@a", '"http://…@a" has a user or a password'),
            ("http://a:0", "has no valid host"),
            ("http://a:99999", "has no valid host"),
            ("http://a:", "has no valid host"),
            ("http://a.", "has no valid host"),
            ("http://bücher.example", "has no valid host"),
            ("http://127.1", "has no valid host"),
            ("http://0x7f000001", "has no valid host"),
            ("http://2130706433", "has no valid host"),
            ("http://0177.0.0.1", "has no valid host"),
            ("http://[::1", "has no valid host"),
            ("http://[fe80::1%eth0]", "has no valid host"),
            ("http://a/x//y", "empty segment"),
            ("http://a/x%2fy", "ambiguous path"),
        ]
    ],
]


WHOLE = """\
version: 1
backends:
  shop: {type: http, url: https://shop.example.com, credential: a, origins: [https://x.example.com], network: public,
    cookies: jar, retry: {attempts: 2, on: [503], backoff: 1s}, circuit: {failures: 5, reset: 1s}, trace: true}
  inside: {type: asgi, app: "shop:app"}
limits: {timeout: 10s, request: 1MiB, response: 1MiB, rate: 1/second per view, quota: 5/day per principal}
routes:
  - {path: "/a/{x}", methods: [POST], backend: shop, when: "params.x == '1'", body: {schema: a.json},
     confirm: {when: model, message: "{params.x}?", grant: 10m, timeout: 5m}, timeout: 1s, request: 1MiB,
     response: 1MiB, rate: 1/second per view, quota: 5/day per principal, idempotent: true, redirects: none,
     stream: true}
  - {path: /b, methods: [GET], backend: shop, snapshot: [/b]}
  - {path: /c, deny: "no"}
responses: {headers: [etag], mask: [$.card]}
tools:
  a: {confirm: {when: [model], message: "{tool}?", grant: 10m, timeout: 5m}, rate: 1/second per view,
    quota: 5/day per principal, when: "arguments.x == 1", description: x, timeout: 1m, pin: "sha256:PIN"}
  b: {deny: "no", description: x}
links: {allow: ["https://shop.example.com/**"], confirm: {when: model, message: "{link}?"}}
frames: [https://maps.example.com]
mode: {report: {until: "2026-12-31"}}
tests:
  - {request: POST /a/1, headers: {x: y}, body: {}, initiator: page, as: {subject: a, roles: [b], claims: {}},
    expect: deny}
  - {tool: a, arguments: {}, initiator: model, as: a, expect: deny}
""".replace("PIN", "0" * 64)
"""A policy with every key."""


def test_a_problem_in_one_key_makes_no_other_key_unknown() -> None:
    """Each value in turn is replaced with invalid ones: the other keys of its mapping are read all the same."""
    assert list(unknown_keys(WHOLE, lambda text: parse_policy(text, "p", lambda _: "{}"))) == []


@pytest.mark.parametrize("confirm", ["{message: '{params.x}', grant: 10m, timeout: 5m}", "{grant: 10}", "{grant: 0s}"])
def test_a_wrong_question_is_one_problem(confirm: str) -> None:
    """An unknown placeholder hides no other key, and a wrong duration is not reported twice."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(BASE + f"routes: [{{path: /a, methods: [GET], confirm: {confirm}}}]", "p")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_wrong_policies(text: str, message: str) -> None:
    """The message names the place and what is allowed."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(text, "p.yaml")
    assert message in str(caught.value)
    assert all(str(problem).startswith("p.yaml:") for problem in caught.value.problems)


TEMPLATES = [
    ("api", "must start with"),
    ("/a/**/b", "only as the last segment"),
    ("/a/*", "write {name} for one segment"),
    ("/a/x*", "write {name} for one segment"),
    ("/a/v{x}", "must be a whole segment"),
    ("/a/{x", "must be a whole segment"),
    ("/a/{}", "must be a whole segment"),
    ("/a/{x:int}", "must be a whole segment"),
    ("/a/{x}/{x}", "uses a parameter name twice"),
    ("/a//b", "has an empty segment"),
    ("/a//**", "has an empty segment"),
    ("/a/../b", "not in its canonical form"),
    ("/a/%61", "write a for %61"),
    ("/a/b%2fc", "{name:encoded}"),
    ("/a/é", "outside ASCII"),
    ("/a/b;c", 'has a ";"'),
    ("/a/b?c", "has a query or a fragment"),
]


@pytest.mark.parametrize(("text", "message"), TEMPLATES)
def test_wrong_templates(text: str, message: str) -> None:
    """A template that could never match, or not as it reads, is refused with the remedy."""
    with pytest.raises(ValueError) as caught:
        parse_template(text)
    assert message in str(caught.value)


def test_a_method_that_stands_in_no_list_is_one_problem() -> None:
    """There is no second message about an empty list."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(BASE + "routes: [{path: /a, methods: GET}]", "p")
    assert len(caught.value.problems) == 1


def test_all_problems_at_once() -> None:
    """One run reports every problem of a file."""
    text = BASE + "routes:\n  - {path: a, methods: [get], when: x}\n  - {path: /b}\ntools: {x: {pin: 1}}\n"
    with pytest.raises(DocumentError) as caught:
        parse_policy(text, "p.yaml")
    assert [problem.line for problem in caught.value.problems] == [4, 4, 4, 5, 6]


def test_backend_type_of_a_plugin() -> None:
    """An unknown type belongs to a plugin, which receives the other keys."""
    policy = parse_policy("version: 1\nbackends: {m: {type: mock, file: a.json, deep: {x: [1]}}}", "p.yaml")
    spec = policy.backends["m"]
    assert (spec.type, spec.options, spec.url) == ("mock", {"file": "a.json", "deep": {"x": [1]}}, "http://m.invalid")


def test_files(tmp_path: Path) -> None:
    """A file that is missing or not UTF-8 is a DocumentError too; the version follows the text."""
    file = tmp_path / "p.yaml"
    with pytest.raises(DocumentError, match="cannot be read"):
        load_policy(file)
    file.write_bytes(b"version: 1 # \xff")
    with pytest.raises(DocumentError, match="not UTF-8"):
        load_policy(file)
    file.write_text("version: 1")
    first = load_policy(file).version
    file.write_text("version: 1 ")
    assert load_policy(file).version != first


def test_many_routes_load() -> None:
    """None of 10,000 is lost."""
    routes = "".join(f'  - {{path: "/api/r{i}/{{item}}", methods: [GET, PUT]}}\n' for i in range(10_000))
    policy = parse_policy(BASE + "routes:\n" + routes, "p.yaml")
    assert len(policy.routes.all) == 10_000


@given(st.text(max_size=80))
def test_any_text_is_a_policy_or_problems(text: str) -> None:
    """No text raises anything but DocumentError."""
    for whole in (text, f"version: 1\nbackends: {{a: {{url: '{text}'}}}}", f"version: 1\ntools: {text}"):
        try:
            found = parse_policy(whole, "p.yaml")
        except DocumentError:
            continue
        assert isinstance(found, Policy)


AUTHORIZED = """version: 1
backends: {{api: {{url: 'http://api', {backend}}}}}
routes: [{{path: /a, methods: [POST], {route}}}]
"""


@pytest.mark.parametrize(
    ("backend", "route", "why"),
    [
        ("authorization: yes", "secret: true", 'authorization: must be one of drop, pass, vault, not the text "yes"'),
        ("authorization: pass, credential: x", "secret: true", "`credential` sends the gateway's own token there"),
        ("authorization: pass", "vault: [$.a]", "write `authorization: vault` at the backend api"),
        ("authorization: vault", "vault: [a]", '"a" is not a path to a token in an answer'),
        ("authorization: vault", "vault: [$.a], stream: true", "in a complete answer only"),
        ("authorization: vault", "secret: 5", "must be true or false"),
    ],
)
def test_a_wrong_authorization_is_named_with_its_remedy(backend: str, route: str, why: str) -> None:
    """At the key that is wrong."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(AUTHORIZED.format(backend=backend, route=route), "p.yaml")
    assert why in str(caught.value)


@pytest.mark.parametrize("route", ["secret: true", "vault: []"])
def test_a_vault_without_a_token_is_warned_of(route: str) -> None:
    """The page would hold every token."""
    policy = parse_policy(AUTHORIZED.format(backend="authorization: vault", route=route), "p.yaml")
    assert "no route to it names where an answer holds a token" in str(warnings(policy)[0])

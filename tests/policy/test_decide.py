"""Requests are made canonical, and decided by the first route that matches."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.errors import Reason, Refusal
from gateway.model import LOCAL, BodyType, Caller, CanonicalRequest, Door, Effect, Initiator, Request
from gateway.policy import Decision, Policy, canonicalise, decide, decide_tool, outcome, parse_policy

POLICY = parse_policy(
    """
version: 1
backends:
  shop: {url: https://shop.example.com/v2, origins: [https://www.shop.example.com, http://localhost:3000]}
limits: {rate: 600/minute per principal}
routes:
  - {path: "/api/products/**", methods: [GET, HEAD]}
  - {path: /api/cart, methods: [GET, POST]}
  - {path: "/api/cart/{item}", methods: [PUT, DELETE], confirm: {when: model, message: "Change {params.item}, {app}?"}}
  - {path: "/api/cart/{item}/", methods: [PATCH]}
  - {path: /api/checkout, methods: [POST], confirm: always, timeout: 4s}
  - {path: /api/both, methods: [POST], confirm: {when: [model, page]}}
  - {path: "/api/files/secret/**", deny: "secret"}
  - {path: "/api/files/{key:encoded}", methods: [GET]}
  - {path: "/api/files/{key:encoded}/meta/{id}", methods: [GET]}
  - {path: /api/@me, deny: "not me"}
  - {path: "/api/{user}", methods: [GET]}
  - {path: "/api/admin/**", deny: "The admin API is not for apps"}
  - {path: "/api/admin/{x}", methods: [GET]}
tools:
  add_to_cart: {rate: 30/minute per principal}
  clear_cart: {confirm: {when: model, message: "Clear {arguments.item_id} by {tool}?"}, description: "Empties it."}
  gone: {deny: "Not any more"}
""",
    "cart.yaml",
)
PAGE = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no gesture", view="v1", proven=True)
PERSON = structs.replace(PAGE, initiator=Initiator.PERSON)
MODEL = structs.replace(PAGE, initiator=Initiator.MODEL)
UNPROVEN = structs.replace(MODEL, proven=False, view=None, door=Door.MCP)


def _canonical(method: str, url: str, policy: Policy = POLICY) -> CanonicalRequest:
    return canonicalise(policy, Request(method, url))


def _decide(method: str, url: str, caller: Caller = PAGE) -> Decision:
    return decide(POLICY, _canonical(method, url), caller)


DECIDED = [
    ("GET", "/api/products", "allow"),
    ("GET", "/api/products/", "allow"),
    ("GET", "/api/products/1/2/3?x=1", "allow"),
    ("get", "/api/products/1", "allow"),
    ("HEAD", "/api/products/1", "allow"),
    ("POST", "/api/products/1", "deny"),
    ("OPTIONS", "/api/products/1", "deny"),
    ("GET", "/api/productsx", "allow"),
    ("GET", "/api/Products/1", "deny"),
    ("GET", "/apiadmin", "deny"),
    ("GET", "/api", "deny"),
    ("GET", "/", "deny"),
    ("GET", "/api/cart", "allow"),
    ("GET", "/api/cart/", "deny"),
    ("DELETE", "/api/cart/7", "allow"),
    ("DELETE", "/api/cart/", "deny"),
    ("DELETE", "/api/cart/7/", "deny"),
    ("PATCH", "/api/cart/7/", "allow"),
    ("GET", "/api/products/../admin/users", "deny"),
    ("GET", "/api/products/%2e%2e/admin/users", "deny"),
    ("GET", "/api/admin", "allow"),
    ("GET", "/api/admin/x", "deny"),
    ("GET", "/api/%61dmin/x", "deny"),
    ("GET", "/api/@me", "deny"),
    ("GET", "/api/%40me", "deny"),
    ("GET", "/api/@you", "allow"),
    ("GET", "/api/files/a%2fb", "allow"),
    ("GET", "/api/files/a%2Fb/meta/1", "allow"),
    ("GET", "/api/files/secret/a%2Fb", "deny"),
    ("GET", "https://www.shop.example.com/api/cart#x", "allow"),
    ("GET", "HTTPS://WWW.Shop.example.com:443/api/cart?a=1", "allow"),
    ("GET", "http://localhost:3000/api/cart", "allow"),
]


@pytest.mark.parametrize(("method", "url", "expected"), DECIDED)
def test_decisions(method: str, url: str, expected: str) -> None:
    """Path and method decide together, by whole segments, in the order of the file."""
    assert outcome(_decide(method, url)) == expected


REFUSED = [
    ("GET", "", "is empty"),
    ("GET", "*", 'must start with "/"'),
    ("GET", "api/cart", 'must start with "/"'),
    ("GET", "?x", 'must start with "/"'),
    ("GET", "//evil.example/api/cart", "names a host"),
    ("GET", "/\\evil.example/api/cart", "names a host"),
    ("GET", "\\\\evil.example/api/cart", "names a host"),
    ("GET", "https:/api/cart", "is not a URL of a backend"),
    ("GET", "https:\\\\www.shop.example.com/api/cart", "is not a URL of a backend"),
    ("GET", "javascript:alert(1)", "is not a URL of a backend"),
    ("GET", "https://www.shop.example.com@evil.example/", "user name"),
    ("GET", "https://evil.example@www.shop.example.com/api/cart", "user name"),
    ("GET", "https://www.shop.example.com\\@evil.example/", "backslash"),
    ("GET", "/api/cart\\..\\admin", "backslash"),
    ("GET", "/api//cart", "empty segment"),
    ("GET", "/api/cart;v=1", '";"'),
    ("GET", "/api/products/..%2f..%2fadmin", "{name:encoded}"),
    ("GET", "/api/products/%252e%252e/admin", "{name:encoded}"),
    ("GET", "/api/cart%00", "U+0000"),
    ("GET", "/api/cart%0d%0aHost:x", "U+000D"),
    ("GET", "/api/cart HTTP/1.1\r\nx: y", "control character"),
    ("GET", "/api/%c0%ae%c0%ae/admin", "not UTF-8"),
    ("GET", "/api/．．/admin", "outside ASCII"),
    ("GET", "/api/%zz", "not a percent-encoding"),
    ("GET", "/api/files/..%2f..%2fadmin", "dot part"),
    ("GET", "/api/files/%252e%252e%252fadmin", "dot part"),
    ("GET", "/api/files/a%2500", "control character"),
    ("GET", "/api/files/a%2Fb/meta/a%2Fb", "{name:encoded}"),
    ("GET", "/api/cart?x=%", "not a percent-encoding"),
    ("GET", "/api/cart?a\r\nb", "control character"),
    ("GET", "/" + "a" * 65536, "longer than"),
    ("TRACE", "/api/cart", "TRACE is not one of"),
    ("CONNECT", "/api/cart", "CONNECT is not one of"),
    ("TRACK", "/api/cart", "TRACK is not one of"),
    ("PURGE", "/api/cart", "PURGE is not one of"),
    ("GE T", "/api/cart", "is not an HTTP method"),
    (" GET", "/api/cart", "is not an HTTP method"),
    ("GET\r\n", "/api/cart", "is not an HTTP method"),
    ("", "/api/cart", "is not an HTTP method"),
    ("PO\u017fT", "/api/cart", "is not an HTTP method"),
    ("POST", "/api/cart?_method=DELETE", "_method in the query"),
    ("POST", "/api/cart?a=1&%5fmethod=DELETE", "_method in the query"),
]


@pytest.mark.parametrize(("method", "url", "message"), REFUSED, ids=range(len(REFUSED)))
def test_bad_requests(method: str, url: str, message: str) -> None:
    """An ambiguous request is refused before any decision, with the remedy."""
    with pytest.raises(Refusal) as caught:
        _canonical(method, url)
    assert caught.value.reason is Reason.BAD_REQUEST
    assert message in caught.value.detail


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/api/cart",
        "https://shop.example.com/v2/api/cart",
        "http://www.shop.example.com/api/cart",
        "https://www.shop.example.com:8443/api/cart",
        "https://www.shop.example.com./api/cart",
        "https://www.shop.example.com.evil.example/api/cart",
        "https://wwwxshop.example.com/api/cart",
        "https://www.shop.example.com%2f@evil.example/",
        "https://www.shop.еxample.com/api/cart",
        "http://0x7f000001:3000/api/cart",
        "http://127.0.0.1:3000/api/cart",
        "http://[::1]:3000/api/cart",
        "https:///api/cart",
        "ftp://www.shop.example.com/api/cart",
        "file:///etc/passwd",
    ],
)
def test_foreign_origins(url: str) -> None:
    """An absolute URL passes only if its origin is exactly one that the policy names."""
    with pytest.raises(Refusal) as caught:
        _canonical("GET", url)
    assert caught.value.reason in (Reason.POLICY_DENIED, Reason.BAD_REQUEST)


@pytest.mark.parametrize(
    ("content_type", "body", "refused"),
    [
        ("application/x-www-form-urlencoded", b"a=1&_method=DELETE", True),
        ("application/x-www-form-urlencoded; charset=utf-8", b"%5f%6dethod=DELETE", True),
        ("application/x-www-form-urlencoded", b"a=_method", False),
        ("application/json", b'{"_method": "DELETE"}', True),
        ("application/json", b'{"\\u005fmethod": "DELETE"}', True),
        ("application/vnd.api+json", b'{"_method": "DELETE"}', True),
        ("application/json", b'{"a": {"_method": 1}}', False),
        ("application/json", b'{"a": "_method"}', False),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="_method"\r\n\r\nPUT', True),
        ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n_method', False),
        ("text/plain", b"_method=DELETE", False),
    ],
)
def test_method_override_in_the_body(content_type: str, body: bytes, refused: bool) -> None:
    """`_method` in a form or at the top of a JSON body is refused."""
    request = Request("POST", "/api/cart", (("content-type", content_type),), body, BodyType.TEXT)
    with pytest.raises(Refusal, match="_method") if refused else contextlib.nullcontext():
        canonicalise(POLICY, request)


def test_what_is_matched_is_what_is_sent() -> None:
    """The target is the backend's URL and the canonical path and query, byte for byte."""
    request = _canonical("GET", "/api/files/a%2fb?q=%61%2f#frag")
    assert request.url == "/api/files/a%2Fb?q=a%2F"
    assert POLICY.backends["shop"].target(request) == "https://shop.example.com/v2/api/files/a%2Fb?q=a%2F"


def test_get_has_no_body() -> None:
    """The body of a GET or HEAD is dropped."""
    request = canonicalise(POLICY, Request("GET", "/api/cart", (), b"x", BodyType.TEXT))
    assert (request.body, request.body_type) == (b"", BodyType.NONE)


@pytest.mark.parametrize(
    ("method", "url", "caller", "question"),
    [
        ("DELETE", "/api/cart/7", MODEL, "Change 7, cart?"),
        ("DELETE", "/api/cart/a%20b", MODEL, "Change a b, cart?"),
        ("DELETE", "/api/cart/7", PAGE, None),
        ("DELETE", "/api/cart/7", PERSON, None),
        ("POST", "/api/checkout", PERSON, "Allow POST /api/checkout?"),
        ("POST", "/api/both", PAGE, "Allow POST /api/both?"),
        ("POST", "/api/both", PERSON, None),
        ("POST", "/api/cart", MODEL, None),
        ("POST", "/api/cart", UNPROVEN, "Allow POST /api/cart?"),
        ("GET", "/api/cart", UNPROVEN, None),
    ],
)
def test_questions(method: str, url: str, caller: Caller, question: str | None) -> None:
    """If the rule requires it, and before an unproven call changes anything."""
    decision = _decide(method, url, caller)
    assert decision.effect is Effect.ALLOW
    assert decision.obligations.confirm == question


def test_nothing_is_stored_where_a_rule_may_ask() -> None:
    """Answers of rules with `confirm` are marked no-store for every caller."""
    assert _decide("DELETE", "/api/cart/7", PERSON).obligations.no_store
    assert not _decide("GET", "/api/cart").obligations.no_store


@pytest.mark.parametrize(("asked", "timeout"), [(None, 4), (1.5, 1.5), (60, 4)])
def test_timeout_is_only_lowered(asked: float | None, timeout: float) -> None:
    """A request may ask for less time than its rule gives, never for more."""
    request = canonicalise(POLICY, Request("POST", "/api/checkout", timeout=asked))
    assert decide(POLICY, request, PAGE).obligations.timeout == timeout


@pytest.mark.parametrize(
    ("method", "url", "message"),
    [
        ("PATCH", "/api/cart", "this path allows GET, POST (/api/cart, line 8)"),
        ("GET", "/api/cart/7/8", "no route allows GET /api/cart/7/8: the nearest is"),
        ("GET", "/other", "the nearest is"),
        ("GET", "/api/admin/x", "The admin API is not for apps; the route /api/admin/** (line 18) denies it"),
    ],
)
def test_denials_say_why(method: str, url: str, message: str) -> None:
    """A denial names the allowed methods, the nearest route, or the rule's own words."""
    refusal = _decide(method, url).refusal()
    assert refusal.reason is Reason.POLICY_DENIED
    assert message in refusal.detail


def test_empty_policy_denies() -> None:
    """Without routes nothing is allowed, and the reason says so."""
    policy = parse_policy("version: 1", "p.yaml")
    decision = decide(policy, _canonical("GET", "/", policy), PERSON)
    assert decision.effect is Effect.DENY
    assert "the policy has no routes" in decision.reasons[0]


def test_several_backends() -> None:
    """A path means the backend of its first route; an absolute URL the backend with that origin."""
    policy = parse_policy(
        """
version: 1
backends: {a: {url: https://a.example}, b: {url: https://b.example, origins: [https://www.b.example]}}
routes:
  - {path: /x, methods: [GET], backend: a}
  - {path: /x, methods: [GET, POST], backend: b}
  - {path: /d/**, deny: "no"}
  - {path: /d/y, methods: [GET], backend: b}
""",
        "p.yaml",
    )

    def found(method: str, url: str) -> tuple[str, str]:
        request = _canonical(method, url, policy)
        return request.backend, outcome(decide(policy, request, PAGE))

    assert found("GET", "/x") == ("a", "allow")
    assert found("POST", "/x") == ("b", "allow")
    assert found("GET", "https://www.b.example/x") == ("b", "allow")
    assert found("GET", "https://www.b.example/d/y") == ("b", "deny")
    assert found("GET", "/d/y") == ("", "deny")
    assert found("GET", "/nothing") == ("", "deny")
    assert canonicalise(policy, Request("GET", "/x"), "b").backend == "b"


@pytest.mark.parametrize(
    ("tool", "caller", "expected", "text"),
    [
        ("add_to_cart", MODEL, "allow", "the tool rule add_to_cart"),
        ("clear_cart", PAGE, "allow", "clear_cart"),
        ("clear_cart", MODEL, "confirm", "asks a person"),
        ("gone", MODEL, "deny", "Not any more"),
        ("other", MODEL, "deny", "listed are add_to_cart, clear_cart, gone"),
        ("Add_to_cart", MODEL, "deny", "is not under `tools`"),
    ],
)
def test_tools(tool: str, caller: Caller, expected: str, text: str) -> None:
    """Only listed tools are allowed, under their rule."""
    decision = decide_tool(POLICY, tool, caller, {"item_id": "7\u202e"})
    assert outcome(decision) == expected
    assert text in "; ".join(decision.reasons)


def test_tool_obligations() -> None:
    """A tool's question, rate and description come from its rule."""
    decision = decide_tool(POLICY, "clear_cart", MODEL, {"item_id": "7\u202e"})
    assert decision.obligations.confirm == "Clear 7⟨U+202E⟩ by clear_cart?"
    assert decision.obligations.description == "Empties it."
    assert len(decide_tool(POLICY, "add_to_cart", MODEL).obligations.limits) == 1


def test_limit_keys() -> None:
    """Separate buckets by app, rule and subject; per view without a proven view counts per principal."""
    text = (
        "version: 1\nlimits: {rate: [1/second per view, 1/second per principal, 1/second per app, 1/second per route]}"
    )
    view, principal, app, route = parse_policy(text, "p.yaml").defaults.limits
    other = structs.replace(PAGE, view="v2")
    assert view.key(PAGE) != view.key(other)
    assert view.key(UNPROVEN) == view.key(structs.replace(UNPROVEN, view="v9")) == principal.key(PAGE)
    assert principal.key(PAGE) == principal.key(other)
    assert principal.key(PAGE) != principal.key(structs.replace(PAGE, principal=replace(LOCAL, subject="ann")))
    assert app.key(PAGE) == app.key(structs.replace(PAGE, principal=replace(LOCAL, subject="ann")))
    assert app.key(PAGE) != app.key(structs.replace(PAGE, app="other"))
    assert app.key(PAGE) != route.key(PAGE)


_URLS = st.text(alphabet="/.%2eE5cCfFa;\\?#0A~@:é．\x00 +&=_", max_size=40).map(lambda text: "/api/" + text)


@given(st.sampled_from(["GET", "post", "DELETE"]), _URLS | st.text(max_size=60), st.binary(max_size=10))
def test_canonical_requests_are_idempotent(method: str, url: str, body: bytes) -> None:
    """A canonical request stays unchanged, and gets the same decision."""
    with contextlib.suppress(Refusal):
        once = canonicalise(POLICY, Request(method, url, (("X-A", " b "),), body, BodyType.TEXT))
        again = canonicalise(POLICY, Request(once.method, once.url, once.headers, once.body, once.body_type))
        assert again == once
        assert decide(POLICY, again, PAGE) == decide(POLICY, once, PAGE)


@given(st.lists(st.sampled_from(["a", "b", "{x}", "c%20d"]), max_size=5), st.booleans(), st.data())
def test_trie_finds_what_a_list_would(parts: list[str], rest: bool, data: st.DataObject) -> None:
    """The same route as by trying all in the order of the file."""
    segment = st.sampled_from(["a", "b", "{x}", "**"])
    templates = data.draw(st.lists(st.lists(segment, max_size=4), min_size=1, max_size=8))
    cleaned = [[part for part in t[:-1] if part != "**"] + t[-1:] for t in templates]
    texts = ["/" + "/".join(f"{{x{i}}}" if part == "{x}" else part for i, part in enumerate(t)) for t in cleaned]
    routes = "".join(f'  - {{path: "{text}", methods: [GET]}}\n' for text in texts)
    policy = parse_policy(f"version: 1\nbackends: {{s: {{url: http://s}}}}\nroutes:\n{routes}", "p.yaml")
    path = "/" + "/".join("7" if part == "{x}" else part for part in parts)
    found = policy.routes.find("GET", path, "s")
    expected = next((i for i, text in enumerate(texts) if _matches(text, path)), None)
    assert (found.index if found else None) == expected


def _matches(template: str, path: str) -> bool:
    wanted, given_ = template.split("/")[1:], path.split("/")[1:]
    if wanted[-1] == "**":
        wanted, given_ = wanted[:-1], given_[: len(wanted) - 1]
    return len(wanted) == len(given_) and all(
        bool(segment) if part.startswith("{") else part == segment for part, segment in zip(wanted, given_, strict=True)
    )


def test_which_paths_a_rule_begins_as() -> None:
    """The same first segment, or any."""
    paths = ("/api", "/api/x", "/apis", "/pets", "/pets/api", "/")
    assert [POLICY.routes.begins(path) for path in paths] == [True, True, False, False, False, False]
    for path in ("/**", "/{any}/x"):
        routes = f'routes: [{{path: "{path}", deny: "no"}}]'
        rest = parse_policy(f"version: 1\nbackends: {{b: {{url: http://b.test}}}}\n{routes}\n", "policy.yaml")
        assert rest.routes.begins("/pets")

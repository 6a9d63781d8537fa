"""The parts of a backend's answer that reach the app: headers, and redirects inside its routes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Request
from gateway.policy import Obligations, answer_headers, canonicalise, parse_policy, redirect_location

POLICY = parse_policy(
    """
version: 1
backends:
  shop: {url: https://shop.example.com/v2, origins: [https://www.shop.example.com]}
routes:
  - {path: "/api/admin/**", deny: "no"}
  - {path: "/api/{name}", methods: [GET]}
  - {path: "/api/cart/{item}", methods: [PUT]}
  - {path: "/api/x/**", methods: [GET]}
""",
    "p.yaml",
)
REQUEST = canonicalise(POLICY, Request("GET", "/api/cart?a=1"))

LOCATIONS = [
    ("https://shop.example.com/v2/api/cart/7", "/api/cart/7"),
    ("https://SHOP.example.com:443/v2/api/cart/7?x=%61#f", "/api/cart/7?x=a"),
    ("https://www.shop.example.com/api/cart/7", "/api/cart/7"),
    ("/v2/api/cart/7", "/api/cart/7"),
    ("cart/7", "/api/cart/7"),
    ("?b=2", "/api/cart?b=2"),
    ("/api/cart/7", None),
    ("/v2/api/admin/x", None),
    ("/v2/other", None),
    ("/v2x/api/cart", None),
    ("https://shop.example.com/v2/../api/cart", None),
    ("https://shop.example.com/v2/%2e%2e/api/cart", None),
    ("https://shop.example.com/v2/api/..%2f..%2fx", None),
    ("http://shop.example.com/v2/api/cart/7", None),
    ("https://shop.example.com:8443/v2/api/cart/7", None),
    ("https://shop.example.com.evil.example/v2/api/cart/7", None),
    ("https://shop.example.com@evil.example/v2/api/cart/7", None),
    ("//evil.example/v2/api/cart/7", None),
    ("\\\\evil.example\\x", None),
    ("http://10.0.0.1/", None),
    ("javascript:alert(1)", None),
    ("http://[::1", None),
    ("/v2/api/cart/7\r\nset-cookie: x", None),
    ("/v2/api/é", None),  # Latin-1: a path is UTF-8
    ("/v2/api/Ã©", "/api/%C3%A9"),
    ("/v2/api/cart/7?a=é", "/api/cart/7?a=%E9"),
    ("/v2/api/a b", "/api/a%20b"),
    (" \t/v2/api/\tcart/7 ", "/api/cart/7"),
    ("\\v2\\api\\cart/7", "/api/cart/7"),
    ("/v2\\..\\api/cart", None),
    ("/v2/api/cart/7?a='\"<>", "/api/cart/7?a=%27%22%3C%3E"),
    ("/v2/api/cart/7?a=%", "/api/cart/7?a=%"),
    ("/v2/api/cart/7?%%361=%c3%a9", "/api/cart/7?%%361=%c3%a9"),
    ("/v2/api/cart/7?%u0061", None),
    ("/v2/api/%", None),
    ("https:/v2/api/cart/7", "/api/cart/7"),
    ("https:cart/7", "/api/cart/7"),
    ("https:///shop.example.com/v2/api/cart/7", "/api/cart/7"),
    ("http:/v2/api/cart/7", None),
    ("http:shop.example.com/v2/api/cart/7", None),
    ("/\t/evil.example/v2/api/cart/7", None),
    ("https:\\\\evil.example/v2/api/cart/7", None),
    ("https:/\\evil.example/v2/api/cart/7", None),
    ("https://evil.example\\@shop.example.com/v2/api/cart/7", None),
    ("https://shop.example.com\\v2\\api/cart/7", "/api/cart/7"),
    ("https://@shop.example.com/v2/api/cart/7", "/api/cart/7"),
    ("https://:@shop.example.com:/v2/api/cart/7", "/api/cart/7"),
    ("https://shop.example.com:000443/v2/api/cart/7", "/api/cart/7"),
    ("https://a@shop.example.com/v2/api/cart/7", None),
    ("https://@@shop.example.com/v2/api/cart/7", None),
    ("https://:@evil.example:0443/v2/api/cart/7", None),
    ("#f", "/api/cart?a=1"),
    ("?", "/api/cart"),
    ("", None),
]


@pytest.mark.parametrize(("location", "expected"), LOCATIONS, ids=range(len(LOCATIONS)))
def test_location(location: str, expected: str | None) -> None:
    """`location` is relative to the app, and only present if it stays inside the app's routes."""
    headers = (("Location", location), ("etag", "x"))
    found = dict(answer_headers(POLICY, REQUEST, Obligations(), headers, credentialed=False))
    assert found.get("location") == expected
    assert found["etag"] == "x"


def test_landing_names_the_backend() -> None:
    """A redirect to another backend of the policy is recognized as such, and has no relative location."""
    policy = parse_policy(
        """
version: 1
backends: {a: {url: https://a.example}, b: {url: https://b.example/x}}
routes: [{path: "/**", methods: [GET], backend: a}, {path: "/**", methods: [GET], backend: b}]
""",
        "p.yaml",
    )
    request = canonicalise(policy, Request("GET", "/1"))
    assert redirect_location(policy, request, "https://b.example/x/2") == ("b", "/2")
    assert redirect_location(policy, request, "/2") == ("a", "/2")
    headers = (("location", "https://b.example/x/2"),)
    assert answer_headers(policy, request, Obligations(), headers, credentialed=False) == ()


def test_credentialed_answers() -> None:
    """An answer to a credential is private."""
    headers = (("cache-control", "public, max-age=60"), ("cdn-cache-control", "max-age=60"))
    assert answer_headers(POLICY, REQUEST, Obligations(), headers, credentialed=True) == (
        ("cache-control", "private, no-cache"),
    )


@given(st.text(max_size=60) | st.text(alphabet="/.%2eEv2api:@\\#?[]shopxml", max_size=40))
def test_any_location(location: str) -> None:
    """No location leads out of the backends, nor raises anything."""
    with contextlib.suppress(StopIteration):
        found = redirect_location(POLICY, REQUEST, location)
        if found is not None:
            assert found.backend == "shop"
            assert found.url.startswith("/")
            assert not found.url.startswith("//")

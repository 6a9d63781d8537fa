"""The headers that pass, in both directions."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import filter_request_headers, filter_response_headers, forbid_shared_caching, without

DROPPED = [
    "Host",
    "Cookie",
    "Cookie2",
    "Authorization",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Proxy-Foo",
    "Connection",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Content-Length",
    "Expect",
    "Forwarded",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Prefix",
    "Via",
    "Origin",
    "Referer",
    "Sec-Fetch-Site",
    "Sec-WebSocket-Key",
    "Accept-Encoding",
    "X-Real-IP",
    "True-Client-IP",
    "webmcp-gateway-csrf",
    "gateway-pending",
    "AUTHORIZATION",
    "content_length",
    "X_Forwarded_For",
    "transfer_encoding",
    "Proxy_Foo",
]
OVERRIDES = ["X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "x_http_method_override", "X-Original-URL"]
BROKEN = [("a b", "x"), ("", "x"), ("a:", "x"), ("a\r\nb", "x"), ("é", "x"), ("a\x00", "x"), ("a" * 200, "x")]
BROKEN += [("a", "x\r\ny: z"), ("a", "x\n"), ("a", "\x00"), ("a", "\x7f"), ("a", "€"), ("a", "\ud800")]


@pytest.mark.parametrize("name", DROPPED)
def test_headers_that_the_app_cannot_set(name: str) -> None:
    """Connection, identity and proxy headers are dropped, in any case, with `_` too."""
    assert filter_request_headers(((name, "x"), ("Accept", "y"))) == (("accept", "y"),)


@pytest.mark.parametrize("name", OVERRIDES)
def test_override_headers_are_refused(name: str) -> None:
    """A header that changes method or URL behind the policy is refused by name."""
    with pytest.raises(ValueError, match=name.lower()):
        filter_request_headers(((name, "DELETE"),))


@pytest.mark.parametrize(("name", "value"), BROKEN, ids=ascii)
def test_broken_headers_are_refused(name: str, value: str) -> None:
    """A malformed header field is refused, not repaired."""
    with pytest.raises(ValueError):
        filter_request_headers(((name, value),))


@pytest.mark.parametrize(
    "headers",
    [
        tuple((f"x-{i}", "") for i in range(101)),
        (("x-large", "y" * 64 * 1024),),
        (("content-type", "a/b"), ("Content-Type", "c/d")),
    ],
    ids=["many", "large", "content-type twice"],
)
def test_too_much(headers: tuple[tuple[str, str], ...]) -> None:
    """Too many, too large or contradicting headers are refused."""
    with pytest.raises(ValueError):
        filter_request_headers(headers)


def test_headers_that_pass() -> None:
    """All others pass in order, with names in lower case and repeated ones kept separate."""
    headers = (("Content-Type", " application/json\t"), ("X-A", "1"), ("x-a", "2"), ("If-Match", '"e"'), ("X-B", "é"))
    expected = (("content-type", "application/json"), ("x-a", "1"), ("x-a", "2"), ("if-match", '"e"'), ("x-b", "é"))
    assert filter_request_headers(headers) == expected


def test_event_ids_are_any_bytes_of_a_line() -> None:
    """An event stream may set any (HTML, 9.2.6); other headers have no control characters."""
    for value in ("\xc3\xa9", "a\x01\x0b\x7f", "\t a"):
        assert filter_request_headers((("Last-Event-ID", value),)) == (("last-event-id", value.strip(" \t")),)
    assert _refusal_of("x-a", "a\x01")
    for value in ("a\x00", "a\r", "a\nb", "\u65e5"):
        assert _refusal_of("last-event-id", value)


def _refusal_of(name: str, value: str) -> bool:
    try:
        filter_request_headers(((name, value),))
    except ValueError:
        return True
    return False


def test_connection_nominates_headers() -> None:
    """Headers that `connection` names are hop-by-hop, and dropped."""
    assert filter_request_headers((("Connection", "close, X-Hop"), ("x-hop", "1"), ("x-stay", "2"))) == (
        ("x-stay", "2"),
    )


def test_injected_header_has_no_twin() -> None:
    """Before a header is injected, the app's own of that name is dropped, in any case and with `_`."""
    assert without((("x-api-key", "a"), ("X_Api_Key", "b"), ("x-api", "c")), ["x-api-key"]) == (("x-api", "c"),)


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=20)), max_size=8))
def test_request_headers_never_break_the_message(headers: list[tuple[str, str]]) -> None:
    """For any input, the result consists of valid header fields, and passes again unchanged."""
    with contextlib.suppress(ValueError):
        kept = filter_request_headers(tuple(headers))
        assert filter_request_headers(kept) == kept
        assert all(re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9a-z]+", name) for name, _ in kept)
        assert not any(set(value) & set("\r\n\0") for _, value in kept)


def test_response_headers() -> None:
    """An app sees the allowed headers, and never cookies or hop-by-hop ones."""
    headers = (
        ("Content-Type", "text/html"),
        ("Set-Cookie", "a=b"),
        ("Content-Length", "3"),
        ("Content-Encoding", "gzip"),
        ("Server", "x"),
        ("ETag", '"1"'),
        ("Link", "a\r\nset-cookie: x"),
        ("Retry-After", "3"),
        ("HX-Trigger", "saved"),
    )
    expected = (("content-type", "text/html"), ("etag", '"1"'), ("retry-after", "3"), ("hx-trigger", "saved"))
    assert filter_response_headers(headers) == expected
    assert filter_response_headers(headers, frozenset({"set-cookie", "content-length", "server"})) == (("server", "x"),)


@pytest.mark.parametrize(
    ("value", "credentialed", "confirmed", "expected"),
    [
        ("max-age=60", False, False, "max-age=60"),
        ("public, max-age=60, s-maxage=600", False, False, "max-age=60"),
        ("PUBLIC", False, False, None),
        (None, False, False, None),
        ("public, max-age=60", True, False, "private, no-cache"),
        (None, True, False, "private, no-cache"),
        ("max-age=60", True, True, "no-store"),
    ],
)
def test_caching(value: str | None, credentialed: bool, confirmed: bool, expected: str | None) -> None:
    """No storing in shared caches, and none of an answer to a credential or an approval."""
    headers = (("etag", "x"),) if value is None else (("etag", "x"), ("cache-control", value))
    found = dict(forbid_shared_caching(headers, credentialed=credentialed, confirmed=confirmed))
    assert found.get("cache-control") == expected
    assert found["etag"] == "x"


def test_a_name_with_an_underscore_does_not_go_out() -> None:
    """Servers read `x_tenant` as `x-tenant`, and a condition on one would not see the other."""
    assert filter_request_headers((("x-tenant", "mine"), ("x_tenant", "theirs"))) == (("x-tenant", "mine"),)

"""References of backends are resolved as browsers do (URL Standard, 4.4)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.response_rules import resolve

BASE = "http://127.0.0.1:8/dir/go?1"
ORIGIN = "http://127.0.0.1:8"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (b"/ok?a=\xc3\xa9", "/ok?a=%C3%A9"),
        (b"/ok?a=\xe9", "/ok?a=%E9"),
        (b"/\xe9", "/%E9"),
        (b"/a b?c d", "/a%20b?c%20d"),
        (b"/ok?a=%", "/ok?a=%"),
        (b"/a%zz", "/a%zz"),
        (b"/ok?a='\"<>`{}|^", "/ok?a=%27%22%3C%3E`{}|^"),
        (b"/p'\"<>`{}|^", "/p'%22%3C%3E%60%7B%7D%7C%5E"),
        (b"   /sp  ", "/sp"),
        (b"/x\ty", "/xy"),
        (b"\\ok\\x", "/ok/x"),
        (b"/a?\\b", "/a?\\b"),
        (b"ok", "/dir/ok"),
        (b"../ok", "/dir/../ok"),
        (b"/a;b//c", "/a;b//c"),
        (b"http:/ok", "/ok"),
        (b"http:ok", "/dir/ok"),
        (b"//127.0.0.1:8/x", "/x"),
        (b"\\\\127.0.0.1:8\\x", "/x"),
        (b"http:///127.0.0.1:8/x", "/x"),
        (b"HTTP://127.0.0.1:8", "/"),
        (b"http://127.0.0.1:8?x", "/?x"),
        (b"/x?a#f?b", "/x?a"),
        (b"?q", "/dir/go?q"),
        (b"#f", "/dir/go?1"),
        (b"/a:b", "/a:b"),
        (b"/a\x7fb\x01", "/a%7Fb"),
    ],
    ids=repr,
)
def test_as_chromium(reference: bytes, expected: str) -> None:
    """The URLs that Chromium 156 requests, except for dot segments, which the canonical form removes."""
    assert resolve(BASE, reference.decode("latin-1")) == ORIGIN + expected


@pytest.mark.parametrize(
    "reference", ["", "javascript:1", "a:b", "/a\r\nb", "/a\0", "/\u0100", "http://", "https:", "//é.example/", "///"]
)
def test_what_leads_nowhere(reference: str) -> None:
    """Not an HTTP URL, or not a valid header value."""
    assert resolve(BASE, reference) is None


@given(st.text("/.?#ab:@\\ \t%é'", max_size=20))
def test_any_reference(reference: str) -> None:
    """The result is ASCII without white space or fragment, and resolves to itself."""
    found = resolve(BASE, reference)
    if found is not None:
        assert found.isascii()
        assert not set(found) & set(" \t#")
        assert resolve(BASE, found) == found

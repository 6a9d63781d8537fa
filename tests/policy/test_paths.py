"""Paths and queries have one form, and hostile ones have none."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import paths

SAME = [
    "/",
    "/api",
    "/api/",
    "/api/cart/7",
    "/api/@me",
    "/a-b._~!$&'()*+,=:",
    "/api/caf%C3%A9",
    "/x%20y",
    "/...",
    "/.x",
]
CHANGED = [
    ("/%61pi", "/api"),
    ("/api/%7Euser", "/api/~user"),
    ("/api/caf%c3%a9", "/api/caf%C3%A9"),
    ("/api/%40me", "/api/%40me"),
    ("/api/a b", "/api/a%20b"),
    ('/api/"<>^`{|}[]', "/api/%22%3C%3E%5E%60%7B%7C%7D%5B%5D"),
    ("/api/./x", "/api/x"),
    ("/api/../admin", "/admin"),
    ("/api/%2e%2e/admin", "/admin"),
    ("/api/%2E./admin", "/admin"),
    ("/api/.%2e/admin", "/admin"),
    ("/../../etc", "/etc"),
    ("/api/..", "/"),
    ("/api/x/.", "/api/x/"),
    ("/api/x/..", "/api/"),
]
AMBIGUOUS = [
    "/a/%2f",
    "/a/..%2Fb",
    "/a%5cb",
    "/%252e%252e/x",
    "/a%3bx",
    "/a%3f",
    "/a%23",
    "/%2e%2e%2fadmin",
    "/%25%32%66",
]
REFUSED = [
    "",
    "api",
    "*",
    "?x",
    "//evil.example/x",
    "/api//x",
    "/a//../b",
    "/api\\x",
    "/..\\..\\x",
    "/api;v=1/x",
    "/api/..;/admin",
    "/a\x00",
    "/a\r\nx",
    "/a\x7f",
    "/a\tb",
    "/%00",
    "/%0d%0aX: y",
    "/%1f",
    "/%7f",
    "/%",
    "/%2",
    "/%zz",
    "/%u0041",
    "/%2%35",
    "/%c0%ae%c0%ae/",
    "/%e0%80%af",
    "/%ff",
    "/%ed%a0%80",
    "/café",
    "/．．/x",
    "/%EF%BC%8E%EF%BC%8E/x",
    "/%EF%BC%8Fx",
    "/%E2%80%A5/x",
    "/cafe%CC%81",
    "/ad%E2%80%8Bmin",
    "/%E2%80%AEnimda",
    "/%C2%85",
    "/%F3%A0%81%81",
]


@pytest.mark.parametrize("path", SAME)
def test_canonical_paths_stay(path: str) -> None:
    """A canonical path stays unchanged."""
    assert paths.canonical_path(path) == path


@pytest.mark.parametrize(("path", "canonical"), CHANGED)
def test_paths_are_normalised(path: str, canonical: str) -> None:
    """Unreserved characters are decoded, hex is in upper case, dot segments are removed."""
    assert paths.canonical_path(path) == canonical


@pytest.mark.parametrize("path", AMBIGUOUS)
def test_ambiguous_segments_are_seen(path: str) -> None:
    """Servers may decode such a segment into a separator, a parameter or another encoding."""
    canonical = paths.canonical_path(path)
    assert any(map(paths.is_ambiguous, canonical.split("/")))


@pytest.mark.parametrize("path", REFUSED, ids=map(ascii, REFUSED))
def test_hostile_paths_are_refused(path: str) -> None:
    """An ambiguous path has no canonical form."""
    with pytest.raises(ValueError):
        paths.canonical_path(path)


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        ("a=1&b=2", "a=1&b=2"),
        ("a=%61&b=%2f", "a=a&b=%2F"),
        ("q=a b", "q=a%20b"),
        ("q=café", "q=caf%C3%A9"),
        ("q=[1]|x", "q=%5B1%5D%7Cx"),
        ("q=\\", "q=%5C"),
        ("q=%2561", "q=%2561"),
        ("q=/?;@", "q=/?;@"),
    ],
)
def test_queries(query: str, canonical: str) -> None:
    """A query is normalised and encoded, never decoded into something else."""
    assert paths.canonical_query(query) == canonical


@pytest.mark.parametrize("query", ["a=%", "a=%zz", "a\r\nb", "a\x00", "a\x7f", "a=\ud800"], ids=ascii)
def test_hostile_queries(query: str) -> None:
    """Broken encodings and control characters are refused."""
    with pytest.raises(ValueError):
        paths.canonical_query(query)


@pytest.mark.parametrize("segment", ["a%2Fb", "a%2Fb%2Fc..d", "100%25", "a%3Bb", "a%3Fb%23c", "%5Cserver"])
def test_harmless_opaque_segments(segment: str) -> None:
    """A name with encoded separators is harmless if no part of it is a dot part."""
    paths.check_opaque(segment)


@pytest.mark.parametrize(
    "segment",
    [
        "..%2Fx",
        "a%2F..%2Fb",
        "..%5Cx",
        "%252e%252e%252fx",
        "a%2F%2e",
        ".%2F",
        "a%2F..%3Bx%2Fb",
        "%2500",
        "%250a",
        "%25ff",
    ],
)
def test_harmful_opaque_segments(segment: str) -> None:
    """Dot parts, NUL, control characters and broken text are refused even after decoding twice."""
    with pytest.raises(ValueError):
        paths.check_opaque(segment)


_TRICKY = st.text(alphabet="/.%2eE5cCfF;\\?#0aA~@é．\x00 +", max_size=24)


@given(_TRICKY.map(lambda text: "/" + text) | st.text(max_size=60))
def test_canonical_path_is_idempotent_and_clean(path: str) -> None:
    """For any input the canonical form stays unchanged, and contains nothing forbidden."""
    with contextlib.suppress(ValueError):
        canonical = paths.canonical_path(path)
        assert paths.canonical_path(canonical) == canonical
        assert re.fullmatch(r"(/([A-Za-z0-9\-._~!$&'()*+,=:@]|%[0-9A-F]{2})*)+", canonical)
        assert not {".", ".."} & set(canonical.split("/"))
        assert "//" not in canonical
        assert "%00" not in canonical


@given(_TRICKY | st.text(max_size=60))
def test_canonical_query_is_idempotent(query: str) -> None:
    """The canonical form of a query stays unchanged, and cannot end the request line."""
    with contextlib.suppress(ValueError):
        canonical = paths.canonical_query(query)
        assert paths.canonical_query(canonical) == canonical
        assert re.fullmatch(r"[\x21-\x7e]*", canonical)
        assert "#" not in canonical

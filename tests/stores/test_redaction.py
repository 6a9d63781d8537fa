"""Tests of `gateway.stores.lines`."""

from __future__ import annotations

import pytest

from gateway.model import Json
from gateway.stores.lines import REDACTED, Redaction

FIELDS: dict[str, Json] = {
    "url": "/a",
    "password": "p",
    "card": {"number": 1, "owner": {"password": "q"}},
    "items": [{"name": "a", "password": "r"}, {"name": "b"}],
}


@pytest.mark.parametrize(
    ("path", "changed"),
    [
        ("$.password", {"password": REDACTED}),
        ("$['password']", {"password": REDACTED}),
        ("$.card.number", {"card": {"number": REDACTED, "owner": {"password": "q"}}}),
        ("$.card", {"card": REDACTED}),
        ("$.card.*", {"card": {"number": REDACTED, "owner": REDACTED}}),
        ("$.items[*].name", {"items": [{"name": REDACTED, "password": "r"}, {"name": REDACTED}]}),
        (
            "$..password",
            {
                "password": REDACTED,
                "card": {"number": 1, "owner": {"password": REDACTED}},
                "items": [{"name": "a", "password": REDACTED}, {"name": "b"}],
            },
        ),
        ("$..owner.password", {"card": {"number": 1, "owner": {"password": REDACTED}}}),
        ("$.nothing.there", {}),
        ("$.url.deeper", {}),
    ],
)
def test_paths(path: str, changed: dict[str, Json]) -> None:
    """A path replaces the values at it and nothing else, and leaves the input fields unchanged."""
    before = repr(FIELDS)
    assert Redaction([path])(FIELDS) == FIELDS | changed
    assert repr(FIELDS) == before


def test_several_paths() -> None:
    """Each of several paths is applied."""
    redacted = Redaction(["$.url", "$.password"])(FIELDS)
    assert (redacted["url"], redacted["password"]) == (REDACTED, REDACTED)


@pytest.mark.parametrize("path", ["", "$", "password", "$.", "$.a..", "$.a[0]", "$[?(@.a)]", "$.a b", "$a", "@.a"])
def test_other_paths(path: str) -> None:
    """An invalid path is refused, never silently ignored."""
    with pytest.raises(ValueError, match="is not a path"):
        Redaction([path])

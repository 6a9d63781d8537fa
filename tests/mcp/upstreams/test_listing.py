"""The visibility of tools in the lists of upstreams."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.mcp.upstreams.catalog.listing import BOTH, visibility


@pytest.mark.parametrize("key", ["nested", "flat"])
@pytest.mark.parametrize(
    ("said", "callers"),
    [
        (["model", "app"], BOTH),
        (["app"], {"app"}),
        ("model", {"model"}),
        ([], ()),
        (["App"], ()),
        ({}, ()),
        (None, BOTH),
    ],
)
def test_what_a_key_says_of_callers_lets_in_nobody_else(key: str, said: Any, callers: Any) -> None:
    """In either place: an empty or malformed list of callers admits nobody."""
    meta = {"ui": {"visibility": said}} if key == "nested" else {"ui/visibility": said}
    assert visibility({"name": "tick", "_meta": meta}) == frozenset(callers)


def test_the_nested_key_goes_before_the_flat_one() -> None:
    meta = {"ui": {"visibility": ["app"]}, "ui/visibility": ["model"]}
    assert visibility({"name": "tick", "_meta": meta}) == {"app"}

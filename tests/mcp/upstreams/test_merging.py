"""The names of the items that upstreams list side by side."""

from __future__ import annotations

import pytest

from gateway.config import UpstreamSettings
from gateway.config.upstreams import UpstreamKind
from gateway.mcp.upstreams.catalog import merging
from gateway.mcp.upstreams.catalog.merging import Names

FIRST, SECOND = UpstreamSettings("first", UpstreamKind.URL), UpstreamSettings("second", UpstreamKind.URL)


def of(names: Names, first: list[str], second: list[str]) -> dict[str, str]:
    """Return the owner of each public name, if the upstreams list these."""
    listed = [(FIRST, [{"name": name} for name in first]), (SECOND, [{"name": name} for name in second])]
    return {public: named.upstream for public, named in names.of(listed).items()}


@pytest.mark.bound("names of upstreams without a prefix")
def test_an_upstream_with_ever_new_names_takes_none_of_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names beyond the bound are listed too, and may change owners; the others keep theirs."""
    monkeypatch.setattr(merging, "MOST_NAMES", 3)
    names = Names()
    of(names, [], ["s1", "s2", "s3"])
    of(names, ["pay"], ["s4", "s5"])
    assert of(names, [], ["pay", "s5"]) == {"second_pay": "second", "s5": "second"}
    assert of(names, ["pay", "s3", "s5"], []) == {"pay": "first", "first_s3": "first", "s5": "first"}


def test_an_upstream_that_was_changed_has_room_for_names_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its former names are then free."""
    monkeypatch.setattr(merging, "MOST_NAMES", 1)
    names = Names()
    of(names, [], ["old"])
    names.forget(["second"])
    of(names, [], ["new"])
    assert of(names, ["old", "new"], []) == {"old": "first", "first_new": "first"}


def test_a_name_without_prefix_is_one_of_mcp() -> None:
    """No name resembles another, and none is longer than clients accept."""
    legal = ["pay", "a.b/c-d_9", "x" * 128]
    names = Names()
    assert [*of(names, legal, [])] == legal
    assert [*of(names, ["p\u0430y", "open cart", "x" * 129], [])] == [
        "p_y_ca76c9",
        "open_cart_650e51",
        f"{'x' * 57}_0ec9eb",
    ]

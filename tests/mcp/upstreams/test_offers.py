"""The tools that an upstream offers, by the pages of its list."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gateway.mcp.upstreams.catalog.offers import WALKS, OfferedTools
from gateway.mcp.upstreams.transport.conversation import Message

A, B, C = ({"name": name} for name in "abc")


def offer(*tools: Message) -> OfferedTools:
    """Return an offer of these tools."""
    return OfferedTools(cast(Any, None), lambda: None, tools={tool["name"]: tool for tool in tools})


@pytest.mark.parametrize("cursor", [None, "unknown"])
def test_a_tool_is_gone_once_no_page_has_it(cursor: str | None) -> None:
    """Neither before the last page was read, nor if the first ones were not."""
    known = offer(A, B, C)
    known.page([A], None, "two")
    assert [*known.tools] == ["a", "b", "c"]
    known.page([B], cursor or "two", None)
    assert [*known.tools] == (["a", "b", "c"] if cursor else ["a", "b"])


@pytest.mark.bound("paginated lists of upstreams")
def test_whoever_reads_no_list_to_its_end_takes_no_room() -> None:
    """The oldest of these walks are evicted."""
    known = offer(A, B)
    for number in range(WALKS + 1):
        known.page([A], None, str(number))
    known.page([], "0", None)
    assert [*known.tools] == ["a", "b"]
    known.page([], str(WALKS), None)
    assert [*known.tools] == ["a"]

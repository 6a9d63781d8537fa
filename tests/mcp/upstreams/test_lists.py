"""The time for which a list waits for a silent upstream, or for the database."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.mcp.upstreams.catalog.list_cache import FIRST, LATER, NEW, KnownLists, Lists

TOOLS, PROMPTS = "tools/list", "prompts/list"


@pytest.mark.parametrize(("starts", "most"), [(True, FIRST), (False, NEW)], ids=["started here", "elsewhere"])
def test_all_lists_wait_together_for_one_that_never_answered(starts: bool, most: float) -> None:
    """Counted from the first list of any kind: later lists do not wait as long again."""
    heard = KnownLists()
    assert most - 0.1 < heard.timeout(TOOLS, starts=starts) <= most
    heard.since[TOOLS] -= most / 2
    assert most / 2 - 0.1 < heard.timeout(PROMPTS, starts=starts) <= most / 2
    heard.since[TOOLS] -= most / 2
    assert heard.timeout(PROMPTS, starts=starts) <= 0
    assert heard.timeout(TOOLS, starts=starts) <= 0


def test_one_that_answered_is_waited_for_a_little() -> None:
    """Less if it answered that list before, and not at all if the last wait was in vain."""
    heard = KnownLists(lists={TOOLS: []})
    assert heard.timeout(TOOLS, starts=True) == LATER
    assert NEW - 0.1 < heard.timeout(PROMPTS, starts=True) <= NEW
    heard.slow.add(TOOLS)
    assert heard.timeout(TOOLS, starts=True) == 0


async def test_what_upstreams_had_is_read_side_by_side() -> None:
    """The timeout of a hanging database passes only once."""
    reading = asyncio.Barrier(4)

    class Fingerprints:
        async def load(self, method: str) -> None:
            await reading.wait()

    offer: Any = SimpleNamespace(fingerprints=Fingerprints())
    proxy: Any = SimpleNamespace(upstream=SimpleNamespace(offer=lambda _: offer))
    lists = Lists(lambda _: {"a": proxy, "b": proxy}, lambda _: None)
    async with asyncio.timeout(60):
        await lists.remember(None, TOOLS, PROMPTS)

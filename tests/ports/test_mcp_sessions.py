"""The port `McpSessions`: each of one principal and mount, and bounded exactly."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.mcp.sessions import MemoryMcpSessions
from gateway.ports.sessions import McpSessions, TooManySessions

Make = Callable[[int, int], McpSessions]
"""Makes an implementation with so many sessions in all, and so many of each principal."""


@pytest.fixture(params=[MemoryMcpSessions])
def sessions(request: pytest.FixtureRequest) -> McpSessions:
    """Each implementation: three sessions per mount, two of each principal."""
    make: Make = request.param
    return make(3, 2)


async def test_a_session_counts_until_it_ends(sessions: McpSessions) -> None:
    """One that ends twice, or is unknown, makes no further room."""
    await sessions.open("a", "ann", "cart")
    await sessions.open("b", "ann", "cart")
    for id in ("a", "a", "unknown"):
        sessions.end(id)
    await sessions.open("c", "ann", "cart")
    with pytest.raises(TooManySessions):
        await sessions.open("d", "ann", "cart")


async def test_sessions_are_bounded_per_principal_and_in_all_at_each_mount(sessions: McpSessions) -> None:
    """One that is refused is not registered; one that ends makes room."""
    await sessions.open("a", "ann", "cart")
    await sessions.open("b", "ann", "cart")
    with pytest.raises(TooManySessions) as of_ann:
        await sessions.open("c", "ann", "cart")
    assert (of_ann.value.most, of_ann.value.of_all) == (2, False)
    await sessions.open("d", "bob", "cart")
    with pytest.raises(TooManySessions) as of_all:
        await sessions.open("e", "eve", "cart")
    assert (of_all.value.most, of_all.value.of_all) == (3, True)
    await sessions.open("f", "ann", "notes")
    sessions.end("a")
    await sessions.open("c", "ann", "cart")


async def test_concurrent_sessions_are_no_more(sessions: McpSessions) -> None:
    """Ten that are opened at once share the bound."""
    opened = [sessions.open(f"{number}", "ann", "cart") for number in range(10)]
    outcomes = await asyncio.gather(*opened, return_exceptions=True)
    assert outcomes.count(None) == 2
    assert sum(isinstance(outcome, TooManySessions) for outcome in outcomes) == 8

"""The connections of one upstream are shared among principals: none takes, or ends, those of another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.changes.feed import ChangeListener
from gateway.mcp.upstreams.upstream import JoinedLink, Upstream
from gateway.model import Principal
from tests.interop.probe import Probe
from tests.interop.serving import alone, over_http


def client(person: str, kind: int) -> UpstreamClient:
    """A client; each kind of each person has a separate connection."""
    return UpstreamClient(
        Principal(issuer="https://i.example", client="c", subject=person),
        person,
        "2025-11-25",
        {"kind": {person: kind}},
    )


@asynccontextmanager
async def upstream(folder: Path, most: int) -> AsyncIterator[Upstream]:
    """Yield a probe of the handshake with a bounded number of connections."""
    async with over_http(Probe().server, only="legacy") as url, alone(folder, url, f"connections: {most}") as made:
        yield made


async def stands(made: Upstream, person: str, kind: int) -> JoinedLink:
    """Return a connection that is established and idle."""
    joined, _ = await made.session(client(person, kind))
    return joined


async def test_who_wants_more_loses_the_oldest_of_their_own(tmp_path: Path) -> None:
    """One principal gets half at most; another's connection, although older, stays."""
    async with upstream(tmp_path, 4) as made:
        other = await stands(made, "bob", 0)
        first, second = await stands(made, "ann", 1), await stands(made, "ann", 2)
        third = await stands(made, "ann", 3)
        assert [made.has(one) for one in (other, first, second, third)] == [True, False, True, True]
        assert other.link.now is not None


@pytest.mark.bound("calls and connections of an upstream")
async def test_who_uses_all_of_their_own_is_refused_and_others_are_not(tmp_path: Path) -> None:
    """Connections with followers are never closed for another one."""
    async with upstream(tmp_path, 4) as made:
        for kind in (1, 2):
            joined = await stands(made, "ann", kind)
            joined.feed.add(ChangeListener(lambda _, __: None))
        with pytest.raises(Refusal, match="2 busy connections of yours") as refused:
            made.link(client("ann", 3))
        assert refused.value.reason is Reason.RATE_LIMITED
        for kind in (1, 2):
            assert made.has(await stands(made, "bob", kind))


async def test_where_all_are_taken_one_that_rests_makes_room(tmp_path: Path) -> None:
    """The least recently used one of any principal; if none is idle, a new connection is refused."""
    async with upstream(tmp_path, 2) as made:
        ann, bob = await stands(made, "ann", 1), await stands(made, "bob", 1)
        eve = await stands(made, "eve", 1)
        assert [made.has(one) for one in (ann, bob, eve)] == [False, True, True]
        for one in (bob, eve):
            one.feed.add(ChangeListener(lambda _, __: None))
        with pytest.raises(Refusal, match="2 busy connections already") as refused:
            made.link(client("ann", 1))
        assert refused.value.reason is Reason.BACKEND_UNAVAILABLE

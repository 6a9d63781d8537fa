"""What nodes tell each other of the end of a taint, over a connection that fails at first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.cluster import taints
from gateway.cluster.forwards import Forwards
from gateway.cluster.messages import read_about
from gateway.cluster.node import ClusterNode
from gateway.cluster.taints import ClusterTaints
from gateway.ports.nodes import Announcement, NodeAnswer, NodeRow
from gateway.ports.views import StoredTaint, TaintGroup
from gateway.watchers import Watchers

KEY = ("anna", "crm")
TAINT = StoredTaint("model-call", "c1")
OTHER = NodeRow(Announcement("i2", "b", "unix:b", "1", "d", "", {}), 0.0, 1.0, False, True)


class Link:
    """The way to the other node, on which the first `broken` messages are lost; `during` runs before each answer."""

    def __init__(self, broken: int = 0) -> None:
        self.broken = broken
        self.heard: list[bool] = []
        self.during: Callable[[], None] = lambda: None
        self.gone = Watchers[[str]]()
        node = SimpleNamespace(others=lambda: [OTHER], gone=self.gone)
        self.taints = ClusterTaints(cast(ClusterNode, node), cast(Forwards, self))

    @asynccontextmanager
    async def send_once(self, _: NodeRow, request: Any) -> AsyncIterator[NodeAnswer]:
        """Send a message, and note whether it tells of a taint, or of the end of one."""
        if self.broken:
            self.broken -= 1
            raise ConnectionResetError
        self.heard.append(read_about(request.body).taint is not None)
        self.during()
        yield NodeAnswer(204, (), cast(Any, None))


async def test_the_end_of_a_taint_is_told_until_the_other_node_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise that node would not tell of a model's next call into a page that shares the taint."""
    monkeypatch.setattr(taints, "PAUSE", 0.01)
    link, stored = Link(broken=2), asyncio.Event()

    async def store() -> None:
        stored.set()

    link.taints.ended(KEY, store)
    async with asyncio.timeout(10):
        while not link.heard:
            await asyncio.sleep(0.01)
    assert stored.is_set()
    await asyncio.sleep(0.1)
    assert link.heard == [False]


async def test_each_call_is_told_and_a_report_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person may act at the other node between two calls; nothing is kept of a node that has ended, or at a stop."""
    monkeypatch.setattr(taints, "TOLD_WITHIN", 0.05)
    link = Link()
    for _ in range(2):
        await link.taints.tell(KEY, TaintGroup.LAUNCHED, TAINT)
    link.taints.tell_soon(KEY, TaintGroup.LAUNCHED, TAINT)
    await link.taints.close()
    assert link.heard == [True, True]
    link.gone.notify("i2")
    assert not link.taints._told
    link.taints.tell_soon(KEY, TaintGroup.LAUNCHED, TAINT)
    link.broken = 1000
    link.taints.ended(KEY, asyncio.Event().wait)
    await link.taints.close()
    assert not link.taints._tasks


async def test_an_end_that_is_heard_while_a_taint_is_told_is_not_lost() -> None:
    """The other node may have untainted its view before its answer arrives: it is told anew."""
    link = Link()

    def end() -> None:
        link.taints.note_ended(KEY)
        link.during = lambda: None

    link.during = end
    await link.taints.tell(KEY, TaintGroup.LAUNCHED, TAINT)
    await link.taints.tell(KEY, TaintGroup.LAUNCHED, TAINT)
    assert link.heard == [True, True]

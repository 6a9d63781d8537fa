"""The taints of views at several nodes: each node with views that share theirs is told of a model's call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Coroutine
from http import HTTPStatus
from typing import Any, Final

from gateway.cluster.forwards import NOBODY, TOLD_WITHIN, ForwardedRequest, Forwards
from gateway.cluster.lease import ADOPT_AFTER
from gateway.cluster.messages import TAINTS, AboutTaint, write_about
from gateway.cluster.node import ClusterNode
from gateway.errors import OwnerGone, Reason, Refusal
from gateway.ports.nodes import NodeRow
from gateway.ports.views import StoredTaint, TaintGroup, TaintKey

KNOWN: Final = 65_536
"""Principals and apps of which other nodes were told; beyond that, all are told anew."""

PATIENCE: Final = ADOPT_AFTER + 2.0
"""Seconds that a call waits for a node that does not answer."""

PAUSE: Final = 0.5
"""Seconds until it is told once more."""

_TOLD: Final = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND)
"""The statuses of nodes that know it, or that have an earlier version, which shares no taints."""

log = logging.getLogger(__name__)


class ClusterTaints:
    """The port `OtherTaints`. A call of which another living node cannot be told is refused."""

    def __init__(self, node: ClusterNode, forwards: Forwards) -> None:
        self._node = node
        self._forwards = forwards
        self._told: dict[tuple[TaintKey, TaintGroup], set[str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        node.gone.add(self._forget)
        self._ending: dict[TaintKey, object] = {}
        """The latest work that lets other nodes know of an end; a later one of the same key takes its place."""

    async def tell(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Taint the views of a group at other nodes; wait for one that does not answer until its lease has ended.

        Each node is told of each call: a person may have acted in one of its views just before. Raises `Refusal` if it
        does not answer, and renews its lease.
        """
        about, knowing = AboutTaint(key, group, (taint.evidence, taint.call)), set[str]()
        try:
            async with asyncio.timeout(PATIENCE):
                while untold := self._others(knowing):
                    nodes = self._told.setdefault((key, group), set())  # `note_ended` may replace it meanwhile
                    answers = await asyncio.gather(*(self._send(row, about) for row in untold))
                    for row, took_note in zip(untold, answers, strict=True):
                        if took_note:
                            knowing.add(row.announced.incarnation)
                            nodes.add(row.announced.incarnation)
                    if not all(answers):
                        await asyncio.sleep(PAUSE)
        except TimeoutError:
            detail = "Another process of the gateway does not answer, which must know of this call. Try again."
            raise Refusal(Reason.STATE_UNAVAILABLE, detail, headers=[("retry-after", "2")]) from None

    def tell_soon(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Do the same in the background, unless all nodes have been told since the latest end."""
        if len(self._told) > KNOWN:
            self._told.clear()
        if self._others(self._told.get((key, group), ())):
            self._spawn(self._tell_or_log(key, group, taint))

    def ended(self, key: TaintKey, after: Callable[[], Awaitable[object]]) -> None:
        """Let other nodes know that a person acted in a view: they store again what their own views have.

        That is in the background, once `after` has ended, such as the removal from the database of what others put
        back if they have such a view, too; and again until each has answered, or its lease has ended.
        """
        self.note_ended(key)
        self._spawn(self._end(key, after))

    def note_ended(self, key: TaintKey) -> None:
        """Note that views of this key at another node may be untainted now, so that it is told of the next report."""
        for group in TaintGroup:
            self._told.pop((key, group), None)

    async def close(self) -> None:
        """End the work in the background, before this node leaves; what it tells others has a moment."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=TOLD_WITHIN)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _others(self, known_by: Container[str]) -> list[NodeRow]:
        """Return the other nodes, but for those that are told already."""
        return [row for row in self._node.others() if row.signed and row.announced.incarnation not in known_by]

    def _forget(self, incarnation: str) -> None:
        """Forget what a node that has ended was told."""
        for known, nodes in list(self._told.items()):
            nodes.discard(incarnation)
            if not nodes:
                del self._told[known]

    async def _tell_or_log(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        try:
            await self.tell(key, group, taint)
        except Refusal as refusal:
            log.warning("a page's report of a model's call did not reach all nodes: %s", refusal.detail)

    async def _end(self, key: TaintKey, after: Callable[[], Awaitable[object]]) -> None:
        await after()
        about, this = AboutTaint(key, TaintGroup.ALONE), object()
        self._ending[key] = this
        knowing, pause = set[str](), PAUSE
        try:
            # A node that does not know of it would not store again what its own views have.
            while self._ending.get(key) is this:
                unaware = self._others(knowing)
                answers = await asyncio.gather(*(self._send(row, about) for row in unaware))
                knowing.update(row.announced.incarnation for row, noted in zip(unaware, answers, strict=True) if noted)
                if all(answers):
                    break
                await asyncio.sleep(pause)
                pause = min(2 * pause, PATIENCE)
        finally:
            if self._ending.get(key) is this:
                del self._ending[key]

    async def _send(self, row: NodeRow, about: AboutTaint) -> bool:
        """Return whether a node took note of a message, or has no views any more."""
        headers = {"content-type": "application/msgpack", "host": "node"}
        request = ForwardedRequest(NOBODY, "", "POST", TAINTS, write_about(about), headers)
        try:
            async with asyncio.timeout(TOLD_WITHIN), self._forwards.send_once(row, request) as answer:
                return answer.status in _TOLD
        except OwnerGone:
            return True
        except (Refusal, OSError) as error:
            log.info("the node %s does not answer: %s", row.announced.name, error)
            return False

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

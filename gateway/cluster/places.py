"""Decides which node runs the process of a shared upstream: the first one that needs it, while its lease lasts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Final

from gateway.cluster.forwards import NOBODY, ForwardedRequest, Forwards
from gateway.cluster.messages import UPSTREAMS
from gateway.cluster.node import LOOK_AGAIN, ClusterNode
from gateway.errors import Reason, Refusal
from gateway.ports.nodes import NodeAnswer, NodeRow, UpstreamOwners

OTHERS_FIRST: Final = 1.0
"""Seconds for which a node that is about to stop lets others begin what it has handed over."""

ENDS_WITHIN: Final = 8.0
"""Seconds in which processes end that are asked to."""

log = logging.getLogger(__name__)


class UpstreamPlaces:
    """The port `UpstreamPlacement` of `gateway.mcp.upstreams.transport.shared`.

    An owner kills its processes when its lease ends, before any other node may take over. `renew` closes the
    connections of an upstream once no call is in flight on them.
    """

    def __init__(self, node: ClusterNode, forwards: Forwards, owners: UpstreamOwners) -> None:
        self._node = node
        self._forwards = forwards
        self._owners = owners
        self._held: dict[object, Callable[[], None]] = {}
        self._here = Counter[str]()
        self._changed = asyncio.Event()
        self._releasing: set[asyncio.Task[None]] = set()
        self.handing_over = False
        node.lapsed.add(self.kill)

    @property
    def count(self) -> int:
        """The number of upstreams that run here for all nodes."""
        return len(self._here)

    async def owner(self, upstream: str) -> NodeRow | None:
        """Return the other node that runs an upstream; None if it is this one. Raises `Refusal`."""
        if self.handing_over:
            await self._hand_over(upstream)
        while True:
            self._node.check()
            mine = self._node.incarnation
            try:
                owner = await self._owners.claim(upstream, mine)
            except OSError as error:
                raise Refusal(
                    Reason.STATE_UNAVAILABLE,
                    "The process of the gateway that runs this upstream cannot be looked up now. Try again.",
                    headers=[("retry-after", "2")],
                ) from error
            if owner == mine:
                return None
            if (row := await self._forwards.living(owner)) is not None:
                return row
            await asyncio.sleep(LOOK_AGAIN)

    @contextmanager
    def holding(self, upstream: str, kill: Callable[[], None], *, here: bool) -> Iterator[None]:
        """Call `kill` if the lease of this node ends within the block. `here`: the upstream runs here meanwhile."""
        key = object()
        self._held[key] = kill
        if here:
            self._here[upstream] += 1
        try:
            yield
        finally:
            del self._held[key]
            if here:
                self._here[upstream] -= 1
                if not self._here[upstream]:
                    del self._here[upstream]
                self._changed.set()

    def open(
        self, row: NodeRow, upstream: str, frames: AsyncIterator[bytes]
    ) -> AbstractAsyncContextManager[NodeAnswer]:
        """Yield the answer of a node that runs the upstream. Raises OSError, `Refusal`."""
        headers = {"content-type": "application/x-ndjson", "host": "node"}
        return self._forwards.send_once(row, ForwardedRequest(NOBODY, upstream, "POST", UPSTREAMS, frames, headers))

    def kill(self) -> None:
        """Kill the processes that run here, and end the connections to those of other nodes."""
        for kill in list(self._held.values()):
            kill()

    def begin_handing_over(self, upstream: str) -> None:
        """Let another node run an upstream as soon as its processes here have ended; it serves no new calls here."""
        self.handing_over = True
        task = asyncio.ensure_future(self._hand_over(upstream))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def end(self) -> None:
        """End what runs here, before the lease ends."""
        self.handing_over = True
        for task in list(self._releasing):
            task.cancel()
        self.kill()
        try:
            async with asyncio.timeout(ENDS_WITHIN):
                while self._here:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.error("processes of upstreams do not end: %s", ", ".join(self._here))

    async def _hand_over(self, upstream: str) -> None:
        while self._here[upstream]:
            self._changed.clear()
            await self._changed.wait()
        del self._here[upstream]
        try:
            await self._owners.release(upstream, self._node.incarnation)
        except OSError as error:
            log.warning("the upstream %s is left to other nodes when this one has stopped: %s", upstream, error)
        await asyncio.sleep(OTHERS_FIRST)

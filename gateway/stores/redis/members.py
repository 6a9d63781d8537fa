"""Which gateways use one Redis: each announces itself every few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.errors import RedisUnavailable
from gateway.stores.redis.connection import PREFIX, Redis, Script
from gateway.watchers import Watchers

BEAT: Final = 5.0
"""Seconds between two announcements."""

HURRIED: Final = 0.2
"""Seconds between two announcements at least."""

MOST_ENDED: Final = 1024
"""Processes that are known to have ended: their views stay in Redis for some time."""

LIFE: Final = 4 * BEAT
"""Seconds without one after which a process counts as gone."""

_NODES: Final = f"{PREFIX}nodes"

_ANNOUNCE: Final = Script(
    """
local time = redis.call('TIME')
local now, life = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[2])
local added = redis.pcall('ZADD', KEYS[1], now, ARGV[1])
if type(added) == 'table' then
  redis.call('DEL', KEYS[1])
  added = redis.call('ZADD', KEYS[1], now, ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - life)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now + life, '+inf')  -- the clock has gone back
redis.call('PEXPIRE', KEYS[1], life)
local nodes = redis.call('ZRANGE', KEYS[1], 0, -1)
table.insert(nodes, 1, added)
return nodes
"""
)
"""Announces a process; returns whether it was unknown, and all processes."""


class Members:
    """The processes that use this Redis. `node` is the name of this one."""

    def __init__(self, redis: Redis, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = redis
        self.node = node
        self.nodes: frozenset[str] = frozenset({node})
        """The processes as of the last announcement, with this one."""
        self._lost = Watchers[[]]()
        self._changed = Watchers[[]]()
        self._known = False
        self._due = asyncio.Event()
        self._clock = clock
        self._announced = -HURRIED
        self._ended: set[str] = set()

    @property
    def count(self) -> int:
        """The number of processes, 1 at least; while Redis cannot be used, as it was last known."""
        return len(self.nodes)

    def watch(self, lost: Callable[[], None], changed: Callable[[], None]) -> None:
        """Call `lost` when Redis has lost its data, and `changed` when a process has come or gone."""
        self._lost.add(lost)
        self._changed.add(changed)

    async def run(self) -> None:
        """Announce this process again and again, and whenever Redis is connected."""
        self._redis.watch(self._due.set)
        while True:
            self._due.clear()
            await self.announce()
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT):
                    await self._due.wait()
            await asyncio.sleep(HURRIED)

    async def learn(self, nodes: set[str]) -> None:
        """Announce this process now if one of `nodes` is unknown: it has just started, or has ended."""
        unknown, called_at = nodes - self.nodes - self._ended, self._clock()
        if not unknown:
            return
        await asyncio.sleep(max(0.0, self._announced + HURRIED - called_at))
        if self._announced < called_at:
            await self.announce()
        if len(self._ended) > MOST_ENDED:
            self._ended.clear()
        self._ended |= unknown - self.nodes

    async def leave(self) -> None:
        """Remove this process, at its end."""
        with suppress(RedisUnavailable):
            await self._redis.updates.send(("ZREM", _NODES, self.node))

    async def announce(self) -> None:
        """Announce this process now, and learn of the others."""
        self._announced = self._clock()
        try:
            added, *nodes = await self._redis.updates.run(_ANNOUNCE, [_NODES], (self.node, round(LIFE * 1000)))
        except RedisUnavailable:
            return
        before, self.nodes = self.nodes, frozenset(name.decode("utf-8", "replace") for name in nodes) | {self.node}
        if added and self._known:
            self._lost.notify()
        self._known = True
        if self.nodes != before:
            self._changed.notify()

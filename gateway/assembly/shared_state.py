"""Chooses where the state is kept that several gateways may share: in memory, or in the Redis of `stores.redis`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from gateway.bounds import Shares
from gateway.config import Config
from gateway.crypto import SigningKeys
from gateway.exchange.limit import MemoryRates
from gateway.ports.limits import Attempts, Rates
from gateway.ports.views import ViewDirectory
from gateway.telemetry import Metrics, level
from gateway.views.memory import MemoryDirectory

if TYPE_CHECKING:
    from gateway.stores.redis.connection import Redis


class SharedState:
    """The implementations of the ports: those of one process, or with a Redis those of several.

    `keys` sign the views in Redis. `owner` returns the incarnation of this node; without it, no other process can call
    the views of this one, so that they are not shown there. `nodes` returns how many processes live; without it, those
    that use this Redis are counted.
    """

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        keys: SigningKeys,
        owner: Callable[[], str] | None,
        nodes: Callable[[], int] | None = None,
    ) -> None:
        self._nodes = nodes
        self.rates: Rates = MemoryRates()
        self.directory: ViewDirectory = MemoryDirectory()
        self.attempts: Attempts | None = None
        self.rewrite_views: Callable[[], None] = lambda: None
        """Shows the views of this process anew, after its incarnation has changed."""
        self._redis: Redis | None = None
        self._jobs: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._ends: list[Callable[[], Coroutine[Any, Any, None]]] = []
        if config.redis is not None:
            self._use_redis(config.redis.reveal(), metrics, keys, owner)

    def _use_redis(self, url: str, metrics: Metrics, keys: SigningKeys, owner: Callable[[], str] | None) -> None:
        # Only gateways with a Redis load its client.
        from gateway.stores.redis.connection import Redis  # noqa: PLC0415
        from gateway.stores.redis.directory import RedisDirectory  # noqa: PLC0415
        from gateway.stores.redis.members import Members  # noqa: PLC0415
        from gateway.stores.redis.rates import RedisAttempts, RedisBuckets, RedisRates  # noqa: PLC0415

        redis = self._redis = Redis(url, metrics)
        members = self._members = Members(redis, secrets.token_urlsafe(9))
        metrics.look(lambda: level(metrics.stores, {("redis",): float(redis.usable)}))
        buckets = RedisBuckets(redis)
        self.rates = RedisRates(buckets, self.rates, self._nodes or (lambda: members.count), metrics.local_rates.add)
        self.attempts = RedisAttempts(buckets)
        self._jobs, self._ends = [members.run], [members.leave]
        if owner is not None:
            directory = self.directory = RedisDirectory(redis, members, self.directory, keys, owner)
            self.rewrite_views = directory.rewrite
            self._jobs.append(directory.run)
            self._ends.insert(0, directory.close)

    def share(self, amounts: Mapping[str, Shares]) -> None:
        """Count the amounts that a person holds in other processes, too; the names are those in Redis."""
        if self._redis is not None:
            from gateway.stores.redis.rates import RedisShares  # noqa: PLC0415  as above

            self._jobs.append(RedisShares(self._redis, self._members, amounts).run)

    def problem(self) -> str | None:
        """Return why Redis cannot be used; None if it can, or if there is none."""
        return self._redis.problem if self._redis is not None else None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep Redis connected. Raises `StartError` if it must not be used."""
        if self._redis is None:
            yield
            return
        async with self._redis, asyncio.TaskGroup() as tasks:
            jobs = [tasks.create_task(job()) for job in self._jobs]
            try:
                yield
            finally:
                for job in jobs:
                    job.cancel()
                for end in self._ends:
                    await end()

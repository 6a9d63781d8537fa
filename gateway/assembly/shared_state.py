"""Chooses where the state is kept that several gateways may share: in memory, or in the Redis of `stores.redis`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config import Config
from gateway.exchange.limit import MemoryRates
from gateway.ports.limits import Rates
from gateway.telemetry import Metrics, level

if TYPE_CHECKING:
    from gateway.stores.redis.connection import Redis
    from gateway.stores.redis.members import Members


@dataclass(frozen=True, slots=True)
class SharedState:
    """The implementations of the ports. `problem` returns why what is shared cannot be reached; None if it can."""

    rates: Rates
    redis: Redis | None = None
    members: Members | None = None

    def problem(self) -> str | None:
        """Return why Redis cannot be used; None if it can, or if there is none."""
        return self.redis.problem if self.redis is not None else None

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Keep Redis connected. Raises `StartError` if it must not be used."""
        if self.redis is None or self.members is None:
            yield
            return
        async with self.redis, asyncio.TaskGroup() as tasks:
            job = tasks.create_task(self.members.run())
            try:
                yield
            finally:
                job.cancel()
                await self.members.leave()


def shared_state(config: Config, metrics: Metrics) -> SharedState:
    """Return the implementations that a configuration asks for."""
    local = MemoryRates()
    if config.redis is None:
        return SharedState(local)
    # Only gateways with a Redis load its client.
    from gateway.stores.redis.connection import Redis  # noqa: PLC0415
    from gateway.stores.redis.members import Members  # noqa: PLC0415
    from gateway.stores.redis.rates import RedisBuckets, RedisRates  # noqa: PLC0415

    redis = Redis(config.redis.reveal(), metrics)
    members = Members(redis, secrets.token_urlsafe(9))
    metrics.look(lambda: level(metrics.stores, {("redis",): float(redis.usable)}))
    rates = RedisRates(RedisBuckets(redis), local, lambda: members.count, metrics.local_rates.add)
    return SharedState(rates, redis, members)

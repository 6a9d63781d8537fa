"""The amounts that one person holds in several gateways, which tell each other every second.

A round trip for each part of a body would cost more than the memory that is shared. So each gateway decides by its own
count and by what the others held lately; small holdings are not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.bounds import SMALL, Shares
from gateway.errors import RedisUnavailable
from gateway.stores.redis.connection import PREFIX, Redis, Script
from gateway.stores.redis.members import Members
from gateway.stores.redis.rates import short

EVERY: Final = 1.0
"""Seconds between two exchanges."""

LIFE: Final = 30.0
"""Seconds for which an amount counts that its process does not repeat."""

_HOLD: Final = Script(
    """
local time = redis.call('TIME')
local now, life = time[1] * 1000 + math.floor(time[2] / 1000), tonumber(ARGV[3])
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'none' and found ~= 'hash' then redis.call('DEL', KEYS[1]) end
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ':' .. string.format('%.0f', now + life))
  redis.call('PEXPIRE', KEYS[1], life)
end
local sum, all = 0, redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
  local amount, ends = string.match(all[at + 1], '^(%d+):(%d+)$')
  if amount == nil or tonumber(ends) < now or tonumber(ends) > now + 2 * life then
    redis.call('HDEL', KEYS[1], all[at])
  elseif all[at] ~= ARGV[1] then
    sum = math.min(sum + tonumber(amount), 9007199254740991)
  end
end
return string.format('%.0f', sum)
"""
)
"""Stores the amount of one process; returns the sum of the others. ARGV: process, amount, life in milliseconds."""


class RedisShares:
    """Keeps `Shares.elsewhere` of some shares, by their names, up to date; it is empty while Redis cannot be used."""

    def __init__(
        self,
        redis: Redis,
        members: Members,
        shares: Mapping[str, Shares],
    ) -> None:
        self._redis = redis
        self._members = members
        self._shares = shares
        self._told: dict[str, set[str]] = {name: set() for name in shares}

    async def run(self) -> None:
        """Exchange the amounts until cancelled."""
        while True:
            await self.exchange()
            await asyncio.sleep(EVERY)

    async def exchange(self) -> None:
        """Tell the others what is held here, and learn what is held there."""
        await asyncio.gather(*[self._exchange(name, shares) for name, shares in self._shares.items()])

    async def _exchange(self, name: str, shares: Shares) -> None:
        held = shares.holders(max(1, shares.each // SMALL))
        due = [(owner, held.get(owner, 0)) for owner in held.keys() | self._told[name]]
        try:
            sums = await asyncio.gather(
                *[self._redis.updates.run(_HOLD, *self._words(name, owner, amount)) for owner, amount in due]
            )
        except RedisUnavailable:
            shares.elsewhere = {}
            return
        self._told[name] = set(held)
        others = {owner: int(total) for (owner, _), total in zip(due, sums, strict=True)}
        shares.elsewhere = {owner: amount for owner, amount in others.items() if amount and owner in held}

    def _words(self, name: str, owner: str, amount: int) -> tuple[list[str], tuple[str | int, ...]]:
        words = (self._members.node, amount, round(LIFE * 1000))
        return [f"{PREFIX}held:{short(name, owner)}"], words

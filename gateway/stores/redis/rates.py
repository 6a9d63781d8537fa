"""Limits that several gateways share: rates, as token buckets (GCRA) by the clock of Redis, and what one person holds.

An exact count of what a person holds would cost a round trip for each part of a body, more than the memory that is
shared. So each gateway decides by its own count and by the others' of the last second; small amounts are not told.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from gateway.bounds import SMALL, Area, Bound, Shares
from gateway.crypto import base64url, frame_parts
from gateway.errors import RedisUnavailable
from gateway.model import Caller
from gateway.policy import Limit, Per, Rate
from gateway.ports.limits import Rates, TakenRates
from gateway.stores.redis.connection import PREFIX, Redis, Reply, Script
from gateway.stores.redis.members import Members

EACH: Final = 4096
"""Views of one principal with a bucket in Redis, for each limit."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "token buckets of rates per view in Redis",
        f"{EACH:,} for each limit and principal",
        "further views of that principal share one bucket of each rate",
    ),
)

(_BUCKETS,) = BOUNDS

OTHERS: Final = "*"
"""The field of the bucket that the views beyond the bound share."""

_GET: Final = """
local function own(reply)  -- the reply; nil for data that is not a bucket's, which is deleted
  if type(reply) == 'table' then return nil end
  if reply == false then return 0 end
  local tat = tonumber(reply)
  if tat ~= tat then return nil end
  return tat
end
local function get(key, field)
  local tat
  if field == '' then tat = own(redis.pcall('GET', key)) else tat = own(redis.pcall('HGET', key, field)) end
  if tat == nil then redis.call('DEL', key) end
  return tat
end
local function put(key, field, tat, now)
  if tat <= now then
    if field == '' then redis.call('DEL', key) else redis.call('HDEL', key, field) end
    return
  end
  local life = math.ceil((tat - now) / 1000) + 1
  local text = string.format('%.0f', tat)
  if field == '' then redis.call('SET', key, text, 'PX', life) return end
  redis.call('HSET', key, field, text)
  if redis.call('PTTL', key) < life then redis.call('PEXPIRE', key, life) end
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
"""Reads and writes the arrival time of a bucket: a string at `key`, or the field of a hash.

All times are whole microseconds, which a double holds exactly until the year 2255. A key expires when its bucket is
full again, and equals one that does not exist.
"""

TAKE: Final = Script(
    _GET
    + """
local most = tonumber(ARGV[1])
local keys, fields, tats, foreign = {}, {}, {}, 0
for place, key in ipairs(KEYS) do
  local interval, period, field = tonumber(ARGV[3 * place - 1]), tonumber(ARGV[3 * place]), ARGV[3 * place + 1]
  local slot, tat = key .. '\\n' .. field, nil
  if field ~= '' and tats[slot] == nil then
    tat = get(key, field)
    if tat == 0 then  -- a new bucket
      local some = redis.call('HRANDFIELD', key, 2, 'WITHVALUES')
      for at = 1, #some, 2 do
        if (tonumber(some[at + 1]) or 0) <= now then redis.call('HDEL', key, some[at]) end
      end
      local shared = get(key, '*')
      if shared == nil then
        tat = nil
      elseif shared > now or redis.call('HLEN', key) >= most then
        field, tat = '*', shared
      end
      slot = key .. '\\n' .. field
    end
  elseif tats[slot] == nil then
    tat = get(key, field)
  end
  local known = tats[slot]
  if known ~= nil then
    tat = known[3]
  elseif tat == nil or tat > now + period + interval then
    -- foreign data, or of a clock that has gone back: the bucket counts as empty
    if tat == nil then foreign = 1 end
    tat = now + period
    put(key, field, tat, now)
  end
  local arrival = math.max(tat, now) + interval
  local early = arrival - period - now
  if early > interval / 100 then return {place, string.format('%.0f', early), foreign} end
  tats[slot] = {key, field, arrival}
  fields[place] = field
end
for _, bucket in pairs(tats) do put(bucket[1], bucket[2], bucket[3], now) end
return {0, '0', foreign, unpack(fields)}
"""
)
"""Takes one cell of each bucket, or of none.

ARGV: the most fields of a hash, then for each key the interval and the period in microseconds, and the field of a hash
or "". Returns the place of the exceeded limit or 0, the microseconds until its next cell, whether foreign data were
found, and the fields that were taken from.
"""

GIVE_BACK: Final = Script(
    _GET
    + """
for place, key in ipairs(KEYS) do
  local interval, field = tonumber(ARGV[2 * place - 1]), ARGV[2 * place]
  local tat = get(key, field)
  if tat ~= nil and tat > now then put(key, field, tat - interval, now) end
end
"""
)
"""Returns one cell to each bucket that is not full. ARGV: for each key the interval and the field."""


class Bucket(NamedTuple):
    """A bucket in Redis: the key of a string, or of a hash with a field for each view; its times in microseconds."""

    key: str
    field: str
    interval: str
    period: str


class Taken(NamedTuple):
    """The result of taking one cell of each bucket: the place of the exceeded one from 0, or None; seconds to wait."""

    exceeded: int | None
    retry_after: float
    buckets: tuple[Bucket, ...]


def bucket_of(rate: Rate, key: str, field: str = "") -> Bucket:
    """Return the bucket of a rate."""
    return Bucket(key, field, *_micros(rate))


@lru_cache(maxsize=4096)
def _micros(rate: Rate) -> tuple[str, str]:
    """Return interval and period in microseconds; the interval is rounded up, so that no more is admitted."""
    return str(math.ceil(rate.period * 1_000_000 / rate.count)), str(round(rate.period * 1_000_000))


@lru_cache(maxsize=16_384)
def short(*parts: str) -> str:
    """Return the digest of a name, as keys in Redis have it: 128 bits in 22 characters."""
    return base64url(hashlib.blake2b(frame_parts(*parts), digest_size=16).digest())


class RedisBuckets:
    """Takes from buckets in Redis; each method raises `RedisUnavailable`, or its future does."""

    def __init__(self, redis: Redis, each: int = EACH) -> None:
        self._redis = redis
        self._each = each

    @property
    def usable(self) -> bool:
        """Whether Redis can be used now, as far as is known."""
        return self._redis.usable

    async def take(self, buckets: Sequence[Bucket]) -> Taken:
        """Take one cell of each bucket, or of none, in one round trip."""
        words = [word for one in buckets for word in (one.interval, one.period, one.field)]
        reply = await self._redis.calls.run(TAKE, [one.key for one in buckets], (self._each, *words))
        place, wait, foreign, *fields = reply
        if foreign:
            self._redis.note_foreign("a rate")
        if place:
            return Taken(place - 1, int(wait) / 1_000_000, ())
        drawn = [one._replace(field=field.decode()) for one, field in zip(buckets, fields, strict=True)]
        return Taken(None, 0.0, tuple(drawn))

    def give_back(self, buckets: Sequence[Bucket]) -> None:
        """Return the cells; while Redis cannot be used, they are lost."""
        words = [word for one in buckets for word in (one.interval, one.field)]
        self._redis.calls.run(GIVE_BACK, [one.key for one in buckets], words).add_done_callback(_ignore)


class RedisRates:
    """The port `Rates` of several processes.

    While Redis cannot be used, `local` counts the rate divided by the number of `nodes`, without a burst. It also
    learns of the calls that Redis admits, so that losing Redis gives nobody a second cell at once.
    """

    def __init__(
        self, buckets: RedisBuckets, local: Rates, nodes: Callable[[], int], count_local: Callable[[], None]
    ) -> None:
        self._buckets = buckets
        self._local = local
        self._nodes = nodes
        self._count_local = count_local

    def take(self, limits: Sequence[Limit], caller: Caller) -> TakenRates | Awaitable[TakenRates]:
        """Take one cell of each limit, or of none."""
        return self._take(limits, caller) if self._buckets.usable else self._take_locally(limits, caller)

    def give_back(self, limits: Sequence[Limit], rates_taken: TakenRates) -> None:
        """Return the cells that were taken."""
        shared = [one for one in rates_taken.buckets if isinstance(one, Bucket)]
        if shared:
            self._buckets.give_back(shared)
        else:
            self._local.give_back(self._share(limits), rates_taken)

    async def _take(self, limits: Sequence[Limit], caller: Caller) -> TakenRates:
        try:
            outcome = await self._buckets.take([_bucket(limit, caller) for limit in limits])
        except RedisUnavailable:
            answer = self._take_locally(limits, caller)
            return answer if isinstance(answer, TakenRates) else await answer
        if outcome.exceeded is not None:
            return TakenRates((), limits[outcome.exceeded], outcome.retry_after)
        self._local.take(self._share(limits), caller)
        if any(one.field == OTHERS for one in outcome.buckets):
            _BUCKETS.report(caller.principal.id)
        return TakenRates(outcome.buckets)

    def _take_locally(self, limits: Sequence[Limit], caller: Caller) -> TakenRates | Awaitable[TakenRates]:
        self._count_local()
        shares = self._share(limits)
        outcome = self._local.take(shares, caller)
        if isinstance(outcome, TakenRates) and outcome.exceeded is not None:
            return TakenRates((), limits[shares.index(outcome.exceeded)], outcome.retry_after)
        return outcome

    def _share(self, limits: Sequence[Limit]) -> list[Limit]:
        return [local_share(limit, max(1, self._nodes())) for limit in limits]


@lru_cache(maxsize=4096)
def local_share(limit: Limit, nodes: int) -> Limit:
    """Return the limit of one of several processes that cannot count together: no burst, and together at most the rate.

    The number of cells in its name keeps the buckets of different numbers of processes apart.
    """
    rate = limit.rate
    return Limit(Rate(1, rate.period / rate.count * nodes), limit.per, limit.scope)


class RedisAttempts:
    """The port `Attempts`."""

    def __init__(self, buckets: RedisBuckets) -> None:
        self._buckets = buckets

    async def take(self, name: str, rate: Rate) -> bool:
        """Count one attempt; return False beyond the rate."""
        if not self._buckets.usable:
            return True
        try:
            return (await self._buckets.take([_attempt(name, rate)])).exceeded is None
        except RedisUnavailable:
            return True

    def give_back(self, name: str, rate: Rate) -> None:
        """Undo the count of an attempt."""
        self._buckets.give_back([_attempt(name, rate)])


def _attempt(name: str, rate: Rate) -> Bucket:
    return bucket_of(rate, f"{PREFIX}attempts:{short(name)}")


def _bucket(limit: Limit, caller: Caller) -> Bucket:
    key = limit.key(caller)
    if key[2] is Per.VIEW:
        return bucket_of(limit.rate, f"{PREFIX}views-rate:{short(*key[:2], caller.principal.id)}", short(*key))
    return bucket_of(limit.rate, f"{PREFIX}rate:{short(*key)}")


def _ignore(reply: asyncio.Future[Reply]) -> None:
    if not reply.cancelled():
        reply.exception()  # the circuit has been opened


SHARED_EVERY: Final = 1.0
"""Seconds between two exchanges."""

SHARED_LIFE: Final = 30.0
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
            await asyncio.sleep(SHARED_EVERY)

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
        words = (self._members.node, amount, round(SHARED_LIFE * 1000))
        return [f"{PREFIX}held:{short(name, owner)}"], words

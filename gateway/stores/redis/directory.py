"""The directory of live views that several gateways share: each keeps a copy of what concerns its own callers.

A process writes its views into Redis, and follows the principals that call it: it reads the views that they have at
other processes when they first call, when a message announces a change, after a reconnection, and every 30 seconds.
Views are signed, so that nobody who can only write into Redis can show a model tools of his own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
from redis.exceptions import RedisError

from gateway.bounds import Area, Bound
from gateway.crypto import SigningKeys
from gateway.errors import RedisUnavailable
from gateway.model import Principal, ViewTool
from gateway.ports.views import MOVES_WITHIN, LiveView, ViewDirectory
from gateway.stores.redis.connection import BATCH, PREFIX, TIMEOUT, Redis, Reply, Script
from gateway.stores.redis.members import Members
from gateway.stores.redis.rates import short
from gateway.watchers import Watchers

EVERY: Final = 30.0
"""Seconds between two readings of the views of a principal; also those for which a copy counts without Redis."""

INTEREST: Final = 3 * EVERY
"""Seconds for which other processes announce changes to this one after a reading."""

VIEWS_LIFE: Final = 3600.0
"""Seconds after which Redis forgets views that their process does not write again, as after it was killed."""

REWRITTEN: Final = VIEWS_LIFE / 3
"""Seconds after which a process writes unchanged views again."""

UNUSED: Final = 3600.0
"""Seconds without a call after which the views of a principal are not followed any more."""

FOLLOWED: Final = 100_000
"""Principals that are followed at once."""

PING: Final = 10.0
"""Seconds between two signs of life on the connection for messages; after twice as long it counts as broken."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "principals whose views at other processes are followed",
        f"{FOLLOWED:,}; {UNUSED / 60:g} minutes after their last call",
        "the one that called least recently is not followed any more, until its next call",
        uncounted="a cache: the views are read again",
    ),
)

_CHANNEL: Final = f"{PREFIX}node:"
"""The channel of a process, with its name at the end."""

log = logging.getLogger(__name__)

_OWN: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function only(key, kind)  -- deletes data that are not of this gateway
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then redis.call('DEL', key) end
end
only(KEYS[1], 'hash')
only(KEYS[2], 'zset')
"""

_WRITE: Final = Script(
    _OWN
    + """
local node, name, life = ARGV[1], ARGV[2], tonumber(ARGV[4])
local before = tonumber(redis.call('HGET', KEYS[1], '#') or 0) or 0
if before ~= before or before > now + 86400000 then before = 0 end
local version = string.format('%.0f', math.max(before + 1, now))
if ARGV[5] == '1' then
  local all = redis.call('HGETALL', KEYS[1])
  for at = 1, #all, 2 do
    if string.match(all[at + 1], '^%d+:([^:]*):') == node then redis.call('HDEL', KEYS[1], all[at]) end
  end
end
for at = 6, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    local found = redis.call('HGET', KEYS[1], ARGV[at])
    if found and string.match(found, '^%d+:([^:]*):') == node then redis.call('HDEL', KEYS[1], ARGV[at]) end
  else
    redis.call('HSET', KEYS[1], ARGV[at], version .. ':' .. ARGV[at + 1])
  end
end
redis.call('HSET', KEYS[1], '#', version)
redis.call('PEXPIRE', KEYS[1], life)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
for _, other in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if other ~= node then redis.call('PUBLISH', ARGV[3] .. other, name .. ' ' .. version) end
end
"""
)
"""Writes changed views of one principal, and announces the new version to the processes that follow the principal.

KEYS: its views, a hash by id with the version in `#`; the processes that follow it. ARGV: this process, the name of the
principal, the prefix of channels, the life in milliseconds, 1 if all other views of this process are to be deleted,
then for each view its id and its content, or "" for one that is gone: it may be at another process by now.
"""

_READ: Final = Script(
    _OWN
    + """
local life, known = tonumber(ARGV[2]), tonumber(ARGV[3]) or 0
redis.call('ZADD', KEYS[2], now + life, ARGV[1])
redis.call('PEXPIRE', KEYS[2], life)
local version = redis.call('HGET', KEYS[1], '#')
if not version or version == ARGV[3] then return {version or ''} end
if known > (tonumber(version) or 0) then known = 0 end
local all, found = redis.call('HGETALL', KEYS[1]), {version}
for at = 1, #all, 2 do
  if all[at] ~= '#' then
    local content = all[at + 1]
    if (tonumber(string.match(content, '^(%d+):')) or now) <= known then content = '' end
    table.insert(found, all[at])
    table.insert(found, content)
  end
end
return found
"""
)
"""Follows a principal, and returns the version of its views; if it is not the known one, then their ids and contents.

A content that is not newer than the known version is "".
"""


class _WrittenView(msgspec.Struct, frozen=True):
    """A view as it is in Redis; `owner` is the incarnation that has it."""

    owner: str
    app: str
    title: str
    opened: float
    tools: tuple[ViewTool, ...]


_decode = msgspec.json.Decoder(_WrittenView).decode


@dataclass(slots=True)
class _FollowedPrincipal:
    """The copy of a principal's views at other processes, each with the process that wrote it."""

    principal: Principal
    name: str
    used: float
    version: str = ""
    views: Mapping[str, tuple[str, LiveView]] = field(default_factory=dict)
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    vanished: dict[str, tuple[float, LiveView]] = field(default_factory=dict)
    """The views that are gone, or have no tools any more, as they were before, and since when."""


@dataclass(slots=True)
class _OwnViews:
    """The part of a principal's own views that is in Redis; `whole` means that nothing is known of it."""

    principal: Principal
    views: dict[str, LiveView] = field(default_factory=dict)
    written: float = 0.0
    whole: bool = True


class RedisDirectory:
    """The port `ViewDirectory` of several processes. `local` has the views of this one.

    `owner` returns the incarnation that other processes reach them by; after it has changed, `rewrite` is due. While
    Redis cannot be used, the copy counts for half a minute; then there are the views of this process alone.
    """

    def __init__(
        self,
        redis: Redis,
        members: Members,
        local: ViewDirectory,
        keys: SigningKeys,
        owner: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._members = members
        self._local = local
        self._keys = keys
        self._owner = owner
        self._clock = clock
        self._watchers = Watchers[[Principal]]()
        self._followed: dict[str, _FollowedPrincipal] = {}
        self._names: dict[str, _FollowedPrincipal] = {}
        self._own: dict[str, _OwnViews] = {}
        self._unwritten: dict[str, None] = {}
        self._unread: dict[str, None] = {}
        self._work = asyncio.Event()
        self._in_exchange = False
        self._connected = asyncio.Event()
        self._nodes = members.nodes
        local.watch(self._local_changed)
        redis.watch(self._reconnected)
        members.watch(self._reconnected, self._members_changed)

    # ── the port ────────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, principal: Principal, view: LiveView) -> None:
        """Add a view of this process, or replace it at its place."""
        self._local.put(principal, view)

    def remove(self, principal: Principal, id: str) -> None:
        """Remove a view of this process."""
        self._local.remove(principal, id)

    def of(self, principal: Principal, app: str | None = None) -> tuple[LiveView, ...]:
        """Return the live views of `principal`, oldest first."""
        mine = self._local.of(principal, app)
        followed = self._follow(principal)
        if not followed.views:
            return mine
        others = [view for view in self._alive(followed) if app is None or view.app == app]
        return tuple(sorted((*mine, *others), key=lambda view: view.opened_at)) if others else mine

    def all(self) -> Iterable[tuple[Principal, LiveView]]:
        """Return the live views of all principals that this process knows, oldest first."""
        mine = self._local.all()
        others = [(one.principal, view) for one in self._followed.values() for view in self._alive(one)]
        return tuple(sorted((*mine, *others), key=lambda pair: pair[1].opened_at)) if others else mine

    def vanished(self, principal: Principal) -> list[LiveView]:
        """Return views that other processes had until a moment ago, and their tools, as they were last."""
        followed, since = self._follow(principal), self._clock() - MOVES_WITHIN
        ended = [view for node, view in followed.views.values() if node not in self._members.nodes]
        return [*(view for at, view in followed.vanished.values() if at > since), *ended]

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]:
        """Call `callback` after each change of a principal's views or tools."""
        return self._watchers.add(callback)

    def learn(self, principal: Principal) -> Awaitable[None] | None:
        """Return None if the copy of this principal's views is there, else what to await until it is, or cannot be."""
        followed = self._follow(principal)
        if followed.loaded.is_set() or not self._redis.usable:
            return None
        return _wait(followed.loaded)

    # ── the state of other processes ────────────────────────────────────────────────────────────────────────────

    def _follow(self, principal: Principal) -> _FollowedPrincipal:
        followed = self._followed.get(principal.id)
        if followed is None:
            followed = _FollowedPrincipal(principal, short("views", principal.id), self._clock())
            self._followed[principal.id] = self._names[followed.name] = followed
            if len(self._followed) > FOLLOWED:
                self._leave(next(iter(self._followed.values())))
            self._read(followed)
        now = self._clock()
        if now - followed.used > EVERY:  # the order is that of the latest calls
            self._followed[principal.id] = self._followed.pop(principal.id)
        followed.used = now
        return followed

    def _leave(self, followed: _FollowedPrincipal) -> None:
        del self._followed[followed.principal.id]
        del self._names[followed.name]

    def _alive(self, followed: _FollowedPrincipal) -> list[LiveView]:
        """Return the views at processes that live, but for those that have come here meanwhile."""
        nodes = self._members.nodes
        mine = {view.id for view in self._local.of(followed.principal)}
        return [view for node, view in followed.views.values() if node in nodes and view.id not in mine]

    def _read(self, followed: _FollowedPrincipal) -> None:
        self._unread[followed.principal.id] = None
        self._work.set()

    def _take(self, followed: _FollowedPrincipal, reply: Reply) -> None:
        """Replace the copy by what Redis returned, and notify the watchers if it is another."""
        version, *rest = (part.decode("utf-8", "replace") for part in reply)
        if version and version == followed.version:
            return
        before, views = followed.views, dict[str, tuple[str, LiveView]]()
        for id, content in zip(rest[::2], rest[1::2], strict=True):
            view = before.get(id) if not content else self._verify(followed.principal, id, content)
            if view is not None and view[0] != self._members.node:
                views[id] = view
        now = self._clock()
        followed.vanished = {id: one for id, one in followed.vanished.items() if one[0] > now - MOVES_WITHIN}
        for id, (_, former) in before.items():
            if former.tools and (id not in views or not views[id][1].tools):
                followed.vanished[id] = now, former
        followed.version, followed.views = version, views
        if views != before:
            self._watchers.notify(followed.principal)

    def _verify(self, principal: Principal, id: str, content: str) -> tuple[str, LiveView] | None:
        """Return a view and its process; None if no process of this gateway has written it."""
        _, _, rest = content.partition(":")
        node, _, rest = rest.partition(":")
        if node == self._members.node:
            return None
        signature, _, text = rest.partition(":")
        try:
            if not self._keys.verify(signature, "view", principal.id, id, node, text):
                raise ValueError("it has no valid signature")
            read = _decode(text)
        except ValueError:  # also msgspec's errors
            self._redis.note_foreign("a view")
            return None
        return node, LiveView(id, read.app, read.title, read.opened, read.tools, owner=read.owner)

    def _forget_others(self) -> None:
        """Drop the copies, which are too old."""
        for followed in self._followed.values():
            had_views = bool(followed.views)
            followed.version, followed.views = "", {}
            if had_views:
                self._watchers.notify(followed.principal)

    def _members_changed(self) -> None:
        before, self._nodes = self._nodes, self._members.nodes
        changed = before ^ self._nodes
        for followed in list(self._followed.values()):
            if any(node in changed for node, _ in followed.views.values()):
                self._watchers.notify(followed.principal)

    # ── the state of this process ───────────────────────────────────────────────────────────────────────────────

    def rewrite(self) -> None:
        """Write all views of this process again, as after the incarnation has changed."""
        for own in self._own.values():
            own.whole = True
            self._unwritten[own.principal.id] = None
        self._work.set()

    def _local_changed(self, principal: Principal) -> None:
        if principal.id not in self._own:
            self._own[principal.id] = _OwnViews(principal, whole=False)
        self._unwritten[principal.id] = None
        self._work.set()
        self._watchers.notify(principal)

    def _reconnected(self) -> None:
        """Write and read everything again: what Redis has is not known any more."""
        self.rewrite()
        for followed in self._followed.values():
            followed.version = ""
            self._read(followed)
        self._connected.set()

    async def _write(self, own: _OwnViews) -> None:
        """Write what has changed of a principal's views. Raises `RedisUnavailable`."""
        now = {view.id: view for view in self._local.of(own.principal)}
        before = {} if own.whole else own.views
        whole, own.whole = own.whole, False
        changed = [view for id, view in now.items() if before.get(id) != view]
        words = [word for view in changed for word in (view.id, self._content(own.principal, view))]
        words += [word for id in before.keys() - now.keys() for word in (id, "")]
        if words or whole:
            name = short("views", own.principal.id)
            head = (self._members.node, name, _CHANNEL, round(VIEWS_LIFE * 1000), int(whole))
            await self._redis.updates.run(_WRITE, _keys(name), (*head, *words))
        own.views, own.written = now, self._clock()
        if not now and own.principal.id not in self._unwritten:
            self._own.pop(own.principal.id, None)

    def _content(self, principal: Principal, view: LiveView) -> str:
        written = _WrittenView(self._owner(), view.app, view.title, view.opened_at, view.tools)
        text = msgspec.json.encode(written).decode()
        node = self._members.node
        return f"{node}:{self._keys.sign('view', principal.id, view.id, node, text)}:{text}"

    # ── the work ────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Write, read and listen until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for job in (self._exchange(), self._listen(), self._refresh()):
                tasks.create_task(job)

    @property
    def busy(self) -> bool:
        """Whether something is still to be written or read."""
        return bool(self._unwritten or self._unread) or self._in_exchange

    async def close(self) -> None:
        """Remove the views of this process from Redis, at its end."""
        for own in self._own.values():
            name = short("views", own.principal.id)
            words = (self._members.node, name, _CHANNEL, round(VIEWS_LIFE * 1000), 1)
            with suppress(RedisUnavailable):
                await self._redis.updates.run(_WRITE, _keys(name), words)

    async def _exchange(self) -> None:
        """Write and read what is due, some principals at a time."""
        while True:
            await self._work.wait()
            self._work.clear()
            while (self._unwritten or self._unread) and self._redis.usable:
                self._in_exchange = True
                works = await asyncio.gather(
                    *[self._write_one(id) for id in list(self._unwritten)[:BATCH]],
                    *[self._read_one(id) for id in list(self._unread)[:BATCH]],
                )
                self._in_exchange = False
                if not all(works) and self._redis.usable:  # Redis answers with errors
                    await asyncio.sleep(1)

    async def _write_one(self, id: str) -> bool:
        """Write what is due for a principal; return False if it stays due."""
        del self._unwritten[id]
        own = self._own.get(id)
        if own is None:
            return True
        try:
            await self._write(own)
        except RedisUnavailable:
            own.whole = True
            self._unwritten[id] = None
            return False
        return True

    async def _read_one(self, id: str) -> bool:
        """Read the views of a principal; return False if that stays due."""
        del self._unread[id]
        followed = self._followed.get(id)
        if followed is None:
            return True
        words = (self._members.node, round(INTEREST * 1000), followed.version)
        try:
            reply = await self._redis.updates.run(_READ, _keys(followed.name), words)
        except RedisUnavailable:
            self._unread[id] = None
            return False
        self._take(followed, reply)
        await self._members.learn({node for node, _ in followed.views.values()})
        followed.loaded.set()
        return True

    async def _listen(self) -> None:
        """Receive the messages of other processes; read everything again whenever that begins anew."""
        while True:
            if not self._redis.usable:
                self._connected.clear()
                await self._connected.wait()
            try:
                async with self._redis.open() as connection, asyncio.TaskGroup() as tasks:
                    await connection.send_command("SUBSCRIBE", f"{_CHANNEL}{self._members.node}")
                    pinging = tasks.create_task(self._ping(connection.send_command))
                    try:
                        await self._receive(connection.read_response)
                    finally:
                        pinging.cancel()
            except* (OSError, RedisError, TimeoutError) as errors:
                log.debug("the connection for messages of Redis ended: %s", errors.exceptions[0])
            await asyncio.sleep(1)

    async def _ping(self, send: Callable[[str], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(PING)
            await send("PING")

    async def _receive(self, read: Callable[[], Awaitable[Reply]]) -> None:
        while True:
            async with asyncio.timeout(2 * PING):
                message = await read()
            match message:
                case [b"subscribe", *_]:
                    for followed in self._followed.values():
                        self._read(followed)
                case [b"message", _, bytes() as said]:
                    name, _, version = said.decode("utf-8", "replace").partition(" ")
                    noted = self._names.get(name)
                    if noted is not None and noted.version != version:
                        self._read(noted)
                case _:
                    pass

    async def _refresh(self) -> None:
        """Read the copies again, write own views before they expire, and drop what is too old or unused."""
        away = 0
        while True:
            await asyncio.sleep(EVERY)
            away = 0 if self._redis.usable else away + 1
            if away > 1:
                self._forget_others()
            self.refresh()

    def refresh(self) -> None:
        """Read all copies again, and write views of this process before Redis forgets them."""
        now = self._clock()
        for followed in list(self._followed.values()):
            if now - followed.used > UNUSED:
                self._leave(followed)
            else:
                self._read(followed)
        for own in self._own.values():
            if now - own.written > REWRITTEN:
                own.whole = True
                self._unwritten[own.principal.id] = None
        self._work.set()


def _keys(name: str) -> tuple[str, str]:
    return f"{PREFIX}views:{name}", f"{PREFIX}interest:{name}"


async def _wait(event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(2 * TIMEOUT):
            await event.wait()

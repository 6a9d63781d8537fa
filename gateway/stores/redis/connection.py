"""The connections to one Redis or Valkey: checked, batched, with short timeouts, a circuit breaker and reconnection."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, NoScriptError, RedisError, ResponseError

from gateway.errors import RedisUnavailable, StartError
from gateway.telemetry import Metrics
from gateway.throttle import ThrottledLog
from gateway.watchers import Watchers

PREFIX: Final = "webmcp:"
"""The first characters of every key and channel."""

TIMEOUT: Final = 0.25
"""Seconds for one round trip, and for connecting: beyond that Redis counts as unreachable."""

BACKOFF: Final = (0.1, 5.0)
"""Seconds before the first reconnection, and the longest such time."""

STABLE: Final = 30.0
"""Seconds without a failure after which the backoff starts anew."""

CHECKED: Final = 5.0
"""Seconds between two checks of a connection that works."""

BATCH: Final = 256
"""Commands that are sent at once."""

BATCH_BYTES: Final = 128 * 1024
"""Bytes after which a batch is full."""

OLDEST: Final = 7
"""The oldest major version of Redis that is supported."""

_REMEDIES: Final = {
    "READONLY": "it is read-only, as a replica is",
    "OOM": "its memory is full (maxmemory)",
    "MISCONF": "it refuses writes, since it cannot save them to its disk",
    "NOREPLICAS": "it refuses writes, since too few replicas are connected",
    "LOADING": "it is loading its data",
    "MASTERDOWN": "it is a replica that lost its primary",
    "BUSY": "a script of another client keeps it busy",
}
"""The meaning of the first word of an error reply, for errors that concern all commands."""

log = logging.getLogger(__name__)

_LINES: Final = ThrottledLog(log)

Reply: TypeAlias = Any
"""A reply as redis-py returns it: bytes, an integer, a list of these, or None."""


class UnfitRedis(Exception):
    """This Redis must not be used, whatever its state: its version, role or configuration is wrong."""


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script, which Redis runs as one atomic step."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


PROBE: Final = Script("return redis.call('SET', KEYS[1], '1', 'PX', 1000)")
"""A write, which a replica, a paused and a full Redis refuse or delay."""

Word: TypeAlias = bytes | str | int
Command: TypeAlias = tuple[Word, ...]


@dataclass(slots=True)
class _Waiting:
    """A command whose reply is awaited; `script` is the one that it runs."""

    command: Command
    script: Script | None
    reply: asyncio.Future[Reply]


class Lane:
    """One connection, on which commands are sent in their order: all that have gathered in one batch.

    Each kind of traffic has a separate lane, so that large values of the directory delay no call.
    """

    def __init__(self, owner: Redis) -> None:
        self._owner = owner
        self._queue: list[_Waiting] = []
        self._gathered = asyncio.Event()
        self._loaded: set[Script] = set()
        self.connection: AbstractConnection | None = None

    def connect(self, connection: AbstractConnection) -> None:
        """Send on this connection from now on."""
        self.connection = connection
        self._loaded.clear()

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Word]) -> asyncio.Future[Reply]:
        """Run a script; the returned future has its reply, or raises `RedisUnavailable`."""
        return self.send(("EVALSHA", script.sha, len(keys), *keys, *arguments), script)

    def send(self, command: Command, script: Script | None = None) -> asyncio.Future[Reply]:
        """Send a command; the returned future has its reply, or raises `RedisUnavailable`."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.connection is None:
            reply.set_exception(RedisUnavailable(self._owner.problem or "not connected"))
            return reply
        self._queue.append(_Waiting(command, script, reply))
        self._gathered.set()
        return reply

    async def work(self) -> None:
        """Send what has gathered, again and again."""
        try:
            while True:
                await self._gathered.wait()
                self._gathered.clear()
                while self._queue and self.connection is not None:
                    await self._send_batch(self.connection)
        finally:
            self.drop("the gateway ends")

    async def _send_batch(self, connection: AbstractConnection) -> None:
        batch = self._cut()
        began = time.monotonic()
        try:
            replies = await self._exchange(connection, batch)
            unknown = [place for place, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if unknown:  # Redis has lost its scripts; none of these has run
                self._loaded.clear()
                repeated = await self._exchange(connection, [batch[place] for place in unknown])
                for place, reply in zip(unknown, repeated, strict=True):
                    replies[place] = reply
        except (RedisError, OSError, TimeoutError) as error:
            self._queue = [*batch, *self._queue]
            self._owner.fail(error)
            return
        except asyncio.CancelledError:
            self._queue = [*batch, *self._queue]
            raise
        self._owner.metrics.redis_seconds.add(time.monotonic() - began)
        for one, reply in zip(batch, replies, strict=True):
            _settle(one.reply, reply)
        errors = [reply for reply in replies if isinstance(reply, ResponseError)]
        if errors:
            self._owner.note_errors(errors)

    def _cut(self) -> list[_Waiting]:
        """Remove the next batch from the queue, and return it."""
        count = size = 0
        while count < min(BATCH, len(self._queue)) and size < BATCH_BYTES:
            size += sum([len(word) for word in self._queue[count].command if not isinstance(word, int)])
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    async def _exchange(self, connection: AbstractConnection, batch: Sequence[_Waiting]) -> list[Reply]:
        """Send a batch and return its replies; error replies are exceptions among them.

        Scripts that this connection has not loaded yet are loaded before it.
        """
        replies: list[Reply] = []
        new = {one.script for one in batch if one.script is not None} - self._loaded
        commands = [*(("SCRIPT", "LOAD", script.text) for script in new), *(one.command for one in batch)]
        self._loaded |= new
        async with asyncio.timeout(TIMEOUT):
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)
            for _ in commands:
                try:
                    replies.append(await connection.read_response())
                except ResponseError as error:
                    replies.append(error)
        return replies[len(new) :]

    def drop(self, why: str) -> None:
        """Fail all commands that wait."""
        waiting, self._queue = self._queue, []
        for one in waiting:
            _settle(one.reply, RedisUnavailable(why))


def _settle(waiting: asyncio.Future[Reply], reply: Reply) -> None:
    if waiting.done():  # the caller was cancelled
        return
    if isinstance(reply, ResponseError):
        waiting.set_exception(RedisUnavailable(f"Redis answers with an error: {describe(reply)}"))
    elif isinstance(reply, RedisUnavailable):
        waiting.set_exception(reply)
    else:
        waiting.set_result(reply)


class Redis:
    """A Redis or Valkey at a URL; an async context manager, which keeps it connected.

    While it cannot be used, every command fails at once: the circuit is open, and only a task of this class tries
    again. `calls` is the lane of what calls wait for, `updates` that of everything else.
    """

    def __init__(self, url: str, metrics: Metrics) -> None:
        self._pool = ConnectionPool.from_url(
            url,
            protocol=2,
            socket_timeout=TIMEOUT,
            socket_connect_timeout=TIMEOUT,
            retry=Retry(NoBackoff(), 0),
            client_name="webmcp-gateway",
            driver_info=None,
        )
        self.metrics = metrics
        self.problem: str | None = "not connected yet"
        """The reason for which it cannot be used now; None if it can."""
        self.calls = Lane(self)
        self.updates = Lane(self)
        self._lanes = (self.calls, self.updates)
        self._connected = Watchers[[]]()
        self._tasks = asyncio.TaskGroup()
        self._jobs: list[asyncio.Task[None]] = []
        self._failed = asyncio.Event()
        self._wait = BACKOFF[0]
        self._since = 0.0
        self._told: str | None = None

    @property
    def usable(self) -> bool:
        """Whether it can be used now, as far as is known."""
        return self.problem is None

    async def __aenter__(self) -> Self:
        """Connect. Raises StartError if this Redis must not be used; one that cannot be reached is tried again."""
        try:
            await self._connect()
        except UnfitRedis as error:
            raise StartError(f"stores.redis: {error}") from error
        except (AuthenticationError, NoPermissionError) as error:
            raise StartError(f"stores.redis: Redis refuses this gateway: {error}") from error
        except (RedisError, OSError, TimeoutError) as error:
            self.fail(error)
        await self._tasks.__aenter__()
        jobs = (*(lane.work() for lane in self._lanes), self._keep())
        self._jobs = [self._tasks.create_task(job) for job in jobs]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for job in self._jobs:
            job.cancel()
        await self._tasks.__aexit__(kind, error, trace)
        self.problem = "the gateway ends"
        for lane in self._lanes:
            connection, lane.connection = lane.connection, None
            if connection is not None:
                await _close(connection)

    def watch(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the connection has been made, also after a loss."""
        self._connected.add(callback)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AbstractConnection]:
        """Yield another connection, for messages. Raises `RedisUnavailable`."""
        connection = self._pool.make_connection()
        try:
            await _open(connection)
            yield connection
        except (RedisError, TimeoutError) as error:
            raise RedisUnavailable(describe(error)) from error
        finally:
            await _close(connection)

    def note_foreign(self, where: str) -> None:
        """Count and log that the data of a key were not of this gateway, and are ignored."""
        self.metrics.redis_failures.add("foreign")
        _LINES.write(logging.WARNING, "foreign data", "Redis holds foreign data instead of %s: ignored", where)

    def note_errors(self, errors: Sequence[ResponseError]) -> None:
        """Count error replies; open the circuit if one concerns all commands."""
        grave = [error for error in errors if first_word(error) in _REMEDIES]
        if grave:
            self.fail(grave[0])
        else:
            self.metrics.redis_failures.add("error")
            _LINES.write(logging.WARNING, "errors of Redis", "Redis answers with an error: %s", errors[0])

    def fail(self, error: BaseException) -> None:
        """Open the circuit: commands fail at once until a new connection works."""
        self.metrics.redis_failures.add(_kind(error))
        self._open_circuit(describe(error))

    def _open_circuit(self, why: str) -> None:
        self.problem = why
        if self._told is None:
            log.warning(
                "Redis cannot be used: %s. Limits count per process and are stricter, and views of other processes are "
                "not shown, until it can",
                why,
            )
        self._told = why
        for lane in self._lanes:
            connection, lane.connection = lane.connection, None
            if connection is not None:
                self._tasks.create_task(_close(connection))
            lane.drop(why)
        self._failed.set()

    async def _keep(self) -> None:
        """Check the connection, and make it anew after a failure."""
        while True:
            if self.problem is None:
                try:
                    async with asyncio.timeout(CHECKED):
                        await self._failed.wait()
                except TimeoutError:
                    await self._try(self._check())
                if time.monotonic() - self._since > STABLE:
                    self._wait = BACKOFF[0]
                continue
            await asyncio.sleep(self._wait * random.uniform(0.5, 1.0))
            self._wait = min(2 * self._wait, BACKOFF[1])
            await self._try(self._connect())

    async def _try(self, work: Awaitable[None]) -> None:
        try:
            await work
        except UnfitRedis as error:
            self.metrics.redis_failures.add("unfit")
            self._open_circuit(str(error))
        except (RedisError, OSError, TimeoutError) as error:
            if not isinstance(error, RedisUnavailable):  # that one has been counted
                self.fail(error)

    async def _connect(self) -> None:
        """Open all lanes to a Redis that may be used. Raises `UnfitRedis`, RedisError, OSError or TimeoutError."""
        connections: list[AbstractConnection] = []
        try:
            for _ in self._lanes:
                connection = self._pool.make_connection()
                connections.append(connection)
                await _open(connection)
            async with asyncio.timeout(TIMEOUT):
                check_fitness(parse_info(await _ask(connections[0], "INFO")))
                await _ask(connections[0], "EVAL", PROBE.text, 1, f"{PREFIX}probe")
        except BaseException:
            for connection in connections:
                await _close(connection)
            raise
        for lane, connection in zip(self._lanes, connections, strict=True):
            lane.connect(connection)
        self.problem = None
        self._since = time.monotonic()
        self._failed.clear()
        if self._told is not None:
            log.warning("Redis can be used again")
            self._told = None
        self._connected.notify()

    async def _check(self) -> None:
        """Raise as `_connect` does if this Redis may not be used any more."""
        answer = await self.updates.send(("INFO",))
        check_fitness(parse_info(answer))
        await self.updates.run(PROBE, [f"{PREFIX}probe"], [])


async def _open(connection: AbstractConnection) -> None:
    async with asyncio.timeout(TIMEOUT):
        await connection.connect()
    connection.socket_timeout = None  # whole batches have a timeout, which costs less than one for each reply


async def _ask(connection: AbstractConnection, *words: Word) -> Reply:
    await connection.send_packed_command(connection.pack_commands([words]), check_health=False)
    return await connection.read_response()


async def _close(connection: AbstractConnection) -> None:
    try:
        await connection.disconnect(nowait=True)
    except (RedisError, OSError, TimeoutError) as error:
        log.debug("a connection to Redis ends with an error: %s", error)


def parse_info(answer: Reply) -> dict[str, str]:
    """Return the fields of the answer to INFO."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def check_fitness(info: dict[str, str]) -> None:
    """Raise `UnfitRedis` for a Redis that is too old, a cluster, a sentinel, a replica, or one that evicts keys."""
    version = info.get("redis_version", "")
    major = version.partition(".")[0]
    if not major.isdecimal() or int(major) < OLDEST:
        raise UnfitRedis(f"this is Redis {version or 'of an unknown version'}: Redis {OLDEST} or Valkey is required")
    if info.get("redis_mode") == "cluster" or info.get("cluster_enabled") == "1":
        raise UnfitRedis("this is a Redis Cluster, where the keys of one call lie on several servers: use one server")
    if info.get("redis_mode") == "sentinel":
        raise UnfitRedis("this is a Sentinel: write the address of the primary, or of a proxy that leads to it")
    if info.get("role") != "master":
        raise UnfitRedis("this is a replica, which cannot be written: write the address of the primary")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise UnfitRedis(
            f"its maxmemory-policy is {policy}, which evicts keys and with them limits: set noeviction, and use a "
            "Redis that no cache shares"
        )


def first_word(error: BaseException) -> str:
    """Return the code at the beginning of an error reply."""
    return getattr(error, "status_code", None) or str(error).partition(" ")[0]


def describe(error: BaseException) -> str:
    """Return why Redis cannot be used, for people."""
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"it does not answer within {TIMEOUT:g} s"
    return _REMEDIES.get(first_word(error)) or str(error).rstrip(".") or type(error).__name__


def _kind(error: BaseException) -> str:
    """Return the label of a failure in the metrics."""
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return "timeout"
    return "error" if isinstance(error, ResponseError) else "connection"

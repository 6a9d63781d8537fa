"""`python -m benchmarks.redis_costs`: the cost of calls and views at a Redis, and the load at which one is full."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import structs

from benchmarks.processes import free_port
from gateway.crypto import SigningKeys
from gateway.exchange.limit import MemoryRates
from gateway.model import LOCAL, Caller, Door, Initiator, Principal, ViewTool
from gateway.policy import Limit, Per, Rate
from gateway.ports.limits import Rates, TakenRates
from gateway.ports.views import LiveView
from gateway.stores.redis.connection import Redis, parse_info
from gateway.stores.redis.directory import EVERY, RedisDirectory
from gateway.stores.redis.members import Members
from gateway.stores.redis.rates import RedisBuckets, RedisRates
from gateway.telemetry import Metrics
from gateway.views.memory import MemoryDirectory

CALLER = Caller(LOCAL, "shop", Door.MCP, Initiator.MODEL, "no-gesture", view="view", proven=True)
MANY = Rate(900_000_000, 86400.0)
LIMITS = tuple(Limit(MANY, Per.PRINCIPAL, f"rule {number}") for number in range(4))

MILLION = 1_000_000
CALLS = 100_000
"""The size for which the load of one Redis is computed: views, and calls per second."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one operation: commands and bytes to and from Redis, and microseconds of its processor time."""

    what: str
    commands: float
    sent: float
    received: float
    micros: float
    memory: float = 0.0


class Server:
    """A Redis as a process, and what it says of itself."""

    def __init__(self, folder: str) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            sys.exit("There is no redis-server here: scripts/redis installs it.")
        self.port = free_port()
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", folder)
        self.process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)

    async def measure(self, redis: Redis, what: str, count: int, work: Callable[[], Awaitable[None]]) -> Cost:
        """Return the cost of `work`, which does `count` operations, each."""
        before = parse_info(await redis.updates.send(("INFO", "all")))
        await work()
        after = parse_info(await redis.updates.send(("INFO", "all")))

        def grown(*names: str) -> float:
            return sum([float(after.get(name, 0)) - float(before.get(name, 0)) for name in names]) / count

        return Cost(
            what,
            commands=_calls(after, before) / count,
            sent=grown("total_net_input_bytes"),
            received=grown("total_net_output_bytes"),
            micros=1e6 * grown("used_cpu_user", "used_cpu_sys"),
            memory=grown("used_memory"),
        )


def _calls(after: dict[str, str], before: dict[str, str]) -> float:
    """Return how many commands clients sent, without those of scripts, of which Redis counts each as well."""

    def of(info: dict[str, str]) -> int:
        fields = {name: value for name, value in info.items() if name.startswith("cmdstat_")}
        sent = ("cmdstat_evalsha", "cmdstat_ping", "cmdstat_info")
        return sum([int(fields[name].split(",")[0].removeprefix("calls=")) for name in sent if name in fields])

    return of(after) - of(before) - 1  # the INFO itself


async def take(rates: Rates, limits: Sequence[Limit], caller: Caller) -> None:
    """Take a cell of each limit. Raises RuntimeError if there is none: the figures would be those of refusals."""
    answer = rates.take(limits, caller)
    taken = answer if isinstance(answer, TakenRates) else await answer
    if taken.exceeded is not None:
        raise RuntimeError("a call was refused")


async def in_flight(count: int, width: int, work: Callable[[int], Awaitable[None]]) -> list[float]:
    """Run `work` so many times, `width` at once; return the milliseconds that each took."""
    numbers, times = iter(range(count)), list[float]()

    async def worker() -> None:
        for number in numbers:
            began = time.perf_counter()
            await work(number)
            times.append(1000 * (time.perf_counter() - began))

    await asyncio.gather(*[worker() for _ in range(width)])
    return times


def view(number: int) -> tuple[Principal, LiveView]:
    """Return a view of its own person, with three tools of usual size."""
    schema = {"type": "object", "properties": {"quantity": {"type": "integer"}, "note": {"type": "string"}}}
    tools = tuple(
        ViewTool(f"shop_tool{n}", f"tool{n}", "A tool", "Puts goods into the cart. " * 4, schema) for n in range(3)
    )
    who = Principal("https://login.example", "client", f"person {number}")
    return who, LiveView(f"view-{number:030}", "shop", "Shop", float(number), tools)


async def idle(directory: RedisDirectory) -> None:
    """Wait until nothing is to be written or read."""
    while directory.busy:
        await asyncio.sleep(0.01)


async def run(count: int) -> tuple[list[Cost], list[tuple[str, float, float]]]:
    """Return the costs, and for each way to count its name, and p50 and p99 of the milliseconds that it adds."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder)
        try:
            return await _measured(server, count)
        finally:
            server.process.terminate()
            server.process.wait()


async def _measured(server: Server, count: int) -> tuple[list[Cost], list[tuple[str, float, float]]]:
    costs: list[Cost] = []
    delays: list[tuple[str, float, float]] = []
    async with Redis(f"redis://127.0.0.1:{server.port}/0", Metrics()) as redis:
        while not redis.usable:
            await asyncio.sleep(0.05)
        members = Members(redis, "measured")
        await members.announce()
        rates = RedisRates(RedisBuckets(redis), MemoryRates(), lambda: 1, lambda: None)
        for name, which in (("in memory", MemoryRates()), ("in Redis", rates)):
            for width in (1, 32):
                await in_flight(200, width, lambda _, which=which: take(which, LIMITS[:2], CALLER))  # type: ignore[misc]  # bound at once
                times = await in_flight(count, width, lambda _, which=which: take(which, LIMITS[:2], CALLER))  # type: ignore[misc]  # the same
                cuts = statistics.quantiles(times, n=100)
                delays.append((f"two rates {name}, {width} at once", statistics.median(times), cuts[98]))
        for number in (1, 2, 4):
            for width in (1, 32):

                async def calls(number: int = number, width: int = width) -> None:
                    await in_flight(count, width, lambda _: take(rates, LIMITS[:number], CALLER))

                costs.append(await server.measure(redis, f"call with {number} rates, {width} at once", count, calls))

        async def people() -> None:
            slow = Limit(Rate(1000, 86400.0), Per.PRINCIPAL, "slow")

            def of(number: int) -> Caller:
                return structs.replace(CALLER, principal=Principal("https://login.example", "client", str(number)))

            await in_flight(count, 32, lambda number: take(rates, [slow], of(number)))

        costs.append(await server.measure(redis, "first call of a person with one rate", count, people))
        costs += await _views(server, redis, members, min(count, 5000))
    return costs, delays


async def _views(server: Server, redis: Redis, members: Members, count: int) -> list[Cost]:
    """Return the costs of views: opened, unchanged and read again."""
    directory = RedisDirectory(redis, members, MemoryDirectory(), SigningKeys((os.urandom(32),)), lambda: "owner")
    job = asyncio.ensure_future(directory.run())
    costs: list[Cost] = []

    async def opened() -> None:
        for number in range(count):
            directory.put(*view(number))
        await idle(directory)

    async def read() -> None:
        for number in range(count):
            directory.of(view(number)[0])
        await idle(directory)

    try:
        await asyncio.sleep(0.2)
        costs.append(await server.measure(redis, "view that opens, with three tools", count, opened))
        costs.append(await server.measure(redis, "first call of a person with a view", count, read))
        directory.refresh()
        await idle(directory)
        directory.refresh()
        costs.append(await server.measure(redis, f"view, each {EVERY:g} s", count, lambda: idle(directory)))
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
    return costs


def table(costs: Sequence[Cost], delays: Sequence[tuple[str, float, float]]) -> str:
    """Return the figures for people."""
    lines = [
        "| operation | commands | bytes to Redis | bytes back | µs of Redis | operations per second of one Redis |",
        "|---|---|---|---|---|---|",
    ]
    for one in costs:
        figures = (f"{one.commands:.2f}", f"{one.sent:,.0f}", f"{one.received:,.0f}", f"{one.micros:.1f}")
        lines.append(f"| {' | '.join((one.what, *figures, f'{1e6 / one.micros:,.0f}'))} |")
    lines += ["", "| counting | p50 ms | p99 ms |", "|---|---|---|"]
    lines += [f"| {what} | {p50:.3f} | {p99:.3f} |" for what, p50, p99 in delays]
    named = {one.what: one for one in costs}
    call = named["call with 2 rates, 32 at once"]
    kept = named[f"view, each {EVERY:g} s"]
    opened = named["view that opens, with three tools"]
    load = (CALLS * call.micros + MILLION / EVERY * kept.micros) / 1e6
    memory = (MILLION * opened.memory + MILLION * named["first call of a person with one rate"].memory) / 2**30
    lines += [
        "",
        f"{MILLION:,} views and {CALLS:,} calls per second with two rates: {load:.2f} processors of Redis, of which "
        f"one server has one; {memory:.1f} GiB. One Redis is full at {1e6 / call.micros:,.0f} such calls per second "
        f"without views, or at {max(0, 1e6 - MILLION / EVERY * kept.micros) / call.micros:,.0f} with them.",
        f"Load of this machine: {os.getloadavg()[0]:.1f}.",
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.redis_costs", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="operations of each kind")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    costs, delays = asyncio.run(run(options.count))
    print(msgspec.json.encode({"costs": costs, "delays": delays}).decode() if options.json else table(costs, delays))


if __name__ == "__main__":
    main()

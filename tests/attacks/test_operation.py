"""Every case of a failing environment: what must be refused is refused, and the gateway keeps running."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.doors import runner
from tests.attacks import checks
from tests.attacks.corpus import family
from tests.attacks.doors import site_door
from tests.attacks.wire import raw_exchange
from tests.attacks.world import AttackWorld, running_world

CASES = family("operation")


@contextmanager
def full_disk(journal: Path) -> Iterator[None]:
    """Limit all files of this process to the journal's current size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def outcome(world: AttackWorld, case: dict[str, Any]) -> list[str]:
    """The violations in the answer to the request of a case."""
    expected = case["expect"]
    world.take_arrived()
    async with site_door(world) as door:
        answer = await door.ask(case["request"])
    arrived = world.take_arrived()
    problems = checks.wrong_answer(world, answer, passes=False)
    problems += [wrong for one in arrived for wrong in checks.wrong_request(one)]
    if answer.reason != (None if expected == "ok" else expected):
        problems.append(f"expected {expected}, got {answer.status} {answer.reason}")
    if bool(arrived) != (expected == "ok"):
        problems.append(f"arrived {[one.line for one in arrived]}")
    return [f"{case['id']} ({case['why']}): {problem}" for problem in problems]


@pytest.mark.parametrize("on_failure", sorted({case["journal"] for case in CASES if "journal" in case}))
async def test_a_full_disk(tmp_path: Path, on_failure: str) -> None:
    """Requests that cannot be recorded are handled as `on_failure` declares, and work again when there is space."""
    problems: list[str] = []
    healthy = {"id": "healthy", "why": "it works", "request": {"url": "/api/exact"}, "expect": "ok"}
    async with running_world(tmp_path, extra=f"audit: {{on_failure: {on_failure}}}\n") as world:
        for _ in range(20):  # the token, and a journal that is longer than other files written meanwhile
            problems += await outcome(world, healthy)
        with full_disk(world.config.journal):
            for case in CASES:
                if case.get("journal") == on_failure:
                    problems += await outcome(world, case)
        problems += await outcome(world, healthy)
    assert not problems, "\n".join(problems)


async def test_an_issuer_that_fails(tmp_path: Path) -> None:
    """Without a token nothing is sent; the issuer's failures disclose no secret, and the next success ends them."""
    problems: list[str] = []
    async with running_world(tmp_path) as world:
        issuer = world.backends["issuer"]
        working = issuer.default
        for case in map(world.placed, CASES):
            if "issuer" not in case:
                continue
            if case["issuer"] == "down":
                await issuer.stop()
                problems += await outcome(world, case)
                await issuer.start()
            else:
                issuer.default = case["issuer"].encode("latin-1")
                problems += await outcome(world, case)
        issuer.default = working
        problems += await outcome(
            world, {"id": "healthy", "why": "it works", "request": {"url": "/api/exact"}, "expect": "ok"}
        )
    assert not problems, "\n".join(problems)


async def test_clients_that_say_half_of_it(attacked_world: AttackWorld) -> None:
    """Other clients are served meanwhile, and bytes that are not HTTP get a refusal at most."""
    problems: list[str] = []
    for case in map(attacked_world.placed, CASES):
        if "half" in case:
            problems += await beside_half(attacked_world, case)
        elif "raw" in case:
            answer = await raw_exchange(attacked_world.port, case["raw"].encode("latin-1"), wait=0.3)
            if answer.status not in (0, 400, 403, 404, 421, 505):
                problems.append(f"{case['id']}: {answer.raw[:200]!r}")
            problems += await outcome(attacked_world, case)
        elif "journal" not in case and "issuer" not in case:
            problems += await outcome(attacked_world, case)
    assert not problems, "\n".join(problems)


IDLE_CLIENTS = """
import asyncio, sys
async def main(port, count, half):
    opened = []
    for number in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if number % 2:
            writer.write(half.encode())
        opened.append((reader, writer))
    print("open", flush=True)
    await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
    print("closed", flush=True)
asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
"""
"""Holds many connections, every second one with a partial head, until the server has closed them all."""


@pytest.mark.soak
async def test_ten_thousand_idle_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They delay no request; idle connections and partial heads are closed at last, and the gateway keeps running.

    There are fewer only if the machine allows a process fewer files.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 11_000 if hard == resource.RLIM_INFINITY else min(hard, 11_000)
    count = allowed - 1_000
    assert count >= 1_000, f"this machine allows a process {hard} files, too few to show anything: raise ulimit -Hn"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    monkeypatch.setattr(runner, "IDLE", 30.0)  # a full minute of waiting would show no more
    case = {"id": "idle-10000", "why": "idle sockets are cheap", "request": {"url": "/api/exact"}, "expect": "ok"}
    try:
        async with running_world(tmp_path) as world:
            half = f"GET /api/exact HTTP/1.1\r\nhost: target.localhost:{world.port}\r\n"
            holding = await asyncio.create_subprocess_exec(
                sys.executable, "-c", IDLE_CLIENTS, str(world.port), str(count), half, stdout=asyncio.subprocess.PIPE
            )
            assert holding.stdout is not None
            assert await holding.stdout.readline() == b"open\n"
            problems = [wrong for _ in range(100) for wrong in await outcome(world, case)]
            assert problems == []
            assert await holding.stdout.readline() == b"closed\n"
            assert await holding.wait() == 0
            assert await outcome(world, case) == []
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def beside_half(world: AttackWorld, case: dict[str, Any]) -> list[str]:
    """The outcome of a request while many clients have sent a part of theirs."""
    writers = []
    for _ in range(case["clients"]):
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(case["half"].encode("latin-1"))
        writers.append(writer)
    try:
        return await outcome(world, case)
    finally:
        for writer in writers:
            writer.close()
        for writer in writers:
            with suppress(ConnectionError):
                await writer.wait_closed()

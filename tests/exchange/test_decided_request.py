"""The decision on one request."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.model import BodyType, CanonicalRequest, Request
from gateway.policy import canonicalise, canonicalise_in_steps
from tests.exchange.house import PAGE, POLICY, building

LARGE = bytes(2 * 1024 * 1024)
READS = POLICY + "  - {path: /api/read, methods: [POST], when: request.body.total == 1}\n"


def large() -> Request:
    """A request whose body takes a while to scan."""
    return Request("POST", "/api/items", body=LARGE, body_type=BodyType.BASE64)


async def test_others_run_while_a_large_body_is_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The body is sent unchanged all the same."""
    turns = 0
    seen: list[int] = []

    def noted(*given: Any) -> Iterator[CanonicalRequest | None]:
        for found in canonicalise_in_steps(*given):
            seen.append(turns)
            yield found

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr("gateway.exchange.decided_request.canonicalise_in_steps", noted)
    async with building(tmp_path, request_limit=4 * 1024 * 1024) as house:
        other = asyncio.create_task(turn())
        response = await house.exchange.run(large(), PAGE)
        other.cancel()
        assert (response.status, house.shop.sent[0].body == LARGE) == (200, True)
    assert len(seen) == len(set(seen)) == 16


async def test_a_large_body_that_a_rule_reads_is_parsed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing cannot be split into steps between which other tasks run."""
    threads: list[int] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return canonicalise(*given)

    monkeypatch.setattr("gateway.exchange.decided_request.canonicalise", noted)
    async with building(tmp_path, READS, request_limit=4 * 1024 * 1024) as house:
        await house.exchange.run(large(), PAGE)
    assert [thread != threading.get_ident() for thread in threads] == [True]

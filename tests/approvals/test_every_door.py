"""Approvals at every door: a disconnect cancels the caller's questions, and floods are limited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.attacks.doors import DOORS
from tests.attacks.world import CSRF, AttackWorld, running_world
from tests.world import local_client

POLICY = """
version: 1
backends:
  main: {{url: "http://127.0.0.1:{main}", credential: attack, network: [127.0.0.0/8]}}
routes:
  - {{path: "/api/asked/{{what}}", methods: [POST], backend: main, confirm: always}}
"""
PER_VIEW, PER_PRINCIPAL = 2, 10


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[AttackWorld]:
    """A gateway whose policy requires approval for every request."""
    async with running_world(tmp_path, POLICY) as world:
        yield world


@asynccontextmanager
async def at_the_console(world: AttackWorld) -> AsyncIterator[aiohttp.ClientSession]:
    """A person at the console."""
    origin = f"http://{world.hosts['console']}"
    async with local_client(base_url=origin, headers={"origin": origin, "sec-fetch-site": "same-origin"}) as client:
        async with client.get("/api/state") as answer:
            client.headers[CSRF] = (await answer.json())["csrf"]
        yield client


async def open_questions(person: aiohttp.ClientSession) -> dict[str, str]:
    """The ids of the open questions, by target."""
    async with person.get("/api/approvals") as answer:
        return {one["target"]: one["id"] for one in (await answer.json())["approvals"]}


async def asked_about(person: aiohttp.ClientSession, targets: Iterable[str]) -> dict[str, str]:
    """The ids of the open questions, once their targets are exactly `targets`."""
    wanted = set(targets)
    async with asyncio.timeout(60):
        while (found := await open_questions(person)).keys() != wanted:
            await asyncio.sleep(0.05)
    return found


async def answer_status(person: aiohttp.ClientSession, id: str, word: str) -> int:
    """The status of the response to an answer."""
    async with person.post(f"/api/approvals/{id}", json={"answer": word}) as answer:
        return answer.status


def wish(what: str, **more: Any) -> dict[str, Any]:
    """A request that requires approval."""
    return {"url": f"/api/asked/{what}", "method": "POST", "body": what, "headers": {}, **more}


async def test_who_goes_away_takes_the_question_along(place: AttackWorld) -> None:
    """At every door, with and without a proven view, an approval that comes late is void, and nothing is sent."""
    calls = {name: (name, wish(name)) for name in DOORS}
    calls |= {f"{name}-unproven": (name, wish(f"{name}-unproven", proof=False)) for name in ("modern", "legacy")}
    async with at_the_console(place) as person:
        async with AsyncExitStack() as doors:
            opened = [(await doors.enter_async_context(DOORS[name](place)), said) for name, said in calls.values()]
            waiting = [asyncio.create_task(door.ask(said)) for door, said in opened]
            questions = await asked_about(person, [said["url"] for _, said in calls.values()])
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
        await asked_about(person, ())
        late = {target: await answer_status(person, id, "approve") for target, id in questions.items()}
    assert late == dict.fromkeys(questions, 410)
    assert place.take_arrived() == []


@pytest.mark.parametrize("name", DOORS)
async def test_who_floods_is_cut_short(place: AttackWorld, name: str) -> None:
    """A limited number of questions is open; after three declines the caller is refused without a question."""
    held = name == "site"  # its requests stay open; views are requested to poll
    most = PER_PRINCIPAL if held else PER_VIEW
    async with at_the_console(place) as person, DOORS[name](place) as door:
        wishes = []
        for number in range(most):
            wishes.append(asyncio.create_task(door.ask(wish(str(number)))))
            if not held:
                await wishes[-1]
        questions = await asked_about(person, [f"/api/asked/{number}" for number in range(most)])
        assert (await door.ask(wish("one-more"))).reason == "approval-unavailable"
        for id in questions.values():
            assert await answer_status(person, id, "decline") == 200
        if not held:
            await door.ask(wish("third"))
            third = await asked_about(person, ["/api/asked/third"])
            assert await answer_status(person, third["/api/asked/third"], "decline") == 200
        assert (await door.ask(wish("last"))).reason == "approval-declined"
        assert await open_questions(person) == {}
        reasons = {wished.reason for wished in await asyncio.gather(*wishes)}
    assert reasons == {"approval-declined" if held else None}
    assert place.take_arrived() == []

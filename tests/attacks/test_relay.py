"""Views that poll for the model's calls, and misbehave: no answer reaches another view's call, and no call hangs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.cli.attack.cases import answer_in
from gateway.stores.sealing import login_keys
from gateway.stores.sessions import IssuedTokens
from gateway.stores.sql import Database
from tests.attacks.calls import WAIT
from tests.attacks.corpus import family
from tests.attacks.mcp_doors import HttpDoor
from tests.attacks.world import POLICY, AttackWorld, running_world
from tests.world import local_client

RULES = POLICY + "tools:\n  add: {{}}\n  brief: {{timeout: 100ms}}\n"
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("add", "brief")]
RIGHT = {"content": [{"type": "text", "text": "right"}]}
FALSE = {"content": [{"type": "text", "text": "EVIL"}]}


@dataclass(slots=True)
class View:
    """A proven view that polls for its calls, at a separate door."""

    door: HttpDoor
    after: int = 0

    @property
    def id(self) -> str:
        assert self.door.proof is not None
        return self.door.proof.view

    def proof(self) -> str:
        """A proof that was not used yet."""
        assert self.door.proof is not None
        return self.door.proof.next()

    async def poll(self, wait: int = 0, **more: Any) -> dict[str, Any]:
        """Poll once."""
        said = {"_view": self.proof(), "after": self.after, "wait": wait, **more}
        found = content(await call_tool(self.door, "webmcp_poll", json.dumps(said)))
        self.after = max([self.after, *(event["number"] for event in found.get("events", []))])
        return found

    async def next(self) -> str:
        """Poll until there is a call, and return its id."""
        async with asyncio.timeout(WAIT):
            while True:
                for event in (await self.poll(5000)).get("events", []):
                    if "tool" in event:
                        return str(event["call"])
                await asyncio.sleep(0.02)  # after a flood polls are refused for a while

    async def answer(self, call: str, result: dict[str, Any]) -> str:
        """Answer the call; return the reason of a refusal, or the empty string."""
        return await send_result(self.door, call, json.dumps(result), self.proof())


async def call_tool(door: HttpDoor, tool: str, arguments: str) -> dict[str, Any]:
    """Call a tool; return the answer, whose bytes must be UTF-8."""
    raw = (await door.call(tool, arguments))[1]
    raw.decode()
    return answer_in(raw) or {}


def content(answer: dict[str, Any]) -> dict[str, Any]:
    """The structured content of an answer."""
    found: dict[str, Any] = answer.get("result", {}).get("structuredContent", {})
    return found


async def send_result(door: HttpDoor, call: str, result: str, proof: str | None) -> str:
    """Call `webmcp_result`; return the reason of a refusal, or the empty string."""
    shown = f'"_view":{json.dumps(proof)},' if proof is not None else ""
    answer = await call_tool(door, "webmcp_result", f'{{{shown}"call":{json.dumps(call)},"result":{result}}}')
    return "" if content(answer) == {"taken": True} else str(content(answer).get("reason", "no message"))


@dataclass(slots=True)
class Town:
    """Two people and their views."""

    world: AttackWorld
    http: aiohttp.ClientSession
    shown: dict[str, dict[str, str]] = field(default_factory=dict)

    async def door(self, person: str, app: str = "target", *, modern: bool = True) -> HttpDoor:
        """A door of this person's client."""
        if person not in self.shown:
            async with Database(self.world.config.database.reveal()) as database:
                now = time.time()
                made = await IssuedTokens(database, login_keys(self.world.config.cluster)).create(
                    person, ["mcp"], person, now=now, expires=now + 3600
                )
            self.shown[person] = {"authorization": f"Bearer {made.reveal()}"}
        door = HttpDoor(self.world, self.http, modern, app=app, more=self.shown[person])
        await door.open()
        return door

    async def view(self, person: str, app: str = "target", *, modern: bool = True) -> View:
        """A view of this person, which offers two tools."""
        view = View(await self.door(person, app, modern=modern))
        await view.poll(tools=TOOLS)
        return view


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with running_world(tmp_path, RULES, "auth: [token]\n") as world, local_client(limit=0) as http:
        yield Town(world, http)


@asynccontextmanager
async def begin_call(model: HttpDoor, view: View, tool: str = "add") -> AsyncIterator[asyncio.Task[dict[str, Any]]]:
    """Let a model call a tool of the view."""
    said = json.dumps({"view": view.id, "tool": tool, "arguments": {}})
    task = asyncio.create_task(call_tool(model, "call_view_tool", said))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_no_view_answers_the_call_of_another(town: Town) -> None:
    """An answer needs an unused proof of the call's own view, with its principal and app, once, in time."""
    ann, bob = await town.view("ann"), await town.view("bob")
    others = [await town.view("ann", modern=False), await town.view("ann", "neighbour"), bob]
    model, neighbour = await town.door("ann"), await town.door("ann", "neighbour")
    async with begin_call(model, ann) as task:
        used = ann.proof()
        await call_tool(ann.door, "webmcp_poll", json.dumps({"_view": used}))
        call = await ann.next()
        unused = ann.proof()
        forged = f"{unused.rpartition('.')[0]}.{bob.proof().rpartition('.')[2]}"
        tried = [await other.answer(call, FALSE) for other in others]
        for door, proof in (
            (ann.door, None),
            (ann.door, used),
            (ann.door, forged),
            (ann.door, f"{ann.id}.0.{unused.rpartition('.')[2]}"),
            (bob.door, unused),
            (neighbour, unused),
            (model, "x"),
        ):
            tried.append(await send_result(door, call, json.dumps(FALSE), proof))
        assert tried == ["bad-request"] * 3 + ["view-unproven"] * 7
        assert [await ann.answer(other, FALSE) for other in ("", call[:-1], call + "x")] == ["bad-request"] * 3
        assert not task.done()
        assert await send_result(ann.door, call, json.dumps(RIGHT), unused) == ""
        assert (await task)["result"]["content"] == RIGHT["content"]
        assert await ann.answer(call, FALSE) == "bad-request"
    async with begin_call(model, ann, "brief") as task:
        call = await ann.next()
        assert (await task)["result"]["isError"]
        assert await ann.answer(call, FALSE) == "bad-request"
    async with begin_call(model, ann) as task:
        call = await ann.next()
        await ann.poll(leaving=True)
        assert (await task)["result"]["isError"]
        assert await ann.answer(call, FALSE) == "bad-request"
    ann = await town.view("ann")
    async with begin_call(model, ann) as task:
        call = await ann.next()
        await ann.poll(closing=True)
        assert (await task)["result"]["isError"]
        assert await ann.answer(call, FALSE) == "view-unproven"
    assert town.world.take_errors() == []


async def test_a_flood_of_polls_and_one_that_is_left_alone(town: Town) -> None:
    """Each poll is answered or refused, and a newer one ends it; the next call still reaches the view."""
    ann, model = await town.view("ann"), await town.door("ann")
    older = asyncio.create_task(ann.poll(20_000))
    async with asyncio.timeout(WAIT):
        while not older.done():
            await ann.poll()
    assert (await older)["overtaken"]
    found = await asyncio.gather(*(ann.poll(1) for _ in range(400)))
    assert {one.get("reason", "asked") for one in found} <= {"asked", "rate-limited", "view-unproven"}
    gone = asyncio.create_task(ann.poll(20_000))
    await asyncio.sleep(0.05)
    gone.cancel()
    async with begin_call(model, ann) as task:
        assert await ann.answer(await ann.next(), RIGHT) == ""
        assert (await task)["result"]["content"] == RIGHT["content"]
    assert town.world.take_errors() == []


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_every_answer_of_a_page_ends_its_call(town: Town, modern: bool) -> None:
    """The call ends with the result if it can be encoded, else with an error; a refused answer can be corrected."""
    ann, model = await town.view("ann"), await town.door("ann", modern=modern)
    problems: list[str] = []
    for case in family("relay"):
        async with begin_call(model, ann) as task, asyncio.timeout(WAIT):
            call = await ann.next()
            reason = await send_result(ann.door, call, case["result"], ann.proof())
            if case["expect"] == "refused" and not (reason and await ann.answer(call, RIGHT) == ""):
                problems.append(f"{case['id']} ({case['why']}): not refused")
            answer = await task
        text = json.dumps(answer, separators=(",", ":"))
        wanted = {"refused": "right", "error": "not the result of a tool"}.get(str(case["expect"])) or case["expect"][
            "told"
        ]
        failed = answer["result"]["isError"] is True
        if wanted not in text or "EVIL" in text or failed != (case["expect"] == "error"):
            problems.append(f"{case['id']} ({case['why']}): {text[:300]}")
        problems += [f"{case['id']}: logged as an error: {line}" for line in town.world.take_errors()]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("modern", [True, False], ids=["modern", "legacy"])
async def test_a_poll_that_waits_does_not_hold_up_a_gateway_that_stops(town: Town, modern: bool) -> None:
    """The poll is answered, not cut off."""
    ann = await town.view("ann", modern=modern)
    polls = {asyncio.create_task(ann.poll(20_000)) for _ in range(2)}
    _, (waiting,) = await asyncio.wait(polls, return_when=asyncio.FIRST_COMPLETED)  # the other one still waits
    await town.world.stop()
    assert await waiting == {"events": [], "overtaken": False}

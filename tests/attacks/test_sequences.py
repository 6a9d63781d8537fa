"""Every case with several steps at every door: quotas, kept state, redaction and policy changes hold throughout."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.attack.cases import answer_in
from tests.attacks import checks
from tests.attacks.calls import WAIT, Answer, AttackedDoor
from tests.attacks.corpus import SEQUENCES, doors_of, family
from tests.attacks.doors import DOORS
from tests.attacks.world import POLICY, AttackWorld, running_world
from tests.world import local_client

JAR = "    credential: attack\n    cookies: jar\n"
MASK = 'responses: {{mask: ["$..card", "$.customer.email", "$.list[1]"]}}\n'
POLICIES = {
    "cookies": POLICY.replace("    credential: attack\n", JAR),
    "masks": POLICY.replace("routes:\n", MASK + "routes:\n"),
}
"""The policy of a family, apart from the routes of its cases."""


@dataclass(slots=True)
class Run:
    """The cases of a family at one door: the callers, the routes in effect, and the stream of the last answer."""

    world: AttackWorld
    name: str
    door: str
    stack: AsyncExitStack
    way: AttackedDoor
    routes: dict[str, Any]
    stream: str = ""
    others: list[AttackedDoor] = field(default_factory=list)

    def begin(self, step: dict[str, Any]) -> None:
        """Set the backend's answers, and forget earlier arrivals."""
        self.world.backends["main"].answers = list(step.get("answers", []))
        self.world.take_arrived()
        self.world.take_errors()

    async def other(self, number: int = 0) -> AttackedDoor:
        """Another caller of the same person at this door, with a separate view."""
        while len(self.others) <= number:
            self.others.append(await self.stack.enter_async_context(DOORS[self.door](self.world)))
        return self.others[number]


@pytest.mark.parametrize(
    ("name", "door"),
    [(name, door) for name in SEQUENCES for door in DOORS if any(door in doors_of(case) for case in family(name))],
)
async def test_the_sequences_of_a_family_at_a_door(tmp_path: Path, name: str, door: str) -> None:
    """Each step has its expected outcome, and the invariants hold."""
    cases = [case for case in family(name) if door in doors_of(case)]
    routes = {case["id"]: case.get("routes", [{"methods": ["GET"]}]) for case in cases}
    problems: list[str] = []
    async with (
        running_world(tmp_path, policy_of(name, door, routes), reloads=True) as world,
        AsyncExitStack() as stack,
        DOORS[door](world) as way,
    ):
        run = Run(world, name, door, stack, way, routes)
        for case in cases:
            for number, step in enumerate(case["steps"]):
                found = await run_step(run, case, step)
                problems += [f"{case['id']} ({case['why']}), step {number}: {problem}" for problem in found]
    assert not problems, f"{len(problems)} problems at {door}:\n" + "\n".join(problems)


def path_of(name: str, door: str, id: str) -> str:
    """The path of a case's routes, which no other case has."""
    return f"/api/open/{name}/{door}/{id}/x"


def policy_of(name: str, door: str, routes: dict[str, Any]) -> str:
    """The family's policy, with the routes of its cases before all others."""
    lines = [
        "  - " + json.dumps({"backend": "main", **route, "path": path_of(name, door, id) + route.get("path", "")})
        for id, listed in routes.items()
        for route in listed
    ]
    written = "".join(line.replace("{", "{{").replace("}", "}}") + "\n" for line in lines)
    return POLICIES.get(name, POLICY).replace("routes:\n", "routes:\n" + written)


async def run_step(run: Run, case: dict[str, Any], step: dict[str, Any]) -> list[str]:
    """The violations after one step, which runs `times` times, or `together` for as many callers."""
    step = at_path({"url": "@path@", **run.world.placed(step)}, path_of(run.name, run.door, case["id"]))
    if "policy" in step:
        return await change_routes(run, case["id"], step["policy"])
    if "broken" in step:
        return await broken(run.world, step["broken"])
    if "together" in step:
        return await at_once(run, step)
    problems: list[str] = []
    for _ in range(step.get("times", 1)):
        way = await run.other() if step.get("other") else run.way
        run.begin(step)
        asking = asyncio.create_task(take_step(run, way, step))
        if "meanwhile" in step:
            async with asyncio.timeout(WAIT):
                while not any(one.backend == "main" for one in run.world.arrived):
                    await asyncio.sleep(0.01)
            problems += await change_routes(run, case["id"], step["meanwhile"])
        answer = await asking
        run.stream = stream_of(answer) or run.stream
        problems += wrong(run, step, answer)
    return problems


async def take_step(run: Run, way: Any, step: dict[str, Any]) -> Answer:
    """The answer to one step: to a poll for a stream's next part, or to a request."""
    if "part" not in step:
        answer: Answer = await way.ask(step)
        return answer
    text = json.dumps(step["part"]).replace("@stream@", run.stream)
    while True:
        part: Answer = await way.tool("http_stream", text)
        if step.get("until") in (None, part.reason) or stream_of(part) is None:
            return part


def wrong(run: Run, step: dict[str, Any], answer: Answer) -> list[str]:
    """The differences between one answer with its arrivals and the expectation or the invariants."""
    arrived = run.world.take_arrived()
    expected = checks.expectation(step, run.door)
    if expected["sent"] == [] and expected.get("reason") is None and not {"part", "one_of"} & {*step, *expected}:
        expected["sent"] = [f"{step.get('method', 'GET')} /v1{step['url']}"]
    problems = checks.differences(step, expected, answer, arrived, [])
    problems += [outside for one in arrived if (outside := checks.outside(one)) is not None]
    problems += [bad for one in arrived for bad in checks.wrong_request(one) if "field cookie " not in bad]
    problems += checks.wrong_answer(run.world, answer, passes=step.get("passes", False))
    return problems + [f"logged as an error: {line}" for line in run.world.take_errors()]


async def at_once(run: Run, step: dict[str, Any]) -> list[str]:
    """Several callers at once: the allowed number of requests arrives, the others get the reason."""
    ways = [await run.other(number) for number in range(step["together"])]
    run.begin(step)
    answers = await asyncio.gather(*(way.ask(step) for way in ways))
    arrived = run.world.take_arrived()
    refused = [answer for answer in answers if answer.reason == step["expect"]]
    problems = [bad for answer in answers for bad in checks.wrong_answer(run.world, answer, passes=False)]
    if len(arrived) != step["sent"] or len(refused) != step["together"] - step["sent"]:
        problems.append(f"{len(arrived)} arrived, {[(answer.status, answer.reason) for answer in answers]}")
    return problems


def stream_of(answer: Answer) -> str | None:
    """The id of the stream that continues after this answer."""
    message = answer_in(answer.raw) or {}
    content = message.get("result", {}).get("structuredContent")
    return content.get("stream") if isinstance(content, dict) else None


async def change_routes(run: Run, id: str, routes: list[Any]) -> list[str]:
    """Change the routes of a case, and wait until they are in effect."""
    run.routes[id] = routes
    run.world.take_records()
    before = await run.world.digests()
    run.world.policy(policy_of(run.name, run.door, run.routes))
    changed = 0
    async with asyncio.timeout(WAIT):
        while changed < len(run.world.nodes):
            await asyncio.sleep(0.02)
            changed += sum(
                one["phase"] == "outcome" and one["fields"]["kind"] == "policy" for one in run.world.take_records()
            )
    await run.world.agree(before)
    return []


async def broken(world: AttackWorld, text: str) -> list[str]:
    """Wait until an invalid policy was read; none of its rules is in effect then."""
    good = (world.folder / "policy.yaml").read_text("utf-8")
    world.policy(text.replace("{", "{{").replace("}", "}}"))
    console, own = f"http://{world.hosts['console']}", {"webmcp-gateway-client": "1"}
    async with local_client() as client, asyncio.timeout(WAIT):
        while True:
            async with client.get(f"{console}/api/state", headers=own) as answer:
                if any(problem["kind"] == "broken" for problem in (await answer.json())["problems"]):
                    break
            await asyncio.sleep(0.02)
    world.write_policy(good)
    return []


def at_path(value: Any, path: str) -> Any:
    """The step with the case's path: `@path@`, `@wire@` as backends receive it, and `@rest@` after `/api/open/`."""
    if isinstance(value, str):
        rest = path.removeprefix("/api/open/")
        return value.replace("@path@", path).replace("@wire@", f"/v1{path}").replace("@rest@", rest)
    if isinstance(value, list):
        return [at_path(part, path) for part in value]
    if isinstance(value, dict):
        return {name: at_path(part, path) for name, part in value.items()}
    return value

"""Every request case at every door: the same outcome, nothing outside the routes, no leaked credential."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attacks import checks
from tests.attacks.bridge_door import BridgeDoor
from tests.attacks.calls import AttackedDoor
from tests.attacks.corpus import REQUESTS, doors_of, family
from tests.attacks.doors import DOORS
from tests.attacks.world import AttackWorld


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REQUESTS)
async def test_the_cases_of_a_family_at_a_door(attacked_world: AttackWorld, door: str, name: str) -> None:
    """Each case has its expected outcome, and the invariants hold."""
    await hold(attacked_world, door, name)


@pytest.mark.parametrize("door", ["modern", "site"])
@pytest.mark.parametrize("name", REQUESTS)
async def test_the_cases_of_a_family_without_the_fast_path(slow_world: AttackWorld, door: str, name: str) -> None:
    """At the doors that have one otherwise."""
    await hold(slow_world, door, name)


async def hold(world: AttackWorld, door: str, name: str) -> None:
    """Try the cases of a family at a door."""
    cases = [case for case in family(name) if door in doors_of(case)]
    assert cases
    problems: list[str] = []
    async with DOORS[door](world) as way:
        if isinstance(way, BridgeDoor):
            way.moves = True
        for case in cases:
            found = await run_case(world, way, door, case)
            problems += [f"{case['id']} ({case['why']}): {problem}" for problem in found]
        healthy = {"id": "healthy", "why": "the gateway lives on", "url": "/api/exact", "expect": "ok"}
        problems += await run_case(world, way, door, {**healthy, "sent": "GET /v1/api/exact"})
    assert not problems, f"{len(problems)} problems at {door}:\n" + "\n".join(problems)


async def run_case(world: AttackWorld, way: AttackedDoor, door: str, case: dict[str, Any]) -> list[str]:
    """The violations after one case."""
    case = world.placed(case)
    main = world.backends["main"]
    main.answers = list(case.get("answers", []))
    world.take_arrived()
    world.take_records()
    world.take_errors()
    answer = await way.ask(case)
    arrived = world.take_arrived()
    records = world.take_records()
    problems = checks.differences(case, checks.expectation(case, door), answer, arrived, records)
    problems += [wrong for one in arrived if (wrong := checks.outside(one)) is not None]
    problems += [wrong for one in arrived for wrong in checks.wrong_request(one)]
    problems += checks.wrong_answer(world, answer, passes=case.get("passes", False))
    problems += checks.wrong_record(records, arrived)
    problems += [f"logged as an error: {line}" for line in world.take_errors()]
    return problems

"""Every case of a page or host that violates the bridge protocol: only its own connection is affected."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import aiohttp

from tests.attacks.bridge_door import BridgeDoor, bridge_door
from tests.attacks.corpus import family
from tests.attacks.world import AttackWorld

WAIT = 5.0
"""Seconds within which the gateway sends its messages."""

LAST = '{"open":{"ref":"last","app":"nowhere"}}'
"""A frame whose answer shows that the frames before it were processed."""


async def test_a_page_that_breaks_the_rules_harms_itself_alone(attacked_world: AttackWorld) -> None:
    """Each case is closed, refused or ignored as expected; another page keeps working, and no backend is reached."""
    problems: list[str] = []
    async with bridge_door(attacked_world) as other:
        for case in family("page"):
            problems += [
                f"{case['id']} ({case['why']}): {problem}" for problem in await run_case(attacked_world, other, case)
            ]
        healthy = await other.ask({"url": "/api/exact"})
    assert healthy.status == 200, "another page no longer works"
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


async def run_case(world: AttackWorld, other: BridgeDoor, case: dict[str, Any]) -> list[str]:
    """The violations after one case, on a separate connection."""
    door = BridgeDoor(world, other.client)
    world.take_arrived()
    world.take_errors()
    answers = case.get("answers", [])
    world.backends["main"].answers = [[{"hold": True}]] * 64 if "hold" in case else list(answers)
    used = await used_ticket(door)
    if case.get("fresh"):
        door.socket = await door.connect()
    else:
        await door.open()
    assert door.socket is not None
    places = {"@view@": door.view, "@other@": other.view, "@used@": used}
    frames = [frame for text in case["frames"] for frame in expand_frames(text, case, places)]
    heard = await heard_after(door.socket, [*frames, LAST], case["expect"])
    if door.socket.closed and "closed" not in str(heard):
        heard.append({"closed": None})
    for opened in [frame["opened"]["view"] for frame in heard if "opened" in frame]:
        await door.socket.send_str(json.dumps({"close": {"view": opened, "reason": "over"}}))
    await door.close()
    problems = differences(case["expect"], heard)
    if not case.get("arrives"):
        problems += [f"{one.line} reached {one.backend}" for one in world.take_arrived()]
    world.backends["main"].answers = []
    return problems + [f"logged as an error: {line}" for line in world.take_errors()]


async def used_ticket(door: BridgeDoor) -> str:
    """A ticket that has been used."""
    ticket = await door.ticket()
    async with await door.connect() as socket:
        await socket.send_str(json.dumps({"hello": {"ticket": ticket}}))
        await socket.send_str('{"open":{"ref":"1","app":"nowhere"}}')
        await socket.receive_str()
    return ticket


def expand_frames(text: Any, case: dict[str, Any], places: dict[str, str]) -> list[str]:
    """The frames that a text of a case expands to."""
    if isinstance(text, dict):
        template, times = text["$times"]
        return [
            frame
            for number in range(times)
            for frame in expand_frames(template.replace("#", str(number)), case, places)
        ]
    if "$json" in text:
        text = text.replace("$json", json.dumps(case["value"]))
    for name, value in places.items():
        text = text.replace(name, value)
    return [text]


async def heard_after(
    socket: aiohttp.ClientWebSocketResponse, frames: list[str], expected: Any
) -> list[dict[str, Any]]:
    """The gateway's frames after `frames`, until the expected ones have come or it closes: `{"closed": …}` then."""
    heard: list[dict[str, Any]] = []
    listening = asyncio.create_task(listen(socket, heard, expected))
    with suppress(ConnectionError):
        for frame in frames:
            await socket.send_str(frame)
    with suppress(TimeoutError):
        await asyncio.wait_for(listening, WAIT)
    return [frame for frame in heard if not is_last(frame)]


async def listen(socket: aiohttp.ClientWebSocketResponse, heard: list[dict[str, Any]], expected: Any) -> None:
    """Collect the gateway's frames in `heard`."""
    while not (any(map(is_last, heard)) and not differences(expected, heard)):
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            heard.append({"closed": message.data})
            return
        heard.append(json.loads(message.data))


def is_last(frame: dict[str, Any]) -> bool:
    """Whether the frame answers `LAST`."""
    error = frame.get("error")
    return isinstance(error, dict) and error.get("ref") == "last"


def differences(expected: Any, heard: list[dict[str, Any]]) -> list[str]:
    """The differences between the received frames and the expectation."""
    closed = any("closed" in frame for frame in heard)
    errors = [frame["error"] for frame in heard if "error" in frame and not is_last(frame)]
    calls = [frame["message"] for frame in heard if "message" in frame and "method" not in frame["message"]]
    told = [error["code"] for error in errors]
    if expected == "silent":
        expected = {}
        if errors or calls:
            return [f"expected silence, heard {heard}"]
    if "ends" in expected:
        codes = expected["ends"] if isinstance(expected["ends"], list) else [expected["ends"]]
        codes_told = told or (["closed"] if closed else [])
        return (
            []
            if closed and set(codes_told) & set(codes)
            else [f"expected the end with {codes}, heard {str(heard)[:300]}"]
        )
    problems = [f"the connection ended: {str(heard)[:300]}"] if closed else []
    if "told" in expected and expected["told"] not in told:
        problems.append(f"expected to be told {expected['told']}, heard {str(heard)[:300]}")
    if "answered" in expected:
        codes = [call["error"]["code"] for call in calls if "error" in call]
        if expected["answered"] not in codes:
            problems.append(f"expected the error {expected['answered']}, heard {str(heard)[:300]}")
    said = json.dumps(heard)
    if expected.get("holds", "") not in said:
        problems.append(f"expected {expected['holds']}, heard {said[:300]}")
    if "holds_not" in expected and expected["holds_not"] in said:
        problems.append(f"heard {expected['holds_not']}")
    return problems

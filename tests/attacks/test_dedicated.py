"""Every case at the origin of an app's frames: its page is for its own frame alone, once, and nothing else is there."""

import json
from urllib.parse import urlsplit

from tests.attacks.bridge_door import BridgeDoor, bridge_door
from tests.attacks.corpus import family
from tests.attacks.test_wire import run_case
from tests.attacks.wire import exchange
from tests.attacks.world import AttackWorld

FRAME = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")]
"""The fields of a browser that navigates a frame."""


async def test_a_page_waits_for_its_own_frame_alone(attacked_world: AttackWorld) -> None:
    """Each case is refused, takes nothing from the frame that the page waits for, and sets no cookie."""
    problems: list[str] = []
    async with bridge_door(attacked_world, apps=("neighbour",)) as door:
        await wait(attacked_world, door)
        for case in family("dedicated"):
            found = await run_case(attacked_world, case)
            if "@once@" in json.dumps(case) and case["id"] != "clear-once":
                found += await taken(attacked_world)
                await wait(attacked_world, door)
            problems += [f"{case['id']} ({case['why']}): {problem}" for problem in found]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


async def wait(world: AttackWorld, door: BridgeDoor) -> None:
    """Let a page wait for its frame."""
    url = urlsplit((await door.shown())["document"])
    world.places.update(frame=url.netloc, once=url.query.partition("=")[2])


async def taken(world: AttackWorld) -> list[str]:
    """The violations when its frame asks for the page, and again."""
    target, host = f"/?webmcp-gateway={world.places['once']}", ("host", world.places["frame"])
    answers = [await exchange(world.port, "GET", target, [host, *FRAME]) for _ in range(2)]
    problems = [] if "data-proxy" in answers[0].text else [f"its frame was refused: {answers[0].text[:200]}"]
    if answers[1].status != 403 or "data-proxy" in answers[1].text:
        problems.append(f"it was there twice: {answers[1].status}")
    return problems + [f"a cookie was set: {one.headers}" for one in answers if "set-cookie" in one.headers]

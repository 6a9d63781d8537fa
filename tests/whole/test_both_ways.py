"""The two ways that docs/architecture.md draws, a page's fetch and a model's call, are those that calls take."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mcp import Client

from tests.approvals.page import CartPage, show_cart
from tests.doors.bridge.test_bridge import console
from tests.whole.test_main_job import answer_next
from tests.world import EXAMPLE, World, running

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("\n## ")


def steps(heading: str) -> list[str]:
    """Return the steps in the gateway under a heading, with number, file and function."""
    (text,) = [table for table in TABLES if table.startswith(f"{heading}\n")]
    rows = re.findall(r"^\| (\d+) \| .* \| `(gateway/[\w/]+\.py)` \| `([\w.]+)` \|$", text, re.MULTILINE)
    return [f"{number} {file} {name}" for number, file, name in rows]


@contextmanager
def noted_calls() -> Iterator[list[str]]:
    """Yield the functions of the gateway that this thread calls in the block, in order."""
    calls: list[str] = []
    start = f"{ROOT}/"

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        # The argument of RESUME is 0 where a function begins, not where a coroutine goes on.
        begins = event == "call" and code.co_filename.startswith(f"{start}gateway/")
        if begins and not code.co_code[frame.f_lasti + 1] & 3:
            calls.append(f"{code.co_filename.removeprefix(start)} {code.co_qualname}")

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def untaken(expected: list[str], calls: list[str]) -> list[str]:
    """Return the steps from the first one on that was not taken after the steps before it."""
    left = iter(calls)
    for place, step in enumerate(expected):
        wanted = step.partition(" ")[2]
        if not any(call == wanted or call.startswith(f"{wanted}.") for call in left):
            return expected[place:]
    return []


@pytest.fixture
async def asking_world(tmp_path: Path) -> Any:
    """The cart example, in which a person is asked before the model may see the cart."""
    policy = (EXAMPLE / "policy.yaml").read_text("utf-8")
    asking = policy.replace("  get_cart: {}\n", '  get_cart: {confirm: {when: always, message: "Show it?"}}\n')
    assert asking != policy
    async with running(tmp_path, policy=asking) as world:
        yield world


async def test_a_fetch_takes_the_steps_of_its_table(world: World) -> None:
    """One that a person is asked about, which takes all of them."""
    table = steps("A page's fetch")
    opening, way = table[:2], table[2:]
    assert len(way) > 15
    async with console(world) as client:
        with noted_calls() as calls:
            async with show_cart(world, client) as page:
                assert untaken(opening, calls) == []
                calls.clear()
                answer = asyncio.ensure_future(page.fetch(url="/api/checkout", method="POST", body={}))
                await answer_next(client, world, "approve")
                async with asyncio.timeout(60):
                    assert "gateway-reason" not in (await answer)["headers"]
                assert untaken(way, calls) == []


async def test_a_call_of_a_model_takes_the_steps_of_its_table(asking_world: World) -> None:
    """One that a person is asked about, of a tool whose page then requests its backend."""
    world, way = asking_world, steps("A model's call")
    assert len(way) > 15
    async with console(world) as client, show_cart(world, client) as page:
        with noted_calls() as calls:
            assert await called(world, client, page) == "get_cart: 200"
        assert untaken(way, calls) == []


async def called(world: World, client: Any, page: CartPage) -> str:
    """Call the tool of the page as a model, with a person's approval; return the text of its result."""
    async with Client(f"{world.url}/mcp", mode="2026-07-28") as model, asyncio.timeout(60):
        call = asyncio.ensure_future(model.call_tool("cart_get_cart", {}))
        await answer_next(client, world, "approve")
        result = await call
    assert page.ran == ["get_cart"]
    text: str = result.content[0].text  # type: ignore[union-attr]  # a text, or the assertion fails
    return text

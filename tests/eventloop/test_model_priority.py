"""Calls of pages wait for a moment while the gateway handles a model's message."""

import asyncio

import pytest

from gateway.eventloop.model_priority import LATELY, MANY, ModelPriority


async def begin_page_call(precedence: ModelPriority, principal: str) -> asyncio.Task[None]:
    """Start a page's call and let it run until it waits or is done."""
    task = asyncio.ensure_future(precedence.turn(principal))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def rests(precedence: ModelPriority, principal: str) -> bool:
    """Return whether the reader of a body pauses now for this principal."""
    resting = asyncio.ensure_future(precedence.rest(principal))
    await asyncio.sleep(0)
    waits = not resting.done()
    await resting
    return waits


def priority_with_clock(now: list[float]) -> ModelPriority:
    """Priority by a clock that the test moves; its waits are short real ones."""
    return ModelPriority(lambda: now[0])


async def test_a_pages_call_waits_until_the_models_message_has_left() -> None:
    """Only calls of the same principal wait."""
    precedence = priority_with_clock([-1000.0])
    precedence.note_arrival("a")
    mine, others = await begin_page_call(precedence, "a"), await begin_page_call(precedence, "b")
    assert (mine.done(), others.done()) == (False, True)
    precedence.note_sent("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert mine.done()
    assert (await begin_page_call(precedence, "a")).done()


async def test_nobody_waits_for_a_message_that_never_leaves() -> None:
    """Each call waits for a moment only, and not for a message that arrived long ago."""
    now = [100.0]
    precedence = priority_with_clock(now)
    precedence.note_arrival("a")
    await precedence.turn("a")
    now[0] += 1
    assert (await begin_page_call(precedence, "a")).done()


@pytest.mark.parametrize("left", [True, False])
async def test_a_body_is_read_with_rests_while_a_model_calls(*, left: bool) -> None:
    """Whether or not the model's last message has left the gateway; long after it no reader pauses."""
    now = [100.0]
    precedence = priority_with_clock(now)
    precedence.note_arrival("a")
    if left:
        precedence.note_sent("a")
    assert [await rests(precedence, "a"), await rests(precedence, "b")] == [True, False]
    now[0] += LATELY
    assert not await rests(precedence, "a")


def test_what_never_left_is_forgotten() -> None:
    """However many principals arrive: expired entries are evicted."""
    now = [100.0]
    precedence = priority_with_clock(now)
    for number in range(5 * MANY):
        now[0] += 0.001
        precedence.note_arrival(f"somebody {number}")
    assert len(precedence) <= MANY

"""Calls of pages wait a moment while a model's message is in the gateway's hands."""

import asyncio

import pytest

from gateway.eventloop.model_priority import LATELY, MANY, Precedence


async def waiting(precedence: Precedence, principal: str) -> asyncio.Task[None]:
    """A page's call, as far as it gets at once."""
    task = asyncio.ensure_future(precedence.turn(principal))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def rests(precedence: Precedence, principal: str) -> bool:
    """Whether who reads a body for this principal waits now."""
    resting = asyncio.ensure_future(precedence.rest(principal))
    await asyncio.sleep(0)
    waits = not resting.done()
    await resting
    return waits


def ruled(now: list[float]) -> Precedence:
    """One whose clock a test moves; what waits, waits a little in truth."""
    return Precedence(lambda: now[0])


async def test_a_pages_call_waits_until_the_models_message_has_left() -> None:
    """And only the calls of the same principal."""
    precedence = ruled([-1000.0])
    precedence.come("a")
    mine, others = await waiting(precedence, "a"), await waiting(precedence, "b")
    assert (mine.done(), others.done()) == (False, True)
    precedence.gone("a")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert mine.done()
    assert (await waiting(precedence, "a")).done()


async def test_nobody_waits_for_a_message_that_never_leaves() -> None:
    """A moment each, and not for one that came long ago."""
    now = [100.0]
    precedence = ruled(now)
    precedence.come("a")
    await precedence.turn("a")
    now[0] += 1
    assert (await waiting(precedence, "a")).done()


@pytest.mark.parametrize("left", [True, False])
async def test_a_body_is_read_with_rests_while_a_model_calls(*, left: bool) -> None:
    """In whose hands its last message is, is all the same; and long after it nobody rests any more."""
    now = [100.0]
    precedence = ruled(now)
    precedence.come("a")
    if left:
        precedence.gone("a")
    assert [await rests(precedence, "a"), await rests(precedence, "b")] == [True, False]
    now[0] += LATELY
    assert not await rests(precedence, "a")


def test_what_never_left_is_forgotten() -> None:
    """However many principals come, those whose moment is over take no room."""
    now = [100.0]
    precedence = ruled(now)
    for number in range(5 * MANY):
        now[0] += 0.001
        precedence.come(f"somebody {number}")
    assert len(precedence) <= MANY

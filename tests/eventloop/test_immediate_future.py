"""An awaitable that resumes its task without a turn of the event loop."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from gateway.eventloop.immediate_future import ImmediateFuture

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def wait_value(arrival: ImmediateFuture[int], seen: list[object]) -> None:
    WHO.set("the task")
    try:
        seen.append(await arrival)
        seen.append(WHO.get())
    except BaseException as error:
        seen.append(type(error))
        raise


async def begin_wait(arrival: ImmediateFuture[int], seen: list[object]) -> asyncio.Task[None]:
    """Start a task and let it wait."""
    task = asyncio.get_running_loop().create_task(wait_value(arrival, seen))
    await asyncio.sleep(0)
    return task


def made() -> tuple[ImmediateFuture[int], list[object]]:
    return ImmediateFuture(asyncio.get_running_loop()), []


async def values_seen(arrival: ImmediateFuture[int], seen: list[object]) -> list[object]:
    """Return the values that the task has seen when the callback that set 7 ends."""
    found: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()

    def give() -> None:
        arrival.set_result(7)
        found.set_result([*seen])

    asyncio.get_running_loop().call_soon(give)
    return await found


async def test_the_task_goes_on_within_the_call_in_its_own_context() -> None:
    arrival, seen = made()
    task = await begin_wait(arrival, seen)
    assert await values_seen(arrival, seen) == [7, "the task"]
    await task
    assert WHO.get() == "nobody"


async def test_within_another_task_it_waits_for_its_turn() -> None:
    """Two tasks of one loop never run nested."""
    arrival, seen = made()
    task = await begin_wait(arrival, seen)
    arrival.set_result(7)
    assert seen == []
    await task
    assert seen == [7, "the task"]


async def test_what_was_there_before_is_taken() -> None:
    arrival, _ = made()
    arrival.set_result(7)
    assert arrival.done()
    assert await arrival == 7


@pytest.mark.parametrize("before", [True, False])
async def test_an_error_is_raised(before: bool) -> None:
    arrival, seen = made()
    if before:
        arrival.set_exception(KeyError())
    task = await begin_wait(arrival, seen)
    if not before:
        arrival.set_exception(KeyError())
    with pytest.raises(KeyError):
        await task


async def test_who_waits_can_be_cancelled_and_takes_nothing_then() -> None:
    arrival, seen = made()
    task = await begin_wait(arrival, seen)
    task.cancel()
    assert arrival.done()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [asyncio.CancelledError]


async def test_who_is_cancelled_after_it_came_hears_of_that_too() -> None:
    arrival, seen = made()
    task = await begin_wait(arrival, seen)
    arrival.set_result(7)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_ends_the_wait() -> None:
    arrival, _ = made()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await arrival

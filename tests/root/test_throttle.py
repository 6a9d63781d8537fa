"""Events that a caller can repeat are written a few times in a period, and summed up once at its end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.throttle import Throttle, ThrottledLog
from tests.clock import Clock


def test_each_key_has_its_own_limit() -> None:
    """Excess events are counted, and reported with the next one after the period."""
    clock, told = Clock(), list[tuple[str, int]]()
    throttle = Throttle[str](2, lambda key, more: told.append((key, more)), period=60.0, clock=clock)
    assert [throttle.take("a") for _ in range(5)] == [True, True, False, False, False]
    assert throttle.take("b")
    assert told == []
    clock.now += 60.0
    assert throttle.take("a")
    assert told == [("a", 3)]
    assert throttle.take("b")
    assert told == [("a", 3)]


def test_the_end_of_the_program_sums_up() -> None:
    """Nothing stays unreported, and nothing is reported twice."""
    told = list[tuple[str, int]]()
    throttle = Throttle[str](1, lambda key, more: told.append((key, more)))
    for _ in range(4):
        throttle.take("a")
    throttle.flush()
    throttle.flush()
    assert told == [("a", 3)]


async def test_the_end_of_a_period_sums_up_by_itself() -> None:
    """No further event is needed."""
    told = asyncio.get_running_loop().create_future()
    throttle = Throttle[str](1, lambda key, more: told.set_result((key, more)), period=0.01)
    assert [throttle.take("a") for _ in range(3)] == [True, False, False]
    assert await told == ("a", 2)


@pytest.mark.bound("log lines about refused callers, exceeded bounds and unrecorded refusals")
def test_log_lines_are_limited_by_kind_and_level(caplog: pytest.LogCaptureFixture) -> None:
    """A line below the log level takes no place."""
    clock, logger = Clock(), logging.getLogger("tests.throttle")
    caplog.set_level(logging.WARNING, "tests.throttle")
    limited = ThrottledLog(logger, count=2, clock=clock)
    for number in range(5):
        limited.write(logging.INFO, "callers refused", "quiet %d", number)
        limited.write(logging.WARNING, "callers refused", "refused %d", number)
    limited.write(logging.ERROR, "callers refused", "worse")
    assert [record.getMessage() for record in caplog.records] == ["refused 0", "refused 1", "worse"]
    clock.now += 60.0
    limited.write(logging.WARNING, "callers refused", "refused again")
    said = [(record.levelname, record.getMessage()) for record in caplog.records[3:]]
    assert said == [("WARNING", "3 more in the last 60 s: callers refused"), ("WARNING", "refused again")]

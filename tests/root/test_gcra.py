"""The rate algorithm: a burst of the count, then one per interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy import Rate, take


def _burst(rate: Rate, now: float, asks: int) -> list[bool]:
    tat, allowed = 0.0, []
    for _ in range(asks):
        taken = take(tat, now, rate)
        tat = taken.tat
        allowed.append(taken.allowed)
    return allowed


@pytest.mark.parametrize("count", [1, 3, 7, 20, 600, 10_000])
@pytest.mark.parametrize("period", [1.0, 60.0, 86400.0])
@pytest.mark.parametrize("now", [0.001, 3_000_000.123])
def test_burst_is_the_count(count: int, period: float, now: float) -> None:
    """Exactly the count passes at once, for any value of a monotonic clock."""
    assert _burst(Rate(count, period), now, count + 3).count(True) == count


def test_retry_after_is_when_it_passes() -> None:
    """A refusal gives the seconds until the next pass, and takes nothing."""
    rate = Rate(2, 10)
    tat = take(take(0, 100, rate).tat, 100, rate).tat
    refused = take(tat, 101, rate)
    assert (refused.allowed, refused.tat) == (False, tat)
    assert refused.retry_after == pytest.approx(4)
    assert take(tat, 101 + refused.retry_after, rate).allowed


@given(st.integers(1, 50), st.lists(st.floats(0, 5), min_size=1, max_size=200))
def test_never_more_than_two_counts_in_a_period(count: int, gaps: list[float]) -> None:
    """However requests are spread, a period has at most a burst and what refilled meanwhile."""
    rate, tat, now, passed = Rate(count, 10.0), 0.0, 50.0, []
    for gap in gaps:
        now += gap
        taken = take(tat, now, rate)
        tat = taken.tat
        if taken.allowed:
            passed.append(now)
    assert all(sum(start <= time < start + 10 for time in passed) <= 2 * count for start in passed)

"""The benchmark of Redis runs, and one call is one command, whatever its number of rates."""

from __future__ import annotations

import asyncio

from benchmarks.redis_costs import run, table


def test_each_call_is_one_command() -> None:
    """Also the reading of a view; the tables name each operation."""
    costs, delays = asyncio.run(run(60))
    assert {round(one.commands, 1) for one in costs} == {1.0}
    assert len(delays) == 4
    assert all(one.what in table(costs, delays) for one in costs)

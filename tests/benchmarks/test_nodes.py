"""The measurement of several processes works, and the plot in the documentation is that of the measured costs."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.capacity import README, Units, main, plot, read_units, table
from benchmarks.nodes import run
from benchmarks.nodes import table as nodes_table

DOCS = Path(__file__).parents[2] / "docs"


def test_the_plot_and_the_table_are_those_of_the_measured_costs(tmp_path: Path) -> None:
    """Whoever takes the costs again draws them again."""
    units = read_units(README.read_text("utf-8"))
    assert (DOCS / "capacity.svg").read_text("utf-8") == plot(units)
    assert table(units) in (DOCS / "scaling.md").read_text("utf-8")
    main([str(tmp_path / "plot.svg")])
    assert (tmp_path / "plot.svg").read_text("utf-8") == plot(units)


def test_one_redis_is_full_where_it_needs_a_processor() -> None:
    """Views use a part of it; with too many of them there is no room for a call."""
    units = Units(call=25.0, call_bytes=200.0, view=30.0, view_bytes=200.0)
    assert units.full_at(0) == 40_000
    assert units.processors(units.full_at(500_000), 500_000) == 1.0
    assert units.full_at(2_000_000) == 0.0


@pytest.mark.cluster
async def test_two_nodes_are_measured() -> None:
    """Calls at both nodes and idle views are answered; the figures have their lines."""
    options = argparse.Namespace(parts=["added", "idle"], calls=20, views=40, seconds=1.0, rounds=1)
    found = await run(options)
    assert found["added"].here > 0
    assert found["added"].elsewhere > 0
    assert found["idle"].answered == 40
    assert 0 <= found["idle"].oldest_lease < 7
    assert "at another node" in nodes_table(found)

"""A gateway at rest and each idle session and view stay within their memory limits, and policies reload."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import at_rest, reload
from benchmarks.errors import leaves
from benchmarks.idle import KINDS, measure, start
from benchmarks.memory import idle_table, reload_table, rest_table
from benchmarks.processes import Processes
from tests.leaks.marks import MARK

MOST_KIB = {"sessions": 300, "polls": 150, "pages": 150}
"""More than twice the memory of each when thousands are open."""

REST_MIB = 150
"""Far more than a gateway at rest takes."""


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
async def test_hundreds_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Each session has a stream, each page 25 views; all of them answer at the end."""
    monkeypatch.setenv("BENCH_SECRET", f"bench-{MARK}")
    with Processes(tmp_path) as processes:
        pid, port = start(processes, tmp_path, 250)
        held = await measure(kind, port, pid, 200)
    assert held.answered == 200
    assert held.kib < MOST_KIB[kind]
    assert "| 200 |" in " ".join(idle_table([held]).split())


@pytest.mark.parametrize(
    ("kind", "most", "count", "why"),
    [("sessions", 5, 6, "Too many open sessions"), ("pages", 26, 50, "26 views are open already")],
    ids=["sessions", "views"],
)
async def test_one_more_than_there_is_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, most: int, count: int, why: str
) -> None:
    """The bounds of the configuration apply."""
    monkeypatch.setenv("BENCH_SECRET", f"bench-{MARK}")
    monkeypatch.setattr("benchmarks.idle.PERSONS", 1)
    with Processes(tmp_path) as processes:
        pid, port = start(processes, tmp_path, most)
        with pytest.raises(ExceptionGroup, match="unhandled") as failed:
            await measure(kind, port, pid, count)
    assert why in str([*leaves(failed.value)])


def test_a_gateway_at_rest_is_measured(tmp_path: Path) -> None:
    """It starts, and answers at an app's site and at `/mcp`."""
    found = at_rest.measure(tmp_path)
    assert found.cpu > 0
    assert len(found.memory) == 3
    assert all(0 < one.pss <= one.rss < REST_MIB for one in found.memory.values())
    assert "CPU s until /readyz answers 200" in rest_table([found])


async def test_changed_policies_are_reloaded_while_requests_are_answered(tmp_path: Path) -> None:
    """One of three policies, then all of them."""
    folder = tmp_path / "files"
    folder.mkdir()
    with Processes(tmp_path) as processes:
        found = await reload.measure(processes, folder, 3)
    assert [one.changed for one in found] == [1, 3]
    assert all(0 < one.p99 <= one.longest for one in found)
    assert len({line.count("|") for line in reload_table(found).splitlines()}) == 1

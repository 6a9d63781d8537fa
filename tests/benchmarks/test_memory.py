"""Hundreds of idle sessions and views are open at once, each answers, and none exceeds its memory limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.errors import leaves
from benchmarks.memory import measure, start
from benchmarks.processes import Processes
from tests.leaks.marks import MARK

SESSION_KIB = 300
VIEW_KIB = 150
"""More than twice the memory of each when thousands are open."""


async def test_hundreds_are_held_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session has a stream, each page 25 views; all of them answer at the end."""
    monkeypatch.setenv("BENCH_SECRET", f"bench-{MARK}")
    with Processes(tmp_path) as processes:
        pid, port = start(processes, tmp_path, 200, 200)
        sessions, views = await measure(port, pid, 200, 200)
    assert (sessions.answered, views.answered) == (200, 200)
    assert sessions.kib < SESSION_KIB
    assert views.kib < VIEW_KIB


@pytest.mark.parametrize(
    ("sessions", "views", "why"),
    [(6, 25, "Too many open sessions"), (4, 50, "26 views are open already")],
    ids=["sessions", "views"],
)
async def test_one_more_than_there_is_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: int, views: int, why: str
) -> None:
    """The bounds of the configuration apply."""
    monkeypatch.setenv("BENCH_SECRET", f"bench-{MARK}")
    with Processes(tmp_path) as processes:
        pid, port = start(processes, tmp_path, 4, 25)
        with pytest.raises(ExceptionGroup, match="unhandled") as failed:
            await measure(port, pid, sessions, views)
    assert why in str([*leaves(failed.value)])

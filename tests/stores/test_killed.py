"""A process is killed at each step of a start and of a rotation: nothing that was written is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgresql import postgresql

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("times", "stride"), [(1, 7), pytest.param(3, 1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("part", "least"),
    [
        pytest.param("journal", 20, id="start-and-rotation-of-the-journal"),
        pytest.param("migration", 40, id="migration-of-the-database"),
        pytest.param("keys", 20, id="rotation-of-the-encryption-key"),
    ],
)
def test_a_process_that_is_killed_at_any_step_leaves_everything(
    tmp_path: Path, part: str, least: int, times: int, stride: int
) -> None:
    """At each call of the system and each statement of the database; the next process finds all that there was."""
    for time in range(times):
        folder = tmp_path / str(time)
        folder.mkdir()
        assert kills(part, folder, stride) >= least // stride


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_a_migration_in_postgresql_that_is_killed_at_any_step_leaves_everything(tmp_path: Path, stride: int) -> None:
    """The server undoes what was not committed, and the next process migrates."""
    with postgresql() as server:
        (tmp_path / "url").write_text(server.url, "utf-8")
        assert kills("postgresql", tmp_path, stride) >= 40 // stride


def kills(part: str, folder: Path, stride: int) -> int:
    """Return how often a process of this part was killed; each time the next one found everything."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.stores.killing", part, folder, str(stride)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return int(run.stdout.split()[-1])

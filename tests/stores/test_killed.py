"""A process is killed at each step of a start and of a rotation: nothing that was written is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
        run = subprocess.run(
            [sys.executable, "-m", "tests.stores.killing", part, folder, str(stride)],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        assert int(run.stdout.split()[-1]) >= least // stride

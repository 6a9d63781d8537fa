"""The simulation finds nothing, finds what was broken on purpose, and repeats itself (at length: `make simulation`)."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.leaks.watch import environment


async def simulate(*options: str) -> tuple[int, str]:
    """Run seeds in a process of their own, whose clocks are virtual; return its exit code and what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cluster.simulation", *options, env={**environment(), "PYTHONHASHSEED": "0"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.parametrize("seeds", ["1-24", "25-48", "49-72", "73-96"])
async def test_no_invariant_is_broken(seeds: str) -> None:
    """In some runs with faults of all kinds."""
    code, said = await simulate(seeds, "--jobs", "1")
    assert code == 0, said


@pytest.mark.parametrize(
    "checks", ["answers-once,effects-once,quota", "owner,hang,lease-check,sessions", "taints,confirm,revocation"]
)
async def test_the_simulation_finds_each_removed_check(checks: str) -> None:
    """Within a few seeds, with the command that repeats the run."""
    code, said = await simulate("1-60", "--break", checks, "--jobs", "1")
    assert code == 0, said
    assert said.count("PYTHONHASHSEED=0 python -m tests.cluster.simulation") == checks.count(",") + 1, said


async def test_a_seed_repeats_its_trace() -> None:
    """Word by word, in another process."""
    first, again = [await simulate("7", "--trace") for _ in range(2)]
    lines = first[1].splitlines()
    assert len(lines) > 20
    assert lines[:-1] == again[1].splitlines()[:-1]  # the last one has the time that it took

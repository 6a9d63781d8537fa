"""Runs seeds of the simulation, such as `1-10000`, or one with its trace: `4711 --trace`."""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

REPEAT: Final = "PYTHONHASHSEED=0 python -m tests.cluster.simulation {seed} --trace{options}"

EACH: Final = 50
"""Seeds that a forked process runs: their garbage stays."""

SHOWN: Final = 15.0
"""Seconds between two lines about the progress."""

ALL: Final = "all"
"""Stands for each of the mutants, one after another."""


class Run(NamedTuple):
    """One seed. `faults` are the kinds of faults, None for all; `broken` is the mutant; `seconds` is its length.

    None is a length by the seed.
    """

    seed: int
    faults: frozenset[str] | None
    broken: str
    seconds: float | None

    def command(self) -> str:
        """Return the command that repeats it."""
        options = f" --break {self.broken}" if self.broken else ""
        if self.faults is not None:
            options += f" --faults {','.join(sorted(self.faults)) or repr('')}"
        if self.seconds is not None:
            options += f" --seconds {self.seconds:g}"
        return REPEAT.format(seed=self.seed, options=options)


def main() -> int:
    """Run the seeds of the command line; return 1 if an invariant was broken, or a mutant was not found."""
    parser = argparse.ArgumentParser("python -m tests.cluster.simulation", description=__doc__)
    parser.add_argument("seeds", help="a seed, or a range such as 1-10000")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--faults", help="only these kinds of faults, separated by commas; empty for none")
    parser.add_argument("--break", dest="broken", default="", help=f"remove checks; tries each of several, or {ALL}")
    parser.add_argument("--seconds", type=float, help="virtual seconds until everything is healed; by the seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of texts must not differ between two runs
        os.execve(sys.executable, [sys.executable, "-m", "tests.cluster.simulation", *sys.argv[1:]], _environment())
    _prepare()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if options.broken == ALL or "," in options.broken:
        return _find_mutants(options.broken, seeds, options.jobs)
    faults = None if options.faults is None else frozenset(filter(None, options.faults.split(",")))
    return _report([Run(seed, faults, options.broken, options.seconds) for seed in seeds], options.jobs, options.trace)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _report(work: list[Run], jobs: int, trace: bool) -> int:
    """Run all, and print what was found."""
    began = shown = time.monotonic()
    count = broken = 0
    for run, problems, lines in _run_all(work, jobs):
        count += 1
        if problems:
            broken += 1
            print(f"seed {run.seed}: {problems[0]}\n  {run.command()}", flush=True)
        if trace:
            print("\n".join(lines))
        if (now := time.monotonic()) > shown + SHOWN:
            shown = now
            print(f"{count} of {len(work)} seeds, {broken} broken, {now - began:.0f} s", file=sys.stderr, flush=True)
    print(f"{count} seeds, {broken} broken, in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if broken else 0


def _find_mutants(names: str, seeds: range, jobs: int) -> int:
    """Run each mutant until the invariant is broken that it is there for; print the seed, or that none was found."""
    from tests.cluster.simulation.mutants import MUTANTS  # noqa: PLC0415  after the clocks

    missing = 0
    for name in MUTANTS if names == ALL else names.split(","):
        found, mutant = None, MUTANTS[name]
        for run, problems, _ in _run_all([Run(seed, mutant.faults, name, mutant.seconds) for seed in seeds], jobs):
            found = next((problem for problem in problems if mutant.finds in problem), None)
            if found is not None:
                print(f"{name}: seed {run.seed}: {found}\n  {run.command()}", flush=True)
                break
        else:
            missing += 1
            print(f"{name}: not found", flush=True)
    return 1 if missing else 0


def _run_all(work: list[Run], jobs: int) -> Iterator[tuple[Run, list[str], list[str]]]:
    if len(work) == 1:
        yield _run_one(work[0])
        return
    with multiprocessing.get_context("fork").Pool(min(jobs, len(work)), maxtasksperchild=EACH) as pool:
        yield from pool.imap_unordered(_run_one, work, chunksize=1)


def _prepare() -> None:
    """Replace the clocks, load the gateway, and run once, so that processes forked from here have all that runs share.

    Garbage is never collected: that takes longer than it takes to fork anew, and could happen within a run.
    """
    from tests.cluster.simulation.virtual_time import install  # noqa: PLC0415  it comes first, by intention

    install()
    logging.disable(logging.CRITICAL)  # faults are logged by the thousand
    sys.unraisablehook = lambda _: None  # what was killed is destroyed while it waits
    gc.disable()
    _run_one(Run(0, frozenset(), "", 8.0))


def _run_one(run: Run) -> tuple[Run, list[str], list[str]]:
    """Run one seed; return it with the broken invariants and its trace."""
    from tests.cluster.simulation.mutants import MUTANTS  # noqa: PLC0415  after the clocks
    from tests.cluster.simulation.play import play  # noqa: PLC0415  as above
    from tests.cluster.simulation.world import World  # noqa: PLC0415  as above

    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        world = World(run.seed, Path(folder), seconds=run.seconds, faults=run.faults)
        with MUTANTS[run.broken].enter() if run.broken else nullcontext():
            try:
                problems = world.run(play)
            except Exception as error:  # noqa: BLE001  a fault of the simulation, or of the gateway, ends one seed alone
                problems = [f"the run ended with {error!r}"]
    return run, problems, world.trace


if __name__ == "__main__":
    sys.exit(main())

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
from pathlib import Path

REPEAT = "PYTHONHASHSEED=0 python -m tests.cluster.simulation {seed} --trace{options}"


def main() -> int:
    """Run the seeds of the command line; return 1 if an invariant was broken."""
    parser = argparse.ArgumentParser("python -m tests.cluster.simulation", description=__doc__)
    parser.add_argument("seeds", help="a seed, or a range such as 1-10000")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    parser.add_argument("--faults", help="only these kinds of faults, separated by commas; empty for none")
    parser.add_argument("--break", dest="broken", default="", help="remove a check of the gateway, to see it found")
    parser.add_argument("--seconds", type=float, default=25.0, help="virtual seconds until everything is healed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--first", action="store_true", help="end at the first broken invariant")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets of texts must not differ between two runs
        os.execve(sys.executable, [sys.executable, "-m", "tests.cluster.simulation", *sys.argv[1:]], _environment())
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    began, count, broken = time.monotonic(), 0, 0
    for seed, problems, trace in _run_all(seeds, options):
        count += 1
        if problems:
            broken += 1
            again = "".join(f" --{name} {value}" for name, value in _given(options))
            print(f"seed {seed}: {problems[0]}\n  {REPEAT.format(seed=seed, options=again)}", flush=True)
        if options.trace:
            print("\n".join(trace))
        if count % 100 == 0 and sys.stderr.isatty():
            print(f"{count} of {len(seeds)} seeds, {broken} broken, {time.monotonic() - began:.0f} s", file=sys.stderr)
        if problems and options.first:
            break
    print(f"{count} seeds, {broken} broken, in {time.monotonic() - began:.0f} s", flush=True)
    return 1 if broken else 0


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": "0"}


def _given(options: argparse.Namespace) -> list[tuple[str, object]]:
    given = [("faults", options.faults), ("break", options.broken or None)]
    given += [("seconds", options.seconds if options.seconds != 25.0 else None)]
    return [(name, value if value != "" else "''") for name, value in given if value is not None]


def _run_all(seeds: range, options: argparse.Namespace) -> Iterator[tuple[int, list[str], list[str]]]:
    faults = None if options.faults is None else frozenset(filter(None, options.faults.split(",")))
    work = [(seed, faults, options.broken, options.seconds) for seed in seeds]
    jobs = min(options.jobs, len(work))
    if jobs == 1:
        _prepare()
        yield from map(_run_one, work)
        return
    with multiprocessing.get_context("fork").Pool(jobs, _prepare, maxtasksperchild=500) as pool:
        yield from pool.imap_unordered(_run_one, work, chunksize=1)


def _prepare() -> None:
    """Replace the clocks, then load the gateway."""
    from tests.cluster.simulation.virtual_time import install  # noqa: PLC0415  it comes first, by intention

    install()
    logging.disable(logging.CRITICAL)  # faults are logged by the thousand
    sys.unraisablehook = lambda _: None  # what was killed is destroyed while it waits
    import tests.cluster.simulation.play  # noqa: F401, PLC0415  after the clocks, which modules bind as defaults

    gc.collect()
    gc.freeze()
    gc.disable()  # the collector must not run in the middle of a run, whose random bytes it would use


def _run_one(work: tuple[int, frozenset[str] | None, str, float]) -> tuple[int, list[str], list[str]]:
    """Run one seed; return it with the broken invariants and its trace."""
    from tests.cluster.simulation.mutants import MUTANTS  # noqa: PLC0415  after the clocks
    from tests.cluster.simulation.play import play  # noqa: PLC0415  as above
    from tests.cluster.simulation.world import World  # noqa: PLC0415  as above

    seed, faults, broken, seconds = work
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        world = World(seed, Path(folder), seconds=seconds, faults=faults)
        with MUTANTS[broken]() as _:
            try:
                problems = world.run(play)
            except Exception as error:  # noqa: BLE001  a fault of the simulation, or of the gateway, ends one seed alone
                problems = [f"the run ended with {error!r}"]
        trace = world.trace
        del world
        gc.collect()
    return seed, problems, trace


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.memory`: start and memory of a gateway, memory of an idle view, the pause of a reload."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import at_rest, idle, reload, report
from benchmarks.errors import BenchmarkError, leaves
from benchmarks.processes import Processes

PARTS = ("rest", *idle.KINDS, "reload")


def rest_table(runs: Sequence[at_rest.Rest]) -> str:
    """Return the table of starts and of memory at rest."""
    head = ("at rest", *(f"run {number + 1}" for number in range(len(runs))))
    lines = [("CPU s until /readyz answers 200", *(f"{run.cpu:.2f}" for run in runs))]
    lines.append(("wall-clock s until then", *(f"{run.seconds:.2f}" for run in runs)))
    for moment in runs[0].memory:
        found = [run.memory[moment] for run in runs]
        lines.append((f"MiB RSS {moment}", *(f"{one.rss:.1f}" for one in found)))
        lines.append(
            (
                f"MiB PSS {moment}, with child processes",
                *(f"{one.pss + one.children_pss:.1f} ({one.children})" for one in found),
            )
        )
    return report.table(head, lines)


def idle_table(held: Iterable[idle.Held]) -> str:
    """Return the table of idle sessions and views."""
    return report.table(
        ("held at once", "how many", "KiB each", "opened in s", "answered at the end"),
        ((one.what, f"{one.count:,}", f"{one.kib:.1f}", f"{one.seconds:.1f}", f"{one.answered:,}") for one in held),
    )


def reload_table(found: Iterable[reload.Reload]) -> str:
    """Return the table of reloads."""
    head = (
        *("policies changed", "in effect after s", "longest step, CPU ms", "longest answer ms", "p99 ms"),
        *("longest answer before", "bare ms"),
    )
    return report.table(
        head, ((str(one.changed), f"{one.seconds:.1f}", *(f"{ms:.1f}" for ms in one.times)) for one in found)
    )


def run(parts: Sequence[str], rounds: int, views: int, policies: int) -> list[str]:
    """Measure, and return the tables. Raises `BenchmarkError`."""
    starts, held, reloads = list[at_rest.Rest](), list[idle.Held](), list[reload.Reload]()
    for number in range(rounds):
        for part in parts:

            def tell(what: str, part: str = part, number: int = number) -> None:
                print(f"round {number + 1} of {rounds}, {part}: {what}", file=sys.stderr)

            tell("begins")
            with tempfile.TemporaryDirectory(prefix="benchmark-") as name, Processes(Path(name)) as processes:
                folder = Path(name) / "files"
                folder.mkdir()
                if part == "rest":
                    starts.append(at_rest.measure(folder, tell))
                elif part == "reload":
                    reloads += asyncio.run(reload.measure(processes, folder, policies, tell))
                else:
                    pid, port = idle.start(processes, folder, views + idle.PER_PAGE)
                    held.append(asyncio.run(idle.measure(part, port, pid, views, tell)))
    tables = [rest_table(starts)] if starts else []
    tables += [idle_table(held)] if held else []
    return [*tables, reload_table(reloads)] if reloads else tables


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--views", type=int, default=10_000, help="sessions or views held at once")
    parser.add_argument("--policies", type=int, default=100, help="apps, each with its own policy, that are reloaded")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the gateway that runs is ended, too
    if unknown := [part for part in given.parts if part not in PARTS]:
        parser.error(f"there is no {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    failed, tables = "", list[str]()
    try:
        tables = run(given.parts or PARTS, given.rounds, given.views, given.policies)
    except* BenchmarkError as errors:
        failed = "\n".join(map(str, leaves(errors)))
    if failed:
        sys.exit(failed)
    print(", ".join(f"{name} {value}" for name, value in report.machine().items()), *tables, sep="\n\n")


if __name__ == "__main__":
    main()

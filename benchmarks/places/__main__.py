"""The command `python -m benchmarks.places`: the same page in three places, each in a Chromium of its own, by turns."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

from benchmarks.chromium import show
from benchmarks.errors import BenchmarkError
from benchmarks.places.backend import POLICY, SOURCE
from benchmarks.processes import Processes, free_port
from benchmarks.targets import SERVE, module

PLACES: Final = ("backend", "site", "view")
"""At the backend itself, on the app's own site, in a view of the console."""

WITHIN: Final = 120.0
"""Seconds that a task of a page may take."""

TASKS: Final = (("small", 20), ("together", 32), ("down", 10), ("up", 10), ("events", 20))
"""What a page measures in each round: the number of requests or events, or MiB."""

LABELS: Final = {
    "small head": "a small request, until its head is there",
    "small whole": "a small request, whole",
    "together whole": "32 small requests side by side",
    "down whole": "10 MiB down",
    "up whole": "10 MiB up",
    "events latency": "from sending an event until the page has it",
}

GOALS: Final = (
    ("small head", "site", 1.2),
    ("small whole", "site", 1.0),
    ("together whole", "site", 1.0),
    ("down whole", "backend", 2.0),
    ("up whole", "backend", 2.0),
    ("events latency", "site", 1.5),
)
"""How many times the median of another place the view's may be."""

_HEAD = """\
| median ms | backend | site | view | view ÷ | goal | |
|---|--:|--:|--:|--:|--:|---|"""

_CONFIG = """\
server:
  listen: 127.0.0.1:{port}
apps:
  places:
    source: {source}
    policy: policy.yaml
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; exit code 1 with a reason on failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.places", description="Measure a page in three places.")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each place")
    names = [name for name, _ in TASKS]
    parser.add_argument("--task", action="append", choices=names, help="what is measured; all by default")
    given = parser.parse_args(arguments)
    rounds, tasks = given.rounds, [(name, amount) for name, amount in TASKS if name in (given.task or names)]
    try:
        # A browser may still write while its folder is removed.
        with (
            tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as folder,
            Processes(Path(folder)) as processes,
        ):
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            _measure(Path(folder), processes, rounds, tasks)
    except BenchmarkError as error:
        sys.exit(str(error))


def _measure(folder: Path, processes: Processes, rounds: int, tasks: Sequence[tuple[str, int]]) -> None:
    backend = processes.start("backend", module("benchmarks.places.backend")).port
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(_CONFIG.format(port=port, source=SOURCE), "utf-8")
    (folder / "policy.yaml").write_text(POLICY.format(port=backend), "utf-8")
    processes.start("gateway", [sys.executable, "-c", SERVE, "serve", "--config", str(config)], port=port)
    urls = {
        "backend": f"http://127.0.0.1:{backend}/?place=backend",
        "site": f"http://places.localhost:{port}/?place=site",
        "view": f"http://localhost:{port}",
    }
    for place in PLACES:
        show(urls[place], folder / place, processes)
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(-1, rounds):  # the first turn of each place is not counted: connections and code are new
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for place, what, taken in _round(backend, tasks):
            if number >= 0:
                times[what][place].extend(taken)
    print_table({what: {place: statistics.median(all_) for place, all_ in by.items()} for what, by in times.items()})


def _round(backend: int, tasks: Sequence[tuple[str, int]]) -> Iterator[tuple[str, str, list[float]]]:
    """Let each place do each task in turn; yield what it measured, in milliseconds."""
    for measure, amount in tasks:
        for place in PLACES:
            result = _run(backend, place, {"measure": measure, "amount": amount})
            if "error" in result:
                raise BenchmarkError(f"{measure} failed in the {place}: {result['error']}")
            for name, taken in result.items():
                yield place, f"{measure} {name}", taken


def _run(backend: int, place: str, task: Mapping[str, Any]) -> dict[str, Any]:
    body = json.dumps(task).encode()
    try:
        with urlopen(Request(f"http://127.0.0.1:{backend}/run/{place}", body), timeout=WITHIN) as answer:
            result: dict[str, Any] = json.load(answer)
            return result
    except OSError as error:
        raise BenchmarkError(f"The page in the {place} did not answer: {error}") from error


def print_table(medians: Mapping[str, Mapping[str, float]]) -> None:
    """Print the medians of each place, and how many times another place's the view takes."""
    print(_HEAD)
    for what, than, goal in GOALS:
        if (by := medians.get(what)) is None:
            continue
        ratio = by["view"] / by[than]
        figures = " | ".join(f"{by[place]:.1f}" for place in PLACES)
        verdict = "met" if ratio <= goal else "not met"
        print(f"| {LABELS[what]} | {figures} | {than}: {ratio:.2f} | {goal:g} | {verdict} |")


if __name__ == "__main__":
    main()

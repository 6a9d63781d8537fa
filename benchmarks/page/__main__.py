"""The command `python -m benchmarks.page`: Chromium shows a page in a view, which is measured."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chromium import show
from benchmarks.errors import BenchmarkError
from benchmarks.page.backend import POLICY, SOURCE
from benchmarks.page.model import Idle, Model
from benchmarks.processes import ROOT, Processes, Running, free_port
from benchmarks.targets import SERVE, module

CHUNKS = 50 * 16
"""The number of 64 KiB chunks in 50 MiB."""

GOAL = 50.0
"""Milliseconds that a model's call may take, whatever the page does."""

READY_WITHIN = 30.0
SETTLED = 2.0
"""Seconds after which the host page has finished its work of opening an app."""

_WORK = (
    ("a model's call, nothing else", "rest", 3000),
    ("a model's call, 50 MiB up", "upFile", CHUNKS),
    ("a model's call, 50 MiB down", "downOnly", CHUNKS),
    ("a model's call, 1,000 fetches at once", "many", 1000),
)
"""The concurrent work of the page, and its amount."""

_HEAD = """\
| what | calls | median ms | p99 ms | longest ms | seconds | bare ms | others |
|---|--:|--:|--:|--:|--:|--:|--:|"""

_CONFIG = """\
server:
  listen: 127.0.0.1:{port}
apps:
  bulk:
    source: {source}
    policy: policy.yaml
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """The times of a model's calls during one kind of work of the page, and its outcome; times in milliseconds.

    `others` is the average number of processors that other programs used; NaN if the system does not report it.
    """

    calls: Sequence[float]
    seconds: float
    bare: float
    others: float
    outcome: Any

    def line(self, label: str) -> str:
        """Return a line of the table."""
        ordered = sorted(self.calls)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        figures = (statistics.median(ordered), p99, ordered[-1], self.seconds, self.bare, self.others)
        return " | ".join(["", label, str(len(ordered)), *(f"{figure:.1f}" for figure in figures), ""]).strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; exit code 1 with a reason on failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="Measure a page in a view.")
    parser.add_argument("--rounds", type=int, default=300, help="fetches, and calls by hand, that are timed")
    parser.add_argument("--part", type=float, default=1.0, help="of the bytes and of the fetches; 1: all of them")
    given = parser.parse_args(arguments)
    try:
        # A browser may still write while its folder is removed.
        with (
            tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as folder,
            Processes(Path(folder)) as processes,
        ):
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            _measure(Path(folder), processes, given.rounds, given.part)
    except BenchmarkError as error:
        sys.exit(str(error))


def start(folder: Path, processes: Processes) -> Running:
    """Start a gateway in front of the backend."""
    backend = processes.start("backend", module("benchmarks.page.backend"))
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(_CONFIG.format(port=port, source=SOURCE), "utf-8")
    (folder / "policy.yaml").write_text(POLICY.format(port=backend.port), "utf-8")
    command = [sys.executable, "-c", SERVE, "serve", "--config", str(config)]
    return processes.start("gateway", command, port=port)


@dataclass(frozen=True, slots=True)
class _Bench:
    """The measurement of a model's calls; the server at port `idle` is otherwise idle."""

    model: Model
    idle: int
    processes: Processes

    def calls(self, part: float) -> None:
        """Print the times of a model's calls during each kind of work, as a table."""
        print(_HEAD)
        late = []
        for label, what, much in _WORK:
            phase = self._during(what, max(1, int(much * part)))
            print(phase.line(label), flush=True)
            late += [label] if max(phase.calls) > GOAL else []
        print(f"\nNo call may take more than {GOAL:g} ms: {'not met: ' + '; '.join(late) if late else 'met'}.")

    def fetches(self, rounds: int) -> None:
        """Compare a fetch with the same call by hand, in turn, with both channels busy."""
        times = self._during("compare", rounds).outcome
        fetched, by_hand = (statistics.median(times[name]) for name in ("fetch", "hand"))
        print(f"`fetch` {fetched:.2f} ms, the same call by hand {by_hand:.2f} ms (medians of {rounds}): ", end="")
        print(f"{fetched - by_hand:+.2f} ms, {fetched / by_hand:.2f} times")

    def _during(self, what: str, much: int) -> Phase:
        """Measure calls while the page does `much` of `what`."""
        calls = []
        used, began = self.processes.others_seconds(), time.perf_counter()
        self.model.call("bulk_work", {"what": what, "much": much})
        with Idle(self.idle) as bare:
            over = False
            while not over:
                asked = time.perf_counter()
                told = self.model.call("bulk_ping", {})
                calls.append((time.perf_counter() - asked) * 1000)
                over = told["over"]
        seconds, ended = time.perf_counter() - began, self.processes.others_seconds()
        others = float("nan") if used is None or ended is None else max(0.0, ended - used) / seconds
        outcome = told["outcome"]
        if outcome.get("status", 200) != 200:
            raise BenchmarkError(f"The page got {outcome}")
        return Phase(calls, seconds, bare.longest, others, outcome)


def _measure(folder: Path, processes: Processes, rounds: int, part: float) -> None:
    idle = processes.start("idle", module("benchmarks.backend")).port
    gateway = start(folder, processes).port
    show(f"http://localhost:{gateway}", folder / "profile", processes)
    with Model(gateway) as model:
        _ready(model)
        bench = _Bench(model, idle, processes)
        bench.calls(part)
        bench.fetches(rounds)


def _ready(model: Model) -> None:
    """Wait until the page's tools are offered, and a while longer."""
    deadline = time.monotonic() + READY_WITHIN
    while True:
        try:
            model.call("bulk_ping", {})
            break
        except BenchmarkError as error:
            if time.monotonic() > deadline:
                hint = f"{ROOT}/gateway/static may be older than the sources."
                raise BenchmarkError(f"The page's tools are not there; {hint} {error}") from error
        time.sleep(0.1)
    time.sleep(SETTLED)


if __name__ == "__main__":
    main()

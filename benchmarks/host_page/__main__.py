"""The command `python -m benchmarks.host_page`: an app's calls and its start, over the bridge and with HTTP posts."""

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
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.chromium import show
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Processes, free_port
from benchmarks.targets import SERVE, module

WAYS: Final = ("bridge", "posts")
WITHIN: Final = 60.0
"""Seconds that a page may take for one turn."""

LABELS: Final = {
    "call": "a simple tool call of the app, and back",
    "start": "from inserting the element to the app's first script",
    "first": "the same in a page that was just loaded, without `preloadMcpApp`",
}
GOALS: Final = {"call": 10.0, "start": 120.0, "first": 120.0}
"""Milliseconds of the bridge's median."""

_CONFIG: Final = """\
server:
  listen: 127.0.0.1:{port}
hosts:
  - {{origin: "http://host.localhost:{page}", apps: [page]}}
upstreams:
  page: {{url: "http://127.0.0.1:{upstream}/mcp", network: private, policy: policy.yaml}}
"""
_POLICY: Final = "version: 1\ntools:\n  now: {}\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; exit code 1 with a reason on failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_page", description="Measure apps on a host page.")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each way")
    rounds = parser.parse_args(arguments).rounds
    try:
        with (
            tempfile.TemporaryDirectory(prefix="benchmark-", ignore_cleanup_errors=True) as folder,
            Processes(Path(folder)) as processes,
        ):
            print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
            _measure(Path(folder), processes, rounds)
    except BenchmarkError as error:
        sys.exit(str(error))


def _measure(folder: Path, processes: Processes, rounds: int) -> None:
    upstream = processes.start("upstream", module("benchmarks.host_page.server")).port
    posts = f"http://127.0.0.1:{upstream}/mcp"
    page = processes.start("page", [*module("benchmarks.host_page.server"), "--upstream", posts]).port
    port = free_port()
    config = folder / "gateway.yaml"
    config.write_text(_CONFIG.format(port=port, page=page, upstream=upstream), "utf-8")
    (folder / "policy.yaml").write_text(_POLICY, "utf-8")
    processes.start("gateway", [sys.executable, "-c", SERVE, "serve", "--config", str(config)], port=port)
    query = urlencode({"gateway": f"http://gateway.localhost:{port}/", "rounds": rounds})
    show(f"http://host.localhost:{page}/?{query}", folder / "host", processes)
    times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    steps: dict[str, list[float]] = defaultdict(list)
    for result in _results(page, rounds):
        times["call"][result["way"]].extend(result["calls"])
        times["start" if result["preloaded"] else "first"][result["way"]].append(result["start"])
        if result["way"] == "bridge" and not result["preloaded"]:
            for step, time in result["steps"].items():
                steps[step].append(time)
    print_table({what: {way: statistics.median(all_) for way, all_ in by.items()} for what, by in times.items()})
    print_steps({step: statistics.median(all_) for step, all_ in steps.items()})


def _results(page: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield what the page measured in each turn, preloaded and then not; the first of each way is not counted."""
    for _ in range((rounds + 1) * len(WAYS) * 2):
        try:
            with urlopen(f"http://127.0.0.1:{page}/result", timeout=WITHIN) as answer:
                result: dict[str, Any] = json.load(answer)
        except (OSError, TimeoutError) as error:
            raise BenchmarkError(f"The page measured nothing: {error}") from error
        if "error" in result:
            raise BenchmarkError(f"{result['way']}: {result['error']}")
        if result["round"] >= 0:
            yield result


def print_table(medians: Mapping[str, Mapping[str, float]]) -> None:
    """Print the medians, with the goal of the bridge."""
    print("| median ms | bridge | HTTP posts | goal | |\n|---|--:|--:|--:|---|")
    for what, label in LABELS.items():
        bridge, posts = (medians[what][way] for way in WAYS)
        met = "met" if bridge <= GOALS[what] else "not met"
        print(f"| {label} | {bridge:.1f} | {posts:.1f} | {GOALS[what]:g} | {met} |")


def print_steps(medians: Mapping[str, float]) -> None:
    """Print when each step of a start without `preloadMcpApp` was done."""
    done = sorted(medians.items(), key=lambda one: one[1])
    steps = ", ".join(f"{step} {at:.0f}" for step, at in done)
    print("\nWithout `preloadMcpApp`, over the bridge, after the element was inserted, in ms:", steps)


if __name__ == "__main__":
    main()

"""The command `python -m benchmarks`: measure, print the tables, write JSON."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import decide, report, rounds, targets, upstream
from benchmarks.errors import BenchmarkError
from benchmarks.processes import Processes


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure as the command line demands; exit code 1 with a reason on failure."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    started, about = time.monotonic(), report.machine()
    progress = _Progress()
    plan = rounds.Plan(given.rounds, given.connections, given.requests, given.seconds, given.warm_up)
    try:
        decided = []
        for routes in given.decide:
            progress.tell(f"decisions, {routes:,} routes")
            decided.append(decide.measure(routes))
        progress.tell("starting the servers")
        with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, Processes(Path(folder)) as processes:
            measured = targets.start(processes, Path(folder), given.routes, given.config)
            samples = rounds.run(plan, measured, progress.tell)
            place = Path(folder) / "upstream"
            place.mkdir()
            called = rounds.run(plan, upstream.start(processes, place), progress.tell, upstream.peer)
            progress.tell("ending the servers")
    except BenchmarkError as error:
        progress.end()
        sys.exit(str(error))
    except KeyboardInterrupt:
        progress.end()
        sys.exit(130)
    progress.end()
    print(report.as_text(about, samples, decided, upstream.table(called)))
    print(f"\n{plan.rounds} rounds, a gateway with {given.routes:,} routes, {time.monotonic() - started:.0f} seconds")
    if given.json is not None:
        settings = {**asdict(plan), "routes": given.routes}
        given.json.write_text(
            json.dumps(report.as_json(about, settings, samples, decided, called), indent=2) + "\n", "utf-8"
        )


class _Progress:
    """Progress in one line on the standard error, overwritten; without a terminal, a line for each step."""

    def __init__(self) -> None:
        self._over = sys.stderr.isatty()

    def tell(self, what: str) -> None:
        print(f"\r\033[K{what}" if self._over else what, end="" if self._over else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._over:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _leave(number: int, _: object) -> None:
    raise KeyboardInterrupt  # so that the servers are ended as after Ctrl-C


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the gateway beside a bare proxy and the MCP SDK's own way, all in one run.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--rounds", type=_count, default=2, help="how often each server is measured")
    parser.add_argument("--connections", type=_counts, default="1,32", metavar="N,N", help="at once")
    parser.add_argument("--requests", type=_count, default=100_000, help="the most in one run of the load")
    parser.add_argument("--seconds", type=float, default=5.0, help="the longest of one run")
    parser.add_argument("--warm-up", type=float, default=0.2, metavar="SECONDS", help="before each run")
    parser.add_argument("--routes", type=_count, default=10_000, help="in the policy of the gateway")
    parser.add_argument("--config", default="", metavar="YAML", help="more lines for the gateway's configuration")
    parser.add_argument(
        "--decide", type=_counts, default="10,1000,10000,100000", metavar="N,N", help="routes to decide over"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(","))


if __name__ == "__main__":
    main()

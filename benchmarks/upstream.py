"""`python -m benchmarks.upstream`: a tool of an upstream called through the gateway, beside calling it directly."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import gateway_files, report, rounds
from benchmarks.backend import PATH
from benchmarks.processes import Processes, free_port
from benchmarks.rounds import Sample
from benchmarks.targets import SERVE, Target, call

DIRECT = "directly"
THROUGH = "through the gateway"
TOOLS = {"item": "answers by itself", "http_request": "asks its backend"}

_SERVE = [sys.executable, "-c", SERVE, "serve", "--config"]


def start(processes: Processes, folder: Path) -> list[Target]:
    """Start an upstream on the MCP SDK with its backend, and the gateway before it. Raises `BenchmarkError`."""
    backend = processes.start("backend", [sys.executable, "-m", "benchmarks.backend"])
    origin = f"http://127.0.0.1:{backend.port}"
    sdk = processes.start("sdk", [sys.executable, "-m", "benchmarks.sdk_server", "--backend", origin])
    port = free_port()
    upstream = f"http://127.0.0.1:{sdk.port}/mcp"
    config = gateway_files.write(folder, port=port, backend=origin, routes=10, upstream=upstream)
    os.environ.setdefault("BENCH_SECRET", "bench")
    gateway = processes.start("gateway", [*_SERVE, str(config)], port=port)
    found = []
    for tool in TOOLS:
        asked = {"url": PATH}
        direct = call(f"127.0.0.1:{sdk.port}", "/mcp", asked, tool)
        through = call(f"127.0.0.1:{port}", "/mcp/sdk", asked, tool)
        found.append(Target(f"{tool} {DIRECT}", sdk.pid, sdk.port, direct))
        found.append(Target(f"{tool} {THROUGH}", gateway.pid, port, through))
    return found


def table(samples: Sequence[Sample]) -> str:
    """Return the table, in Markdown.

    By CPU time: the upstream's time for a call, relative to that of upstream and gateway together.
    """
    lines = [
        "| tool | connections | of calling it directly | lowest–highest | by CPU time | p50 ms | p99 ms "
        "| calls/s | upstream CPU ms | gateway CPU ms |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for tool, words in TOOLS.items():
        for connections in sorted({sample.connections for sample in samples}):
            direct = _of(samples, f"{tool} {DIRECT}", connections)
            through = _of(samples, f"{tool} {THROUGH}", connections)
            ratios = [after.rate / before.rate for before, after in zip(direct, through, strict=True)]
            # Direct and proxied calls share the upstream's time equally per call.
            upstream = _cpu(direct) * statistics.median(map(_share, direct, through))
            gateway = _cpu(through)
            p50, p99 = (_median(through, which) for which in (_p50, _p99))
            lines.append(
                f"| {tool}, which {words} | {connections} | {statistics.median(ratios):.2f} "
                f"| {min(ratios):.2f}–{max(ratios):.2f} | {upstream / (upstream + gateway):.2f} "
                f"| {p50:.2f} | {p99:.2f} "
                f"| {_median(through, lambda one: one.rate):.0f} | {upstream:.2f} | {gateway:.2f} |"
            )
    return "\n".join(lines)


def peer(server: str) -> str:
    """Return the direct call of the same tool."""
    return server.replace(THROUGH, DIRECT)


def _of(samples: Sequence[Sample], server: str, connections: int) -> list[Sample]:
    return [one for one in samples if one.server == server and one.connections == connections]


def _share(direct: Sample, through: Sample) -> float:
    return direct.measured.answered / (direct.measured.answered + through.measured.answered)


def _cpu(samples: Sequence[Sample]) -> float:
    return _median(samples, lambda one: one.server_ms if one.server_ms is not None else float("nan"))


def _median(samples: Sequence[Sample], which: Callable[[Sample], float]) -> float:
    return statistics.median(which(one) for one in samples)


def _p50(sample: Sample) -> float:
    return sample.measured.p50_ms


def _p99(sample: Sample) -> float:
    return sample.measured.p99_ms


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.upstream", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")
    parser.add_argument("--requests", type=int, default=20_000, help="the most in one run of the load")
    parser.add_argument("--seconds", type=float, default=1.0, help="the longest of one run")
    given = parser.parse_args(arguments)
    about = report.machine()
    plan = rounds.Plan(given.rounds, (1, 32), given.requests, given.seconds, 0.3)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, Processes(Path(folder)) as processes:
        samples = rounds.run(plan, start(processes, Path(folder)), lambda what: print(what, file=sys.stderr), peer)
    print(", ".join(f"{name} {value}" for name, value in about.items()), end="\n\n")
    print(table(samples))


if __name__ == "__main__":
    main()

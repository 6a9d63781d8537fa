"""The benchmark measures what it claims to; speed itself is never tested."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks import backend
from benchmarks.decide import measure
from benchmarks.errors import BenchmarkError
from benchmarks.load import Load, Measured, percentile, run
from benchmarks.processes import ROOT, Processes
from benchmarks.report import rows
from benchmarks.rounds import Sample
from tests.leaks.marks import MARK
from tests.leaks.watch import environment

SERVERS = [
    "bare proxy",
    "bare proxy, POST",
    "gateway, site door",
    "gateway, /mcp door",
    "gateway, /mcp door, POST",
    "gateway with aiohttp's server, site door",
    "gateway with aiohttp's server, /mcp door",
    "gateway with aiohttp's client, site door",
    "gateway with aiohttp's client, /mcp door",
    "gateway with both of aiohttp, site door",
    "gateway with both of aiohttp, /mcp door",
    "MCP SDK + uvicorn + httpx",
]
LOOKED_AT = {**environment(), "BENCH_SECRET": f"bench-{MARK}"}
TINY = ["--rounds", "1", "--requests", "50", "--warm-up", "0", "--seconds", "20", "--routes", "20", "--decide", "10,20"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """The output of one tiny run, and its JSON."""
    file = tmp_path_factory.mktemp("bench") / "figures.json"
    command = [sys.executable, "-m", "benchmarks", *TINY, "--json", str(file)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False, env=LOOKED_AT)
    assert ended.returncode == 0, ended.stderr
    assert "round 1 of 1: gateway, /mcp door" in ended.stderr
    return ended.stdout, json.loads(file.read_text("utf-8"))


@pytest.mark.soak
def test_every_server_is_measured_at_1_and_32_connections(bench: tuple[str, dict[str, Any]]) -> None:
    """Each is measured in every round, with the requested number of answers."""
    samples = bench[1]["samples"]
    expected = {(server, connections, 0) for server in SERVERS for connections in (1, 32)}
    assert {(one["server"], one["connections"], one["round"]) for one in samples} == expected
    assert {one["measured"]["requests"] for one in samples} == {50}


@pytest.mark.soak
def test_ratios_are_to_the_bare_proxy(bench: tuple[str, dict[str, Any]]) -> None:
    """The bare proxy's own ratio is 1, and others lie between the lowest and the highest of their rounds."""
    found = bench[1]["servers"]
    assert [row["rate_ratio"] for row in found if row["server"].startswith("bare proxy")] == [1.0] * 4
    assert all(0 < row["lowest"] <= row["ratio"] <= row["highest"] for row in found)
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in found)


@pytest.mark.soak
def test_decisions_are_measured_over_growing_policies(bench: tuple[str, dict[str, Any]]) -> None:
    """There is a row for each length."""
    assert [one["routes"] for one in bench[1]["decide"]] == [10, 20]
    assert all(one["cold_us"] > 0 and one["repeated_us"] > 0 for one in bench[1]["decide"])


@pytest.mark.soak
def test_the_tables_show_it_all(bench: tuple[str, dict[str, Any]]) -> None:
    """The Markdown has a line for each server and number of connections, and the number of cores above."""
    text = bench[0]
    lines = re.findall(r"^\| (.+?) +\| +(\d+) \| +\d+\.\d\d \|", text, re.MULTILINE)
    tools = [("item, which answers by itself", "1"), ("http_request, which asks its backend", "32")]
    assert lines[: -len(tools) * 2] == [(server, connections) for connections in ("1", "32") for server in SERVERS]
    assert set(tools) <= set(lines)
    assert text.startswith(f"cores {bench[1]['machine']['cores']}, ")


@pytest.mark.soak
def test_sigterm_ends_a_run_in_its_middle(tmp_path: Path) -> None:
    """Its servers end as well, and their files are removed."""
    command = [sys.executable, "-m", "benchmarks", *TINY[:-1], "1", "--requests", "1000000"]
    started = subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env={**LOOKED_AT, "TMPDIR": str(tmp_path)}
    )
    assert started.stderr is not None
    with started.stderr as told:
        next(line for line in told if line.startswith("round 1"))
        started.send_signal(signal.SIGTERM)
        assert started.wait(60) == 130
    assert list(tmp_path.iterdir()) == []


# ── the load ─────────────────────────────────────────────────────────────────────────────────────────────────


def _load(port: int, **other: Any) -> Load:
    ask = f"GET {backend.PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    return Load(
        **{
            "port": port,
            "request": ask,
            "marker": backend.MARKER,
            "connections": 4,
            "requests": 40,
            "seconds": 20.0,
            "warm_up": 0.0,
            **other,
        }
    )


@asynccontextmanager
async def _serve(app: web.Application) -> AsyncIterator[int]:
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def measure_load(app: web.Application, **other: Any) -> Measured:
    async with _serve(app) as port:
        (measured,) = await run([_load(port, **other)])
        return measured


def answer_always(answer: web.Response) -> web.Application:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=answer.status, body=answer.body)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    return app


def test_the_backend_answers_with_400_bytes_of_json() -> None:
    """The document has the size and marker that the benchmark declares."""
    assert len(backend.document()) == 400
    assert json.loads(backend.document())["title"] == backend.MARKER


async def test_the_load_counts_its_answers() -> None:
    """The configured number of requests is measured, and the warm-up is counted separately."""
    measured = await measure_load(backend.build_app(), warm_up=10.0)
    assert (measured.requests, measured.answered) == (40, 80)


async def test_the_load_ends_in_time() -> None:
    """The time limit applies, however many requests are left."""
    async with asyncio.timeout(60):
        measured = await measure_load(backend.build_app(), requests=10**9, seconds=0.2)
    assert measured.requests < 10**9


async def test_loads_have_their_turns() -> None:
    """The loads alternate in time slices until both have sent all requests."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.headers["host"])
        return web.Response(text=backend.MARKER)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    async with _serve(app) as port:
        loads = [
            _load(port, request=f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n", requests=400) for host in ("one", "other")
        ]
        found = await run(loads, stretch=0.002)
    assert [one.requests for one in found] == [400, 400]
    assert len([host for host, _ in groupby(asked)]) > 2


@pytest.mark.parametrize("answer", [web.Response(status=403, text=backend.MARKER), web.Response(text="another")])
async def test_a_wrong_answer_ends_the_benchmark(answer: web.Response) -> None:
    """Refusals are fast, and must not be counted as answers."""
    with pytest.raises(BenchmarkError, match="not the answer"):
        await measure_load(answer_always(answer))


def test_no_process_stays(tmp_path: Path) -> None:
    """Servers are stopped, also if the block raises an error."""
    processes = Processes(tmp_path)
    running = processes.start("backend", [sys.executable, "-m", "benchmarks.backend"])
    os.kill(running.pid, 0)
    with pytest.raises(RuntimeError), processes:
        raise RuntimeError
    with pytest.raises(ProcessLookupError):
        os.kill(running.pid, 0)


def test_a_server_that_does_not_start_is_named_with_its_last_words(tmp_path: Path) -> None:
    """It is not waited for."""
    with Processes(tmp_path) as processes, pytest.raises(BenchmarkError, match=r"(?s)odd one did not start.*no such"):
        processes.start("odd one", [sys.executable, "-c", "raise SystemExit('no such thing')"])


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_percentiles_are_by_nearest_rank() -> None:
    """A percentile is one of the measured values."""
    times = [float(number) for number in range(100, 0, -1)]
    assert (percentile(times, 0.50), percentile(times, 0.99), percentile([7.0], 0.99)) == (50.0, 99.0, 7.0)


def test_what_was_measured_together_is_compared() -> None:
    """A moment in which the machine was slow for both does not change the ratio."""
    samples = [
        Sample(server, 1, number, number, Measured(100, 100, seconds * slow, 1.0, 2.0, 0.1), cpu, 0.0)
        for number, slow in enumerate([1.0, 10.0, 1.5])
        for server, seconds, cpu in (("bare proxy", 1.0, 0.2), ("other", 4.0, 0.6))
    ]
    other = rows(samples)[1]
    assert (other.ratio, other.lowest, other.highest) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert (other.rate_ratio, other.p99_ratio) == (0.25, 1.0)


def test_the_policy_of_the_benchmark_allows_its_requests() -> None:
    """`measure` refuses to time denials, which end early; the policy works with one route, and with many."""
    gc.collect()
    gc.freeze()  # it collects garbage before each pass: of its own objects, not of all that earlier tests left
    assert [measure(routes, 500).routes for routes in (1, 30)] == [1, 30]

"""The benchmark in a page measures what it claims to, in a separate browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.page.model import Idle, Model
from benchmarks.processes import ROOT, Processes
from benchmarks.targets import module

WORK = ["nothing else", "50 MiB up", "50 MiB down", "1,000 fetches at once"]


def test_a_model_calls_beside_each_kind_of_work() -> None:
    """Each kind of work has a line of figures, and a fetch is compared with the same call by hand."""
    command = [*module("benchmarks.page"), "--part", "0.02", "--rounds", "3"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    figures = re.findall(r"^\| a model's call, (.+?) \| (\d+) \|(?: \d+\.\d \|){6}$", ended.stdout, re.MULTILINE)
    assert [label for label, calls in figures if int(calls) > 0] == WORK
    assert re.search(r"`fetch` \d+\.\d\d ms, the same call by hand \d+\.\d\d ms \(medians of 3\)", ended.stdout)


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[int]:
    """The port of an idle server."""
    with Processes(tmp_path) as processes:
        yield processes.start("idle", module("benchmarks.backend")).port


def test_what_an_idle_server_takes_is_told_of_the_shortest_time(idle: int) -> None:
    """The server is queried without delay."""
    with Idle(idle) as bare:
        pass
    assert bare.longest > 0


def test_a_call_that_fails_ends_the_benchmark(idle: int) -> None:
    """A failure is faster than a call."""
    with Model(idle) as model, pytest.raises(BenchmarkError, match="bulk_ping failed: 404"):
        model.call("bulk_ping", {})


def test_what_other_programs_take_is_told_apart(idle: int, tmp_path: Path) -> None:
    """The CPU time of this process and its servers is excluded."""
    with Processes(tmp_path) as processes:
        before = processes.others_seconds()
        if before is None:
            pytest.skip("this system does not tell")
        other = subprocess.Popen([sys.executable, "-c", "sum(i * i for i in range(20_000_000))"])
        other.wait()
        after = processes.others_seconds()
    assert after is not None
    assert after - before > 0.1

"""The measurement: every server in every round, at every number of connections, paired with the bare proxy."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.backend import MARKER
from benchmarks.errors import BenchmarkError
from benchmarks.load import PATIENCE, Load, Measured
from benchmarks.processes import ROOT, session_seconds
from benchmarks.targets import Target, peer

QUIET_WITHIN = 5.0
_GLANCE = 0.35  # longer than the gateway waits before it copies the last lines of a burst into its database
_REST = 0.01
"""Seconds of processor time within a glance up to which a server counts as idle: Linux's resolution."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The amount of measurement. A run ends after `requests` or `seconds`, whichever is first."""

    rounds: int
    connections: tuple[int, ...]
    requests: int
    seconds: float
    warm_up: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of the load against one server.

    Two samples of one `pair` were measured in turns: the reference and the server. `server_ms` is the server's own
    processor time for each request, including its work after the last response; `quiet_after` is the duration of that
    work, in seconds. None if the system does not report it.
    """

    server: str
    connections: int
    round: int
    pair: int
    measured: Measured
    server_ms: float | None
    quiet_after: float | None

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.measured.requests / self.measured.seconds


def run(
    plan: Plan, targets: Sequence[Target], tell: Callable[[str], None], measure: Callable[[str], str] = peer
) -> list[Sample]:
    """Return all samples. Each round begins with another server, so that none is always first.

    `measure` gives the reference of a server. The speed of a shared machine varies: compared servers are measured
    together. Raises `BenchmarkError`.
    """
    samples: list[Sample] = []
    bare = {target.name: target for target in targets if target.name == measure(target.name)}
    others = [target for target in targets if target.name not in bare]
    for number in range(plan.rounds):
        for connections in plan.connections:
            for place in range(len(others)):
                target = others[(place + number) % len(others)]
                tell(f"round {number + 1} of {plan.rounds}: {target.name}, connections: {connections}")
                pair = len(samples) // 2
                both = (bare[measure(target.name)], target)
                samples += _samples(plan, both[:: -1 if number % 2 else 1], connections, number, pair)
    return samples


def _samples(plan: Plan, targets: Sequence[Target], connections: int, number: int, pair: int) -> list[Sample]:
    """Return one sample of each, with loads in turns."""
    before = [session_seconds(target.pid) for target in targets]
    measured = _run_loads([_load(plan, target, connections) for target in targets], targets)
    quiet_after = [_quiet(target.pid) for target in targets]
    after = [session_seconds(target.pid) for target in targets]
    return [
        Sample(
            target.name,
            connections,
            number,
            pair,
            found,
            None if began is None or ended is None else 1000 * (ended - began) / found.answered,
            quiet,
        )
        for target, found, began, ended, quiet in zip(targets, measured, before, after, quiet_after, strict=True)
    ]


def _load(plan: Plan, target: Target, connections: int) -> Load:
    return Load(
        port=target.port,
        request=target.request.decode("latin-1"),
        marker=MARKER,
        connections=connections,
        requests=plan.requests,
        seconds=plan.seconds,
        warm_up=plan.warm_up,
        view=target.view,
        key=target.key,
    )


def _run_loads(loads: Sequence[Load], targets: Sequence[Target]) -> list[Measured]:
    """Run the loads in a separate process."""
    names = " and ".join(target.name for target in targets)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.load"],
            input=json.dumps([asdict(load) for load in loads]),
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=sum(load.seconds + load.warm_up + 2 * PATIENCE for load in loads),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{names}: the load did not end.") from error
    if ended.returncode:
        raise BenchmarkError(f"{names}: {ended.stderr.strip()}")
    return [Measured(**found) for found in json.loads(ended.stdout)]


def _quiet(pid: int) -> float | None:
    """Wait until a server is idle, so that its remaining work (filling the database) slows no other one.

    Return the seconds of this, in steps of a glance; None if the system does not report it.
    """
    started = time.monotonic()
    before = session_seconds(pid)
    if before is None:
        time.sleep(1.0)
        return None
    while time.monotonic() - started < QUIET_WITHIN:
        time.sleep(_GLANCE)
        now = session_seconds(pid)
        if now is None or now - before <= _REST:
            break
        before = now
    return max(0.0, time.monotonic() - started - _GLANCE)

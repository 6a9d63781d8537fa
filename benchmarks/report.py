"""Reports the measurements, as tables for people and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TypeAlias

import gateway
from benchmarks.decide import Decided
from benchmarks.rounds import Sample
from benchmarks.targets import peer

Machine: TypeAlias = dict[str, str | int | float]
"""The environment of a run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One server at one number of connections: medians over the rounds.

    `server_ms` is the server's processor time for each request, and `ratio` the bare proxy's in the turns between
    relative to that, with `lowest` and `highest` of all rounds; None if the system does not report it. `rate_ratio` is
    its requests per second relative to the bare proxy's, `p99_ratio` the same of the 99th percentile.
    """

    server: str
    connections: int
    ratio: float | None
    lowest: float | None
    highest: float | None
    rate_ratio: float
    rate: float
    p50_ms: float
    p99_ms: float
    p99_ratio: float
    server_ms: float | None


def rows(samples: Sequence[Sample]) -> list[Row]:
    """Return a row for each server at each number of connections, the bare proxy first."""
    bare = {one.pair: one for one in samples if one.server == peer(one.server)}
    groups: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.connections, sample.server), []).append(sample)
    return [
        _row([(sample, bare[sample.pair]) for sample in group])
        for _, group in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] != peer(item[0][1])))
    ]


def _row(pairs: Sequence[tuple[Sample, Sample]]) -> Row:
    """Return the row of a server from its samples, each paired with that of the bare proxy."""
    ratios = [bare.server_ms / one.server_ms for one, bare in pairs if bare.server_ms and one.server_ms]
    group = [sample for sample, _ in pairs]
    return Row(
        server=group[0].server,
        connections=group[0].connections,
        ratio=_median(ratios),
        lowest=min(ratios, default=None),
        highest=max(ratios, default=None),
        rate_ratio=statistics.median(sample.rate / bare.rate for sample, bare in pairs),
        rate=statistics.median(sample.rate for sample in group),
        p50_ms=statistics.median(sample.measured.p50_ms for sample in group),
        p99_ms=statistics.median(sample.measured.p99_ms for sample in group),
        p99_ratio=statistics.median(sample.measured.p99_ms / bare.measured.p99_ms for sample, bare in pairs),
        server_ms=_median(sample.server_ms for sample in group),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def machine() -> Machine:
    """Return the environment, and its other load (the load average of the last minute)."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 0,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "gateway": gateway.__version__,
        **{name: version(name) for name in ("aiohttp", "mcp", "uvicorn", "httpx2")},
    }


def as_text(about: Machine, samples: Sequence[Sample], decided: Sequence[Decided], upstream: str) -> str:
    """Return the tables, in Markdown; `upstream` is that of an upstream's tools."""
    words = ", ".join(f"{name} {value}" for name, value in about.items())
    return "\n\n".join([words, _of_servers(rows(samples)), upstream, _of_decisions(decided)])


def as_json(
    about: Machine,
    settings: Mapping[str, object],
    samples: Sequence[Sample],
    decided: Sequence[Decided],
    called: Sequence[Sample],
) -> dict[str, object]:
    """Return everything, including single runs; `called` are those of an upstream's tools."""
    return {
        "machine": about,
        "settings": dict(settings),
        "servers": [asdict(row) for row in rows(samples)],
        "decide": [asdict(one) for one in decided],
        "samples": [asdict(sample) for sample in samples],
        "upstream": [asdict(sample) for sample in called],
    }


def _of_servers(rows: Sequence[Row]) -> str:
    head = (
        "server",
        "connections",
        "by CPU time",
        "lowest–highest",
        "by requests",
        "p50 ms",
        "p99 ms",
        "to bare proxy",
        "requests/s",
        "CPU ms",
    )
    return table(
        head,
        (
            (
                row.server,
                str(row.connections),
                _number(row.ratio),
                f"{_number(row.lowest)}–{_number(row.highest)}",
                _number(row.rate_ratio),
                _number(row.p50_ms),
                _number(row.p99_ms),
                f"{row.p99_ratio:.2f}",
                f"{row.rate:.0f}",
                _number(row.server_ms),
            )
            for row in rows
        ),
    )


def _of_decisions(decided: Sequence[Decided]) -> str:
    return table(
        (
            "routes",
            "decide, new path µs",
            "decide, same again µs",
            "with a condition µs",
            "canonicalise µs",
            "read the policy s",
        ),
        (
            (
                f"{one.routes:,}",
                f"{one.cold_us:.2f}",
                f"{one.repeated_us:.2f}",
                f"{one.condition_us:.2f}",
                f"{one.canonical_us:.2f}",
                f"{one.loaded:.2f}",
            )
            for one in decided
        ),
    )


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f}"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others are numbers."""
    lines = [head, *body]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    rule = [f"{'-' * widths[0]}", *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    return "\n".join(
        "| " + " | ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) + " |"
        for line in (lines[0], rule, *lines[1:])
    )

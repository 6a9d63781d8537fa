"""The cost of one line of the record: `python -m benchmarks.journal` prints the table.

The line is that of a `GET` as the gateway writes it. The cost of copying it into the database is processor time of the
whole process, since that runs in the background.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.report import machine, table
from gateway.model import AuditRecord, Json
from gateway.stores.filler import Filler
from gateway.stores.journal import Journal, Keeping
from gateway.stores.records import Records
from gateway.stores.sql import Database

PASSES: Final = 7
AT_ONCE: Final = 32
_BURST: Final = 250
_FIELDS: Final[dict[str, Json]] = {
    **{"kind": "http", "principal": "https://login.example|agent|person-4711", "app": "bench", "view": "v" * 22},
    **{"door": "mcp", "initiator": "page", "evidence": "no-gesture", "cause": None, "trace": "7" * 32},
    **{"method": "GET", "url": "/api/items/42", "policy_version": "p" * 64, "backend": "items", "request_size": 0},
    **{"route": "/api/items/{item}", "decision": "allow", "reasons": ["the route /api/items/{item} allows it"]},
    **{"credential": "bench", "response_size": 400, "status": 200, "reason": None, "detail": None},
    "timing": {"decide": 0.021, "limit": 0.008, "authenticate": 0.011, "send": 0.412},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one line in microseconds: in the best pass, and in the median one."""

    what: str
    best: float
    median: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.journal", description="What a line of the record costs."
    )
    parser.add_argument("--lines", type=int, default=2000, help="in each of seven passes  [default: 2000]")
    parser.add_argument("--folder", type=Path, help="where the files are put, for a disk of your choice")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="benchmark-", dir=given.folder) as folder:
        costs = asyncio.run(_measure(Path(folder), given.lines))
    print(", ".join(f"{name} {value}" for name, value in machine().items()), end="\n\n")
    print(
        table(
            ("one line", "best µs", "median µs"), [(one.what, f"{one.best:.1f}", f"{one.median:.1f}") for one in costs]
        )
    )


async def _measure(folder: Path, lines: int) -> list[Cost]:
    return [
        await _measure_lines("in the journal", Journal(folder / "plain"), lines),
        await _measure_lines("with two paths of `redact`", Journal(folder / "redact", ("$.url", "$..email")), lines),
        await _measure_syncs(
            "with `fsync: always`", Journal(folder / "fsync", keeping=Keeping(fsync=True)), lines // 10, 1
        ),
        await _measure_syncs(
            f"with `fsync: always`, {AT_ONCE} at once",
            Journal(folder / "shared", keeping=Keeping(fsync=True)),
            lines,
            AT_ONCE,
        ),
        await _measure_bursts("from there into SQLite, in the background", folder, lines),
    ]


async def _measure_lines(what: str, journal: Journal, lines: int) -> Cost:
    async with journal:
        return _cost(what, [_append(journal, lines, number) for number in range(PASSES)])


def _append(journal: Journal, lines: int, number: int) -> float:
    """Return the microseconds for each line."""
    records = [_record(f"{number}-{line}") for line in range(lines)]
    gc.collect()
    started = time.perf_counter()
    for record in records:
        journal.append(record)
    return 1e6 * (time.perf_counter() - started) / lines


async def _measure_syncs(what: str, journal: Journal, lines: int, at_once: int) -> Cost:
    """Measure lines that wait for the disk, with `at_once` concurrent writers."""

    each = max(1, lines // at_once)

    async def write(number: int) -> None:
        for line in range(each):
            journal.append(_record(f"{number}-{line}"))
            await journal.sync()

    passes = []
    async with journal:
        for _ in range(PASSES):
            started = time.perf_counter()
            await asyncio.gather(*map(write, range(at_once)))
            passes.append(1e6 * (time.perf_counter() - started) / (each * at_once))
    return _cost(what, passes)


async def _measure_bursts(what: str, folder: Path, lines: int) -> Cost:
    """Measure bursts of lines, as many as a busy gateway writes between two transactions."""
    async with (
        Database(f"sqlite:///{folder / 'gateway.db'}") as database,
        Journal(folder / "filled") as journal,
        asyncio.TaskGroup() as tasks,
    ):
        filler = Filler(Records(database), journal)
        running = tasks.create_task(filler.run())
        costs = []
        for number in range(PASSES):
            burst = [_record(f"{number}-{line}") for line in range(min(lines, _BURST))]
            for record in burst:
                journal.append(record)
            before = time.process_time()
            await filler.caught_up()
            costs.append(1e6 * (time.process_time() - before) / len(burst))
        running.cancel()
    return _cost(what, costs[1:])


def _record(id: str) -> AuditRecord:
    return AuditRecord(f"{id:>22}", "outcome", time.time(), dict(_FIELDS))


def _cost(what: str, passes: Sequence[float]) -> Cost:
    return Cost(what, min(passes), statistics.median(passes))


if __name__ == "__main__":
    os.umask(0o077)
    main()

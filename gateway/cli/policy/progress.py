"""Reads the outcomes of a record with a progress bar, since a record may be long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.cli.policy.output import console
from gateway.cli.records import Read, outcomes, whole

STEP: Final = 256
"""Outcomes between updates of the bar."""


def shown_outcomes(record: Path, description: str, *, quiet: bool) -> Iterator[Read]:
    """Yield every outcome of `record`; without a bar if `quiet`, or without a terminal."""
    total = whole(record)
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *times)
    out = console(err=True)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        for number, read in enumerate(outcomes(record)):
            if number % STEP == 0:
                progress.update(task, completed=read.done)
            yield read

"""Output of commands: JSON or a console, with problems and their places in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.cli.group import UNUSABLE
from gateway.cli.records import ReadStep, RecordPlace, outcomes, total
from gateway.errors import DocumentError, Problem
from gateway.jsontext.writing import indented_json
from gateway.model import Json

FAILED = 1
"""Exit code of a failed check."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


def console(*, err: bool = False) -> Console:
    """Return a console without highlighting and line wrapping."""
    return Console(highlight=False, soft_wrap=True, stderr=err)


def minute(seconds: float) -> str:
    """Return a time in UTC, to the minute; `seconds` are since the epoch."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def write_json(value: Json) -> None:
    """Write one JSON document to standard output."""
    click.echo(indented_json(value))


def problem_json(problem: Problem) -> Json:
    """Return a problem with its place."""
    return {"file": problem.file, "line": problem.line, "column": problem.column, "message": problem.message}


def problems_json(problems: Iterable[Problem]) -> Json:
    """Return the output for unusable files."""
    return {"ok": False, "problems": [problem_json(problem) for problem in problems]}


@contextmanager
def problems_as_json(as_json: bool) -> Iterator[None]:
    """With `as_json`, write DocumentErrors as JSON and exit with the same code."""
    try:
        yield
    except DocumentError as error:
        if not as_json:
            raise
        write_json(problems_json(error.problems))
        click.get_current_context().exit(UNUSABLE)


STEP: Final = 256
"""Outcomes between updates of the bar."""


def shown_outcomes(record: RecordPlace, description: str, *, quiet: bool, openings: bool = False) -> Iterator[ReadStep]:
    """Yield what `outcomes` does; without a bar if `quiet`, or without a terminal."""
    size = total(record)
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *times)
    out = console(err=True)
    with Progress(*columns, console=out, transient=True, disable=quiet or not out.is_terminal) as progress:
        task = progress.add_task(description, total=size)
        for number, read in enumerate(outcomes(record, openings=openings)):
            if number % STEP == 0:
                progress.update(task, completed=read.done)
            yield read

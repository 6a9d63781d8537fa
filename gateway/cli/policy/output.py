"""How the commands on policies speak: JSON or a console, problems with their places in both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from gateway.cli.group import UNUSABLE
from gateway.errors import DocumentError, Problem
from gateway.model import Json

FAILED = 1
"""Exit code of a check that failed."""

json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")


def console(*, err: bool = False) -> Console:
    """The console, which breaks and marks nothing by itself."""
    return Console(highlight=False, soft_wrap=True, stderr=err)


def write_json(value: Json) -> None:
    """One JSON document to the standard output."""
    click.echo(json.dumps(value, indent=2))


def problem_json(problem: Problem) -> Json:
    """A problem with its place."""
    return {"file": problem.file, "line": problem.line, "column": problem.column, "message": problem.message}


def problems_json(problems: Iterable[Problem]) -> Json:
    """What a command writes where a file cannot be used."""
    return {"ok": False, "problems": [problem_json(problem) for problem in problems]}


@contextmanager
def problems_as_json(as_json: bool) -> Iterator[None]:
    """With `as_json`, the problems of files end the command as JSON, with the same exit code."""
    try:
        yield
    except DocumentError as error:
        if not as_json:
            raise
        write_json(problems_json(error.problems))
        click.get_current_context().exit(UNUSABLE)

"""`policy check`: whether policies can be used."""

from __future__ import annotations

import json
from pathlib import Path

import click

from gateway.cli.group import UNUSABLE
from gateway.cli.policy.sources import config_option, policies
from gateway.errors import DocumentError, Problem


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@config_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], config: Path, as_json: bool) -> None:
    """Check policy FILES, or those of gateway.yaml: every problem with file, line and column.

    Exit code 0 if all can be used, 2 if not.
    """
    try:
        found = policies(files, config)
    except DocumentError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"ok": False, "problems": [_problem(problem) for problem in error.problems]}, indent=2))
        ctx.exit(UNUSABLE)
    if as_json:
        versions = [{"file": policy.file, "version": policy.version} for policy in found.values()]
        click.echo(json.dumps({"ok": True, "policies": versions}, indent=2))
        return
    for name, policy in found.items():
        click.echo(f"{name}: ok, {len(policy.tools)} tools, {len(policy.tests)} tests, version {policy.version}")


def _problem(problem: Problem) -> dict[str, str | int]:
    return {"file": problem.file, "line": problem.line, "column": problem.column, "message": problem.message}

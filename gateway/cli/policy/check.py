"""`policy check`: validates policies, and warns about suspicious rules."""

from __future__ import annotations

from pathlib import Path

import click
from rich.text import Text

from gateway.cli.policy.output import FAILED, console, json_option, problem_json, problems_as_json, write_json
from gateway.cli.policy.sources import Suite, policies_option, suites
from gateway.model import Json
from gateway.policy import warnings


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@policies_option
@click.option("--strict", is_flag=True, help="Exit code 1 if there is a warning.")
@json_option
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], config: Path, strict: bool, as_json: bool) -> None:
    """Check policy FILES, all in a folder, or those of gateway.yaml: every problem with file, line and column.

    A valid policy may have warnings: routes that never match because of earlier ones; report mode.

    Exit code 0 if all are valid, 1 with --strict if there is a warning, 2 if one is invalid.

    Example: webmcp-gateway policy check policies/ --strict
    """
    with problems_as_json(as_json):
        found = [(suite, warnings(suite.policy)) for suite in suites(files, config)]
    fails = strict and any(strange for _, strange in found)
    if as_json:
        told: list[Json] = [problem_json(problem) for _, strange in found for problem in strange]
        write_json({"ok": not fails, "policies": [_json(suite) for suite, _ in found], "warnings": told})
    else:
        out = console()
        for suite, strange in found:
            for problem in strange:
                place = f"{problem.file}:{problem.line}:{problem.column}: "
                out.print(Text.assemble(place, ("warning: ", "yellow"), problem.message))
            out.print(Text(f"{suite.name}: ok, {_counts(suite)}, version {suite.policy.version}"))
    if fails:
        ctx.exit(FAILED)


def _counts(suite: Suite) -> str:
    return f"routes {len(suite.policy.routes.all)}, tools {len(suite.policy.tools)}, tests {len(suite.tests)}"


def _json(suite: Suite) -> Json:
    return {
        "file": suite.policy.file,
        "version": suite.policy.version,
        "routes": len(suite.policy.routes.all),
        "tools": len(suite.policy.tools),
        "tests": len(suite.tests),
    }

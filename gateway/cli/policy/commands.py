"""`policy schema`, `check`, `diff`: the JSON Schema of policies, their problems, and the differences of two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from gateway.cli.output import FAILED, console, json_option, problem_json, problems_as_json, write_json
from gateway.cli.policy.sources import Suite, load, others, policies_option, suites
from gateway.model import Json
from gateway.policy import warnings
from gateway.policy.diff import Change, Turn
from gateway.policy.diff import diff as differences
from gateway.policy.keys import policy_schema


@click.command()
@json_option
def schema(as_json: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of policy files.

    Editors complete and validate a policy whose first line names it:
    # yaml-language-server: $schema=policy.schema.json

    The output is always JSON. `policy check` checks more: paths, URLs and conditions.

    Example: webmcp-gateway policy schema > policy.schema.json
    """
    write_json(policy_schema())


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@policies_option
@click.option("--strict", is_flag=True, help="Exit code 1 if there is a warning.")
@json_option
@click.pass_context
def check(ctx: click.Context, files: tuple[Path, ...], config: Path, strict: bool, as_json: bool) -> None:
    """Check policy FILES, all in a folder, or those of gateway.yaml: every problem with file, line and column.

    The parts that policies include, and the organisation's policy, are also checked alone.

    A valid policy may have warnings: routes that never match because of earlier ones; report mode.

    Exit code 0 if all are valid, 1 with --strict if there is a warning, 2 if one is invalid.

    Example: webmcp-gateway policy check policies/ --strict
    """
    with problems_as_json(as_json):
        results = [(suite, warnings(suite.policy)) for suite in suites(files, config)]
        alone = others(files, config)
    fails = strict and any(strange for _, strange in results)
    if as_json:
        problems: list[Json] = [problem_json(problem) for _, strange in results for problem in strange]
        parts: list[Json] = [{"file": str(file), "holds": holds} for file, holds in alone]
        policies: list[Json] = [_suite_json(suite) for suite, _ in results]
        write_json({"ok": not fails, "policies": policies, "parts": parts, "warnings": problems})
    else:
        out = console()
        for suite, strange in results:
            for problem in strange:
                place = f"{problem.file}:{problem.line}:{problem.column}: "
                out.print(Text.assemble(place, ("warning: ", "yellow"), problem.message))
            out.print(Text(f"{suite.name}: ok, {_counts(suite)}, version {suite.policy.version}"))
        for file, holds in alone:
            out.print(Text(f"{file}: ok, {holds}"))
    if fails:
        ctx.exit(FAILED)


def _counts(suite: Suite) -> str:
    return f"routes {len(suite.policy.routes.all)}, tools {len(suite.policy.tools)}, tests {len(suite.tests)}"


def _suite_json(suite: Suite) -> Json:
    return {
        "file": suite.policy.file,
        "version": suite.policy.version,
        "routes": len(suite.policy.routes.all),
        "tools": len(suite.policy.tools),
        "tests": len(suite.tests),
    }


STYLES: Final = {Turn.OPENED: "bold red", Turn.CLOSED: "green", Turn.CHANGED: "yellow"}
FAILS: Final = {"opened": (Turn.OPENED,), "changed": tuple(Turn), "never": ()}
SHOWN: Final = 8
"""Routes listed per change; JSON lists all."""


@click.command()
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--fail-on",
    type=click.Choice(list(FAILS)),
    default="never",
    show_default=True,
    help="Exit code 1 if something is opened, or if anything changed.",
)
@json_option
@click.pass_context
def diff(ctx: click.Context, old: Path, new: Path, fail_on: str, as_json: bool) -> None:
    """Compare policy NEW with policy OLD: what it opens (listed first), closes and changes.

    Decisions are compared, not lines: a changed order of rules is found, a different notation is not. Conditions and
    schemas cannot be compared, so a different one counts as opened.

    Exit code 0, 1 according to --fail-on, 2 if a policy is invalid.

    Example: webmcp-gateway policy diff main/cart.yaml cart.yaml --fail-on opened
    """
    with problems_as_json(as_json):
        before, after = load(old), load(new)
    changes = differences(before, after)
    fails = any(change.turn in FAILS[fail_on] for change in changes)
    if as_json:
        write_json({"ok": not fails, "old": before.version, "new": after.version, "changes": _changes_json(changes)})
    else:
        _print(changes)
    if fails:
        ctx.exit(FAILED)


def _print(changes: Sequence[Change]) -> None:
    out = console()
    for change in changes:
        place = f" ({change.place})" if change.place is not None else ""
        out.print(
            Text.assemble((f"{change.turn:8}", STYLES[change.turn]), _subjects(change), f": {change.detail}{place}")
        )
    counts = ", ".join(f"{sum(change.turn is turn for change in changes)} {turn}" for turn in Turn)
    out.print(counts if changes else "Both are equal.")


def _subjects(change: Change) -> str:
    if not change.subjects:
        return "the policy"
    more = len(change.subjects) - SHOWN
    subjects = "; ".join(change.subjects[:SHOWN])
    kind = "" if change.kind == "route" else f"{change.kind} "
    return f"{kind}{subjects}" + (f" and {more} more" if more > 0 else "")


def _changes_json(changes: Sequence[Change]) -> list[Json]:
    return [
        {
            "turn": change.turn,
            "kind": change.kind,
            "subjects": list(change.subjects),
            "detail": change.detail,
            "line": change.line,
            "file": change.file or None,
        }
        for change in changes
    ]

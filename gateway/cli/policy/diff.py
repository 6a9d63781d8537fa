"""`policy diff`: shows what a policy opens, closes and changes against another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from gateway.cli.policy.output import FAILED, console, json_option, problems_as_json, write_json
from gateway.model import Json
from gateway.policy import load_policy
from gateway.policy.diff import Change, Turn
from gateway.policy.diff import diff as differences

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
        before, after = load_policy(old), load_policy(new)
    found = differences(before, after)
    fails = any(change.turn in FAILS[fail_on] for change in found)
    if as_json:
        write_json({"ok": not fails, "old": before.version, "new": after.version, "changes": _json(found)})
    else:
        _print(found)
    if fails:
        ctx.exit(FAILED)


def _print(found: Sequence[Change]) -> None:
    out = console()
    for change in found:
        place = f" (line {change.line})" if change.line is not None else ""
        out.print(
            Text.assemble((f"{change.turn:8}", STYLES[change.turn]), _subjects(change), f": {change.detail}{place}")
        )
    counts = ", ".join(f"{sum(change.turn is turn for change in found)} {turn}" for turn in Turn)
    out.print(counts if found else "Both say the same.")


def _subjects(change: Change) -> str:
    if not change.subjects:
        return "the policy"
    more = len(change.subjects) - SHOWN
    named = "; ".join(change.subjects[:SHOWN])
    kind = "" if change.kind == "route" else f"{change.kind} "
    return f"{kind}{named}" + (f" and {more} more" if more > 0 else "")


def _json(found: Sequence[Change]) -> list[Json]:
    return [
        {
            "turn": change.turn,
            "kind": change.kind,
            "subjects": list(change.subjects),
            "detail": change.detail,
            "line": change.line,
        }
        for change in found
    ]

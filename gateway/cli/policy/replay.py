"""`policy replay`: finds recorded requests that another policy would decide differently."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from gateway.cli.group import Unusable
from gateway.cli.output import FAILED, console, json_option, problems_as_json, shown_outcomes, write_json
from gateway.cli.policy.sources import load
from gateway.cli.records import RecordPlace, RecordType
from gateway.model import Json
from gateway.policy import Policy
from gateway.policy.replay import ReplayedCall, replay_decision

EXAMPLES: Final = 3
GROUPS: Final = 1000
"""Kinds of changes that are listed; further ones are only counted."""

FAILS: Final = {"changed": ("allow", "confirm", "deny"), "denied": ("deny",), "never": ()}
STYLES: Final = {"allow": "bold red", "confirm": "yellow", "deny": "bold magenta"}

Key = tuple[str, str, str, str | None, str | None]
"""Decision then, decision now, method, rule then, rule now."""


@dataclass(slots=True)
class Group:
    """Requests with the same change."""

    count: int = 0
    initiators: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    reasons: tuple[str, ...] = ()

    def add(self, one: ReplayedCall) -> None:
        """Count one request."""
        self.count += 1
        self.initiators[one.initiator] += 1
        self.reasons = self.reasons or one.reasons
        if len(self.examples) < EXAMPLES and one.target not in self.examples:
            self.examples.append(one.target[:300])


@dataclass(slots=True)
class ReplayResult:
    """The results of a replay, in bounded memory."""

    replayed: int = 0
    same: int = 0
    covered: int = 0
    damaged: int = 0
    beyond: int = 0
    groups: dict[Key, Group] = field(default_factory=dict)
    lacking: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, one: ReplayedCall) -> None:
        """Count one request."""
        if one.lacks is not None:
            rule = one.rule_was or "(no route)"
            key = (one.lacks, f"{one.method} {rule}")
            self.lacking[key if len(self.lacking) < GROUPS or key in self.lacking else (one.lacks, "(others)")] += 1
            return
        self.replayed += 1
        if not one.changed:
            self.same += 1
            self.covered += one.reported
            return
        group_key = (_was(one), one.would, one.method[:32], one.rule_was, one.rule)
        if group_key not in self.groups and len(self.groups) >= GROUPS:
            self.beyond += 1
        else:
            self.groups.setdefault(group_key, Group()).add(one)

    @property
    def changes(self) -> int:
        """Number of requests with a different decision."""
        return self.replayed - self.same


@click.command()
@click.argument("audit", type=RecordType())
@click.option("--policy", "file", required=True, type=click.Path(path_type=Path), help="The policy to try.")
@click.option("--app", metavar="ID", help="The app whose requests are replayed, if the record contains several.")
@click.option(
    "--fail-on",
    type=click.Choice(list(FAILS)),
    default="changed",
    show_default=True,
    help="Exit code 1 if a decision differs, or if an allowed request would be denied.",
)
@json_option
@click.pass_context
def replay(ctx: click.Context, audit: RecordPlace, file: Path, app: str | None, fail_on: str, as_json: bool) -> None:
    """Find recorded requests and tool calls that another policy would decide differently.

    AUDIT is a journal, or the database that is filled from it: an SQLite file, or a postgresql:// URL, whose password
    may be in PGPASSWORD. The gateway may be running. Limits are not
    replayed, and report mode is ignored. Records contain no bodies, headers, roles or claims: requests to rules that
    need these are counted and listed.

    Exit code 0, 1 according to --fail-on, 2 if a file is invalid.

    Example: webmcp-gateway policy replay gateway.journal --policy new.yaml
    """
    with problems_as_json(as_json):
        policy = load(file)
    result = _replay(audit, policy, app, quiet=as_json)
    fails = any(would in FAILS[fail_on] for _, would, *_ in result.groups) or (result.beyond > 0 and fail_on != "never")
    if as_json:
        write_json(_json(result, policy, ok=not fails))
    else:
        _print(result)
    if fails:
        ctx.exit(FAILED)


def _replay(audit: RecordPlace, policy: Policy, app: str | None, *, quiet: bool) -> ReplayResult:
    result = ReplayResult()
    apps: set[str] = set()
    for read in shown_outcomes(audit, f"Replaying {audit.name}", quiet=quiet):
        if read.record is None:
            result.damaged += 1
            continue
        fields = read.record.fields
        name = fields.get("app")
        if app is not None and name != app:
            continue
        one = replay_decision(policy, fields)
        if one is None:
            continue
        apps.add(str(name))
        if len(apps) > 1:
            raise Unusable(f"{audit} holds requests of several apps: name one with --app, such as {min(apps)}")
        result.add(one)
    return result


def _was(one: ReplayedCall) -> str:
    return "reported" if one.reported else one.was


def _print(result: ReplayResult) -> None:
    out = console()
    for (was, would, method, rule_was, rule), group in _sort(result):
        who = ", ".join(f"{count} by the {name}" for name, count in group.initiators.most_common())
        out.print(
            Text.assemble(f"{was} -> ", (would, STYLES[would]), f"  {method} {rule_was or rule or '(no route)'}: {who}")
        )
        if rule != rule_was:
            out.print(Text(f"    the rule was {rule_was or '(none)'}, it would be {rule or '(none)'}"))
        out.print(Text(f"    such as {', '.join(group.examples)}"))
        out.print(Text(f"    because {'; '.join(group.reasons)}"))
    if result.beyond:
        out.print(f"{result.beyond} more changes of further kinds.")
    for (what, where), count in result.lacking.most_common():
        out.print(
            Text(
                f"not replayed: {count} of {where}: the rule asks for {what}, which the record does not hold", "yellow"
            )
        )
    if result.damaged:
        out.print(Text(f"not replayed: {result.damaged} damaged lines of the record", "bold red"))
    out.print(_summary(result))


def _summary(result: ReplayResult) -> str:
    lacking = sum(result.lacking.values())
    covered = f" ({result.covered} of them were let through by report mode)" if result.covered else ""
    return (
        f"{result.replayed} replayed, {result.changes} would change, {result.same} would not{covered}, "
        f"{lacking} cannot be replayed"
    )


def _sort(result: ReplayResult) -> list[tuple[Key, Group]]:
    return sorted(result.groups.items(), key=lambda item: -item[1].count)


def _json(result: ReplayResult, policy: Policy, *, ok: bool) -> Json:
    changes: list[Json] = [
        {
            "was": was,
            "would": would,
            "method": method,
            "rule_was": rule_was,
            "rule": rule,
            "count": group.count,
            "initiators": dict(group.initiators),
            "examples": list(group.examples),
            "reasons": list(group.reasons),
        }
        for (was, would, method, rule_was, rule), group in _sort(result)
    ]
    lacking: list[Json] = [
        {"lacks": what, "rule": where, "count": count} for (what, where), count in result.lacking.most_common()
    ]
    return {
        "ok": ok,
        "policy": {"file": policy.file, "version": policy.version},
        "replayed": result.replayed,
        "changed": result.changes,
        "same": result.same,
        "covered_reports": result.covered,
        "changes": changes,
        "not_told": result.beyond,
        "not_replayed": lacking,
        "damaged": result.damaged,
    }

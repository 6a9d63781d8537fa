"""`policy learn`: proposes routes from recorded requests or from an API's description."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from gateway.cli.group import Unusable, opener
from gateway.cli.output import FAILED, console, json_option, problems_as_json, shown_outcomes, write_json
from gateway.cli.policy.openapi import learn_openapi
from gateway.cli.policy.proposals import (
    Findings,
    LearnedRoute,
    LeftOut,
    RouteProposal,
    add_routes,
    group_routes,
    new_policy,
    schema_files,
    sort_routes,
    undecided_routes,
)
from gateway.cli.policy.traffic import Traffic
from gateway.cli.records import PostgresRecord, RecordPlace, RecordType, is_record
from gateway.errors import DocumentError
from gateway.model import Json
from gateway.policy import Policy, load_policy, parse_policy
from gateway.policy.diff import Turn, diff
from gateway.policy.includes import PolicyFiles

SHOWN: Final = 40
"""Omissions that are printed; JSON lists all."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result: the whole text of the policy, its schema files, and the report."""

    text: str
    files: dict[Path, str]
    routes: Sequence[LearnedRoute]
    left_out: Sequence[LeftOut]


@click.command()
@click.argument("source", type=RecordType())
@click.option("--into", type=click.Path(path_type=Path, dir_okay=False), help="The policy file to extend or to create.")
@click.option(
    "--backend", metavar="URL|NAME", help="The API's URL for a new policy; otherwise the name of a backend in it."
)
@click.option("--app", metavar="ID", help="The app whose requests are learned, if the record contains several.")
@click.option(
    "--page/--no-page",
    "pages",
    default=None,
    help="Learn safe requests of the page itself too.  [default: those that report mode let through]",
)
@click.option("--deprecated", is_flag=True, help="Include deprecated operations of the API.")
@click.option("--dry-run", is_flag=True, help="Write no file.")
@click.option("--check", is_flag=True, help="Write no file, and exit with 1 if there is something to add.")
@json_option
@click.pass_context
def learn(
    ctx: click.Context,
    source: RecordPlace,
    into: Path | None,
    backend: str | None,
    app: str | None,
    pages: bool | None,
    deprecated: bool,
    dry_run: bool,
    check: bool,
    as_json: bool,
) -> None:
    """Propose routes from SOURCE: a journal, its database (SQLite file or postgresql:// URL), or an OpenAPI 3.x file.

    From a record it uses requests of persons, and what pages read in report mode, that were allowed (by a rule or by
    report mode) and succeeded. From an API description it uses paths, methods and schemas of JSON bodies. No route ends
    in `**`; unsafe methods need an approval if a model is the initiator. Existing rules stay first, with comments.

    Without --into the policy is printed; notes about it go to the standard error.

    Exit code 0, 1 with --check if there is something to add, 2 if a file is invalid.

    \b
    Examples: webmcp-gateway policy learn gateway.journal --into policies/cart.yaml
              webmcp-gateway policy learn openapi.yaml --backend https://api.example.com > api.yaml
    """
    with problems_as_json(as_json):
        policy = load_policy(into) if into is not None and into.exists() else None
        findings = _findings(source, policy, backend, app, pages=pages, deprecated=deprecated, quiet=as_json)
        result = _result(source, into, policy, backend, findings)
    writes = into is not None and not dry_run and not check and bool(result.routes)
    if writes and into is not None:
        _write({**result.files, into: result.text})
    if as_json:
        write_json(_json(result, into if writes else None))
    else:
        _print(result, into, writes=writes, dry=dry_run or check)
    if check and result.routes:
        ctx.exit(FAILED)


def _findings(
    source: RecordPlace,
    policy: Policy | None,
    backend: str | None,
    app: str | None,
    *,
    pages: bool | None,
    deprecated: bool,
    quiet: bool,
) -> Findings:
    if not isinstance(source, PostgresRecord) and not is_record(source):
        return learn_openapi(source, _base(policy, backend), deprecated=deprecated)
    traffic = Traffic(app, pages)
    damaged = 0
    for read in shown_outcomes(source, f"Reading {source.name}", quiet=quiet, openings=True):
        if read.record is None:
            damaged += 1
        else:
            traffic.add(read.record)
        if len(traffic.apps) > 1:
            raise Unusable(f"{source} holds requests of several apps: name one with --app, such as {min(traffic.apps)}")
    findings = traffic.findings()
    if damaged:
        findings.left_out.append(LeftOut("damaged lines of the record", "their hashes do not fit", damaged))
    return findings


def _base(policy: Policy | None, backend: str | None) -> str | None:
    """Return the base URL of the policy's paths."""
    if policy is None:
        return backend
    name = _backend_name(policy, backend)
    if name is None:
        raise Unusable(f"name one of the policy's backends with --backend: {_names(policy)}")
    return policy.backends[name].url


def _backend_name(policy: Policy, backend: str | None) -> str | None:
    """Return the intended backend, None if it is open. Raises `Unusable` for an unknown one."""
    if backend is not None and backend not in policy.backends:
        raise Unusable(f"--backend {backend}: the policy has {_names(policy)}")
    return backend or policy.only_backend


def _names(policy: Policy) -> str:
    return ", ".join(policy.backends) or "no backends"


def _result(
    source: RecordPlace, into: Path | None, policy: Policy | None, backend: str | None, findings: Findings
) -> Result:
    text = into.read_text("utf-8") if into is not None and policy is not None else _new(source, backend, findings)
    present = policy or parse_policy(text, "the new policy")
    learned, left = undecided_routes(
        present, sort_routes(_place(present, backend if policy is not None else None, findings.proposals))
    )
    folder = f"{into.name.removesuffix('.yaml')}.schemas" if into is not None else None
    routes = group_routes(learned, len(present.backends) > 1, folder)
    if into is None:
        left += [
            LeftOut(f"the body schema of {one.description}", "it needs a file: use --into")
            for one in learned
            if one.body
        ]
    parent = into.parent if into is not None else Path()
    files = {parent / name: content for name, content in schema_files(routes).items()}
    whole = add_routes(text, routes, f"from {source.name}") if routes else text
    _check(present, whole, into, files)
    return Result(whole, files, routes, [*left, *findings.left_out])


def _new(source: RecordPlace, backend: str | None, findings: Findings) -> str:
    url = backend or findings.backend
    if url is None:
        known = "use --into with a policy that contains it, or name it, such as --backend https://api.example.com"
        raise Unusable(f"{source} does not say the API's URL: {known}")
    return new_policy(url)


def _place(policy: Policy, backend: str | None, proposals: Iterable[RouteProposal]) -> list[RouteProposal]:
    """Return each route with its backend, if the policy has several. Raises `Unusable` if one is unclear."""
    if len(policy.backends) <= 1:
        return [replace(one, backend=None) for one in proposals]
    proposals_here = [one if one.backend in policy.backends else replace(one, backend=backend) for one in proposals]
    if any(one.backend is None for one in proposals_here):
        raise Unusable(f"name one of the policy's backends with --backend: {_names(policy)}")
    return proposals_here


class _LearnedFiles(PolicyFiles):
    """The files around a policy, with those that are not written yet."""

    def __init__(self, policy: Path, files: Mapping[Path, str]) -> None:
        super().__init__(policy)
        self._folder = policy.parent
        self._files = files

    def beside(self, file: str, name: str) -> str:
        """Return the text of a file in or below the folder of `file`. Raises ValueError."""
        new = self._files.get(self._folder / name) if Path(file).parent == self._folder else None
        return new if new is not None else super().beside(file, name)


def _check(present: Policy, text: str, into: Path | None, files: Mapping[Path, str]) -> None:
    """Check that the new text is a valid policy which only opens more. Raises `Unusable`."""
    files_read = _LearnedFiles(into, files) if into is not None else None
    try:
        new = parse_policy(text, present.file if into is None else str(into), files=files_read)
    except DocumentError as error:
        raise Unusable(f"what was learned makes no policy, and nothing is written: {error}") from error
    others = [change for change in diff(present, new) if change.turn is not Turn.OPENED]
    if others:
        raise Unusable(f"to write it would change other rules, and nothing is written: {others[0].detail}")


def _write(texts: Mapping[Path, str]) -> None:
    """Write each file atomically, through a temporary file. Raises `Unusable`."""
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f".{path.name}.new")
            with open(part, "w", encoding="utf-8", opener=opener) as file:
                file.write(text)
            if path.exists():
                shutil.copymode(path, part)
            part.replace(path.resolve())
        except OSError as error:
            raise Unusable(f"{path}: cannot be written: {error.strerror}") from error


def _print(result: Result, into: Path | None, *, writes: bool, dry: bool) -> None:
    if into is None and not dry:
        click.echo(result.text, nl=False)
    out = console(err=into is None and not dry)
    for route in result.routes:
        out.print(Text.assemble(("added     ", "green"), route.description))
    for one in result.left_out[:SHOWN]:
        place, count = f"{one.place}: " if one.place else "", f"{one.count} " if one.count > 1 else ""
        out.print(Text.assemble(("left out  ", "yellow"), f"{place}{count}{one.what}: {one.why}"))
    if len(result.left_out) > SHOWN:
        out.print(f"          and {len(result.left_out) - SHOWN} more; --json names all")
    where = f" to {into}" if writes else " (nothing is written)" if into is not None or dry else ""
    out.print(f"routes added{where}: {len(result.routes)}; left out: {len(result.left_out)}")


def _json(result: Result, target: Path | None) -> Json:
    added: list[Json] = [
        {"path": one.path, "methods": list(one.methods), "why": one.why, "schema": one.schema} for one in result.routes
    ]
    left: list[Json] = [
        {"what": one.what, "why": one.why, "count": one.count, "place": one.place or None} for one in result.left_out
    ]
    return {
        "ok": True,
        "added": added,
        "left_out": left,
        "written": str(target) if target is not None else None,
        "policy": result.text,
    }

"""`pack`: packs a web app into the one HTML file that hosts show."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import click

from gateway.apps import PARTS, with_snapshot
from gateway.apps import pack as packed
from gateway.cli.group import Unusable, opener
from gateway.cli.output import json_option, problems_as_json, write_json
from gateway.cli.policy.sources import load
from gateway.config import app_id_problem
from gateway.errors import StartError
from gateway.model import Json
from gateway.policy.links import NO_EXTERNAL


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--app", "-a", "app", help="The app's id; the folder's name by default.")
@click.option("--title", help="The app's title; its id by default.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Output file; APP.html by default.")
@click.option("--base", default="/", show_default=True, help="Base of relative URLs: a path, or the site.")
@click.option(
    "--start",
    default="/",
    show_default=True,
    help="Where the app begins on its site, such as /dashboard/.",
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    help="The app's policy (under that of the organisation): paths of the backend, origins of frames, tools for hosts.",
)
@json_option
def pack(
    source: Path,
    app: str | None,
    title: str | None,
    output: Path | None,
    base: str,
    start: str,
    policy: Path | None,
    as_json: bool,
) -> None:
    """Make one HTML file of the web app in the folder (or HTML file) SOURCE.

    Scripts, modules, styles, images and fonts are embedded, and the view runtime is first in its head. What cannot be
    packed is left out, as in a browser that cannot load it, and listed with file, line, column and the remedy. The
    gateway packs apps itself when it starts: this command shows the result, or writes it for an MCP server of your own.

    Example: webmcp-gateway pack dist --app cart
    """
    id = app or Path(os.path.abspath(source)).name.lower().replace("_", "-")
    if problem := app_id_problem(id):
        raise Unusable(f"{problem}; choose one with --app")
    page = source / "index.html" if source.is_dir() else source
    if not page.is_file() and not as_json:
        raise Unusable(f"{page}: there is no such file: name the folder of the built web app, or its HTML file")
    with problems_as_json(as_json):
        rules = load(policy) if policy is not None else None
        resource = packed(
            source,
            app=id,
            title=title or id,
            runtime=_bundle_text("view/runtime.js"),
            parts={word: [_bundle_text(name) for name in names] for word, names in PARTS.items()},
            base=base,
            start=start,
            checked=True,
            frames=rules.frames if rules is not None else (),
            external=rules.external if rules is not None else NO_EXTERNAL,
            routed=rules.lets_get if rules is not None else lambda _: False,
            secret=rules is not None and bool(rules.secret_routes),
        )
    place = output or Path(f"{id}.html")
    try:
        with open(place, "w", encoding="utf-8", newline="", opener=opener) as file:
            file.write(with_snapshot(resource, {}, rules.free_tools, rules.secret_routes) if rules else resource.html)
    except OSError as error:
        raise Unusable(f"{place} cannot be written: {error.strerror}") from error
    if as_json:
        notes: list[Json] = [*resource.notes, *map(str, resource.unread)]
        warnings: list[Json] = [*map(str, resource.warnings)]
        told: dict[str, Json] = {"uri": resource.uri, "meta": dict(resource.meta), "notes": notes, "warnings": warnings}
        write_json({"ok": True, "file": str(place), **told})
        return
    click.echo(f"{place}: {resource.uri}")
    for note in resource.notes:
        click.echo(f"  {note}")
    for warning in resource.warnings:
        click.echo(f"  warning: {warning}", err=True)
    for unread in resource.unread:
        click.echo(f"  error: {unread}", err=True)


def _bundle_text(name: str) -> str:
    path = Path(str(files("gateway"))) / "static" / name
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise StartError("The browser files are not built: install with `pip install .`, which builds them.") from error

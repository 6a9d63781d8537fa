"""`doctor APP`: tells before the first run what of an app works in a view, what needs a line, what no host can do."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from gateway.apps.advice import OWN, Advice, Finding, ViewSupport, examine
from gateway.assembly.app_advice import examine_configured, examine_site
from gateway.cli.group import Unusable
from gateway.cli.output import FAILED, console, write_json
from gateway.config import App, read_config

BUILT: Final = ("dist", "build", "out", "public", "_site", "site", "docs", "www", "web")
"""Folders in which builds write a page."""

HEADINGS: Final = {
    ViewSupport.WORKS: ("Works as it is", "green"),
    ViewSupport.NEEDS: ("Needs a line, or a look", "yellow"),
    ViewSupport.NEVER: ("No host can do this", "red"),
}


def examine_app(named: str, config: Path) -> Advice:
    """Return the advice about an app: its URL, folder or HTML file, or its id in the configuration. Raises
    `Unusable`."""
    if "://" in named:
        return asyncio.run(examine_site(named))
    apps = _apps(config)
    path = Path(named)
    if named in apps and not path.is_dir():
        return asyncio.run(examine_configured(apps[named]))
    if not path.exists():
        known = f"; {config} has {', '.join(apps)}" if apps else ""
        raise Unusable(f"{named}: there is no such folder, file or app{known}; for a running backend, name its URL")
    page = built_folder(path)
    known_app = next((app for app in apps.values() if app.source == page.resolve()), None)
    return asyncio.run(examine_configured(known_app)) if known_app is not None else examine(_id_of(page), page)


def built_folder(path: Path) -> Path:
    """Return the folder with the page: the folder itself, or that of its build if it holds sources."""
    if path.is_file():
        return path
    built = next((path / name for name in BUILT if (path / name / "index.html").is_file()), None)
    page = path / "index.html"
    is_source = page.is_file() and re.search(
        r"""<script\b[^>]*\bsrc=["']?[./]*src/""", page.read_text("utf-8", "replace")
    )
    return built if built is not None and (is_source or not page.is_file()) else path


def _apps(config: Path) -> dict[str, App]:
    """Return the apps of the configuration; none if there is no such file."""
    if not config.is_file():
        return {}
    read = read_config(config, os.environ)
    return dict(read.config.apps) if read.config is not None else {}


def _id_of(path: Path) -> str:
    real = path.resolve()
    return (real.parent if real.name in BUILT else real).stem.lower()


def report(advice: Advice, *, as_json: bool) -> None:
    """Print the advice, and end with exit code 1 if the app cannot be shown at all."""
    if as_json:
        write_json({"ok": not advice.problems, **advice.as_json()})
    else:
        out = console()
        for line in lines_of(advice):
            out.print(line)
    if advice.problems:
        click.get_current_context().exit(FAILED)


def lines_of(advice: Advice) -> Iterator[Text]:
    """Yield the lines of the advice for a terminal."""
    for problem in advice.problems:
        yield Text(problem, "bold red")
    for verdict, (heading, style) in HEADINGS.items():
        findings = advice.of(verdict)
        if findings:
            yield Text(heading, f"bold {style}")
        for one in findings:
            yield from finding_lines(one)
    if not advice.problems:
        yield Text("In hosts", "bold")
        by_limits: dict[tuple[str, ...], list[str]] = {}
        for host, restrictions in advice.hosts().items():
            by_limits.setdefault(tuple(restrictions), []).append("our own (the console)" if host == OWN else host)
        for limits, hosts in by_limits.items():
            yield Text(f"  {', '.join(hosts)}: {'; '.join(limits) or 'as above'}")


def finding_lines(one: Finding) -> Iterator[Text]:
    """Yield the lines of one finding."""
    what = f"{one.what}: {one.detail}" if one.detail else one.what
    places = f" ({', '.join(one.places)})" if one.places else ""
    yield Text.assemble((f"  {one.topic:<13} ", "dim"), what, (places, "dim"))
    for line in one.lines:
        yield Text(f"  {'':13}   {line}", "cyan")
    if one.lines:
        yield Text(f"  {'':13}   in {one.under}".replace(" in `", " under `"), "dim")

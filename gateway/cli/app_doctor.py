"""`doctor APP`: tells before the first run what of an app works in a view, what needs a line, what no host can do."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
from rich.text import Text

from gateway.apps.advice import OWN, ROUTES, Advice, AppFacts, Finding, ViewSupport, advise, examine
from gateway.apps.survey import survey_texts
from gateway.backends.connect import Connections
from gateway.backends.crawl import SitePage, read_site
from gateway.cli.group import Unusable
from gateway.cli.output import FAILED, console, write_json
from gateway.config import App, BackendApp, StorageKind, read_config
from gateway.policy import Network, Policy

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
        return examine_url(named)
    apps = _apps(config)
    path = Path(named)
    if named in apps and not path.is_dir():
        return examine_configured(apps[named])
    if not path.exists():
        known = f"; {config} has {', '.join(apps)}" if apps else ""
        raise Unusable(f"{named}: there is no such folder, file or app{known}; for a running backend, name its URL")
    page = built_folder(path)
    known_app = next((app for app in apps.values() if app.source == page.resolve()), None)
    return examine_configured(known_app) if known_app is not None else examine(_id_of(page), page)


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


def examine_configured(app: App) -> Advice:
    """Return the advice about an app of the configuration, under its policy."""
    if isinstance(app.source, BackendApp):
        what = f"its pages come from the backend {app.source.backend}: each is loaded when it is shown"
        return Advice(app.id, [Finding("pages", what, ViewSupport.WORKS)])
    if not isinstance(app.source, Path):
        what = f"an app of the upstream {app.source.upstream}, whose page is read when it is shown"
        return Advice(app.id, [Finding("pages", what, ViewSupport.WORKS)])
    return examine(
        app.id,
        app.source,
        start=app.start,
        policy=app.policy,
        permissions=app.permissions,
        kept_storage=app.storage is StorageKind.GATEWAY,
    )


def examine_url(url: str, policy: Policy | None = None, app: str = "app") -> Advice:
    """Return the advice about a running backend."""
    try:
        page = asyncio.run(read_page(url))
    except ValueError as error:
        return Advice(app, (), [str(error)])
    return advise_on_site(page, policy, app)


async def read_page(url: str) -> SitePage:
    """Read the page of a running backend, on this machine, in a private network or on the Internet.

    Raises `ValueError`.
    """
    async with Connections() as connections:
        return await read_site(connections, Network(public=True, private=True), url)


def advise_on_site(page: SitePage, policy: Policy | None = None, app: str = "app") -> Advice:
    """Return the advice about a site whose first page was read."""
    found = survey_texts([("(page)", page.html), *page.texts.items()], start=urlsplit(page.url).path or "/")
    found = replace(found, paths=tuple(dict.fromkeys([*page.pages, *found.paths])))
    advice = advise(AppFacts(app, found, policy=policy, server_rendered=True))
    more = [
        Finding("pages", f"rendered by the server, beginning at {page.url}", ViewSupport.WORKS)
        if page.server_rendered
        else Finding("pages", f"built in the page by its scripts, beginning at {page.url}", ViewSupport.WORKS)
    ]
    if page.cookies and not any(one.topic == "login" and "jar" in "".join(one.lines) for one in advice.findings):
        what = f"sets the cookies {', '.join(page.cookies)}"
        more.append(Finding("login", what, ViewSupport.NEEDS, "", ("cookies: jar",), "`backends.app` in the policy"))
    more += [
        Finding("other sites", f"the script {url}", ViewSupport.NEEDS, "open it by `external`, or serve it yourself")
        for url in page.foreign
    ]
    if page.posts:
        lines = tuple(f'- {{path: "{path}", methods: [POST]}}' for path in page.posts)
        more.append(Finding("forms", f"post to {', '.join(page.posts)}", ViewSupport.NEEDS, "", lines, ROUTES))
    more += [Finding("files", missing, ViewSupport.NEEDS) for missing in page.missing]
    kept = [one for one in advice.findings if one.topic != "pages"]
    return replace(advice, findings=[*more, *kept])


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

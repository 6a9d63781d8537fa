"""`pack`: packs a web app into the one HTML file that hosts show."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp
import click
from yarl import URL

from gateway.apps import PARTS, size_note, with_snapshot
from gateway.apps import pack as packed
from gateway.apps.vendor import LARGEST, keep
from gateway.backends.connect import Connections
from gateway.cli.group import Unusable, opener
from gateway.cli.output import json_option, problems_as_json, write_json
from gateway.cli.policy.sources import load
from gateway.config import app_id_problem
from gateway.errors import Refusal, StartError
from gateway.model import Json, Resource
from gateway.policy import Network
from gateway.policy.page_rules import NO_EXTERNAL


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
@click.option(
    "--vendor",
    is_flag=True,
    help="First download the files of other sites that the app names to SOURCE.vendor, with a lock of their digests.",
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
    vendor: bool,
    as_json: bool,
) -> None:
    """Make one HTML file of the web app in the folder (or HTML file) SOURCE.

    Scripts, modules, styles, images and fonts are embedded, and the view runtime is first in its head. What cannot be
    packed is left out, as in a browser that cannot load it, and listed with file, line, column and the remedy. The
    gateway packs apps itself when it starts: this command shows the result, or writes it for an MCP server of your own.

    With --vendor, files of other sites (fonts, style sheets, scripts and modules of a CDN, pictures) are downloaded
    once, to SOURCE.vendor. Later packs, and the gateway, use them, and leave out a file whose bytes are not those of
    its lock.

    Example: webmcp-gateway pack dist --app cart
    """
    id = app or Path(os.path.abspath(source)).name.lower().replace("_", "-")
    if problem := app_id_problem(id):
        raise Unusable(f"{problem}; choose one with --app")
    for name, url in (("--base", base), ("--start", start)):
        try:
            urlsplit(url)
        except ValueError as error:
            raise Unusable(f"{name} {url}: {error}: write a path, such as /shop/") from error
    first = source / "index.html" if source.is_dir() else source
    if not first.is_file() and not as_json and start == "/":
        raise Unusable(f"{first}: there is no such file: name the folder of the built web app, or its HTML file")
    with problems_as_json(as_json):
        rules = load(policy) if policy is not None else None
        packing = partial(
            packed,
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
        lost = asyncio.run(take_in(source, packing)) if vendor else []
        resource = packing()
    page = with_snapshot(resource, {}, rules.free_tools, rules.secret_routes) if rules else resource.html
    resource = replace(resource, notes=(size_note(page, resource.head), *resource.notes[1:]))
    place = output or Path(f"{id}.html")
    try:
        with open(place, "w", encoding="utf-8", newline="", opener=opener) as file:
            file.write(page)
    except OSError as error:
        raise Unusable(f"{place} cannot be written: {error.strerror}") from error
    if as_json:
        notes: list[Json] = [*resource.notes, *map(str, resource.unread)]
        warnings: list[Json] = [*lost, *map(str, resource.warnings)]
        summary: dict[str, Json] = {
            "uri": resource.uri,
            "meta": dict(resource.meta),
            "notes": notes,
            "warnings": warnings,
        }
        write_json({"ok": True, "file": str(place), **summary})
        return
    click.echo(f"{place}: {resource.uri}")
    for note in resource.notes:
        click.echo(f"  {note}")
    for message in lost:
        click.echo(f"  not taken in: {message}", err=True)
    for warning in resource.warnings:
        click.echo(f"  warning: {warning}", err=True)
    for unread in resource.unread:
        click.echo(f"  error: {unread}", err=True)


FILES: Final = frozenset({"fonts", "images", "styles", "scripts"})
"""The kinds of files that can be taken in."""

ROUNDS: Final = 12
"""Style sheets may name further ones, and these fonts; modules import others."""

SECONDS: Final = 30.0
"""Seconds for one download."""

REDIRECTS: Final = 5

_BROWSER: Final = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36"
)
"""Servers of fonts choose their sheets by the browser: this one has formats that all browsers of today read."""


async def take_in(source: Path, packing: Callable[[], Resource], connections: Connections | None = None) -> list[str]:
    """Download the files of other sites that the app names, and return why some could not be taken in."""
    lost: dict[str, str] = {}
    async with connections or Connections() as client:
        for _ in range(ROUNDS):
            urls = [url.partition("#")[0] for kind, url in packing().foreign if kind in FILES]
            missing = [url for url in dict.fromkeys(urls) if url not in lost]
            if not missing:
                break
            files: dict[str, tuple[bytes, str]] = {}
            for url in missing:
                try:
                    files[url] = await _download(client, url)
                except (Refusal, OSError, ValueError, TimeoutError, aiohttp.ClientError) as error:
                    why = error.detail if isinstance(error, Refusal) else str(error) or type(error).__name__
                    lost[url] = f"{url}: {why}"
            try:
                keep(source, files)
            except OSError as error:
                raise Unusable(f"{error.filename} cannot be written: {error.strerror}") from error
    return [*lost.values()]


async def _download(connections: Connections, url: str) -> tuple[bytes, str]:
    """Return bytes and media type of a file. Raises `ValueError`, `Refusal` and the errors of connections."""
    at = url
    own = URL(url).host in ("127.0.0.1", "localhost")
    network = Network(private=own, public=not own)
    for _ in range(REDIRECTS + 1):
        if URL(at).scheme != "https" and not own:
            raise ValueError("it is not https: what it sends could be changed on the way")
        headers = {"user-agent": _BROWSER, "accept": "*/*"}
        async with (
            asyncio.timeout(SECONDS),
            connections.open(network).get(URL(at, encoded=True), headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
                at = urljoin(at, answer.headers["location"])
                continue
            if answer.status != HTTPStatus.OK:
                raise ValueError(f"its server answers {answer.status}")
            body = bytearray()
            async for part in answer.content.iter_chunked(65536):
                body += part
                if len(body) > LARGEST:
                    raise ValueError(f"it is larger than {LARGEST // 2**20} MiB")
            return bytes(body), answer.headers.get("content-type", "")
    raise ValueError(f"it redirects more than {REDIRECTS} times")


def _bundle_text(name: str) -> str:
    path = Path(str(files("gateway"))) / "static" / name
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise StartError("The browser files are not built: install with `pip install .`, which builds them.") from error

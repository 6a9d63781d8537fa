"""`doctor`: checks an installation, its files and what it reaches; with an app, tells how that fares in a view."""

from __future__ import annotations

import asyncio
import glob
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import aiohttp
import click
from yarl import URL

from gateway.apps import find_page
from gateway.backends.connect import Connections
from gateway.cli import lock
from gateway.cli.app_doctor import examine_app, report
from gateway.cli.deployment import deployment_problems
from gateway.cli.group import config_option
from gateway.cli.loopback import gateway_address
from gateway.cli.output import FAILED, json_option, write_json
from gateway.cli.stdio.command import LOG
from gateway.config import Config, UpstreamSettings, place_of, read_config
from gateway.config.upstreams import REMOTE
from gateway.doors.probe import LONGEST_SILENCE
from gateway.errors import DocumentError, Problem, Reason, Refusal, StartError
from gateway.exchange.authenticate import Authenticator
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.transport import link
from gateway.mcp.upstreams.transport.requests import origin_of
from gateway.mcp.upstreams.upstream import Upstream as Live
from gateway.model import Principal
from gateway.policy import Network
from gateway.stores.segments import all_segments

CONNECT_TIMEOUT = 10.0
"""Seconds for an upstream to answer."""

NOBODY = Principal(issuer="gateway", client="gateway", subject="doctor")

WRITES = {stat.S_IWGRP: "its group", stat.S_IWOTH: "everybody"}


@click.command()
@click.argument("app", required=False)
@config_option()
@click.option(
    "--url", metavar="URL", help="Also check how clients reach the gateway there, through the proxies in front of it."
)
@click.option(
    "--authorities",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of certificate authorities to trust for --url, in addition to the system's.",
)
@click.option(
    "--silence",
    type=click.IntRange(1, LONGEST_SILENCE),
    metavar="SECONDS",
    help="With --url, wait for an answer before which the gateway is silent for so long, to find a shorter timeout.",
)
@json_option
def doctor(
    app: str | None, path: Path, url: str | None, authorities: Path | None, silence: int | None, as_json: bool
) -> None:
    """Check an app before its first run, or, without APP, this installation.

    APP is the folder or HTML file of a web app, the URL of a running backend, or an app of gateway.yaml. It tells what
    was found, what works in a view as it is, what needs a line of the policy or of gateway.yaml, and that line, what no
    host can do, and what is different in Claude, ChatGPT, VS Code, goose and the gateway's own host pages. Exit code 1
    if the app cannot be shown at all.

    Without APP: only the gateway's user may write policy, configuration, record and keys, since this would bypass
    approvals, and only it may read the gateway's keys, record, database, lock file and log. The state folder is checked
    as at a start; one that `serve` will create is no problem. Apps without a page and unreachable upstreams are listed,
    too, and changed settings that the running gateway uses only after a restart. Exit code 1 if there is a problem.

    With --url it connects to each site of the running gateway as its clients do. It finds wrong forwarding of the host
    and of the client's address, a missing upgrade to WebSockets, buffering, limits of bodies, http behind https,
    missing sites and certificates, unreachable issuers, and clocks that differ, and names the line to change.
    Of a gateway of several nodes it asks each that the balancer leads to, and finds nodes with another version,
    configuration, key or database, a missing Redis, and a node that does not reach another one.
    A proxy that waits for an answer less long than an approval takes is found only by waiting: nginx gives up after
    60 seconds as delivered, which --silence 90 finds in as long.

    \b
    Examples: webmcp-gateway doctor dist
              webmcp-gateway doctor http://127.0.0.1:8000
              webmcp-gateway doctor --url https://mcp.example.com
    """
    if app is not None:
        if url is not None or authorities is not None or silence is not None:
            raise click.UsageError("--url, --authorities and --silence check an installation: leave out APP.")
        report(examine_app(app, path), as_json=as_json)
        return
    reading = read_config(path, os.environ)
    problems = [str(problem) for problem in reading.problems]
    notes = list[str]()
    config = reading.config
    if config is not None:
        problems += dict.fromkeys(problem for file in _files(config) for problem in changed_by(file))
        problems += [f"{file}: others may read it: chmod 600 {file}" for file in _private(config) if _is_read(file)]
        problems += _of_state(config)
        problems += _without_page(config)
        problems += asyncio.run(unreachable(config.upstreams.values()))
        problems += asyncio.run(waiting_for_restart(config))
        if url is not None:
            address = gateway_address(url)
            problems += asyncio.run(deployment_problems(config, address, authorities, silence or 0, notes))
    if as_json:
        write_json({"ok": not problems, "problems": [*problems], "notes": [*notes]})
    for problem in problems if not as_json else ():
        click.echo(problem)
    for note in notes if not as_json else ():
        click.echo(note)
    if problems:
        click.get_current_context().exit(FAILED)
    if as_json:
        return
    if config is not None and lock.is_created_by_start(config):
        click.echo(f"the state folder {config.state} does not exist yet: `serve` will create it")
    reached = f", and clients reach it at {url}" if url is not None else ""
    click.echo(
        f"no problem found: other users can neither change the gateway's configuration nor read its files{reached}"
    )


async def waiting_for_restart(config: Config) -> list[str]:
    """Return the settings that were changed while the gateway runs, and that it does not use before a restart."""
    url = lock.running_url(config.state) or lock.running_url(config.path.parent)
    if url is None:
        return []
    everywhere = Network(public=True, private=True)
    try:
        async with (
            asyncio.timeout(CONNECT_TIMEOUT),
            Connections() as connections,
            connections.open(everywhere).get(URL(url).with_path("/readyz")) as answer,
        ):
            health = await answer.json()
    except (aiohttp.ClientError, TimeoutError, ValueError, Refusal) as error:
        return [f"the gateway at {url} does not say whether it needs a restart: {error}; look at its /readyz"]
    return [
        str(Problem(str(config.path), *place_of(config, key), f"{key}: was changed: restart the gateway to use it"))
        for key in health.get("needs_restart", [])
    ]


async def unreachable(upstreams: Iterable[UpstreamSettings]) -> list[str]:
    """Return why upstreams at a URL cannot be reached, one line each; no tool is called."""
    remote = [one for one in upstreams if one.kind in REMOTE]
    async with Connections() as connections:
        problems = await asyncio.gather(*(_unreachable(connections, one) for one in remote))
    return [words for words in problems if words is not None]


async def _unreachable(connections: Connections, one: UpstreamSettings) -> str | None:
    if one.credential is not None:  # only the gateway can obtain the credential: check the connection alone
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await connections.dial(one.network, origin_of(one.target), lambda _: asyncio.Protocol())
        except (Refusal, TimeoutError) as error:
            detail = error.detail if isinstance(error, Refusal) else f"no connection within {CONNECT_TIMEOUT:g} seconds"
            reason = error.reason if isinstance(error, Refusal) else Reason.BACKEND_UNAVAILABLE
            return link.unreachable(one.name, detail, reason).detail
        return None
    async with asyncio.TaskGroup() as tasks:
        upstream = Live(
            replace(one, start=min(one.start, CONNECT_TIMEOUT)),
            connections=connections,
            authenticator=Authenticator({}),
            tasks=tasks,
            echoed=lambda _, __: None,
            fingerprints=_never,
        )
        try:
            await upstream.session(UpstreamClient(NOBODY, "", "2025-11-25"))
        except Refusal as refusal:
            return refusal.detail
        finally:
            await upstream.close()
    return None


def _never(_: object) -> NoReturn:
    raise AssertionError("nothing is listed here")


def _files(config: Config) -> Iterator[Path]:
    """Yield the files that the gateway reads as configuration, and those that it writes."""
    yield config.path
    policies = [app.policy for app in config.apps.values()]
    policies += [one.policy for one in config.upstreams.values() if one.policy is not None]
    yield from (Path(source) for policy in policies for source in policy.sources)
    yield from (app.source for app in config.apps.values() if isinstance(app.source, Path))
    yield from (Path(plugin) for plugin in config.plugins if plugin.endswith(".py"))
    yield from _private(config)


def _of_state(config: Config) -> Iterator[str]:
    """Yield why a start would refuse the state folder."""
    try:
        lock.check_state(config, create=False)
    except StartError as error:
        yield str(error)


def _without_page(config: Config) -> Iterator[str]:
    """Yield why apps cannot be served: without its page, an app is left out at the start."""
    for app in config.apps.values():
        if isinstance(app.source, Path):
            try:
                find_page(app.source, app.start)
            except DocumentError as error:
                yield from map(str, error.problems)


def _private(config: Config) -> Iterator[Path]:
    """Yield every existing file that the gateway writes for itself."""
    journal, folder = config.journal, config.state
    names = (config.audit.key_file, config.encryption_key.file, lock.place_of(folder), folder / LOG)
    segments = all_segments(journal) if journal.parent.is_dir() else ()  # the first start creates the state folder
    files = [*(name for name in names if name is not None), *(segment.path for segment in segments)]
    files += [
        path for end in ("keys", "new", "otlp", "otlp.new") for path in [journal.with_name(f"{journal.name}.{end}")]
    ]
    files += sorted(journal.parent.glob(f"{glob.escape(journal.name)}.torn-*"))
    scheme, _, database = config.database.reveal().partition(":///")
    if scheme == "sqlite":
        files += [Path(f"{database}{end}") for end in ("", "-wal", "-shm", "-journal")]
    yield from (path for path in dict.fromkeys(files) if path.is_file())


def changed_by(file: Path) -> Iterator[str]:
    """Yield who else may change or replace a file; nothing if it does not exist."""
    for place in (file, *file.absolute().parents):
        try:
            status = place.stat()
        except OSError:
            continue
        if status.st_uid not in (0, os.geteuid()):
            yield f"{place}: belongs to {_name(status.st_uid)}, who may change it: chown it to the gateway's user"
        sticky = place is not file and status.st_mode & stat.S_ISVTX  # others may add files, but replace none
        for bit, who in WRITES.items():
            if status.st_mode & bit and not sticky and not (bit == stat.S_IWGRP and _is_own_group(status)):
                yield f"{place}: {who} may write there: chmod go-w {place}"


def _is_own_group(stat: os.stat_result) -> bool:
    """Return whether the group is the owner's private one, which many systems create per user."""
    try:
        owner = pwd.getpwuid(stat.st_uid)
    except KeyError:
        return False
    return owner.pw_gid == stat.st_gid and all(one.pw_gid != stat.st_gid or one == owner for one in pwd.getpwall())


def _is_read(file: Path) -> bool:
    return bool(file.stat().st_mode & 0o077)


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"

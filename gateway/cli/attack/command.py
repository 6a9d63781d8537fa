"""`attack`: tries known attacks on a running gateway, and reports those that succeed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text
from yarl import URL

import gateway
from gateway.backends.connect import Connections
from gateway.cli.attack.attempts import Attempt, Target, attempts, healthy, safe_cases
from gateway.cli.attack.cases import CaseData, corpus_folder, read_corpus
from gateway.cli.group import Unusable
from gateway.cli.loopback import Loopback, gateway_address
from gateway.jsontext.writing import indented_json


def print_report(url: str, attempts: Sequence[Attempt], console: Console) -> None:
    """Print the counts for each family and door, then every attempt that did not hold."""
    table = Table("family", "door", "tried", "held", "not held", title=f"Attacks on {url}")
    for family, door in sorted({(one.family, one.door) for one in attempts}):
        own_attempts = [one for one in attempts if (one.family, one.door) == (family, door)]
        held = sum(one.held for one in own_attempts)
        missed = Text(str(len(own_attempts) - held), "bold red" if held < len(own_attempts) else "green")
        table.add_row(family, door, str(len(own_attempts)), str(held), missed)
    console.print(table)
    for one in attempts:
        if not one.held:
            console.print(Text(f"NOT HELD  {one.id} at {one.door}: {one.why}", "bold red"))
            console.print(f"          answered {one.status or 'nothing'}, gateway-reason {one.reason or 'none'}")
    held = sum(one.held for one in attempts)
    console.print(f"{held} of {len(attempts)} attacks held")


def json_report(url: str, attempts: Sequence[Attempt]) -> str:
    """Return the report as JSON."""
    cases = [
        {
            "id": one.id,
            "family": one.family,
            "door": one.door,
            "why": one.why,
            "status": one.status,
            "reason": one.reason,
            "held": one.held,
        }
        for one in attempts
    ]
    counts = {"tried": len(attempts), "held": sum(one.held for one in attempts)}
    return indented_json({"url": url, "ok": counts["tried"] == counts["held"], **counts, "cases": cases})


FAILED = 1
FASTEST = 500.0
_HEADER = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\x20-\x7e]*)")


@click.command()
@click.argument("url")
@click.option("--app", help="The app whose mount is attacked (/mcp/<app>); required if the gateway has several.")
@click.option("--site", help="URL of the app's own site, to attack it too; derived from --app on loopback.")
@click.option("--token", envvar="WEBMCP_GATEWAY_TOKEN", help="Bearer token to send.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Header field to send with every attack; repeatable.",
)
@click.option(
    "--rate", type=click.FloatRange(0.1, FASTEST), default=20.0, show_default=True, help="Attacks per second."
)
@click.option(
    "--patience",
    type=click.FloatRange(0, 600),
    default=0.0,
    metavar="SECONDS",
    help="Also try incomplete requests, which must be closed within this time (a minute or two is usual).",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def attack(
    ctx: click.Context,
    url: str,
    app: str | None,
    site: str | None,
    token: str | None,
    headers: tuple[str, ...],
    rate: float,
    patience: float,
    as_json: bool,
) -> None:
    """Try known attacks on the gateway at URL, such as http://localhost:8080. Use it on your own gateways only.

    Every gateway refuses these attacks, whatever its policy is; they request paths that no API has. It connects to URL
    and --site only. Exit code 0 if all were refused, 1 if one succeeded, 2 if nothing could be tried.
    """
    place = gateway_address(url)
    host = f"{app}.localhost" if app and _is_loopback(place) else None
    target = Target(
        mcp=f"{place}/mcp/{app}" if app else f"{place}/mcp",
        site=gateway_address(site) if site else str(URL(place).with_host(host)) if host else None,
        headers={**_fields(headers), **({"authorization": f"Bearer {token}"} if token else {})},
        patience=patience,
    )
    cases = safe_cases(read_corpus(corpus_folder(Path(gateway.__file__).parent)))
    attempts = asyncio.run(_all(target, cases, 1 / rate))
    _check_reached(attempts)
    if as_json:
        click.echo(json_report(place, attempts))
    else:
        print_report(place, attempts, Console(highlight=False, soft_wrap=True))
    if not all(one.held for one in attempts):
        ctx.exit(FAILED)


async def _all(target: Target, cases: Sequence[CaseData], pause: float) -> list[Attempt]:
    async with Connections(resolver=Loopback()) as connections:
        status, works = await healthy(connections, target)
        if not works:
            if not status:
                raise Unusable(
                    f"Nothing answers at {target.mcp}, so nothing was tried: does the gateway run, and is this its "
                    "address?"
                )
            raise Unusable(
                f"A right message to {target.mcp} was not answered as one (HTTP {status}), so nothing was tried: is "
                "this the gateway's address, does it take --app, or a --token?"
            )
        return await attempts(connections, target, cases, pause)


def _check_reached(attempts: Sequence[Attempt]) -> None:
    """Refuse the result if all requests of an app failed alike: then nothing was tested. Raises `Unusable`."""
    requests = [one for one in attempts if one.family not in ("mcp", "raw")]
    answers = {(one.status, one.reason) for one in requests}
    if not any(one.held or 0 < one.status < 400 for one in requests) and len(answers) <= 2:
        statuses = "; ".join(
            f"{status or 'no answer'} {reason or ''}".strip() for status, reason in sorted(answers, key=str)
        )
        raise Unusable(
            f"Every request of an app was answered alike ({statuses}), so nothing was tried: is this the gateway's "
            "address, does it take --app, or a --token?"
        )


def _is_loopback(place: str) -> bool:
    host = URL(place).host or ""
    return host == "127.0.0.1" or host == "localhost" or host.endswith(".localhost")


def _fields(headers: Sequence[str]) -> dict[str, str]:
    fields = {}
    for text in headers:
        match = _HEADER.fullmatch(text)
        if match is None:
            raise Unusable(f"--header {text[:40]!r} is not of the form 'NAME: VALUE'")
        fields[match[1].lower()] = match[2]
    return fields

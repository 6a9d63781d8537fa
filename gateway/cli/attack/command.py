"""`attack`: tries known attacks at each door of a running gateway, and reports those that succeed.

Every attempt requests a path that no API has, so that a gateway which lets one through does no harm.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from aiohttp import ClientError, ClientTimeout
from rich.console import Console
from rich.table import Table
from rich.text import Text
from yarl import URL

import gateway
from gateway.backends.connect import Connections
from gateway.cli.attack import cases, raw
from gateway.cli.attack.cases import CaseData, corpus_folder, read_corpus
from gateway.cli.attack.raw import ANYWHERE, sessions, slow
from gateway.cli.group import Unusable
from gateway.cli.loopback import Loopback, gateway_address
from gateway.cli.output import FAILED
from gateway.errors import Reason, Refusal
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import indented_json, plain_json

WAIT: Final = 15.0
"""Seconds for one attempt."""

AT_ONCE: Final = 8
"""Attempts that may wait for their answers at the same time: a refused raw request takes half a second."""

HELD: Final = frozenset({Reason.BAD_REQUEST, Reason.POLICY_DENIED})
"""The reasons with which a gateway rightly refuses an attack."""

_REAL, _HARMLESS = "/api/", "/webmcp-gateway-attack/"
_NAMED: Final = ("url", "method", "headers", "body", "bodyType", "redirect", "credentials", "timeoutMs", "stream")
_PLACE: Final = re.compile("@[a-z]+@")


class AttackedDoor(StrEnum):
    """The doors of a deployed gateway that are tested."""

    MCP = "mcp"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway under test: URL of an MCP mount, URL of an app's site, and the caller's header fields.

    An unfinished request must be closed within `patience` seconds; 0 skips that test.
    """

    mcp: str
    site: str | None
    headers: Mapping[str, str]
    patience: float = 0.0

    def place(self, door: AttackedDoor) -> raw.RawTarget:
        """Return the destination of raw requests at a door."""
        if door is AttackedDoor.SITE:
            own = {"webmcp-gateway-client": "1", "content-type": "text/plain", **self.headers}
            return raw.RawTarget(str(self.site), "POST", f"{_HARMLESS}x", own, "hello", "/")
        fields, body = cases.message({"rpc": {}})
        path = URL(self.mcp).raw_path
        return raw.RawTarget(self.mcp, "POST", path, {**fields, **self.headers}, plain_json(body), "/healthz")


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one case at one door. `reason` is the gateway's own, `status` 0 without an answer."""

    id: str
    family: str
    why: str
    door: AttackedDoor
    status: int
    reason: str | None
    held: bool


Ask: TypeAlias = Callable[[Connections, Target, CaseData], Awaitable[Attempt]]


def safe_cases(corpus: Sequence[CaseData]) -> list[CaseData]:
    """Return the cases that every gateway refuses under any policy."""
    return [case for case in corpus if case.get("deployed")]


async def attempts(connections: Connections, target: Target, cases: Sequence[CaseData], pause: float) -> list[Attempt]:
    """Try each case at each door that can express it, one each `pause` seconds, `AT_ONCE` of them at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def attempt(door: AttackedDoor, ask: Ask, case: CaseData) -> Attempt:
        try:
            return await _try_case(door, ask, connections, target, case)
        finally:
            room.release()

    async with asyncio.TaskGroup() as group:
        tasks = []
        for case in cases:
            for door, ask in _requests_at_doors(target, case):
                await room.acquire()
                tasks.append(group.create_task(attempt(door, ask, case)))
                await asyncio.sleep(pause)
    results = [task.result() for task in tasks]
    async for one in _several(connections, target):
        results.append(one)
        await asyncio.sleep(pause)
    return results


async def healthy(connections: Connections, target: Target) -> tuple[int, bool]:
    """Return the status of the answer to a valid message, and whether it has a result."""
    try:
        status, answer = await _post(connections, target, {"rpc": {}})
    except (Refusal, TimeoutError, ClientError):
        return 0, False
    message = cases.answer_in(answer)
    return status, message is not None and "result" in message


async def _several(connections: Connections, target: Target) -> AsyncIterator[Attempt]:
    """Try the attacks that need several requests or connections."""
    try:
        async for name, why, status, held in sessions(connections, target.mcp, target.headers, WAIT):
            yield Attempt(name, "mcp", why, AttackedDoor.MCP, status, None, held)
    except (Refusal, TimeoutError, ClientError):
        yield Attempt(
            "session", "mcp", "whatever is said of sessions is answered", AttackedDoor.MCP, 0, None, held=False
        )
    for door in (AttackedDoor.MCP, AttackedDoor.SITE):
        if door is AttackedDoor.MCP or target.site is not None:
            async for name, why, status, held in slow(connections, target.place(door), target.patience, WAIT):
                yield Attempt(name, "raw", why, door, status, None, held)


async def _try_case(door: AttackedDoor, ask: Ask, connections: Connections, target: Target, case: CaseData) -> Attempt:
    """Try one case; without an answer the gateway has not held."""
    try:
        return await ask(connections, target, case)
    except (Refusal, TimeoutError, ClientError):
        return _attempt(case, door, 0, None, held=False)


def _requests_at_doors(target: Target, case: CaseData) -> list[tuple[AttackedDoor, Ask]]:
    """Return the doors that can express a case, with their requests."""
    doors = [AttackedDoor.MCP, *([AttackedDoor.SITE] if target.site is not None else [])]
    if "raw" in case:
        return [(door, _raw_at(door)) for door in doors]
    if case["family"] == "mcp":
        return [(AttackedDoor.MCP, _message)] if not _PLACE.search(plain_json(_place(case, target.mcp))) else []
    at_site = [(AttackedDoor.SITE, _at_site)] if AttackedDoor.SITE in doors and _site_speaks(case) else []
    return [(AttackedDoor.MCP, _at_mcp), *at_site]


def _site_speaks(case: CaseData) -> bool:
    """Return whether an HTTP client can send the case: an unencoded request target, and headers of text."""
    arguments = _arguments(case)
    url, headers = arguments.get("url"), arguments.get("headers", {})
    return (
        "doors" not in case
        and isinstance(url, str)
        and url.startswith("/")
        and len(url) < 8000
        and all("!" <= char <= "~" and char != "#" for char in url)
        and all(isinstance(value, str) and value.isprintable() for value in headers.values())
    )


def _arguments(case: CaseData) -> dict[str, Any]:
    requests = case.get("ask") or {name: case[name] for name in _NAMED if name in case}
    url = requests.get("url")
    return {**requests, "url": url.replace(_REAL, _HARMLESS)} if isinstance(url, str) else dict(requests)


async def _at_mcp(connections: Connections, target: Target, case: CaseData) -> Attempt:
    params = {"name": "http_request", "arguments": _arguments(case)}
    status, answer = await _post(connections, target, {"rpc": {"method": "tools/call", "params": params}})
    return _judge(case, AttackedDoor.MCP, *_inside(answer, status))


async def _message(connections: Connections, target: Target, case: CaseData) -> Attempt:
    status, answer = await _post(connections, target, _place(case, target.mcp))
    return _attempt(case, AttackedDoor.MCP, status, None, held=cases.matches_case(case, status, answer))


def _raw_at(door: AttackedDoor) -> Ask:
    async def ask(connections: Connections, target: Target, case: CaseData) -> Attempt:
        wire = await raw.exchange_raw(connections, target.place(door), case, WAIT)
        return _attempt(case, door, next(iter(wire.statuses), 0), None, held=raw.matches_answers(case["expect"], wire))

    return ask


async def _post(connections: Connections, target: Target, case: CaseData) -> tuple[int, bytes]:
    """Send an MCP case; return status and body of the answer."""
    headers, body = cases.message(case)
    fields = {**headers, **target.headers, **case.get("headers", {}), **({"host": case["at"]} if "at" in case else {})}
    text = body if isinstance(body, str) else plain_json(body)
    async with connections.open(ANYWHERE).request(
        case.get("method", "POST"),
        target.mcp,
        data=text.encode("utf-8", "surrogatepass"),
        headers={name: str(value) for name, value in fields.items() if value is not None},
        timeout=ClientTimeout(WAIT),
        allow_redirects=False,
    ) as answer:
        return answer.status, await answer.read()


async def _at_site(connections: Connections, target: Target, case: CaseData) -> Attempt:
    arguments = _arguments(case)
    headers = {"webmcp-gateway-client": "1", **target.headers, **arguments.get("headers", {})}
    url = URL(f"{target.site}{arguments['url']}", encoded=True)
    async with connections.open(ANYWHERE).request(
        arguments.get("method", "GET"),
        url,
        headers=headers,
        data=arguments.get("body"),
        timeout=ClientTimeout(WAIT),
        allow_redirects=False,
    ) as answer:
        return _judge(case, AttackedDoor.SITE, answer.status, answer.headers.get("gateway-reason"))


def _inside(answer: bytes, status: int) -> tuple[int, str | None]:
    """Return status and reason of the HTTP answer inside an MCP answer."""
    message = cases.answer_in(answer)
    if message is None:
        return status, None
    if "error" in message:  # the message was refused before it became a request
        return 400, Reason.BAD_REQUEST
    content = message["result"].get("structuredContent") or {}
    headers = content.get("headers", {})
    return content.get("status", status), headers.get("gateway-reason", content.get("reason"))


def _judge(case: CaseData, door: AttackedDoor, status: int, reason: str | None) -> Attempt:
    # The HTTP server refuses the worst requests itself, without `gateway-reason`.
    held = reason in HELD or (door is AttackedDoor.SITE and reason is None and status in (400, 414, 431))
    return _attempt(case, door, status, reason, held=held)


def _attempt(case: CaseData, door: AttackedDoor, status: int, reason: str | None, *, held: bool) -> Attempt:
    return Attempt(str(case["id"]), str(case["family"]), str(case["why"]), door, status, reason, held)


def _place(case: CaseData, url: str) -> dict[str, Any]:
    """Adapt the case to this gateway: its port for `@port@`, and a path that no API has."""
    text = plain_json(dict(case)).replace("@port@", str(URL(url).port)).replace(f'"{_REAL}', f'"{_HARMLESS}')
    placed: dict[str, Any] = parse_json(text)
    return placed


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

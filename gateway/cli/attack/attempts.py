"""Tries one attack at one door of a running gateway, and judges the outcome.

Every attempt requests a path that no API has, so that a gateway which lets one through does no harm.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from aiohttp import ClientError, ClientTimeout
from yarl import URL

from gateway.backends.connect import Connections
from gateway.cli.attack import cases, raw
from gateway.cli.attack.cases import CaseData
from gateway.cli.attack.raw import ANYWHERE, sessions, slow
from gateway.errors import Reason, Refusal
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json

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

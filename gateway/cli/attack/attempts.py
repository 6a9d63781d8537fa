"""One attack at one door of a running gateway, and whether it held.

Every attempt asks for a path that no API has, so that a gateway which lets one through does no harm with it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from aiohttp import ClientError, ClientTimeout
from yarl import URL

from gateway.backends.connect import Connections
from gateway.cli.attack.cases import CaseData
from gateway.errors import Reason, Refusal
from gateway.policy import Network

VERSION: Final = "2026-07-28"
WAIT: Final = 15.0
"""Seconds that one attempt may take."""

HELD: Final = frozenset({Reason.BAD_REQUEST, Reason.POLICY_DENIED})
"""The reasons of a gateway that has understood what was tried."""

_ANYWHERE: Final = Network(public=True, private=True)
_UI: Final = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
_REAL, _HARMLESS = "/api/", "/webmcp-gateway-attack/"
_NAMED: Final = ("url", "method", "headers", "body", "bodyType", "redirect", "credentials", "timeoutMs", "stream")


class Door(StrEnum):
    """The doors of a deployed gateway that are tried."""

    MCP = "mcp"
    SITE = "site"


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway: the address of an MCP mount, that of an app's site, and the caller's own header fields."""

    mcp: str | None
    site: str | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one case at one door. `reason` is the gateway's own, `status` 0 where there was no answer."""

    id: str
    family: str
    why: str
    door: Door
    status: int
    reason: str | None
    held: bool


Ask: TypeAlias = Callable[[Connections, Target, CaseData], Awaitable[Attempt]]


def safe_cases(corpus: Sequence[CaseData]) -> list[CaseData]:
    """Those that any gateway refuses, whatever its policy says."""
    return [case for case in corpus if case.get("deployed")]


async def attempts(
    connections: Connections, target: Target, cases: Sequence[CaseData], pause: float
) -> AsyncIterator[Attempt]:
    """Try each case at each door that can say it, one at a time, `pause` seconds apart."""
    for case in cases:
        for door, ask in _doors(target):
            if _speaks(door, case):
                began = time.monotonic()
                yield await _tried(door, ask, connections, target, case)
                await asyncio.sleep(max(0.0, pause - (time.monotonic() - began)))


async def _tried(door: Door, ask: Ask, connections: Connections, target: Target, case: CaseData) -> Attempt:
    """A gateway that gives no answer has not held."""
    try:
        return await ask(connections, target, case)
    except (Refusal, TimeoutError, ClientError):
        return _attempt(case, door, 0, None)


def _doors(target: Target) -> list[tuple[Door, Ask]]:
    places = ((Door.MCP, target.mcp, _at_mcp), (Door.SITE, target.site, _at_site))
    return [(door, ask) for door, place, ask in places if place]


def _speaks(door: Door, case: CaseData) -> bool:
    """An HTTP client can say only what stands for itself in a request line, and headers of text."""
    if door is Door.MCP:
        return True
    given = _arguments(case)
    url, headers = given.get("url"), given.get("headers", {})
    return (
        "doors" not in case
        and isinstance(url, str)
        and url.startswith("/")
        and len(url) < 8000
        and all("!" <= char <= "~" and char != "#" for char in url)
        and all(isinstance(value, str) and value.isprintable() for value in headers.values())
    )


def _arguments(case: CaseData) -> dict[str, Any]:
    named = case.get("ask") or {name: case[name] for name in _NAMED if name in case}
    url = named.get("url")
    return {**named, "url": url.replace(_REAL, _HARMLESS)} if isinstance(url, str) else dict(named)


async def _at_mcp(connections: Connections, target: Target, case: CaseData) -> Attempt:
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "webmcp-gateway attack", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": _UI,
    }
    params = {"name": "http_request", "arguments": _arguments(case), "_meta": meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "http_request",
        **target.headers,
    }
    async with connections.open(_ANYWHERE).post(
        str(target.mcp), data=json.dumps(message).encode(), headers=headers, timeout=ClientTimeout(WAIT)
    ) as answer:
        return _attempt(case, Door.MCP, *_inside(await answer.read(), answer.status))


async def _at_site(connections: Connections, target: Target, case: CaseData) -> Attempt:
    given = _arguments(case)
    headers = {"webmcp-gateway-client": "1", **target.headers, **given.get("headers", {})}
    url = URL(f"{target.site}{given['url']}", encoded=True)
    async with connections.open(_ANYWHERE).request(
        given.get("method", "GET"),
        url,
        headers=headers,
        data=given.get("body"),
        timeout=ClientTimeout(WAIT),
        allow_redirects=False,
    ) as answer:
        return _attempt(case, Door.SITE, answer.status, answer.headers.get("gateway-reason"))


def _inside(raw: bytes, status: int) -> tuple[int, str | None]:
    """Status and reason of the HTTP answer inside an MCP answer, which is JSON or an event stream."""
    for line in (raw, *raw.splitlines()):
        try:
            value = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            continue
        if not isinstance(value, dict):
            continue
        if "error" in value:  # a message that was refused before it was a request
            return 400, Reason.BAD_REQUEST
        content = value.get("result", {}).get("structuredContent") or {}
        headers = content.get("headers", {})
        return content.get("status", status), headers.get("gateway-reason", content.get("reason"))
    return status, None


def _attempt(case: CaseData, door: Door, status: int, reason: str | None) -> Attempt:
    # An HTTP server in front refuses the worst itself, without a word of ours.
    held = reason in HELD or (door is Door.SITE and reason is None and status in (400, 414, 431))
    return Attempt(str(case["id"]), str(case["family"]), str(case["why"]), door, status, reason, held)

"""Raw HTTP requests that no client sends: their bytes, and the check of their answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from yarl import URL

from gateway.backends.connect import Connections, Origin
from gateway.cli.attack.cases import CaseData
from gateway.policy import Network

QUIET: Final = 0.5
"""Seconds of silence after an answer that end the wait for another."""

ANYWHERE: Final = Network(public=True, private=True)
_STATUS: Final = re.compile(rb"HTTP/[0-9]\.[0-9] ([1-5][0-9]{2})[ \r]")
_SAYS_NO: Final = frozenset({*range(400, 500), 501, 505})
_INTERIM: Final = frozenset({100, 102, 103})


@dataclass(frozen=True, slots=True)
class RawTarget:
    """The destination of raw requests: URL, method and target of the request line, the caller's fields, and a body."""

    url: str
    method: str
    target: str
    fields: Mapping[str, str]
    body: str
    hidden: str
    """The target of a GET that is allowed, but not inside another request."""

    def written(self, text: str) -> bytes:
        """Return the bytes of a case."""
        host = URL(self.url).raw_authority
        fields = "".join(f"{name}: {value}\r\n" for name, value in self.fields.items())
        words = {
            "hidden": f"GET {self.hidden} HTTP/1.1\r\nhost: {host}\r\n{fields}\r\n",
            "start": f"{self.method} {self.target}",
            "method": self.method,
            "target": self.target,
            "host": host,
            "fields": fields,
            "body": self.body,
            "length": str(len(self.body)),
            "hex": f"{len(self.body):x}",
        }
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        return text.encode("latin-1")


@dataclass(slots=True, eq=False)
class Wire(asyncio.Protocol):
    """One connection: the received bytes, and whether the other end closed it."""

    gone: Callable[[asyncio.Protocol], None]
    came: bytearray = field(default_factory=bytearray)
    closed: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    transport: asyncio.Transport = field(init=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.came += data
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.changed.set()
        self.gone(self)

    @property
    def statuses(self) -> list[int]:
        """The statuses of the final answers."""
        found = (int(status) for status in _STATUS.findall(self.came))
        return [status for status in found if status not in _INTERIM]

    async def silence(self, wanted: int, seconds: float) -> None:
        """Wait until it is closed, or silent after `wanted` answers, or `seconds` have passed."""
        try:
            async with asyncio.timeout(seconds):
                while not self.closed:
                    self.changed.clear()
                    try:
                        async with asyncio.timeout(QUIET):
                            await self.changed.wait()
                    except TimeoutError:
                        if len(self.statuses) >= wanted:
                            return
        except TimeoutError:
            return


async def opened(connections: Connections, url: str) -> Wire:
    """Connect to the server of `url`. Raises `Refusal`."""
    place = URL(url)
    return await connections.dial(ANYWHERE, Origin(place.scheme, place.host or "", place.port or 80), Wire)


async def exchanged(connections: Connections, place: RawTarget, case: CaseData, seconds: float) -> Wire:
    """Send a raw case on a new connection, and return what it received before it was closed."""
    wire = await opened(connections, place.url)
    try:
        wire.transport.write(place.written(case["raw"]))
        await wire.silence(_wanted(case["expect"]), seconds)
    finally:
        wire.transport.abort()
    return wire


def held(expected: Any, wire: Wire) -> bool:
    """Return whether the answers are as the case expects: `refused`, or a number `answered`."""
    statuses = wire.statuses
    if expected == "refused":
        return statuses[0] in _SAYS_NO if len(statuses) == 1 else wire.closed and not statuses
    faults = () if expected.get("any") else (400,)
    return len(statuses) == expected["answered"] and not {*faults, expected.get("status_not")} & {*statuses}


def _wanted(expected: Any) -> int:
    return 1 if expected == "refused" else int(expected["answered"])

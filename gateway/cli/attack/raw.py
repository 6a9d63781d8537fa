"""Attacks that no client sends: raw HTTP requests, sessions of others, and clients that stop in the middle."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aiohttp import ClientTimeout
from yarl import URL

from gateway.backends.connect import Connections, Origin
from gateway.cli.attack.cases import UI, CaseData, answer_in
from gateway.jsontext.writing import plain_json
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

    def write(self, text: str) -> bytes:
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

    on_close: Callable[[asyncio.Protocol], None]
    came: bytearray = field(default_factory=bytearray)
    closed: bool = False
    change: asyncio.Event = field(default_factory=asyncio.Event)
    transport: asyncio.Transport = field(init=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.came += data
        self.change.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.change.set()
        self.on_close(self)

    @property
    def statuses(self) -> list[int]:
        """The statuses of the final answers."""
        codes = (int(status) for status in _STATUS.findall(self.came))
        return [status for status in codes if status not in _INTERIM]

    async def silence(self, count: int, seconds: float) -> None:
        """Wait until it is closed, or silent after `count` answers, or `seconds` have passed."""
        try:
            async with asyncio.timeout(seconds):
                while not self.closed:
                    self.change.clear()
                    try:
                        async with asyncio.timeout(QUIET):
                            await self.change.wait()
                    except TimeoutError:
                        if len(self.statuses) >= count:
                            return
        except TimeoutError:
            return


async def connect(connections: Connections, url: str) -> Wire:
    """Connect to the server of `url`. Raises `Refusal`."""
    place = URL(url)
    return await connections.dial(ANYWHERE, Origin(place.scheme, place.host or "", place.port or 80), Wire)


async def exchange_raw(connections: Connections, place: RawTarget, case: CaseData, seconds: float) -> Wire:
    """Send a raw case on a new connection, and return what it received before it was closed."""
    wire = await connect(connections, place.url)
    try:
        wire.transport.write(place.write(case["raw"]))
        await wire.silence(_wanted_status(case["expect"]), seconds)
    finally:
        wire.transport.abort()
    return wire


def matches_answers(expected: Any, wire: Wire) -> bool:
    """Return whether the answers are as the case expects: `refused`, or a number `answered`."""
    statuses = wire.statuses
    if expected == "refused":
        return statuses[0] in _SAYS_NO if len(statuses) == 1 else wire.closed and not statuses
    faults = () if expected.get("any") else (400,)
    return len(statuses) == expected["answered"] and not {*faults, expected.get("status_not")} & {*statuses}


def _wanted_status(expected: Any) -> int:
    return 1 if expected == "refused" else int(expected["answered"])


LEGACY: Final = "2025-11-25"
SHORTEST: Final = 16
"""Minimum length of a session id: shorter ones can be guessed."""

Outcome = tuple[str, str, int, bool]
"""Name, reason, status of the answer, and whether it held."""

_LIST: Final = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}}
_BEGIN: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LEGACY,
        "capabilities": UI,
        "clientInfo": {"name": "webmcp-gateway attack", "version": "1"},
    },
}
_BEGUN: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class _RawServer:
    def __init__(self, connections: Connections, url: str, headers: Mapping[str, str], wait: float) -> None:
        self._session = connections.open(ANYWHERE)
        self._url = url
        self._own = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        self._wait = ClientTimeout(wait)

    async def say(self, message: Any, id: str | None, method: str = "POST") -> tuple[int, str | None, Any]:
        """Send a message; return status, session id and JSON-RPC response."""
        headers = {**self._own, "mcp-protocol-version": LEGACY, **({"mcp-session-id": id} if id is not None else {})}
        data = plain_json(message).encode() if message is not None else None
        async with self._session.request(method, self._url, data=data, headers=headers, timeout=self._wait) as answer:
            return answer.status, answer.headers.get("mcp-session-id"), answer_in(await answer.read())

    async def begin(self) -> str | None:
        """Open a session; return its id."""
        _, id, _ = await self.say(_BEGIN, None)
        if id is not None:
            await self.say(_BEGUN, id)
        return id


async def sessions(
    connections: Connections, url: str, headers: Mapping[str, str], wait: float
) -> AsyncIterator[Outcome]:
    """Yield each outcome; nothing if the server has no sessions. Raises the HTTP client's errors."""
    server = _RawServer(connections, url, headers, wait)
    one, other = await server.begin(), await server.begin()
    if one is None or other is None:
        return
    differ = sum(left != right for left, right in zip(one, other, strict=False))
    long = min(len(one), len(other)) >= SHORTEST and differ >= SHORTEST // 2
    yield "session-guessed", "the id of a session is long, and tells nothing of the next one", 200, long
    altered = f"{one[:-1]}{'0' if one[-1] != '0' else '1'}"
    for name, why, id in (
        ("altered", "a session id with one character changed is unknown", altered),
        ("shortened", "nor is a part of it", one[:-1]),
        ("doubled", "nor are two in one field", f"{one}, {other}"),
        ("case", "nor the same in other letters", one.swapcase()),
    ):
        if id != one:
            status, _, answer = await server.say(_LIST, id)
            yield f"session-{name}", why, status, _is_refused(status, answer)
    if "authorization" in headers:
        stranger = _RawServer(connections, url, {}, wait)
        status, _, answer = await stranger.say(_LIST, one)
        yield (
            "session-taken",
            "a session without the token that opened it opens nothing",
            status,
            _is_refused(status, answer),
        )
    status, _, answer = await server.say(_LIST, one)
    working = answer is not None and "result" in answer
    yield "session-own", "one's own is answered, so that the others fail for their own reason", status, working
    for id in (one, other):
        await server.say(None, id, "DELETE")
    status, _, answer = await server.say(_LIST, one)
    yield "session-ended", "a session that was ended is over", status, _is_refused(status, answer)


def _is_refused(status: int, answer: Any) -> bool:
    return 400 <= status < 500 and (answer is None or "result" not in answer)


CLIENTS: Final = 20
"""Connections at once: enough to notice, too few to harm."""

_HEALTHY: Final = {
    "raw": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@content-length: @length@\r\n\r\n@body@",
    "expect": {"answered": 1},
}
_HALVES: Final = {
    "head": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@x-a",
    "body": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@content-length: 1000\r\n\r\n{",
    "chunk": "@start@ HTTP/1.1\r\nhost: @host@\r\n@fields@transfer-encoding: chunked\r\n\r\nff\r\n{",
}


async def slow(connections: Connections, place: RawTarget, patience: float, wait: float) -> AsyncIterator[Outcome]:
    """Check that others are answered meanwhile; and within `patience` seconds (0: skip) each half request is closed."""
    for name, half in _HALVES.items():
        wires = [await connect(connections, place.url) for _ in range(CLIENTS)]
        try:
            for wire in wires:
                wire.transport.write(place.write(half))
            healthy = await exchange_raw(connections, place, _HEALTHY, wait)
            why = f"{CLIENTS} clients that stop in the middle of a {name} delay no others"
            yield f"slow-{name}", why, next(iter(healthy.statuses), 0), matches_answers(_HEALTHY["expect"], healthy)
            if patience:
                given_up = await asyncio.gather(*(_gives_up(wire, patience) for wire in wires))
                yield f"endless-{name}", f"a {name} that is never whole is given up", 0, all(given_up)
        finally:
            for wire in wires:
                wire.transport.abort()


async def _gives_up(wire: Wire, seconds: float) -> bool:
    """Return whether it was answered with a refusal, or closed."""
    await wire.silence(1, seconds)
    return wire.closed or matches_answers("refused", wire)

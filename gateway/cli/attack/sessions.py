"""Attacks on sessions of the MCP versions that have them (2025-11-25 and before): each belongs to its caller only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aiohttp import ClientTimeout

from gateway.backends.connect import Connections
from gateway.cli.attack.messages import UI, answer_in
from gateway.cli.attack.raw import ANYWHERE

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


class _Server:
    def __init__(self, connections: Connections, url: str, headers: Mapping[str, str], wait: float) -> None:
        self._session = connections.open(ANYWHERE)
        self._url = url
        self._own = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
        self._wait = ClientTimeout(wait)

    async def say(self, message: Any, id: str | None, method: str = "POST") -> tuple[int, str | None, Any]:
        """Send a message; return status, session id and JSON-RPC response."""
        headers = {**self._own, "mcp-protocol-version": LEGACY, **({"mcp-session-id": id} if id is not None else {})}
        data = json.dumps(message).encode() if message is not None else None
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
    server = _Server(connections, url, headers, wait)
    one, other = await server.begin(), await server.begin()
    if one is None or other is None:
        return
    differ = sum(left != right for left, right in zip(one, other, strict=False))
    long = min(len(one), len(other)) >= SHORTEST and differ >= SHORTEST // 2
    yield "session-guessed", "the id of a session is long, and tells nothing of the next one", 200, long
    altered = f"{one[:-1]}{'0' if one[-1] != '0' else '1'}"
    for name, why, id in (
        ("altered", "an id that is nearly one's own is nobody's", altered),
        ("shortened", "nor is a part of it", one[:-1]),
        ("doubled", "nor are two in one field", f"{one}, {other}"),
        ("case", "nor the same in other letters", one.swapcase()),
    ):
        if id != one:
            status, _, answer = await server.say(_LIST, id)
            yield f"session-{name}", why, status, _refused(status, answer)
    if "authorization" in headers:
        stranger = _Server(connections, url, {}, wait)
        status, _, answer = await stranger.say(_LIST, one)
        yield (
            "session-taken",
            "a session without the token that opened it opens nothing",
            status,
            _refused(status, answer),
        )
    status, _, answer = await server.say(_LIST, one)
    working = answer is not None and "result" in answer
    yield "session-own", "one's own is answered, so that the others fail for their own reason", status, working
    for id in (one, other):
        await server.say(None, id, "DELETE")
    status, _, answer = await server.say(_LIST, one)
    yield "session-ended", "a session that was ended is over", status, _refused(status, answer)


def _refused(status: int, answer: Any) -> bool:
    return 400 <= status < 500 and (answer is None or "result" not in answer)

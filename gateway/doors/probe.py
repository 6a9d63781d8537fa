"""An endpoint by which `doctor` learns how requests arrive at the gateway through the proxies in front of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from aiohttp import web

from gateway.crypto import SigningKeys
from gateway.doors.access import PROBE, IncomingRequest
from gateway.jsontext.writing import plain_json
from gateway.model import Json

PROOF: Final = "webmcp-gateway-probe"
"""The header field that proves knowledge of the gateway's key: seconds since the epoch, a space, a signature."""

PURPOSE: Final = "probes"

LIFE: Final = 300.0
"""Seconds for which a proof is valid."""

PAUSE: Final = 1.5
"""Seconds between the two events of a stream: what arrives together was buffered."""

SILENCE: Final = "webmcp-gateway-silence"
"""The header field with the seconds that the gateway is silent before it answers, as one that waits for a person is."""

LONGEST_SILENCE: Final = 3600
"""The most of these."""

NODES: Final = "webmcp-gateway-nodes"
"""The header field that asks for the nodes of the gateway, and whether the one that answers reaches the others."""

LARGEST: Final = 4 * 2**20
"""Bytes of a body that are counted."""

FORWARDING: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")


def prove(keys: SigningKeys, now: float) -> str:
    """Return the value of the header `PROOF`; `now` is in seconds since the epoch."""
    return f"{now:.0f} {keys.sign(PURPOSE, f'{now:.0f}')}"


class ProbeDoor:
    """Answers with what arrived: as JSON, as an event stream, or over a WebSocket. Without a proof it does not exist.

    `keys` returns the signing keys, `client` the client's address as the gateway determines it, `nodes` what this
    process as a node knows of the others; it is None for a gateway of one process.
    """

    def __init__(
        self,
        keys: Callable[[], SigningKeys],
        client: Callable[[IncomingRequest], str | None],
        nodes: Callable[[], Awaitable[dict[str, Json]]] | None = None,
    ) -> None:
        self._keys = keys
        self._client = client
        self._nodes = nodes
        self._process = secrets.token_hex(8)

    def routes(self) -> list[web.RouteDef]:
        """Return the one route."""
        return [web.route("*", PROBE, self._handle)]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if not self._is_proven(request.headers.get(PROOF, "")):
            raise web.HTTPNotFound
        if "upgrade" in request.headers:
            socket = web.WebSocketResponse(timeout=PAUSE)
            with suppress(ConnectionResetError):
                await socket.prepare(request)
                await socket.send_str(plain_json(self._facts(request, 0)))
                await socket.close()
            return socket
        size = 0
        async for part in request.content.iter_any():
            size += len(part)
            if size > LARGEST:
                raise web.HTTPRequestEntityTooLarge(LARGEST, size)
        silence = request.headers.get(SILENCE, "")
        if silence.isascii() and silence.isdecimal() and len(silence) < 5:
            await asyncio.sleep(min(int(silence), LONGEST_SILENCE))
        if "text/event-stream" not in request.headers.get("accept", ""):
            facts = self._facts(request, size)
            if NODES in request.headers:
                facts["cluster"] = await self._nodes() if self._nodes is not None else None
            return web.json_response(facts, headers={"cache-control": "no-store"})
        stream = web.StreamResponse(
            headers={"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}
        )
        with suppress(ConnectionResetError):  # the client left
            await stream.prepare(request)
            await stream.write(b"data: first\n\n")
            await asyncio.sleep(PAUSE)
            await stream.write(b"data: last\n\n")
        return stream

    def _facts(self, request: web.Request, size: int) -> dict[str, Json]:
        return {
            "host": request.headers.get("host", ""),
            "peer": request.remote,
            "client": self._client(request),
            "forwarded": {name: list(request.headers.getall(name)) for name in FORWARDING if name in request.headers},
            "size": size,
            "time": time.time(),
            "process": self._process,
        }

    def _is_proven(self, proof: str) -> bool:
        when, _, signature = proof.partition(" ")
        if not when.isascii() or not when.isdecimal() or len(when) > 12 or abs(time.time() - int(when)) > LIFE:
            return False
        return self._keys().verify(signature, PURPOSE, when)

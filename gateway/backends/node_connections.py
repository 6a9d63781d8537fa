"""Connections to other nodes of the gateway: Unix sockets on this machine, else TCP with mutual TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from gateway.errors import StartError
from gateway.ports.nodes import NodeAnswer

CONNECT_SECONDS: Final = 3.0
"""Seconds to connect to another node."""

IDLE_SECONDS: Final = 30.0
"""Seconds for which an idle connection is kept; the other node closes it later."""

CHUNK: Final = 64 * 1024
"""Bytes read at once."""


def server_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context of a listener that requires a certificate of `authority`. Raises StartError."""
    return _context(ssl.Purpose.CLIENT_AUTH, certificate, key, authority)


def client_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    """Return the context of connections to such listeners. Raises StartError."""
    return _context(ssl.Purpose.SERVER_AUTH, certificate, key, authority)


def _context(purpose: ssl.Purpose, certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(purpose, cafile=authority)
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise StartError(
            f"cluster.tls: no certificate and key in PEM, without a password, can be read of {certificate}, {key} and "
            f"{authority}"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


class NodeConnections:
    """The connections to all other nodes, an async context manager; `tls` is the client's context for TCP."""

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None) -> None:
        self._tls = tls
        self._sessions: dict[str, aiohttp.ClientSession] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    @asynccontextmanager
    async def request(
        self, address: str, method: str, target: str, headers: Mapping[str, str], body: bytes | AsyncIterator[bytes]
    ) -> AsyncIterator[NodeAnswer]:
        """Yield the answer to a request; leaving the block early closes the connection.

        Raises OSError; ConnectionRefusedError if nothing was sent.
        """
        session, base = self._session(address)
        try:
            async with session.request(
                method, f"{base}{target}", headers=headers, data=body, allow_redirects=False
            ) as answer:
                fields = tuple((name, value) for name, value in answer.headers.items())
                yield NodeAnswer(answer.status, fields, answer.content.iter_any())
        except aiohttp.ClientConnectorError as error:
            raise ConnectionRefusedError(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from error

    def _session(self, address: str) -> tuple[aiohttp.ClientSession, str]:
        known = self._sessions.get(address)
        base = "http://node" if address.startswith("unix:") else f"https://{address}"
        if known is None:
            known = self._sessions[address] = aiohttp.ClientSession(
                connector=self._connector(address),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
                skip_auto_headers=("accept", "accept-encoding", "user-agent", "content-type"),
                read_bufsize=CHUNK,
                raise_for_status=False,
                trust_env=False,
            )
        return known, base

    def _connector(self, address: str) -> aiohttp.BaseConnector:
        if address.startswith("unix:"):
            return aiohttp.UnixConnector(address.removeprefix("unix:"), limit=0, keepalive_timeout=IDLE_SECONDS)
        if self._tls is None:
            raise ConnectionError(f"the node at {address} is reached by TLS, and this one has no certificate")
        return aiohttp.TCPConnector(ssl=self._tls(), limit=0, keepalive_timeout=IDLE_SECONDS)

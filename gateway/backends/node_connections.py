"""Connections to other nodes of the gateway: Unix sockets on this machine, else TCP with mutual TLS."""

from __future__ import annotations

import io
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
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


class NodeCertificates:
    """The PEM files with which nodes authenticate to each other, and the TLS contexts made of them.

    Raises StartError if these cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, authority: Path) -> None:
        self._files = certificate, key, authority
        self._stamps = self._read_stamps()
        self.listener = self._context(ssl.Purpose.CLIENT_AUTH)
        """For a listener, which requires a certificate of the authority."""
        self.listener.sni_callback = self._choose  # it is called for each connection
        self._server = self._context(ssl.Purpose.CLIENT_AUTH)
        self.client = self._context(ssl.Purpose.SERVER_AUTH)
        """For the next connection to such a listener."""

    def refresh(self) -> None:
        """Use files that were replaced for new connections.

        Raises StartError if they cannot be used: those from before stay in use.
        """
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            contexts = self._context(ssl.Purpose.CLIENT_AUTH), self._context(ssl.Purpose.SERVER_AUTH)
            self._server, self.client = contexts

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        """Let a connection go on with the current certificate and authority."""
        connection.context = self._server

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        certificate, key, authority = self._files
        try:
            context = ssl.create_default_context(purpose, cafile=authority)
            context.load_cert_chain(certificate, key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise StartError(
                f"cluster.tls: no certificate and key in PEM, without a password, can be read of {certificate}, {key} "
                f"and {authority}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return context

    def _read_stamps(self) -> list[tuple[int, int]]:
        with suppress(OSError):
            return [(status.st_ino, status.st_mtime_ns) for status in (file.stat() for file in self._files)]
        return []


def _no_password() -> str:
    raise ValueError("the key has a password")


class NodeConnections:
    """The connections to all other nodes, an async context manager; `certificates` are for TCP."""

    def __init__(self, certificates: NodeCertificates | None) -> None:
        self._certificates = certificates
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
        # aiohttp writes bytes at once, and what can be read in pieces, which let the event loop go on.
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) > CHUNK else body
        try:
            async with session.request(
                method, f"{base}{target}", headers=headers, data=data, allow_redirects=False, ssl=self._tls()
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
        if self._certificates is None:
            raise ConnectionError(f"the node at {address} is reached by TLS, and this one has no certificate")
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS)

    def _tls(self) -> ssl.SSLContext | bool:
        """Return the context of a connection that is made now."""
        return self._certificates.client if self._certificates is not None else True

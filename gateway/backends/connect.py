"""Opens all outgoing connections, and only to addresses that the network setting allows."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast

import aiohappyeyeballs
import aiohttp
from aiohappyeyeballs import AddrInfoType as AddrInfo
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import DefaultResolver
from yarl import URL

from gateway import __version__
from gateway.backends.reaper import Reaper
from gateway.backends.websocket_frames import Handler
from gateway.errors import Reason, Refusal, StartError
from gateway.eventloop.fair_share import RoundRobin


def tls_context(authorities: Path | None, chain: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return a context that also trusts `authorities`, and sends the certificate in `chain`; None for neither.

    Raises StartError for invalid files.
    """
    if authorities is None and chain is None:
        return None
    context = ssl.create_default_context()
    try:
        if authorities is not None:
            context.load_verify_locations(authorities)
        if chain is not None:
            context.load_cert_chain(chain, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        files = ", ".join(str(file) for file in (authorities, chain, key) if file is not None)
        raise StartError(f"no TLS certificate and key in PEM, without a password, can be read of {files}") from error
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")


USER_AGENT = f"webmcp-gateway/{__version__}"
"""The gateway's user agent, unless the app's request has one."""

CONNECTIONS_PER_HOST = 100
"""Connections for complete responses; streams have separate ones, as many as may be open."""

LINE_BYTES = 8190
HEADER_FIELDS = 128
KEEP_ALIVE_SECONDS = 15.0

PROBE_SECONDS = 30
"""Seconds of silence before a TCP keep-alive probe, and between probes: an event stream may be silent."""

_PROBED = [
    getattr(socket, name) for name in ("TCP_KEEPIDLE", "TCP_KEEPALIVE", "TCP_KEEPINTVL") if hasattr(socket, name)
]
"""The first two are one option, under the names of different systems."""

_RETRIED = frozenset({"GET", "HEAD", "OPTIONS"})
_SET_BY_AIOHTTP = ("accept", "accept-encoding", "content-type", "user-agent")


OpenSession: TypeAlias = Callable[[], aiohttp.ClientSession]
"""`Connections.open` with its network: returns the session for the next connection, or raises `Refusal`."""


class Network(Protocol):
    """The addresses that may be connected to; equal networks share connections, so it must be hashable."""

    def allows(self, ip: str) -> bool:
        """Return whether an IP address (no name, no port) may be connected to."""
        ...


class AddressDenied(PermissionError):
    """An address that its network setting does not allow; an OSError, so that aiohttp passes it on."""

    def __init__(self) -> None:
        super().__init__("the address is not allowed")


class RedirectRefusal(Refusal):
    """A redirect that was not followed: `code` is its status, `location` its target."""

    def __init__(self, authority: str, code: int, location: str | None) -> None:
        super().__init__(Reason.BACKEND_PROTOCOL, f"{authority} leads elsewhere: HTTP status {code}")
        self.code = code
        self.location = location


class Origin(NamedTuple):
    """The target of connections: `host` is an ASCII name or an address, `authority` its form in messages."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port (RFC 3986, 3.2)."""
        return f"{self.host}:{self.port}"


P = TypeVar("P", bound=asyncio.Protocol)


class Connections:
    """All outgoing connections, pooled by network and origin, and the reaper of the processes that are started.

    An async context manager. `resolver` resolves names (the system's by default); `tls` replaces the default TLS
    context, which verifies certificates against the system's authorities. With `use_aiohttp`, requests are sent by
    aiohttp's client instead of the gateway's own.
    """

    def __init__(
        self,
        *,
        resolver: AbstractResolver | None = None,
        tls: ssl.SSLContext | None = None,
        use_aiohttp: bool = False,
    ) -> None:
        self.use_aiohttp = use_aiohttp
        self._given_resolver = resolver
        self._tls = tls
        self._resolver: AbstractResolver | None = None
        self._sessions: dict[tuple[Network, ssl.SSLContext | None, int], aiohttp.ClientSession] = {}
        self._dialled: dict[asyncio.Protocol, asyncio.Transport] = {}
        self.in_turn = RoundRobin()
        self.reaper = Reaper()

    async def __aenter__(self) -> Self:
        self._resolver = self._given_resolver or DefaultResolver()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        resolver, self._resolver = self._resolver, None
        self.reaper.close()
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()
        for transport in tuple(self._dialled.values()):
            transport.abort()
        if resolver is not None and self._given_resolver is None:
            await resolver.close()

    def open(
        self, network: Network, tls: ssl.SSLContext | None = None, each: int = CONNECTIONS_PER_HOST
    ) -> aiohttp.ClientSession:
        """Return aiohttp's session; each connection goes to an address that `network` allows, `each` to one origin.

        It is for WebSockets, which the gateway's own client does not speak, for `AiohttpClient`, and for
        commands that are clients of a gateway, in a process of their own where speed does not count: `stdio`,
        `approvals`, `attack`.

        It uses no proxy of the environment, stores no cookies, and raises `Refusal` if a connection fails. `tls`
        replaces the TLS context of all. Raises `Refusal` (`backend-unavailable`) before the start and after the end of
        this context manager.
        """
        if self._resolver is None:
            raise Refusal(Reason.BACKEND_UNAVAILABLE, "the gateway is shutting down")
        key = network, tls, each
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = self._new_session(
                network, self._resolver, tls or self._tls_of(network), each
            )
        return session

    async def dial(
        self,
        network: Network,
        origin: Origin,
        protocol: Callable[[Callable[[asyncio.Protocol], None]], P],
        tls: ssl.SSLContext | None = None,
    ) -> P:
        """Open a connection to an address that `network` allows; `protocol` receives a callback for its end.

        `tls` replaces the context of all connections. Raises `Refusal` if it fails, and TimeoutError if the system
        reports a timeout.
        """
        if self._resolver is None:
            raise Refusal(Reason.BACKEND_UNAVAILABLE, "the gateway is shutting down")
        addresses = await _addresses(_VettedResolver(self._resolver, network), origin)
        context = (tls or self._tls_of(network) or _default_tls()) if origin.scheme == "https" else None
        try:
            sock = await aiohappyeyeballs.start_connection(
                addresses, happy_eyeballs_delay=0.25, interleave=1, socket_factory=_VettedSockets(network)
            )
            transport, made = await asyncio.get_running_loop().create_connection(
                lambda: protocol(self._hung_up),
                sock=sock,
                ssl=context,
                server_hostname=origin.host if context is not None else None,
            )
        except TimeoutError:
            raise
        except (OSError, ssl.CertificateError) as error:
            raise _connect_refusal(origin, error) from error
        self._dialled[made] = transport
        return made

    def _tls_of(self, network: Network) -> ssl.SSLContext | None:
        """Return the TLS context for a network; None for the default one. Raises `Refusal`."""
        authorities: str | None = getattr(network, "authorities", None)  # only networks of the configuration have it
        if authorities is None:
            return self._tls
        file = Path(authorities)
        try:
            return _tls_with(file, file.stat().st_mtime_ns)
        except (OSError, StartError) as error:
            raise Refusal(
                Reason.BACKEND_UNREACHABLE, f"the certificate authorities in {file} cannot be read"
            ) from error

    def _hung_up(self, protocol: asyncio.Protocol) -> None:
        self._dialled.pop(protocol, None)

    def _new_session(
        self, network: Network, resolver: AbstractResolver, tls: ssl.SSLContext | None, each: int
    ) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=_VettedResolver(resolver, network),
            socket_factory=_VettedSockets(network),
            ssl=tls or True,
            limit=0,
            limit_per_host=each,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        # aiohttp has no public name for the reader of WebSockets.
        connector._factory = cast(Any, partial(Handler, self.in_turn, asyncio.get_running_loop()))
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            headers={"user-agent": USER_AGENT},
            skip_auto_headers=_SET_BY_AIOHTTP,
            timeout=aiohttp.ClientTimeout(),
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
            max_headers=HEADER_FIELDS,
            middlewares=(translate_errors,),
            trace_configs=[_no_redirects()],
        )


class _VettedSockets:
    """Creates the socket of each connection attempt; the final check of its address, for names and literals alike."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, (host, *_) = address
        if not _is_allowed(self._network, host):
            raise AddressDenied
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in _PROBED:
            made.setsockopt(socket.IPPROTO_TCP, option, PROBE_SECONDS)
        return made


def _no_redirects() -> aiohttp.TraceConfig:
    """Refuse redirects: aiohttp follows those of a WebSocket, with all header fields."""

    async def refuse(_: aiohttp.ClientSession, __: object, redirect: aiohttp.TraceRequestRedirectParams) -> None:
        redirect.response.close()
        authority, location = f"{redirect.url.raw_host}:{redirect.url.port}", redirect.response.headers.get("location")
        raise RedirectRefusal(authority, redirect.response.status, location)

    config = aiohttp.TraceConfig()
    config.on_request_redirect.append(refuse)
    return config


class _VettedResolver(AbstractResolver):
    """Omits the denied addresses of a name, so that an allowed one's error is reported instead of theirs."""

    def __init__(self, inner: AbstractResolver, network: Network) -> None:
        self._inner = inner
        self._network = network

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            addresses = await self._inner.resolve(host, port, family)
        except UnicodeError as error:
            raise OSError(f"{host!r} is not a host name") from error
        allowed = [entry for entry in addresses if _is_allowed(self._network, entry["host"])]
        if addresses and not allowed:
            raise AddressDenied
        return allowed

    async def close(self) -> None:
        """Do nothing: the inner resolver is shared."""


def _is_allowed(network: Network, host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return network.allows(str(address))


async def _addresses(resolver: _VettedResolver, origin: Origin) -> list[AddrInfo]:
    """Return the addresses to connect to. Raises `Refusal`."""
    try:
        literal = ipaddress.ip_address(origin.host)
    except ValueError:
        literal = None
    if literal is not None:
        family = socket.AF_INET6 if literal.version == 6 else socket.AF_INET
        return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (origin.host, origin.port))]
    try:
        addresses = await resolver.resolve(origin.host, origin.port)
    except AddressDenied as error:
        raise _connect_refusal(origin, error) from error
    except OSError as error:
        raise Refusal(Reason.BACKEND_UNREACHABLE, f"{origin.authority}: the name does not resolve") from error
    if not addresses:
        raise Refusal(Reason.BACKEND_UNREACHABLE, f"{origin.authority}: the name does not resolve")
    return [
        (entry["family"], socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (entry["host"], entry["port"]))
        for entry in addresses
    ]


def _connect_refusal(origin: Origin, error: OSError) -> Refusal:
    if isinstance(error, AddressDenied):
        return _denial(origin.authority)
    kind = "no TLS connection" if isinstance(error, ssl.SSLError) else "no connection"
    return Refusal(Reason.BACKEND_UNREACHABLE, f"{origin.authority}: {kind}: {_words(error)}")


def _denial(authority: str) -> Refusal:
    return Refusal(Reason.ADDRESS_DENIED, f"{authority} is at an address that its `network` does not allow")


@lru_cache(maxsize=64)
def _tls_with(file: Path, _: int) -> ssl.SSLContext:
    """Return the context that also trusts the authorities in `file`, as modified at that time. Raises StartError."""
    context = tls_context(file, None, None)
    return context if context is not None else _default_tls()


@lru_cache(maxsize=1)
def _default_tls() -> ssl.SSLContext:
    """Return the default context, created once: loading the system's authorities takes 20 ms."""
    return ssl.create_default_context()


async def translate_errors(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request and raise `Refusal` if no response head arrives.

    A safe request is repeated once if its connection proves to be closed (RFC 9110 9.2.2); aiohttp would do this for
    PUT and DELETE too, which could run an unsafe request twice.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectionError as error:
        if request.method not in _RETRIED or _is_connect_error(error):
            raise refusal(request.url, error) from error
    except (aiohttp.ClientError, OSError) as error:
        raise refusal(request.url, error) from error
    try:
        return await handler(request)
    except (aiohttp.ClientError, OSError) as error:
        raise refusal(request.url, error) from error


def _is_connect_error(error: aiohttp.ClientConnectionError) -> bool:
    return isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError))


_UNVERIFIED: Final = (18, 19, 20, 21)
"""The results of a verification that ends at no known authority (X509_V_ERR_*, X509_STORE_CTX_get_error(3))."""


def has_unknown_authority(error: BaseException | None) -> bool:
    """Return whether the certificate of an unknown authority has caused an error."""
    while error is not None:
        why = error.certificate_error if isinstance(error, aiohttp.ClientConnectorCertificateError) else error
        if isinstance(why, ssl.SSLCertVerificationError):
            return why.verify_code in _UNVERIFIED
        error = error.__cause__
    return False


def refusal(url: URL, error: aiohttp.ClientError | OSError) -> Refusal:
    """Return the caller's refusal; it contains the configured host, never the address that it resolved to."""
    authority = f"{url.raw_host}:{url.port}"
    match error:
        case aiohttp.ClientConnectorError(os_error=AddressDenied()) | aiohttp.InvalidURL():
            return _denial(authority)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return Refusal(Reason.BACKEND_UNREACHABLE, f"{authority}: no TLS connection: {_words(error.os_error)}")
        case aiohttp.ClientConnectorDNSError():
            return Refusal(Reason.BACKEND_UNREACHABLE, f"{authority}: the name does not resolve")
        case aiohttp.ClientConnectorError():
            return Refusal(Reason.BACKEND_UNREACHABLE, f"{authority}: no connection: {_words(error.os_error)}")
        case TimeoutError():
            return Refusal(Reason.BACKEND_TIMEOUT, f"{authority}: no answer in time")
        case aiohttp.ClientConnectionError() | OSError():
            return Refusal(Reason.BACKEND_UNREACHABLE, f"{authority} closed the connection without an answer")
        case _:
            return Refusal(Reason.BACKEND_PROTOCOL, f"{authority} answered with something that is not HTTP")


def _words(error: OSError) -> str:
    """Return the system's text for an error: aiohttp's own text contains the address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or "handshake failed"
    return os.strerror(error.errno).lower() if error.errno else "failed"

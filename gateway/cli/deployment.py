"""Checks a deployed gateway from outside, as its clients reach it: names, certificates, the proxy, issuers, clocks."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from yarl import URL

from gateway.assembly.credentials import key_source
from gateway.assembly.live_settings import IssuerServer
from gateway.backends.connect import Connections, has_unknown_authority
from gateway.backends.http import HttpBackend
from gateway.callers.issuer_requests import read_metadata
from gateway.callers.methods import OAuthIssuer
from gateway.callers.proxies import address_of, within
from gateway.cli.cluster_doctor import cluster_problems
from gateway.cli.loopback import Loopback
from gateway.config import Config
from gateway.config.locations import host_of, is_public_suffix
from gateway.doors.access import PROBE
from gateway.doors.guard import CLIENT_HEADER
from gateway.doors.probe import NODES, PAUSE, PROOF, PURPOSE, SILENCE, prove
from gateway.errors import Refusal, StartError, Unidentified
from gateway.exchange.oauth_tokens import run_flow
from gateway.model import Outbound, Response
from gateway.policy import Network
from gateway.stores.sealing import KeyRing

TIMEOUT: Final = 10.0
"""Seconds for one answer."""

BODY: Final = 2 * 2**20
"""Bytes of the body that is sent: more than nginx admits by default."""

CLOCK: Final = 5.0
"""Seconds that two clocks may differ; an answer that was long on its way has the rest of `auth[].skew`."""

NO_LIMIT: Final = aiohttp.ClientTimeout()

NEVER: Final = ("192.0.2.77", "192.0.2.78")
"""Addresses for documentation (RFC 5737), which no client has."""

UNKNOWN_AUTHORITY: Final = (
    "If that authority is your own, name its certificate with --authorities FILE; if not, let the server send the "
    "whole chain of its certificate"
)

VISIT: Final = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}

Found = AsyncIterator[str]


@dataclass(frozen=True, slots=True)
class _Site:
    """A site of the gateway: what it is, its setting, its origin, a path of it, and the answer that proves it."""

    what: str
    key: str
    origin: str
    path: str
    is_ours: Callable[[int, str, str], bool]
    """Called with status, content type, and `Location` or the body."""


async def deployment_problems(
    config: Config, url: str, authorities: Path | None, silence: int = 0, notes: list[str] | None = None
) -> list[str]:
    """Return what is wrong between clients at `url` and the gateway of `config`, each with the line to change.

    `authorities` is a file of certificate authorities to trust besides the system's. Connects to the gateway's own
    sites, and to the issuers of `auth`. Waits for an answer before which the gateway is silent for `silence` seconds.
    `notes` gets what is worth knowing of the nodes, and breaks nothing.
    """
    all_problems = [problem async for problem in _of_url(config, url)]
    network = Network(public=True, private=True, authorities=str(authorities) if authorities is not None else None)
    async with Connections(resolver=Loopback()) as connections:
        check = _Check(config, connections.open(network), _proof(config))
        groups = [check.plain(), check.console(), check.other_sites(), _issuers(config, connections)]
        if silence:
            groups.append(check.silence(silence))
        for problems in await asyncio.gather(*(_all(group) for group in groups)):
            all_problems += problems
        if not all_problems:  # otherwise requests do not arrive as they should
            all_problems += await check.nodes(notes if notes is not None else [])
    return list(dict.fromkeys(all_problems))


async def _all(problems: Found) -> list[str]:
    return [problem async for problem in problems]


async def _of_url(config: Config, url: str) -> Found:
    public, reached = config.server.public_url, str(URL(url).origin())
    if reached != public:
        yield f"server.public_url is {public}, and clients reach the gateway at {reached}: write public_url: {reached}"
    for key, origin in (("console", config.server.origins.console), ("sandbox", config.server.origins.sandbox)):
        if reached.startswith("https://") and origin.startswith("http://"):
            secure = origin.replace("http://", "https://", 1)
            yield f"server.origins.{key} is {origin}, behind a proxy with TLS: write {key}: {secure}"


def _proof(config: Config) -> Callable[[], str]:
    """Return a maker of proofs that this process has the gateway's key. Raises `StartError` if it has none."""
    file = config.encryption_key.file
    if file is not None and not file.exists():  # reading it would create it, as the user of this command
        raise StartError(f"there is no key {file} yet: start the gateway first, and call doctor with its configuration")
    try:
        keys = KeyRing(key_source(config.encryption_key)).derive(PURPOSE)
    except OSError as error:
        raise StartError(f"the gateway's key cannot be read: {error}; call doctor as the gateway's user") from error
    return lambda: prove(keys, time.time())


class _Check:
    def __init__(
        self,
        config: Config,
        http: aiohttp.ClientSession,  # noqa: TID251  # one of `Connections`
        proof: Callable[[], str],
    ) -> None:
        self._config = config
        self._http = http
        self._proof = proof

    async def plain(self) -> Found:
        """Check the address of MCP clients: forwarding, large bodies, buffering."""
        site = self._probe_site("the address of MCP clients", "server.public_url", self._config.server.public_url)
        for step in (self._forwarding, self._body, self._stream, self._without_tls):
            async for problem in step(site):
                yield problem
                if problem.startswith(site.what):  # it cannot be reached
                    return

    async def silence(self, seconds: int) -> Found:
        """Check that the proxy waits so long for an answer."""
        began, last = time.monotonic(), TIMEOUT + seconds
        url = self._config.server.public_url + PROBE
        headers = {**self._headers(), SILENCE: str(seconds)}
        given_up = "closed the connection"
        try:
            async with asyncio.timeout(last), self._http.get(url, headers=headers, timeout=NO_LIMIT) as answer:
                if answer.status == 200:
                    return
                given_up = f"answered {answer.status}"
        except TimeoutError:
            given_up = "gave no answer"
        except (aiohttp.ClientError, Refusal) as error:
            given_up += f" ({error})"
        yield (
            f"of {seconds} s in which the gateway is silent, as while an approval waits, the proxy waited for "
            f"{time.monotonic() - began:.0f} s and {given_up}. nginx: proxy_read_timeout 1h; Caddy: no read_timeout"
        )

    async def nodes(self, notes: list[str]) -> list[str]:
        """Check the nodes behind the balancer, each by a connection of its own."""
        site = self._probe_site("the address of MCP clients", "server.public_url", self._config.server.public_url)

        async def ask() -> Any:
            return await self._answer(site, {**self._headers(), NODES: "1", "connection": "close"})

        return await cluster_problems(ask, notes, configured=self._config.cluster is not None)

    async def console(self) -> Found:
        """Check the console: its bridge is a WebSocket."""
        origin = self._config.server.origins.console
        site = self._probe_site("the console", "server.origins.console", origin)
        async for problem in self._forwarding(site):
            yield problem
            if problem.startswith(site.what):
                return
        try:
            async with asyncio.timeout(TIMEOUT), self._http.ws_connect(origin + PROBE, headers=self._headers()) as ws:
                await ws.receive_json()
        except (aiohttp.ClientError, TimeoutError, TypeError, ValueError, Refusal) as error:
            status = f" ({error.status})" if isinstance(error, aiohttp.WSServerHandshakeError) else ""
            yield (
                f"the console's bridge is a WebSocket, and the proxy does not upgrade the connection{status}. nginx: "
                "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "
                "$webmcp_gateway_connection; (see deploy/nginx.conf)"
            )

    async def other_sites(self) -> Found:
        """Check the sandbox and the site of each app: they must lead to the gateway, too."""
        origins = self._config.server.origins
        sites = [_Site("the sandbox of views", "server.origins.sandbox", origins.sandbox, "/proxy.html", _is_problem)]
        dedicated = [name for name, app in self._config.apps.items() if app.dedicated]
        if dedicated:
            origin, key = origins.frame("0" + "a" * 32), "server.origins.dedicated"
            sites.append(_Site(f"the dedicated origins of {', '.join(dedicated)}", key, origin, "/", _is_problem))
            domain = host_of(origins.frame("id")).partition(".")[2]
            if not is_public_suffix(domain):
                yield (
                    f"server.origins.dedicated: {domain} is not on the Public Suffix List, so apps there can set "
                    "cookies that other apps read; use it where that is no harm, or have it listed "
                    "(https://publicsuffix.org/submit)"
                )
        for name in self._config.apps:
            origin = origins.app(name)
            sites.append(_Site(f"the site of the app {name}", "server.origins.apps", origin, "/", _is_site))
        for site in sites:
            answer = await self._answer(site, {CLIENT_HEADER: "1"})
            if isinstance(answer, str):
                yield answer

    def _probe_site(self, what: str, key: str, origin: str) -> _Site:
        return _Site(what, key, origin, PROBE, lambda status, kind, _: status == 200 and kind == "application/json")

    def _headers(self) -> dict[str, str]:
        return {PROOF: self._proof(), CLIENT_HEADER: "1"}

    async def _forwarding(self, site: _Site) -> Found:
        claims = {"x-forwarded-for": NEVER[0], "forwarded": f"for={NEVER[1]}"}
        answer = await self._answer(site, {**self._headers(), **claims})
        if isinstance(answer, str):
            yield answer
            return
        server, facts = self._config.server, answer
        peer, client, names = facts["peer"], facts["client"], facts["forwarded"]
        if facts["host"] != URL(site.origin).raw_authority and facts["host"] != _authority(site.origin):
            yield (
                f"{site.what}: {_authority(site.origin)} arrives as Host: {facts['host']}. nginx: proxy_set_header "
                f"Host $http_host; or write the other name in {site.key}"
            )
        if client in NEVER:
            yield (
                f"a client can choose the address that the gateway takes for its own ({client} was sent). nginx: "
                'proxy_set_header X-Forwarded-For $remote_addr; proxy_set_header Forwarded ""; gateway.yaml: '
                "client_header: x-forwarded-for"
            )
        by_proxy = {name: [value for value in values if value not in claims.values()] for name, values in names.items()}
        if any(by_proxy.values()) and not within(address_of(peer), server.trusted_proxies):
            yield (
                f"requests arrive from {peer}, which server.trusted_proxies does not name: every client has its "
                f"address. Write trusted_proxies: [{peer}]"
            )
        elif any(by_proxy.values()) and server.client_header is None:
            yield "server.client_header does not say where the proxy names the client: client_header: x-forwarded-for"
        if abs(facts["time"] - time.time()) > CLOCK + TIMEOUT:
            yield f"the gateway's clock differs from this machine's by {abs(facts['time'] - time.time()):.0f} s"

    async def _body(self, site: _Site) -> Found:
        answer = await self._answer(site, self._headers(), b"x" * BODY)
        if isinstance(answer, str):
            yield f"a body of {BODY // 2**20} MiB does not arrive: {answer}"
        elif answer["size"] != BODY:
            yield f"of a body of {BODY} bytes {answer['size']} arrived at the gateway"

    async def _stream(self, site: _Site) -> Found:
        headers = {**self._headers(), "accept": "text/event-stream"}
        try:
            async with asyncio.timeout(TIMEOUT), self._http.get(site.origin + PROBE, headers=headers) as answer:
                await answer.content.readuntil(b"\n\n")
                first = time.monotonic()
                await answer.content.readuntil(b"\n\n")
                apart = time.monotonic() - first
        except (aiohttp.ClientError, TimeoutError, ValueError, asyncio.IncompleteReadError, Refusal) as error:
            yield f"an event stream does not arrive ({str(error) or 'no answer'}). nginx: proxy_buffering off;"
            return
        if apart < PAUSE / 2:
            yield (
                "the proxy buffers answers: two events arrive together, and the gateway sent one after the other. "
                "nginx: proxy_buffering off; Caddy: no buffer_responses"
            )

    async def _without_tls(self, site: _Site) -> Found:
        url = URL(site.origin)
        if url.scheme != "https" or not url.is_default_port():
            return
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                self._http.get(url.with_scheme("http"), allow_redirects=False, headers=VISIT) as answer,
            ):
                if not answer.headers.get("location", "").startswith("https://"):
                    yield f"http://{url.host} answers {answer.status} instead of leading to https: return 308 https://…;"
        except (aiohttp.ClientError, TimeoutError, Refusal):
            return  # nothing listens there

    async def _answer(self, site: _Site, headers: dict[str, str], body: bytes | None = None) -> Any:
        """Return the facts of a probe, {} of another page of the site, or why it is not the gateway's."""
        method = "GET" if body is None else "POST"
        url, data = site.origin + site.path, io.BytesIO(body) if body is not None else None
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                self._http.request(method, url, headers=headers, data=data, allow_redirects=False) as answer,
            ):
                kind, location = answer.content_type, answer.headers.get("location", "")
                location = location or (await answer.read()).decode("utf-8", "replace")
                if site.is_ours(answer.status, kind, location):
                    return await answer.json() if site.path == PROBE else {}
                return f"{site.what}: {url} {self._why(site, answer.status, location)}"
        except TimeoutError:
            return f"{site.what}: {url} does not answer within {TIMEOUT:g} s"
        except (aiohttp.ClientError, Refusal, ValueError) as error:
            detail = error.detail if isinstance(error, Refusal) else str(error)
            if has_unknown_authority(error):
                return f"{site.what}: {url} cannot be reached: {detail}. {UNKNOWN_AUTHORITY}"
            return f"{site.what}: {url} cannot be reached: {detail}. Check DNS, certificate, listener, or {site.key}"

    def _why(self, site: _Site, status: int, location: str) -> str:
        server = self._config.server
        if status == 421:
            return (
                f"reaches the gateway under a name that it does not know: {_detail(location)} nginx: "
                f"proxy_set_header Host $http_host; or write that name in {site.key}"
            )
        if status == 413:
            return "answers 413: the proxy limits bodies. nginx: client_max_body_size 0; the policies limit bodies"
        if status in (502, 503, 504):
            return f"answers {status}: the proxy does not reach the gateway at {server.host}:{server.port} (proxy_pass)"
        if status == 403 and "origin" in location:
            return f"answers 403: {_detail(location)} Write the address of browsers in {site.key}"
        if status == 404 and site.path == PROBE:
            return (
                "is answered by another server, or by a gateway with another key: add the name to server_name (nginx) "
                "or to the site addresses (Caddy), and call doctor with the configuration of the gateway that runs"
            )
        if 300 <= status < 400:
            return f"leads to {location[:200]}: no proxy may redirect requests of this site"
        return f"answers {status}, not as the gateway does: add the name to server_name, or to the site addresses"


def _authority(origin: str) -> str:
    return origin.partition("://")[2]


def _is_problem(status: int, kind: str, location: str) -> bool:
    return status in (401, 403) and kind == "application/problem+json" and "urn:webmcp-gateway:" in location


def _is_site(status: int, kind: str, location: str) -> bool:
    return status == 200 or _is_problem(status, kind, location)


def _detail(problem: str) -> str:
    _, _, rest = problem.partition('"detail":')
    return rest.strip().rstrip("}").strip(' "')[:300]


class _Dated(HttpBackend):
    """A backend that notes how far the server's clock is ahead, in seconds, by its `Date` field."""

    ahead = 0.0

    async def send(self, request: Outbound) -> Response:
        response = await super().send(request)
        for name, value in response.headers:
            if name.lower() == "date":
                with suppress(ValueError):
                    self.ahead = parsedate_to_datetime(value).timestamp() - time.time()
        return response


async def _issuers(config: Config, connections: Connections) -> Found:
    for method in config.auth:
        if not isinstance(method, OAuthIssuer):
            continue
        backend = _Dated(IssuerServer("auth", method.network), connections)
        try:
            async with asyncio.timeout(TIMEOUT):
                await run_flow(read_metadata(method), backend)
        except (Refusal, Unidentified, TimeoutError) as error:
            detail = error.detail if isinstance(error, Refusal) else str(error) or "it does not answer"
            yield (
                f"the issuer {method.issuer} cannot be used: {detail.rstrip('.')}. Check auth[].issuer, authorities, "
                "and network (private for a private address)"
            )
            continue
        if abs(backend.ahead) > CLOCK:
            behind = "behind" if backend.ahead > 0 else "ahead of"
            yield (
                f"the clock of this machine is {abs(backend.ahead):.0f} s {behind} that of {method.issuer}: "
                f"synchronise it (timedatectl set-ntp true); tokens are accepted within auth[].skew, {method.skew:g} s"
            )

"""The one middleware before every door: it checks the requested host and the web page that sent the request.
Without it any web site that a person visits could use a gateway on loopback, and the credentials that it injects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict

from gateway.doors import access_log
from gateway.doors.access import (
    EXCHANGE,
    HOST_FILES,
    SIGNED,
    STREAM,
    Access,
    Challenges,
    IncomingRequest,
    Site,
    access,
    is_metadata,
)
from gateway.doors.client_connection import HttpConnection
from gateway.doors.client_limits import InFlight, watch_progress
from gateway.doors.host_pages import HOST, HostPages
from gateway.doors.identify import CallPlace, Identify, RefusedCaller
from gateway.doors.login.login import to_console
from gateway.doors.pages import is_navigation, readable
from gateway.doors.refused_callers import RefusedCallers
from gateway.doors.responses import no_endpoint, refusal_response
from gateway.doors.revocation import Revocations
from gateway.errors import DatabaseUnavailable, Unidentified
from gateway.model import Principal
from gateway.traces import CLIENT

PRINCIPAL = web.RequestKey("principal", Principal)
"""The caller, for the handlers behind the guard; absent on open routes."""

CLIENT_HEADER = "webmcp-gateway-client"

_DOWN = "The database does not answer. Try again in a moment."

log = logging.getLogger(__name__)

PROBES = ("/healthz", "/readyz")

_SHOWN_IN: Final = {Site.SANDBOX: ("document", "iframe"), Site.DEDICATED: ("iframe",)}
"""The places in which browsers may show a site to which another one navigates."""

UNKNOWN_HOST: Final = (
    "This gateway does not answer as {!r}. "
    "A proxy in front of it must pass Host on unchanged; its names are server.public_url and server.origins."
)


_UNMARKED: Final = f"A client that is not a browser must send the header `{CLIENT_HEADER}: 1`."


@dataclass(frozen=True, slots=True)
class Listener:
    """The gateway's hosts, in lower case as in `Host`, with the site and the origin of each."""

    sites: Mapping[str, Site]
    origins: Mapping[str, str]


@dataclass(slots=True)
class GuardedRequest:
    """The parts of a request that the guard examines; `refusal` is set if it could not identify the caller."""

    method: str
    headers: CIMultiDict[str]
    remote: str | None
    refusal: RefusedCaller | None = None


class Guard:
    """Refuses requests that a browser-facing door must not accept; marks the others with their principal."""

    def __init__(
        self,
        listener: Listener,
        identify: Identify,
        challenges: Challenges,
        revocations: Revocations,
        refused_callers: RefusedCallers,
        in_flight: InFlight,
        host_pages: HostPages,
        *,
        apps: Mapping[str, str],
        console: str,
    ) -> None:
        self._listener = listener
        self._identify = identify
        self._challenges = challenges
        self._apps = apps
        self._console = console
        self._revocations = revocations
        self._refused_callers = refused_callers
        self._in_flight = in_flight
        self._host_pages = host_pages

    def middleware(self) -> Middleware:
        """Return the aiohttp middleware."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            CLIENT.set(self.client(request))
            if (seen := access_log.begin()) is not None:
                request[access_log.ACCESS] = seen
            try:
                answer = await respond(request, handler)
            except web.HTTPException as response:
                _end_unreadable(request, response)
                if (shown_response := shown_to_person(request, response)) is response:
                    raise
                return shown_response
            except asyncio.CancelledError:
                await note_refusal(request, None)  # a caller refused on a socket may have disconnected
                raise
            _end_unreadable(request, answer)
            await note_refusal(request, answer)
            return shown_to_person(request, answer)

        def shown_to_person(request: web.Request, answer: web.StreamResponse | web.HTTPException) -> web.StreamResponse:
            site = self._listener.sites.get(request.headers.get("host", "").lower())
            # On the origin of an app's frame, the app is the one HTML document.
            return answer if site is Site.DEDICATED else readable(request, answer)

        async def note_refusal(request: web.Request, answer: web.StreamResponse | None) -> None:
            site = self._listener.sites.get(request.headers.get("host", "").lower())
            await self._refused_callers.note(request, answer, site, request.get(PRINCIPAL))

        async def respond(request: web.Request, handler: Handler) -> web.StreamResponse:
            refused = _take_refused(request)
            if request.version not in (HttpVersion10, HttpVersion11):  # aiohttp would read others as one of these
                return refusal_response(505, "http-version", "This gateway speaks HTTP/1.1 and HTTP/1.0.")
            if (misframed := _refuse_misframed(request)) is not None:
                misframed.force_close()  # the following bytes may be its body, or another client's request
                return misframed
            host = request.headers.get("host", "").lower()
            site = self._listener.sites.get(host)
            if site is None or not self._is_for(request, host):
                return refusal_response(421, "unknown-host", UNKNOWN_HOST.format(host[:100]))
            if (preflight := self._host_pages.preflight(request, site)) is not None:
                return preflight
            page_of = self._host_pages.find(site, request.path, request.headers.get("origin"))
            if page_of is not None:
                request[HOST] = page_of
            objection = self._objection(request, _route(request), host, site) if page_of is None else None
            if objection == _UNMARKED and site is Site.PLAIN and _is_nowhere(request):
                return no_endpoint(request)  # such as an MCP client with a wrong URL
            if objection is not None:
                return refusal_response(403, "foreign-page", objection)
            refusal = await self._identify_caller(request, host, site, refused)
            if refusal is not None:
                return refusal
            with (
                self._in_flight.place(request, request.get(PRINCIPAL)) as too_many,
                self._hold(request, host, site),
                watch_progress(request, lambda: _cut_off(request)),
            ):
                if too_many is not None:
                    return too_many
                try:
                    return await handler(request)
                except web.RequestPayloadError:
                    return refusal_response(400, "bad-request", "The body does not arrive as its headers say.")
                except DatabaseUnavailable as error:
                    if request.writer.output_size:  # the head of an answer was sent
                        raise
                    log.warning("a request at %s is answered with 503: %s", site, error)
                    return refusal_response(503, "database-unavailable", _DOWN, {"retry-after": "1"})

        return guard

    async def allow_host_page(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Handle `on_response_prepare`: let a page of a host site read the answer to its request."""
        self._host_pages.allow(request, answer, self._listener.sites.get(request.headers.get("host", "").lower()))

    def client(self, request: IncomingRequest) -> str | None:
        """Return the address of the client, as reported by trusted proxies."""
        address = self._identify.client(request)
        return str(address) if address is not None else None

    async def caller(self, request: GuardedRequest, mount: str) -> Principal | None:
        """Return the sender of a POST to the MCP server `mount` ("" is `/mcp`); None if the middleware would refuse."""
        host, path = request.headers.get("host", "").lower(), "/mcp/{app}" if mount else "/mcp"
        site = self._listener.sites.get(host)
        if site not in (Site.PLAIN, Site.CONSOLE) or self._objection(request, path, host, site) is not None:
            return None
        place = CallPlace(self._listener.origins[host], site, Access.MCP, None, self._challenges.resources(mount))
        return await self._caller(request, place)

    async def caller_at_site(self, request: GuardedRequest) -> Principal | None:
        """Return the sender of a request to an app's site; None if the middleware would refuse it."""
        host = request.headers.get("host", "").lower()
        site = self._listener.sites.get(host)
        if site is not Site.APP or self._objection(request, "/{path}", host, site) is not None:
            return None
        place = CallPlace(self._listener.origins[host], site, Access.PERSON, self._apps.get(host), frozenset())
        return await self._caller(request, place)

    def generation(self) -> int:
        """Return a number that changes when callers must be identified again."""
        return self._identify.generation

    async def _caller(self, request: GuardedRequest, place: CallPlace) -> Principal | None:
        try:
            return await self._identify.principal(request, place)
        except (Unidentified, OSError) as error:
            request.refusal = RefusedCaller(place, request.headers, error.with_traceback(None))
            return None

    async def _identify_caller(
        self, request: web.Request, host: str, site: Site, refusal: RefusedCaller | None
    ) -> web.StreamResponse | None:
        """Mark the request with its principal if its route requires one; return None, or the refusal.

        `refusal` is the result of the fast path: identifying a caller again would count a wrong token twice.
        """
        route = _route(request)
        access_rule = access(site, route)
        if access_rule is Access.OPEN:
            return None
        mount = request.match_info.get("app", "") if access_rule is Access.MCP else None
        origin, app = self._listener.origins[host], self._apps.get(host) if site is Site.APP else None
        place = CallPlace(origin, site, access_rule, app, self._challenges.resources(mount))
        try:
            if (page_of := request.get(HOST)) is not None:
                here = self._identify.is_here(request)
                request[PRINCIPAL] = self._host_pages.identify(page_of, request, self._identify.rules, here=here)
                return None
            if refusal is not None and refusal.place == place and refusal.headers == request.headers:
                raise refusal.error
            request[PRINCIPAL] = await self._identify.principal(request, place)
        except Unidentified as error:
            if access_rule is Access.SHOWN:
                return None
            if site is Site.APP and app is not None and is_navigation(request) and self._identify.has_logins:
                return to_console(request, origin, app, self._console)
            return self._challenges.challenge(error, mount)
        except OSError:
            return refusal_response(503, "database-unavailable", "The database of logins and tokens does not answer.")
        return None

    def _hold(self, request: web.Request, host: str, site: Site) -> AbstractContextManager[None]:
        """Cut the request off when its caller, if the route has one, may no longer make it."""
        principal = request.get(PRINCIPAL)
        if principal is None:
            return nullcontext()
        needs = "app" if site is Site.APP else "mcp" if _route(request).startswith("/mcp") else ""
        app = self._app_of(request, host, site)
        return self._revocations.hold(principal, lambda: _cut_off(request), app, needs)

    def _app_of(self, request: web.Request, host: str, site: Site) -> str:
        """Return the app or upstream that a request is for; empty if it is for several, or none."""
        if site is Site.APP:
            return self._apps.get(host) or ""
        return request.match_info.get("app", "") if _route(request) == "/mcp/{app}" else ""

    def _is_for(self, request: web.Request, host: str) -> bool:
        """Return whether a target in absolute form, which overrides `Host` (RFC 9112, 3.2.2), names the same site."""
        target = request.raw_path
        return "://" not in target.partition("?")[0] or target.startswith((f"{self._listener.origins[host]}/", "/"))

    def _objection(self, request: IncomingRequest, path: str, host: str, site: Site) -> str | None:
        fetch_site = request.headers.get("sec-fetch-site")
        origin = request.headers.get("origin")
        if site is Site.PLAIN and path in PROBES and request.method in ("GET", "HEAD"):
            return None
        if site is Site.CONSOLE and path == HOST_FILES and request.method in ("GET", "HEAD"):
            return None
        if site is Site.SANDBOX and path == STREAM:
            # Pages of apps alone: of an opaque origin, or a dedicated one.
            of_app = origin == "null" or self._listener.sites.get((origin or "").partition("://")[2]) is Site.DEDICATED
            return None if of_app else "Event streams are for the pages of apps, in their frames."
        is_mcp = site in (Site.PLAIN, Site.CONSOLE) and path.startswith("/mcp")
        if fetch_site in ("none", "same-origin") and is_mcp and is_navigation(request):
            return f"This is the address of an MCP server, for MCP clients. Browsers open {self._console}."
        if fetch_site not in (None, "same-origin") and (is_mcp or not _is_navigation(request, site)):
            return f"A web page of another site ({fetch_site}) may not use this gateway."
        if origin not in (None, self._listener.origins[host]):
            return f"The origin {origin[:100]!r} may not use this gateway."
        needs_no_mark = (
            is_mcp or path in (SIGNED, EXCHANGE) or access(site, path) is Access.SHOWN or is_metadata(site, path)
        )
        if fetch_site is None and origin is None and not needs_no_mark and not _is_client(request):
            return _UNMARKED
        return None


def _take_refused(request: web.Request) -> RefusedCaller | None:
    """Return the caller of this request, once, if the fast path has failed to identify it."""
    connection = request.transport.get_protocol() if request.transport is not None else None
    if not isinstance(connection, HttpConnection):
        return None
    refusal, connection.refusal = connection.refusal, None
    return refusal


def _end_unreadable(request: web.Request, answer: web.StreamResponse) -> None:
    """Close the connection after a body with invalid encoding, and read nothing more of it.

    Close it also after a refusal of a body that has not arrived: aiohttp still reads and drops what arrives within
    some seconds, so that the client can read the answer, but takes nothing of it for the next request.
    """
    if request.content.exception() is not None:
        request.content.feed_eof()  # otherwise aiohttp reads on, and reports the error as the handler's
        answer.force_close()
    elif answer.status >= HTTPStatus.BAD_REQUEST and not request.content.is_eof():
        answer.force_close()


def _refuse_misframed(request: web.Request) -> web.Response | None:
    """Return the refusal of a coding that aiohttp would drop unread, or that HTTP/1.0 lacks (RFC 9112, 6.1)."""
    codings = request.headers.getall("transfer-encoding", ())
    if codings and request.version == HttpVersion10:
        return refusal_response(
            400, "bad-request", "HTTP/1.0 has no transfer codings: send `Content-Length`, or HTTP/1.1."
        )
    if codings and [coding.strip(" \t").lower() for coding in codings] != ["chunked"]:
        return refusal_response(
            501, "transfer-coding", "This gateway reads bodies whose one transfer coding is `chunked`."
        )
    return None


def _route(request: web.Request) -> str:
    """Return the matched route, not the claimed path; empty if there is none."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


def _is_nowhere(request: web.Request) -> bool:
    """Return whether there is nothing at the request's path, whatever its method."""
    return isinstance(request.match_info.http_exception, web.HTTPNotFound)


def _cut_off(request: web.Request) -> None:
    """Abort the connection, which cancels the handler and its approvals."""
    if request.transport is not None:
        request.transport.abort()


def _is_client(request: IncomingRequest) -> bool:
    return "authorization" in request.headers or CLIENT_HEADER in request.headers


def _is_navigation(request: IncomingRequest, site: Site) -> bool:
    """Return whether a person navigates to a page; a sandbox proxy also in a frame, a dedicated origin only there."""
    shown_in = _SHOWN_IN.get(site, ("document",))
    return (
        request.method == "GET"
        and request.headers.get("sec-fetch-site") in ("none", "cross-site", "same-site")
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") in shown_in
    )

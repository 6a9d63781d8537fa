"""Identifies the caller by the configured authentication methods in their order, alike at every door; its cookies."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from multidict import MultiMapping

from gateway.callers import tokens as own
from gateway.callers.methods import Blocks, ClientHeader, Method, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.callers.people import is_open, person_on_console, person_on_site, proxy_issuer, without_console_rights
from gateway.callers.proxies import Address, address_of, client_of, is_here, within
from gateway.callers.token_exchange import PREFIX
from gateway.crypto import digest
from gateway.doors.access import Access, IncomingRequest, Site
from gateway.doors.client_limits import Lookup, LookupLimits
from gateway.doors.issuers import UNAVAILABLE, Issuer, RecentLookups
from gateway.errors import Unidentified
from gateway.model import LOCAL, Principal
from gateway.ports.limits import Attempts
from gateway.ports.sessions import ApiTokens, SessionKind, Sessions, StoredSession

NAME = "webmcp-gateway"


@dataclass(frozen=True, slots=True)
class SessionCookies:
    """The cookies of the site at `origin`.
    Over https their names begin with `__Host-` (RFC 6265bis 4.1.3.2). Plain http, which only this machine may use, does
    not accept such a name everywhere; there the name contains the port, since cookies ignore ports.
    """

    origin: str

    def name(self, what: str) -> str:
        """Return the name of a cookie."""
        parts = urlsplit(self.origin)
        return f"__Host-{NAME}-{what}" if self._secure else f"{NAME}-{what}-{parts.port or 80}"

    def read(self, request: IncomingRequest, what: str) -> str | None:
        """Return its value; None if there is none, or more than one."""
        values = self.values_in(request, what)
        return values[0] if len(values) == 1 and values[0] else None

    def values_in(self, request: IncomingRequest, what: str) -> list[str]:
        """Return all values that a request has for it."""
        name = self.name(what)
        return [
            value.strip()
            for field in request.headers.getall("cookie", ())
            for key, _, value in (pair.partition("=") for pair in field.split(";"))
            if key.strip() == name
        ]

    def keep(
        self, response: web.StreamResponse, what: str, value: str, seconds: float, *, crossing: bool = False
    ) -> None:
        """Set it for `seconds`. With `crossing` it is also sent with a navigation from another site."""
        response.set_cookie(
            self.name(what),
            value,
            max_age=int(seconds),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="Lax" if crossing else "Strict",
        )

    def drop(self, response: web.StreamResponse, what: str) -> None:
        """Delete it."""
        response.del_cookie(self.name(what), path="/", secure=self._secure, httponly=True, samesite="Strict")

    @property
    def _secure(self) -> bool:
        return self.origin.startswith("https://")


REMEMBERED = 4.0
"""Seconds for which a valid token or session is not looked up again."""

LONGEST = 16 * 1024
"""Characters of an `Authorization` field."""

NOT_HERE: Final = (
    "With `auth: [none]` this gateway serves this machine alone, and not through a proxy. "
    "Name token, oauth or proxy under `auth` in gateway.yaml."
)
"""The refusal of callers of other machines, who cannot log in either."""

_BEARER = re.compile(r"bearer +([!-~]+) *", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class CallPlace:
    """The target of a call: origin and site, the route's access, the app of a site, and its RFC 8707 resource names."""

    origin: str
    site: Site
    access: Access
    app: str | None
    resources: frozenset[str]


@dataclass(frozen=True, slots=True)
class RefusedCaller:
    """A caller with these header fields who was not identified at `place`, and why."""

    place: CallPlace
    headers: MultiMapping[str]
    error: Unidentified | OSError


@dataclass(frozen=True, slots=True, eq=False)
class CallerRules:
    """The ways to identify callers under one configuration, and those that were recently identified.

    `issuers` are keyed by the method that configures them; `trusted_proxies` are the proxies whose `client_header`
    counts.
    """

    methods: tuple[Method, ...]
    roles: Roles
    issuers: Mapping[OAuthIssuer, Issuer]
    trusted_proxies: Blocks = ()
    client_header: ClientHeader | None = None
    recent: RecentLookups[tuple[str, bytes], Principal] = field(default_factory=RecentLookups)

    @property
    def open(self) -> bool:
        """True if `local` is the only possible principal."""
        return is_open(self.methods)

    @property
    def proxies(self) -> Blocks:
        """The addresses of proxies, behind which many clients are."""
        proxy_blocks = [method.proxies for method in self.methods if isinstance(method, ProxyAuth)]
        return (*self.trusted_proxies, *chain.from_iterable(proxy_blocks))


_METHODS: Final[dict[type[Method], str]] = {
    NoAuth: "none",
    TokenAuth: "token",
    ProxyAuth: "proxy",
    OAuthIssuer: "oauth",
}
# The methods, as `auth` names them.


class Identify:
    """Identifies the principal of a request by `rules`, which may be others for the next one.

    `on_arrival` is called with each identified caller, whose claims may have changed; `count` with the method and
    outcome of each check. Several processes count failed look-ups of tokens together in `attempts`.
    """

    def __init__(
        self,
        rules: Callable[[], CallerRules],
        *,
        tokens: ApiTokens,
        sessions: Sessions,
        on_arrival: Callable[[Principal], None] = lambda _: None,
        count: Callable[[str, str], None] = lambda _, __: None,
        clock: Callable[[], float] = time.time,
        attempts: Attempts | None = None,
    ) -> None:
        self._rules = rules
        self._tokens = tokens
        self._sessions = sessions
        self._clock = clock
        self._on_arrival = on_arrival
        self._count = count
        self.generation = 0
        """Changes when callers that were identified before must be identified again."""
        self._guesses = LookupLimits(attempts=attempts)

    async def principal(self, request: IncomingRequest, place: CallPlace) -> Principal:
        """Return the caller. Raises `Unidentified`, and OSError while the database is down."""
        while True:
            rules = self._rules()
            caller = await self._principal(rules, request, place)
            if rules is self._rules():  # otherwise it was reloaded, and `Revocations` has not seen this caller
                return caller

    async def _principal(self, rules: CallerRules, request: IncomingRequest, place: CallPlace) -> Principal:
        if place.access is Access.PERSON:
            session = await self._of_session(rules, request, place)
            if session is not None:
                self._on_arrival(session)
                self._count("session", "accepted")
                return session
        try:
            return await self._caller(rules, request, place)
        except Unidentified as error:
            self._count("", "refused" if error.error else "missing")
            raise
        except OSError:
            self._count("", "failed")
            raise

    async def _caller(self, rules: CallerRules, request: IncomingRequest, place: CallPlace) -> Principal:
        """Return the caller, without accepting a browser session. Raises as `principal` does."""
        peer = address_of(request.remote)
        bearer = None if rules.open else _bearer_on_site(rules, request) if place.app else _bearer(request)
        if bearer is not None and bearer.startswith(PREFIX):  # no issuer is asked about it
            raise Unidentified("This token is for the pages of one origin, which open views with it.")
        guess = self.guess(request)
        away: Unidentified | None = None
        for method in rules.methods:
            try:
                principal = await self._of(rules, method, request, place, peer, bearer, guess)
            except Unidentified as error:
                if error.status != UNAVAILABLE:
                    raise
                away = away or error  # another issuer may know the caller
                continue
            if principal is not None:
                guess.right()
                self._on_arrival(principal)
                self._count(_METHODS[type(method)], "accepted")
                return without_console_rights(principal) if place.access is Access.MCP else principal
        if guess.refused:
            raise Unidentified("Too many invalid tokens came from this address.", "rate_limited", status=429)
        if away is not None:
            raise away
        if bearer is not None:
            raise Unidentified("No issuer that this gateway trusts has made this token.")
        raise Unidentified(NOT_HERE if rules.open else "This gateway requires authentication.", error="")

    def guess(self, request: IncomingRequest) -> Lookup:
        """Return the bound on look-ups at issuers for the caller of `request`, whose credential may be invalid."""
        return Lookup(self._guesses, lambda: self.client(request))

    @property
    def has_logins(self) -> bool:
        """Whether a caller can log in at all."""
        return not self._rules().open

    @property
    def rules(self) -> CallerRules:
        """The current rules."""
        return self._rules()

    def forget(self) -> None:
        """Clear the cache after the end of a session."""
        self._rules().recent.clear()
        self.generation += 1

    def reconsider(self) -> None:
        """Let the fast path identify callers again, whose access may have changed."""
        self.generation += 1

    def client(self, request: IncomingRequest) -> Address | None:
        """Return the address of the client, as reported by trusted proxies."""
        headers, rules = request.headers, self._rules()
        forwarded, x_forwarded = headers.getall("forwarded", ()), headers.getall("x-forwarded-for", ())
        return client_of(address_of(request.remote), forwarded, x_forwarded, rules.trusted_proxies, rules.client_header)

    async def session(self, request: IncomingRequest, place: CallPlace) -> StoredSession | None:
        """Return the browser's login at this site, or None."""
        secret = SessionCookies(place.origin).read(request, "session")
        if secret is None:
            return None
        kind = SessionKind.SITE if place.site is Site.APP else SessionKind.CONSOLE
        stored_session = await self._sessions.find(kind, secret, self._clock())
        return (
            stored_session if stored_session is not None and stored_session.more.get("origin") == place.origin else None
        )

    async def _of_session(self, rules: CallerRules, request: IncomingRequest, place: CallPlace) -> Principal | None:
        secret = SessionCookies(place.origin).read(request, "session")
        if secret is None or rules.open:
            return None
        key = (place.origin, digest(secret))
        known = rules.recent.get(key)
        if known is None:
            session = await self.session(request, place)
            if session is None:
                return None
            known = person_on_console(session.principal, rules.methods, rules.roles)
            known = person_on_site(known, place.app) if place.app is not None else known
            rules.recent.put(key, known, min(REMEMBERED, session.expires - self._clock()), known.id)
        return known

    async def _of(
        self,
        rules: CallerRules,
        method: Method,
        request: IncomingRequest,
        place: CallPlace,
        peer: Address | None,
        bearer: str | None,
        guess: Lookup,
    ) -> Principal | None:
        match method:
            case NoAuth():
                credentials = () if rules.open else request.headers.getall("authorization", ())
                shows = bool(credentials) or _shows_login(rules, request, place)
                return LOCAL if not shows and self.is_here(request) else None
            case ProxyAuth():
                return _of_proxy(rules, method, request, peer)
            case TokenAuth():
                principal = await self._of_token(rules, bearer) if bearer and bearer.startswith(own.PREFIX) else None
                return principal if principal is None else own.with_views(principal, method.view_clients)
            case OAuthIssuer():
                issuer = rules.issuers[method]
                return await issuer.principal(bearer, place.resources, guess.may_ask) if bearer else None

    def is_here(self, request: IncomingRequest) -> bool:
        """Return whether the caller is on this machine, as far as proxy headers reveal it."""
        headers = request.headers
        addresses = (*headers.getall("x-forwarded-for", ()), *headers.getall("x-real-ip", ()))
        if not is_here(request.remote, headers.getall("forwarded", ()), addresses):
            return False
        client = self.client(request)
        return not request.remote or (client is not None and client.is_loopback)

    async def _of_token(self, rules: CallerRules, bearer: str) -> Principal:
        key = ("token", digest(bearer))
        known = rules.recent.get(key)
        if known is None:
            token = own.parse_token(bearer)
            now = self._clock()
            known = own.principal(token, await self._tokens.find(token.id), now)
            rules.recent.put(key, known, min(REMEMBERED, (known.expires or now) - now), known.id)
        return known


def _shows_login(rules: CallerRules, request: IncomingRequest, place: CallPlace) -> bool:
    """Return whether there is the cookie of an ended login: an invalid credential is not the same as none."""
    counts = place.access is Access.PERSON and not rules.open
    return counts and bool(SessionCookies(place.origin).values_in(request, "session"))


def _of_proxy(
    rules: CallerRules, method: ProxyAuth, request: IncomingRequest, peer: Address | None
) -> Principal | None:
    if not within(peer, method.proxies):
        return None
    subject = _only(request, method.header)
    if subject is None:
        return None
    header = _only(request, method.roles_header) if method.roles_header else None
    values = frozenset(value.strip() for value in (header or "").split(",") if value.strip())
    return Principal(
        issuer=proxy_issuer(method),
        client="proxy",
        subject=subject,
        roles=values,
        capabilities=rules.roles.capabilities(values),
        session=True,
    )


def _bearer(request: IncomingRequest) -> str | None:
    """Return the bearer token (RFC 6750 2.1), never one of the query or body. Raises `Unidentified`."""
    fields = request.headers.getall("authorization", ())
    if not fields:
        return None
    match = _BEARER.fullmatch(fields[0])
    if len(fields) > 1 or len(fields[0]) > LONGEST or match is None:
        raise Unidentified("`Authorization` must be `Bearer` and one token.", error="invalid_request")
    return match[1]


def _bearer_on_site(rules: CallerRules, request: IncomingRequest) -> str | None:
    """Return the bearer token at an app's site, where the field may also be the page's own, for its backend."""
    try:
        bearer = _bearer(request)
    except Unidentified:
        return None
    return bearer if bearer is None or rules.issuers or bearer.startswith(own.PREFIX) else None


def _only(request: IncomingRequest, name: str) -> str | None:
    """Return the printable value of a field that may occur once, or None. Raises `Unidentified`."""
    fields = request.headers.getall(name, ())
    if not fields:
        return None
    value = fields[0].strip()
    if len(fields) > 1 or not value or len(value) > 1024 or not value.isprintable():
        raise Unidentified(f"The proxy must send `{name}` once, with a name in it.")
    return value

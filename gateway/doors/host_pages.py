"""Pages of other origins that show views: which requests they may send, and the tokens of their people (RFC 8693)."""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from aiohttp import hdrs, web

from gateway.arriving import whole
from gateway.bounds import Area, Bound, size
from gateway.callers.entitlements import Admits
from gateway.callers.methods import HostSite
from gateway.callers.people import caller_fields, caller_of
from gateway.callers.token_exchange import (
    ACCESS_TOKEN,
    GRANT,
    LIFE,
    PREFIX,
    Assertion,
    authenticate,
    exchange,
    invalid,
    read_form,
    read_request,
)
from gateway.credentials import ALGORITHMS
from gateway.crypto import base64url, digest
from gateway.doors.access import EXCHANGE, SERVER_METADATA, IncomingRequest, Site, describe
from gateway.doors.client_limits import LookupLimits
from gateway.doors.identify import CallerRules, Identify
from gateway.doors.issuers import RecentLookups
from gateway.doors.responses import SECURE, SOON, RefusedResponse, refusal_response
from gateway.errors import Unidentified
from gateway.exchange.record import Recorder
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import LOCAL, Caller, Door, Initiator, Json, Principal
from gateway.policy import Rate
from gateway.ports.limits import Attempts
from gateway.ports.sessions import OneTimeValues
from gateway.stores.sealing import KeyRing, SealBroken
from gateway.token_buckets import Buckets

HOST: Final = web.RequestKey("host site", HostSite)
"""The host site of whose page a request is; absent on requests of the gateway's own pages."""

EXCHANGES: Final = Rate(600, 60.0)
"""Exchanges of one client."""

FORM: Final = 64 * 1024
"""Bytes of the largest token request."""

TOKENS_EACH: Final = 64
TOKENS: Final = 16_384
ASSERTIONS: Final = 4096

LONGEST_TOKEN: Final = 6 * 1024
"""Characters of the longest sealed token: header fields have 8 KiB at most."""

BOUNDS: Final = (
    Bound(Area.DOORS, "token exchanges", f"{EXCHANGES.count} in {EXCHANGES.period:g} s per client", "429"),
    Bound(
        Area.DOORS,
        "exchanged tokens of pages of hosts",
        f"{TOKENS_EACH} per principal, {TOKENS:,} in all; {LIFE:g} s",
        "the least recently used of that principal, or of the largest holder, is evicted",
    ),
    Bound(
        Area.DOORS,
        "used assertions of clients that exchange tokens",
        f"{ASSERTIONS} per client, each until it expires",
        "429",
    ),
    Bound(Area.DOORS, "token requests", f"{size(FORM)} in {SOON:g} s", "413, 408"),
)

(_EXCHANGES, _TOKENS, _ASSERTIONS, _FORM) = BOUNDS

_PATHS: Final = re.compile(r"/(api/(state|links|downloads)|bridge(/tickets|/bodies/[^/]*)?)", re.ASCII)
"""The paths on the console's site that pages of host sites may request."""

_ALLOWED: Final = {
    "access-control-allow-methods": "GET, POST, PUT",
    "access-control-allow-headers": "authorization, content-type, webmcp-gateway-csrf",
    "access-control-max-age": "600",
}


@dataclass(frozen=True, slots=True)
class PageToken:
    """An exchanged token: the person that the pages of `origin` act for, until `expires` (seconds since the epoch)."""

    principal: Principal
    origin: str
    expires: float


class HostPages:
    """The host sites of the current configuration (`sites`), and the exchanged tokens of their pages.

    With `ring`, the keys of several processes, tokens are sealed instead of stored, so that each of them knows them.
    """

    def __init__(
        self,
        sites: Callable[[], tuple[HostSite, ...]],
        ring: KeyRing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sites = sites
        self._ring = ring
        self._clock = clock
        self._tokens: RecentLookups[bytes, PageToken] = RecentLookups(TOKENS_EACH, TOKENS, clock=clock, bound=_TOKENS)

    @property
    def sites(self) -> tuple[HostSite, ...]:
        """The current host sites."""
        return self._sites()

    def find(self, site: Site, path: str, origin: str | None) -> HostSite | None:
        """Return the host site of whose page a request to `path` is, if such pages may send it."""
        if site is not Site.CONSOLE or origin is None or not _PATHS.fullmatch(path):
            return None
        return next((one for one in self._sites() if one.origin == origin), None)

    def preflight(self, request: web.Request, site: Site) -> web.Response | None:
        """Return the answer to a preflight request (Fetch, 4.8) of such a page; None for any other request."""
        if request.method != hdrs.METH_OPTIONS or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers:
            return None
        if self.find(site, request.path, request.headers.get("origin")) is None:
            return None
        near = request.headers.get("access-control-request-private-network") == "true"
        return web.Response(
            status=204, headers={**_ALLOWED, **({"access-control-allow-private-network": "true"} if near else {})}
        )

    def allow(self, request: web.Request, answer: web.StreamResponse, site: Site | None) -> None:
        """Let such a page read the answer (CORS). Cookies are never part of its requests."""
        if site is not Site.CONSOLE or not _PATHS.fullmatch(request.path):
            return
        answer.headers["vary"] = "origin"
        if self.find(site, request.path, origin := request.headers.get("origin")) is not None and origin is not None:
            answer.headers["access-control-allow-origin"] = origin

    def issue(self, principal: Principal, origin: str) -> tuple[str, float]:
        """Return a new token for the pages of `origin`, and the seconds for which it is valid."""
        now, token = self._clock(), f"{PREFIX}{secrets.token_urlsafe(32)}"
        seconds = min(LIFE, (principal.expires or now + LIFE) - now)
        if self._ring is not None:
            return _seal(self._ring, self._place(origin), principal, now + seconds), seconds
        self._tokens.put(digest(token), PageToken(principal, origin, now + seconds), seconds, principal.id)
        return token, seconds

    def identify(self, site: HostSite, request: IncomingRequest, rules: CallerRules, *, here: bool) -> Principal:
        """Return the caller of a request of a page of `site`, by its token only. Raises `Unidentified`.

        `here` is whether the request comes from this machine, whose people are `local` without authentication.
        """
        if rules.open and here:
            return replace(LOCAL, capabilities=frozenset(f"bridge:{app}" for app in site.apps), session=False)
        fields = request.headers.getall("authorization", ())
        token = fields[0][7:].strip() if len(fields) == 1 and fields[0][:7].lower() == "bearer " else ""
        if not token:
            raise Unidentified("A page of another origin sends the token that its back end has exchanged.", error="")
        known = self._find_token(token, site.origin) if token.startswith(PREFIX) else None
        if known is None or known.origin != site.origin:
            raise Unidentified("This token is unknown, expired, or for the pages of another origin.")
        apps = known.principal.capabilities & {f"bridge:{app}" for app in site.apps}
        return known.principal if apps == known.principal.capabilities else replace(known.principal, capabilities=apps)

    def _find_token(self, token: str, origin: str) -> PageToken | None:
        """Return a valid token; a sealed one is that of the pages of `origin`, or none."""
        if self._ring is None:
            return self._tokens.get(digest(token))
        key, _, sealed = token.removeprefix(PREFIX).partition(".")
        try:
            raw = base64.urlsafe_b64decode(sealed + "=" * (-len(sealed) % 4))
            expires, fields = parse_json(self._ring.open(key, raw, self._place(origin)))
        except (SealBroken, ValueError):
            return None
        return PageToken(caller_of(fields), origin, expires) if self._clock() < expires else None

    def _place(self, origin: str) -> str:
        """Return what a sealed token is for: a site as it is configured, so that it ends with a change of it."""
        site = next((one for one in self._sites() if one.origin == origin), None)
        named = [sorted(site.apps), site.issuer, site.client_id] if site is not None else []
        return plain_json(["page of a host site", origin, named])

    def forget(self) -> None:
        """Forget all tokens, since the host sites have changed; sealed ones are for the sites as they were."""
        self._tokens.clear()


def _seal(ring: KeyRing, place: str, principal: Principal, expires: float) -> str:
    """Return a token with everything about its person; without claims that make it too long for a header field."""
    for held in (principal, replace(principal, claims={})):
        key, sealed = ring.seal(plain_json([expires, caller_fields(held)]), place)
        token = f"{PREFIX}{key}.{base64url(sealed)}"
        if len(token) <= LONGEST_TOKEN:
            break
    return token


class ExchangeDoor:
    """The token endpoint of the back ends of host sites, and its metadata (RFC 8414); `public` is the gateway's URL.

    `rules` are those of `identify`, `admits` the access rules; each exchange is written to the record. `one_time`
    remembers the used assertions of clients.
    """

    def __init__(
        self,
        pages: HostPages,
        rules: Callable[[], CallerRules],
        identify: Identify,
        recorder: Recorder,
        admits: Admits,
        one_time: OneTimeValues,
        *,
        public: str,
        console: str,
        clock: Callable[[], float] = time.time,
        attempts: Attempts | None = None,
    ) -> None:
        self._pages = pages
        self._rules = rules
        self._identify = identify
        self._recorder = recorder
        self._admits = admits
        self._public = public
        self._console = console
        self._clock = clock
        self._rates = Buckets[str]()
        self._failures = LookupLimits(attempts=attempts, of="clients")
        self._one_time = one_time

    def routes(self) -> list[web.RouteDef]:
        """Return the routes, for the plain site and the console's."""
        return [web.post(EXCHANGE, self._exchange), web.get(SERVER_METADATA, self._metadata)]

    @property
    def _clients(self) -> Collection[HostSite]:
        return [site for site in self._pages.sites if site.client_id is not None]

    async def _metadata(self, request: web.Request) -> web.Response:
        if not self._clients:
            return refusal_response(404, "not-found", "No host under `hosts` exchanges tokens here.")
        document: dict[str, Json] = {
            "issuer": self._public,
            "token_endpoint": f"{self._public}{EXCHANGE}",
            "grant_types_supported": [GRANT],
            "response_types_supported": [],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": list[Json](ALGORITHMS),
        }
        return web.json_response(document)

    async def _exchange(self, request: web.Request) -> web.Response:
        address = self._identify.client(request)
        counter = await self._failures.take(address)
        if counter is None:
            return _refuse(Unidentified("Too many failed requests came from this address.", "slow_down", status=429))
        try:
            answer = await self._answer(request)
        except Unidentified as error:
            return _refuse(error)
        self._failures.give_back(counter)
        return answer

    async def _answer(self, request: web.Request) -> web.Response:
        form = await self._form(request)
        now, endpoints = self._clock(), [f"{self._public}{EXCHANGE}", self._public, f"{self._console}{EXCHANGE}"]
        fields = request.headers.getall("authorization", ())
        assertions: list[Assertion] = []

        def note(assertion: Assertion) -> bool:
            assertions.append(assertion)  # it is marked as used once everything else about it is right
            return True

        site = authenticate(form, fields, self._clients, endpoints, now, note)
        for assertion in assertions:
            await self._use(assertion, now)
        if not self._rates.take(str(site.client_id), time.monotonic(), EXCHANGES).allowed:
            _EXCHANGES.report(site.client_id)
            raise Unidentified(
                "This client exchanges too many tokens. Use each for some minutes.", "slow_down", status=429
            )
        exchange_request = read_request(form, [self._public, f"{self._public}/mcp", self._console])
        subject = await self._subject(site, exchange_request.subject_token)
        principal = exchange(site, subject, exchange_request.apps, self._admits)
        token, seconds = self._pages.issue(principal, site.origin)
        scope = sorted(principal.capabilities)
        await self._record(site, principal, scope)
        return _json(
            200,
            {
                "access_token": token,
                "issued_token_type": ACCESS_TOKEN,
                "token_type": "Bearer",
                "expires_in": int(seconds),
                "scope": " ".join(scope),
            },
        )

    async def _form(self, request: web.Request) -> Mapping[str, str]:
        if request.content_type != "application/x-www-form-urlencoded" or request.query_string:
            raise invalid("Send the parameters as application/x-www-form-urlencoded, in the body.")
        try:
            return read_form(await whole(request, FORM, within=SOON, bound=_FORM))
        except web.HTTPRequestEntityTooLarge as error:
            _FORM.report()
            raise Unidentified(f"A token request has {FORM} bytes at most.", "invalid_request", status=413) from error

    async def _subject(self, site: HostSite, token: str) -> Principal:
        """Return the person of a token of the site's issuer. Raises `Unidentified`."""
        issuers = self._rules().issuers
        own_issuer = next((issuer for method, issuer in issuers.items() if method.issuer == site.issuer), None)
        try:
            principal = (
                await own_issuer.principal(token, frozenset({f"{self._public}/mcp"}))
                if own_issuer is not None
                else None
            )
        except Unidentified as error:
            if error.status >= 500:
                raise Unidentified(error.detail, "temporarily_unavailable", status=503) from error
            raise invalid(f"subject_token: {error.detail}") from error
        if principal is None:
            raise invalid(f"subject_token is not a token of {site.issuer}.")
        return principal

    async def _use(self, assertion: Assertion, now: float) -> None:
        """Mark an assertion as used. Raises `Unidentified` if it was used before, at whichever process."""
        key, client = plain_json([assertion.client, assertion.id]), assertion.client
        life = max(assertion.ends - now, 0.0) + 1.0
        try:
            new = await self._one_time.claim("assertion", key, owner=client, life=life, each=ASSERTIONS)
        except OSError as error:
            detail = "The gateway's database does not answer. Try again."
            raise Unidentified(detail, "temporarily_unavailable", status=503) from error
        if new is None:
            _ASSERTIONS.report(client)
            raise Unidentified("This client has used too many assertions.", "slow_down", status=429)
        if not new:
            raise Unidentified("This assertion was used before.", "invalid_client", status=401)

    async def _record(self, site: HostSite, principal: Principal, scope: list[str]) -> None:
        caller = Caller(principal, "", Door.CONSOLE, Initiator.PAGE, "token-exchange")
        record = self._recorder.start("exchange", caller, safe=True)
        record.note(origin=site.origin, scope=list[Json](scope))
        await record.close(status=200)


def _refuse(error: Unidentified) -> RefusedResponse:
    """Return the error (RFC 6749 5.2)."""
    headers = {"www-authenticate": 'Basic realm="webmcp-gateway"'} if error.status == 401 else {}
    headers |= {"retry-after": "5"} if error.status in (429, 503) else {}
    return RefusedResponse(
        error.error.replace("_", "-"),
        error.detail,
        status=error.status,
        body=plain_json({"error": error.error, "error_description": describe(error)}).encode(),
        content_type="application/json",
        headers={**_FRESH, **headers},
    )


_FRESH: Final = {**SECURE, "cache-control": "no-store", "pragma": "no-cache"}


def _json(status: int, document: dict[str, Json]) -> web.Response:
    return web.Response(
        status=status, body=plain_json(document).encode(), content_type="application/json", headers=_FRESH
    )

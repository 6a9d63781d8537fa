"""Logins to the console, with a link or at an issuer (OIDC), and through it to the sites of apps."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import quote, urlencode

from aiohttp import web

from gateway.callers.methods import OAuthIssuer, TokenAuth
from gateway.callers.people import LoginAttempt, issuer_names, person_on_console, start_attempt
from gateway.crypto import equals_secret
from gateway.doors.access import VISIT, Access, Site
from gateway.doors.identify import NOT_HERE, CallerRules, CallPlace, Identify, SessionCookies
from gateway.doors.issuers import Issuer
from gateway.doors.pages import local, onwards, page
from gateway.doors.responses import refusal_response
from gateway.errors import StartError, Unidentified
from gateway.model import Principal, Secret
from gateway.ports.sessions import HINT_FIELD, LogoutHints, SessionKind, Sessions, StoredSession

WAY = 600.0
"""Seconds that a person may take on the login pages of the console and of their issuer."""

BY_LINK = 12 * 3600.0
"""Seconds for which a login by link lasts."""

CODE = 30.0
"""Seconds for which the code that transfers a login to the site of an app is valid."""

log = logging.getLogger(__name__)

OUT = "/login/out"
"""The page after a logout, registered at the issuer as the gateway's post-logout redirect."""

HINT = 8 * 1024
"""Characters of the longest ID token kept as a logout hint, which is sent in a URL."""

_LINK_HELP = (
    "Make a link with `webmcp-gateway token link` and open it, or open the one that `webmcp-gateway serve` shows in a "
    "terminal. Each is good once, for ten minutes."
)

_LED_HERE = (
    "Another web site opened this login link, and its author chose whom it logs in. Continue only if you requested "
    "this link; otherwise this browser will act as another person."
)


class LoginDoor:
    """The login of the console at `console`, by the current `rules`; `sites` are the origins by app."""

    def __init__(
        self,
        console: str,
        rules: Callable[[], CallerRules],
        *,
        identify: Identify,
        sessions: Sessions,
        sites: Mapping[str, str],
        hints: LogoutHints,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._console = console
        self._rules = rules
        self._identify = identify
        self._sessions = sessions
        self._sites = sites
        self._hints = hints
        self._clock = clock
        self._cookies = SessionCookies(console)
        self._place = CallPlace(console, Site.CONSOLE, Access.PERSON, None, frozenset())

    @property
    def _issuers(self) -> dict[str, tuple[OAuthIssuer, Issuer]]:
        """The issuers at which people log in, by the names of their redirect URIs."""
        issuers = [(spec, issuer) for spec, issuer in self._rules().issuers.items() if spec.client_id is not None]
        return dict(zip(issuer_names(spec.issuer for spec, _ in issuers), issuers, strict=True))

    def routes(self) -> list[web.RouteDef]:
        """Return the routes for the console's site; none of them needs a login."""
        handlers = {
            "": self._start,
            "/link": self._by_link,
            "/back": self._back,
            "/back/{issuer}": self._back,
            "/site": self._to_site,
            "/out": _logout_page,
        }
        return [web.get(f"/login{path}", handler, allow_head=False) for path, handler in handlers.items()]

    async def end(self, request: web.Request, answer: web.StreamResponse) -> str:
        """Log the browser of `request` out, here and on the sites of apps; return the next URL.
        That may be the issuer's.
        """
        session = await self._identify.session(request, self._place)
        if session is not None:
            await self._sessions.end(session.family)
        self._identify.forget()
        self._cookies.drop(answer, "session")
        return (await self._issuers_end(session) if session is not None else None) or OUT

    async def _issuers_end(self, session: StoredSession) -> str | None:
        for spec, issuer in self._issuers.values():
            if spec.issuer == session.principal.issuer:
                return await issuer.logout_url(self._hint(session), f"{self._console}{OUT}")
        return None

    def _seal_hint(self, id_token: Secret) -> dict[str, str]:
        if len(id_token.reveal()) > HINT:
            return {}
        try:
            return {HINT_FIELD: self._hints.seal(id_token)}
        except StartError as error:
            log.warning("the ID token of a login is not kept: %s", error)
            return {}

    def _hint(self, session: StoredSession) -> str | None:
        """Return the ID token of a login; None if its key is lost."""
        try:
            return self._hints.open(session.more)
        except StartError:
            return None

    async def _start(self, request: web.Request) -> web.Response:
        to = local(request.query.get("to"))
        if self._rules().open:
            return onwards(to) if self._identify.is_here(request) else page("No login", NOT_HERE, 403)
        issuers = self._issuers
        known = dict(zip(map(str, range(len(issuers))), issuers, strict=True))
        name = known.get(request.query.get("issuer", "0" if len(known) == 1 else ""))
        if name is None:
            return self._choice(to)
        fresh = request.query.get("fresh") == "1"
        attempt = start_attempt(await self._sessions.secret(), name, to, self._clock(), fresh=fresh)
        own = f"{self._back_url}/{name}" if len(known) > 1 else None
        try:
            url = await issuers[name][1].login_url(attempt, self._back_url, own)
        except Unidentified as error:
            return page("Not logged in", error.detail, 503)
        answer = web.Response(status=302, headers={"location": url, "cache-control": "no-store"})
        self._cookies.keep(answer, "login", attempt.cookie, WAY, crossing=True)
        return answer

    def _choice(self, to: str) -> web.Response:
        """Return the page that offers several logins, or explains that there is none."""
        if issuers := self._issuers:
            links = [
                (f"/login?issuer={number}&to={quote(to, safe='')}", spec.issuer)
                for number, (spec, _) in enumerate(issuers.values())
            ]
            return page("Log in", "Choose where you have an account.", 200, *links)
        if any(isinstance(method, TokenAuth) for method in self._rules().methods):
            return page("Log in", _LINK_HELP)
        return page(
            "No login", "People cannot log in here: give `auth` an oauth entry with a client_id, or token.", 403
        )

    async def _by_link(self, request: web.Request) -> web.Response:
        if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return page("Log in?", _LED_HERE, 200, (request.raw_path, "Log in with this link"))
        now = self._clock()
        session = await self._sessions.take(SessionKind.LINK, request.query.get("code", ""), now)
        if session is None or not any(isinstance(method, TokenAuth) for method in self._rules().methods):
            return page("Not logged in", f"This link was used, or is too old. {_LINK_HELP}", 403)
        return await self._enter(_with_auth_time(session.principal, now), now + BY_LINK, local(request.query.get("to")))

    async def _back(self, request: web.Request) -> web.Response:
        """Handle the redirect from the issuer (RFC 6749 4.1.2, OpenID Connect Core 3.1.2.5)."""
        now = self._clock()
        attempt = LoginAttempt.of(self._cookies.read(request, "login"), await self._sessions.secret(), now, WAY)
        issuers = self._issuers
        if attempt is None or not attempt.has_state(request.query.get("state", "")) or attempt.issuer not in issuers:
            return page("Not logged in", "This login was not begun in this browser, or took too long. Try again.", 403)
        spec, issuer = issuers[attempt.issuer]
        place = request.match_info.get("issuer")
        if place not in (None, attempt.issuer):
            return page(
                "Not logged in", "The response arrived at the redirect URI of another authorization server.", 403
            )
        guess = self._identify.guess(request)
        if not await guess.may_ask():  # otherwise the gateway sends the issuer any code that a caller invents
            return page("Not logged in", "Too many failed logins came from this address. Wait a minute.", 429)
        # If several issuers share this redirect URI, the answer must name its issuer (RFC 9700, 4.4; RFC 9207).
        named, back = place is None and len(issuers) > 1, f"{self._back_url}/{place}" if place else self._back_url
        try:
            person, id_token = await issuer.finish_login(request.query, attempt, back, named=named)
        except Unidentified as error:
            answer = page("Not logged in", error.detail, 403)
        else:
            guess.right()
            person = _with_auth_time(person, now) if attempt.fresh else person
            answer = await self._enter(person, now + spec.session, attempt.to, **self._seal_hint(id_token))
        self._cookies.drop(answer, "login")
        return answer

    async def _enter(self, person: Principal, until: float, to: str, **more: str) -> web.Response:
        now = self._clock()
        secret = await self._sessions.put(
            SessionKind.CONSOLE, person, now=now, life=until - now, origin=self._console, **more
        )
        answer = onwards(to)
        self._cookies.keep(answer, "session", secret.reveal(), until - now)
        return answer

    async def _to_site(self, request: web.Request) -> web.Response:
        """Transfer the login of the console to the site of an app."""
        app, state = request.query.get("app", ""), request.query.get("state", "")
        if app not in self._sites or not 20 <= len(state) <= 100:
            return refusal_response(404, "unknown-app", "There is no such app here.")
        session = await self._identify.session(request, self._place)
        if session is None:
            if request.headers.get("sec-fetch-site") not in ("same-origin", "none"):
                return onwards(request.raw_path)
            return web.Response(status=302, headers={"location": f"/login?{urlencode({'to': request.raw_path})}"})
        rules = self._rules()
        try:
            person = person_on_console(session.principal, rules.methods, rules.roles)
        except Unidentified as error:
            return page("Not logged in", error.detail, 403)
        if not person.may("app", app):
            return page("Not allowed", f"You may not use the app {app} here.", 403)
        return await self._hand_over(session, app, state, local(request.query.get("to")))

    async def _hand_over(self, session: StoredSession, app: str, state: str, to: str) -> web.Response:
        origin = self._sites[app]
        more = {"app": app, "origin": origin, "state": state, "to": to, "until": str(session.expires)}
        code = await self._sessions.put(
            SessionKind.CODE, session.principal, now=self._clock(), life=CODE, family=session.family, **more
        )
        query = urlencode({"code": code.reveal(), "state": state})
        return web.Response(status=302, headers={"location": f"{origin}{VISIT}?{query}", "cache-control": "no-store"})

    @property
    def _back_url(self) -> str:
        return f"{self._console}/login/back"


def _with_auth_time(person: Principal, now: float) -> Principal:
    """Return the person with `auth_time`, after a link or a forced login; the issuer's own value takes precedence."""
    return replace(person, claims={"auth_time": int(now), **person.claims})


async def _logout_page(request: web.Request) -> web.Response:
    return page("Logged out", "This browser is logged out of the gateway.", 200, ("/login", "Log in again"))


def to_console(request: web.Request, origin: str, app: str, console: str) -> web.Response:
    """Redirect a browser without a login at this site to the console's."""
    if request.headers.get("sec-fetch-site") == "cross-site":
        return onwards(request.raw_path)  # it may have a login whose cookie was not sent cross-site
    cookies = SessionCookies(origin)
    state = cookies.read(request, "state") or secrets.token_urlsafe(32)
    query = urlencode({"app": app, "to": request.raw_path, "state": state})
    answer = web.Response(
        status=302, headers={"location": f"{console}/login/site?{query}", "cache-control": "no-store"}
    )
    cookies.keep(answer, "state", state, WAY, crossing=True)
    return answer


class SiteLogins:
    """Completes logins on the sites of apps; `sites` returns an app's id and origin by host."""

    def __init__(
        self,
        sessions: Sessions,
        sites: Callable[[str], tuple[str, str] | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = sessions
        self._sites = sites
        self._clock = clock

    def routes(self) -> list[web.RouteDef]:
        """Return the one route, for the sites of apps."""
        return [web.get(VISIT, self._accept, allow_head=False)]

    async def _accept(self, request: web.Request) -> web.Response:
        site = self._sites(request.headers.get("host", "").lower())
        if site is None:
            return refusal_response(421, "unknown-host", "There is no such app here.")
        app, origin = site
        cookies = SessionCookies(origin)
        expected, state = cookies.read(request, "state"), request.query.get("state", "")
        if expected is None or not equals_secret(state, expected):
            return page("Not logged in", "This login was not begun in this browser, or cookies are off.", 403)
        now = self._clock()
        session = await self._sessions.take(SessionKind.CODE, request.query.get("code", ""), now)
        if session is None or not _is_for(session.more, app, origin, state):
            return page("Not logged in", "This login is over already. Open the app again.", 403)
        ends = float(session.more["until"])
        secret = await self._sessions.put(
            SessionKind.SITE, session.principal, now=now, life=ends - now, family=session.family, origin=origin, app=app
        )
        answer = onwards(session.more["to"])
        cookies.drop(answer, "state")
        cookies.keep(answer, "session", secret.reveal(), ends - now)
        return answer


def _is_for(more: Mapping[str, str], app: str, origin: str, state: str) -> bool:
    return (more.get("app"), more.get("origin"), more.get("state")) == (app, origin, state)

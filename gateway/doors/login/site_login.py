"""The login at an app's own site: a redirect through the console's login, and a single-use code."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

from aiohttp import web

from gateway.doors.access import VISIT
from gateway.doors.login.pages import onwards, page
from gateway.doors.login.session_cookies import SessionCookies
from gateway.doors.responses import refused
from gateway.proving import shows
from gateway.stores.sessions import SessionKind, Sessions

WAY = 600.0
"""Seconds that a person may take on the way through the console's login."""


def is_navigation(request: web.Request) -> bool:
    """Whether a browser navigates to a page."""
    headers = request.headers
    going = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")
    return request.method == "GET" and going


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


class Visits:
    """Accepts logins on the sites of apps; `sites` returns an app's id and origin by host."""

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
        return [web.get(VISIT, self._take_up, allow_head=False)]

    async def _take_up(self, request: web.Request) -> web.Response:
        site = self._sites(request.headers.get("host", "").lower())
        if site is None:
            return refused(421, "unknown-host", "There is no such app here.")
        app, origin = site
        cookies = SessionCookies(origin)
        begun, state = cookies.read(request, "state"), request.query.get("state", "")
        if begun is None or not shows(state, begun):
            return page("Not logged in", "This login was not begun in this browser, or cookies are off.", 403)
        now = self._clock()
        kept = await self._sessions.take(SessionKind.CODE, request.query.get("code", ""), now)
        if kept is None or not _is_for(kept.more, app, origin, state):
            return page("Not logged in", "This login is over already. Open the app again.", 403)
        ends = float(kept.more["until"])
        shown = await self._sessions.put(
            SessionKind.SITE, kept.principal, now=now, life=ends - now, family=kept.family, origin=origin, app=app
        )
        answer = onwards(kept.more["to"])
        cookies.drop(answer, "state")
        cookies.keep(answer, "session", shown.reveal(), ends - now)
        return answer


def _is_for(more: Mapping[str, str], app: str, origin: str, state: str) -> bool:
    return (more.get("app"), more.get("origin"), more.get("state")) == (app, origin, state)

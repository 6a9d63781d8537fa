"""Builds caller authentication from the configuration, for the guard, the console and the apps' sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from gateway.assembly.apps import Apps
from gateway.assembly.live_settings import LiveSettings
from gateway.doors.access import Challenges
from gateway.doors.bridge.bridge import BridgeDoor
from gateway.doors.console import Logout
from gateway.doors.events import Events
from gateway.doors.guard import PRINCIPAL
from gateway.doors.identify import CallerRules, Identify
from gateway.doors.login.login import LoginDoor, SiteLogins
from gateway.exchange.cookies import CookieJars
from gateway.model import Principal
from gateway.stores.sessions import DatabaseSessions, Hints, IssuedTokens
from gateway.stores.sql import Database
from gateway.telemetry import Metrics


@dataclass(frozen=True, slots=True)
class AuthenticationParts:
    """The parts of caller authentication; `apps` maps the host of each site to its app id."""

    identify: Identify
    challenges: Challenges
    login: LoginDoor
    visits: SiteLogins
    apps: Mapping[str, str]


def build_authentication(
    settings: LiveSettings,
    database: Database,
    apps: Apps,
    mounts: Callable[[str], bool],
    hints: Hints,
    arrived: Callable[[Principal], None],
    metrics: Metrics,
) -> AuthenticationParts:
    """Build by the current `settings`; `mounts` tests for a name below `/mcp`, `hints` stores the ID tokens of logins.

    `arrived` is called with each identified caller.
    """
    sessions = DatabaseSessions(database)
    server = settings.now.config.server

    def rules() -> CallerRules:
        return settings.now.callers

    identify = Identify(
        rules,
        tokens=IssuedTokens(database),
        sessions=sessions,
        arrived=arrived,
        count=metrics.authentications.add,
    )

    def site(host: str) -> tuple[str, str] | None:
        app = apps.at(host)
        return (app.config.id, app.card.site) if app is not None and app.card.site is not None else None

    return AuthenticationParts(
        identify=identify,
        challenges=Challenges(lambda: tuple(rules().issuers), server.public_url, mounts),
        login=LoginDoor(
            server.origins.console,
            rules,
            identify=identify,
            sessions=sessions,
            sites=apps.part(lambda app: server.origins.app(app.config.id)),
            hints=hints,
        ),
        visits=SiteLogins(sessions, site),
        apps=apps.hosts({}, lambda app: app.config.id),
    )


def logout_handler(login: LoginDoor, jars: CookieJars, events: Events, bridge: BridgeDoor) -> Logout:
    """Return the logout handler: it ends a person's connections here and empties the cookie jars of backends."""

    async def logout(request: web.Request, answer: web.StreamResponse) -> str:
        principal = request[PRINCIPAL]
        to = await login.end(request, answer)
        jars.empty_person(principal.person)
        events.end(principal)
        await bridge.end_all(principal)
        return to

    return logout

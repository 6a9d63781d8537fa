"""Builds caller authentication from the configuration, for the guard, the console and the apps' sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain

from aiohttp import web

from gateway.assembly.apps import Apps
from gateway.backends.connect import Connections, Network
from gateway.backends.http import HttpBackend
from gateway.callers.methods import Blocks, OAuthIssuer, ProxyAuth
from gateway.config import Config
from gateway.doors.access import Challenges
from gateway.doors.bridge.bridge import BridgeDoor
from gateway.doors.console import Logout
from gateway.doors.events import Events
from gateway.doors.guard import PRINCIPAL
from gateway.doors.identify import Identify
from gateway.doors.issuers import Issuer
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


@dataclass(frozen=True, slots=True)
class IssuerServer:
    """The fields of an issuer that `HttpBackend` reads."""

    name: str
    network: Network


def issuers_of(
    config: Config, connections: Connections, arrived: Callable[[Principal], None]
) -> Mapping[OAuthIssuer, Issuer]:
    """Return the issuers of tokens and logins, by the `auth` entries that name them.

    `arrived` is called with each caller whose token was read, or introspected again.
    """
    return {
        method: Issuer(
            method, config.roles, HttpBackend(IssuerServer("auth", method.network), connections), arrived=arrived
        )
        for method in config.auth
        if isinstance(method, OAuthIssuer)
    }


def proxies_of(config: Config) -> Blocks:
    """The addresses of proxies, behind which many clients are."""
    named = [method.proxies for method in config.auth if isinstance(method, ProxyAuth)]
    return (*config.server.trusted_proxies, *chain.from_iterable(named))


def build_authentication(
    config: Config,
    database: Database,
    apps: Apps,
    mounts: Callable[[str], bool],
    issuers: Mapping[OAuthIssuer, Issuer],
    hints: Hints,
    arrived: Callable[[Principal], None],
    metrics: Metrics,
) -> AuthenticationParts:
    """Build for `config`; `mounts` tests for a name below `/mcp`, `hints` stores the ID tokens of logins.

    `arrived` is called with each identified caller.
    """
    sessions = DatabaseSessions(database)
    identify = Identify(
        config.auth,
        config.roles,
        trusted=config.server.trusted_proxies,
        client_header=config.server.client_header,
        tokens=IssuedTokens(database),
        sessions=sessions,
        issuers=issuers,
        arrived=arrived,
        count=metrics.authentications.add,
    )

    def site(host: str) -> tuple[str, str] | None:
        app = apps.at(host)
        return (app.config.id, app.card.site) if app is not None and app.card.site is not None else None

    return AuthenticationParts(
        identify=identify,
        challenges=Challenges(config.auth, config.server.public_url, mounts),
        login=LoginDoor(
            config.server.origins.console,
            config.auth,
            config.roles,
            identify=identify,
            sessions=sessions,
            issuers={method: issuer for method, issuer in issuers.items() if method.client_id is not None},
            sites=apps.part(lambda app: config.server.origins.app(app.config.id)),
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

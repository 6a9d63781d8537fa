"""Builds the doors of a gateway: caller authentication, the sites of its hosts, and the application of them all."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from aiohttp import web

import gateway
from gateway.assembly.app_advice import advisor
from gateway.assembly.apps import (
    BODY,
    Apps,
    may_connect,
)
from gateway.assembly.components import Components, netloc
from gateway.assembly.credentials import audience
from gateway.assembly.live_settings import LiveSettings, Settings, recognition
from gateway.assembly.observability import gauge_callback
from gateway.doors import mcp as mcp_door
from gateway.doors.access import Challenges
from gateway.doors.accounts import AccountsDoor
from gateway.doors.admin import MetricsDoor, admin_application
from gateway.doors.bridge.bridge import BridgeDoor
from gateway.doors.bridge.bridge_state import BridgeState, ResumeTokens, Tickets
from gateway.doors.bridge.event_streams import EventStreams
from gateway.doors.client_connection import ConnectionLimits, HttpConnection, ServerState
from gateway.doors.client_limits import Peers, Unread
from gateway.doors.console import ConsoleDoor, Logout
from gateway.doors.dedicated import ANY_LABEL
from gateway.doors.events import Events
from gateway.doors.guard import PRINCIPAL, Guard
from gateway.doors.host_pages import ExchangeDoor, HostPages
from gateway.doors.identify import CallerRules, Identify
from gateway.doors.login.login import LoginDoor, SiteLogins
from gateway.doors.probe import PURPOSE, ProbeDoor
from gateway.doors.responses import name_server, refusal_response
from gateway.doors.runner import CONNECTION, DRAIN, LIMITS
from gateway.doors.site import ANY_PATH
from gateway.fastpath.connection import FastConnection
from gateway.fastpath.routes import FastRoutes
from gateway.model import Principal
from gateway.ports.cookies import CookieJars
from gateway.ports.limits import Attempts
from gateway.ports.sessions import ApiTokens, Sessions
from gateway.stores.sessions import Hints
from gateway.telemetry import Metrics

log = logging.getLogger(__name__)


class Doors:
    """The doors to these components: each on its own hosts, behind the guard."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts
        config, faces = parts.config, parts.apps.part(lambda app: app.face)
        server, mcp = config.server, config.mcp
        origins = server.origins
        # A node's addresses work at that node alone.
        self._event_streams = EventStreams(origins.sandbox, parts.revocations) if parts.cluster is None else None
        bridge_state = BridgeState(
            parts.views,
            parts.approvals,
            parts.apps.part(lambda app: app.answers),
            parts.apps.part(lambda app: app.published_app.resource),
            parts.streams,
            parts.revocations,
            ResumeTokens(parts.accounts.ring.derive("views of host pages")),
            Tickets(parts.one_time),
            parts.entitlements.admits,
            parts.serving.borrow,
            parts.apps.part(lambda app: app.published_app.pages),
            parts.forwarder,
            event_streams=self._event_streams,
            bodies=parts.bodies,
            elsewhere=parts.handovers,
        )
        self._bridge = BridgeDoor(bridge_state, parts.connections.in_turn)
        self._authentication = build_authentication(
            parts.settings,
            parts.sessions,
            parts.tokens,
            parts.apps,
            # Where access is restricted, the document must not tell which names exist.
            lambda name: parts.entitlements.restricts or name in faces or name in parts.upstreams.faces,
            parts.accounts.hints,
            parts.entitlements.note_arrival,
            parts.metrics,
            parts.shared.attempts,
        )
        self._host_pages = HostPages(lambda: parts.settings.now.config.hosts, parts.shared_keys)
        self._exchange = ExchangeDoor(
            self._host_pages,
            lambda: parts.settings.now.callers,
            self._authentication.identify,
            parts.recorder,
            parts.entitlements.admits,
            parts.one_time,
            public=server.public_url,
            console=origins.console,
            attempts=parts.shared.attempts,
        )
        self._tickets = bridge_state.tickets
        self._guard = Guard(
            parts.listener,
            self._authentication.identify,
            self._authentication.challenges,
            parts.revocations,
            parts.refused_callers,
            parts.in_flight,
            self._host_pages,
            apps=self._authentication.apps,
            console=origins.console,
        )
        self._peers = Peers(server.connections_each, server.connections, parts.settings.now.callers.proxies)
        self._unread = Unread(mcp.bodies_each, mcp.bodies)
        self._metrics = MetricsDoor(parts.metrics)
        self._console = self._build_console(bridge_state.tickets)
        self._mounts = (parts.everything, faces, parts.upstreams)
        parts.entitlements.watch(partial(parts.changing.access, self._bridge, self._authentication.identify))
        parts.settings.watch(self._apply_settings)
        parts.metrics.look(
            gauge_callback(
                parts.metrics,
                views=parts.views,
                approvals=parts.approvals,
                circuits=parts.circuits,
                journal=parts.journal,
                notices=parts.notices,
                counts={
                    parts.metrics.connections: self._peers,
                    parts.metrics.sockets: self._bridge,
                    parts.metrics.sessions: parts.mcp_sessions,
                    parts.metrics.streams: parts.streams,
                    parts.metrics.app_sockets: parts.sockets,
                    parts.metrics.calls: parts.calls,
                },
            )
        )

    def application(self) -> web.Application:
        """Return the application of all hosts, with the lifetime of the components."""
        parts, authentication = self._parts, self._authentication
        origins = parts.config.server.origins
        root = web.Application(middlewares=[self._guard.middleware()], client_max_size=BODY)
        mcp_routes = [
            *mcp_door.routes(*self._mounts, admits=parts.entitlements.admits),
            *authentication.challenges.routes(),
            *self._exchange.routes(),
            *parts.approving.door.webhook_routes(),
        ]
        report = parts.cluster.report if parts.cluster is not None else None
        probe = ProbeDoor(lambda: parts.accounts.ring.derive(PURPOSE), self._guard.client, report).routes()
        plain = [*parts.health.routes(), *self._metrics.routes(), *mcp_routes, *probe, *entrances(origins.console)]
        console = self._console.application()
        console.router.add_routes([*self._bridge.routes(), *mcp_routes, *probe, *authentication.login.routes()])
        root.add_domain(netloc(origins.console), console)
        sandbox = parts.sandbox.application()
        if self._event_streams is not None:
            sandbox.router.add_routes(self._event_streams.routes())
        root.add_domain(netloc(origins.sandbox), sandbox)
        root.add_domain(netloc(origins.frame(ANY_LABEL)), parts.dedicated_door.application())
        public, sites = netloc(parts.config.server.public_url), netloc(origins.app("*"))
        if fnmatchcase(public, sites):  # public_url matches the host pattern of app sites
            console_app = web.Application(client_max_size=BODY)
            console_app.router.add_routes(plain)
            root.add_domain(public, console_app)
        root.add_domain(sites, app_sites(parts.apps, authentication.visits.routes()))
        root.router.add_routes(plain)
        root.cleanup_ctx.append(parts.lifetime)
        root.on_response_prepare.append(name_server)
        root.on_response_prepare.append(self._guard.allow_host_page)
        root.on_shutdown.append(self._stop)
        root[DRAIN] = parts.drain
        root[LIMITS] = ConnectionLimits(self._peers, self._unread, parts.refused_callers.note_malformed)
        root[CONNECTION] = self._connection_factory()
        return root

    def admin(self) -> web.Application:
        """Return the application of `server.admin_listen`."""
        parts = self._parts
        return admin_application(parts.health, self._metrics, lambda: parts.settings.now.config.server.admin_hosts)

    async def _stop(self, _: web.Application) -> None:
        self._parts.drain.begin()  # an application that is mounted in another one has no runner of ours
        await self._bridge.close()

    def _connection_factory(self) -> Callable[[ServerState], HttpConnection]:
        parts = self._parts
        routes = FastRoutes(
            self._guard,
            parts.revocations,
            parts.in_flight,
            parts.apps.site_at,
            *self._mounts,
            admits=parts.entitlements.admits,
        )

        def connection(state: ServerState) -> HttpConnection:
            is_fast = parts.settings.now.config.server.fast_path
            return FastConnection(state, routes) if is_fast else HttpConnection(state)

        return connection

    def _apply_settings(self, before: Settings, now: Settings) -> None:
        """Apply changed limits; if callers are identified otherwise, end what those who lost something had open."""
        parts, identify = self._parts, self._authentication.identify
        server, mcp = now.config.server, now.config.mcp
        self._peers.limit(server.connections_each, server.connections, now.callers.proxies)
        self._unread.limit(mcp.bodies_each, mcp.bodies)
        parts.in_flight.limit(server.requests_each, server.connections)
        parts.bodies.room.limit(mcp.bodies_each, mcp.bodies)
        parts.mcp_sessions.most, parts.mcp_sessions.each = mcp.sessions, mcp.sessions_each
        parts.views.each = mcp.views_each
        parts.approvals.timeout = now.config.approvals.timeout
        old, new = before.credentials.specs, now.credentials.specs
        parts.upstreams.credentials_changed([name for name in old if new.get(name) is not old[name]])
        identify.reconsider()
        if origins := {site.origin for site in {*before.config.hosts} ^ {*now.config.hosts}}:
            self._host_pages.forget()
            parts.tasks.create_task(self._drop_hosted())
            parts.tasks.create_task(self._bridge.end_hosted(origins))
        if (before.config.auth, before.config.roles) != (now.config.auth, now.config.roles):
            recognized = recognition(before, now)
            parts.events.rights_changed(lambda principal: recognized.recognize(principal, time.time()))
            parts.changing.access(self._bridge, identify, None)
            parts.tasks.create_task(parts.revocations.reconsider(recognized.keeps))

    async def _drop_hosted(self) -> None:
        try:
            await self._tickets.drop_hosted()
        except OSError as error:
            log.warning("tickets of pages of changed host sites are valid until they expire: %s", error)

    def _build_console(self, tickets: Tickets) -> ConsoleDoor:
        parts = self._parts
        allowed = partial(may_connect, parts.apps, parts.upstreams, parts.entitlements)
        return ConsoleDoor(
            folder=parts.build_files.folder / "console",
            sandbox=parts.config.server.origins.sandbox,
            sandbox_url=parts.serving.sandbox_url,
            upstream_url=parts.serving.upstream_url,
            version=gateway.__version__,
            apps=parts.apps.part(lambda app: app.card),
            upstreams=lambda: parts.upstreams.specs,
            approvals=parts.approving.door,
            keys=parts.approving.keys,
            tickets=tickets,
            events=parts.events,
            database=parts.records,
            notices=parts.notices,
            links=parts.links,
            downloads=parts.downloads,
            views=parts.views_door,
            live=parts.live,
            logout=logout_handler(self._authentication.login, parts.accounts.jars, parts.events, self._bridge),
            connections=AccountsDoor(parts.accounts.connecting, parts.recorder, audience, allowed),
            csrf=parts.accounts.ring.derive("csrf tokens"),
            still=parts.revocations.still,
            advice=advisor(parts.apps.part(lambda app: app.config), parts.connections),
            frames=parts.dedicated_door,
            nodes=parts.cluster.report if parts.cluster is not None else None,
            admits=parts.entitlements.admits,
        )


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
    sessions: Sessions,
    tokens: ApiTokens,
    apps: Apps,
    mounts: Callable[[str], bool],
    hints: Hints,
    on_arrival: Callable[[Principal], None],
    metrics: Metrics,
    attempts: Attempts | None,
) -> AuthenticationParts:
    """Build by the current `settings`; `mounts` tests for a name below `/mcp`, `hints` stores the ID tokens of logins.

    `on_arrival` is called with each identified caller.
    """
    server = settings.now.config.server

    def rules() -> CallerRules:
        return settings.now.callers

    identify = Identify(
        rules,
        tokens=tokens,
        sessions=sessions,
        on_arrival=on_arrival,
        count=metrics.authentications.add,
        attempts=attempts,
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
        await jars.empty_person(principal.person)  # first, so that the person can repeat a logout that fails
        to = await login.end(request, answer)
        events.end(principal)
        await bridge.end_all(principal)
        await jars.empty_person(principal.person)  # once more: requests that were running may have set cookies
        return to

    return logout


def entrances(console: str) -> list[web.RouteDef]:
    """Return the route that redirects people from the plain address to the console."""

    async def enter(_: web.Request) -> web.Response:
        raise web.HTTPFound(console)

    return [web.get("/", enter)]


def app_sites(apps: Apps, visits: Iterable[web.RouteDef]) -> web.Application:
    """Serve the sites of the running apps, each on its own host; `visits` are the routes of their logins."""

    async def handle(request: web.Request) -> web.StreamResponse:
        app = apps.at(request.headers.get("host", "").lower())
        return (
            refusal_response(421, "unknown-host", "There is no such app here.")
            if app is None or app.site is None
            else await app.site.handle(request)
        )

    sites = web.Application(client_max_size=BODY)
    sites.router.add_routes(visits)
    sites.router.add_route("*", ANY_PATH, handle)
    return sites

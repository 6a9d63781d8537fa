"""The composition root: builds every part and passes it on by argument."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import partial

from aiohttp import web

import gateway
from gateway.assembly.approvals import ApprovalParts
from gateway.assembly.apps import (
    BODY,
    Apps,
    Backends,
    EnteredContexts,
    Serving,
    entitle,
    in_one_task,
    may_connect,
    show_in,
)
from gateway.assembly.audit import AuditParts
from gateway.assembly.authentication import AuthenticationParts, build_authentication, logout_handler
from gateway.assembly.credentials import Accounts, audience
from gateway.assembly.live_settings import Changing, LiveSettings, Settings, recognition
from gateway.assembly.observability import GatewayDrain, gauge_callback, health_of
from gateway.assembly.reload import Reloader
from gateway.assembly.sites import app_sites, entrances, listener, netloc
from gateway.backends.connect import Connections
from gateway.bounds import report_exceeded
from gateway.callers.entitlements import Entitlements
from gateway.config import Config, Notice, NoticeKind, Notices, Reading
from gateway.config.values import HttpClientKind
from gateway.doors import mcp as mcp_door
from gateway.doors.accounts import AccountsDoor
from gateway.doors.admin import MetricsDoor, Stage, admin_application
from gateway.doors.assets import read_built
from gateway.doors.bridge.bridge import BridgeDoor
from gateway.doors.bridge.bridge_state import BridgeState, ResumeTokens, Tickets
from gateway.doors.bridge.offers import DownloadDoor, LinkDoor, OfferRates
from gateway.doors.bridge.uploads import Bodies
from gateway.doors.client_connection import ConnectionLimits, HttpConnection, ServerState
from gateway.doors.client_limits import InFlight, Peers, Unread
from gateway.doors.console import ConsoleDoor
from gateway.doors.events import Events
from gateway.doors.guard import PRINCIPAL, Guard
from gateway.doors.identify import Identify
from gateway.doors.probe import PURPOSE, ProbeDoor
from gateway.doors.refused_callers import RefusedCallers
from gateway.doors.responses import name_server
from gateway.doors.revocation import Revocations
from gateway.doors.runner import CONNECTION, DRAIN, LIMITS
from gateway.doors.sandbox import SandboxDoor
from gateway.errors import DocumentError, Problem
from gateway.exchange.approval_step import ApprovalStep, RequestApprovals
from gateway.exchange.backend_protection import Circuits
from gateway.exchange.decided_request import Idempotency
from gateway.exchange.drain import RunningCalls
from gateway.exchange.limit import Limiter, MemoryRates
from gateway.exchange.page_tokens import PageTokens
from gateway.exchange.pipeline import Exchange
from gateway.exchange.refusals import ExceededBounds
from gateway.exchange.send import Sender
from gateway.exchange.sockets import Sockets
from gateway.exchange.streams import Streams
from gateway.exchange.tool_calls import ToolCalls
from gateway.fastpath.connection import FastConnection
from gateway.fastpath.routes import FastRoutes
from gateway.hooks import Hooks
from gateway.mcp.own_tools import StorageTool
from gateway.mcp.server import McpMount, MountMiddleware, message_limit
from gateway.mcp.upstreams.merged import Merged
from gateway.mcp.upstreams.registry import Upstreams
from gateway.stores.keys import IdempotencyKeys
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.quotas import DatabaseQuotas
from gateway.stores.records import Records
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database
from gateway.stores.upstream_tools import UpstreamTools
from gateway.stores.view_state import DatabaseLaunches, DatabaseTaints
from gateway.telemetry import Metrics
from gateway.views.forward import Forwarder
from gateway.views.memory import Launches, MemoryDirectory
from gateway.views.registry import Views

RELOAD: web.AppKey[Callable[[], None]] = web.AppKey("reload", Callable[[], None])  # type: ignore[arg-type]  # any callable
"""Makes the gateway reload its files at once, if it was built with `reread`."""

SETTINGS = web.AppKey("settings", LiveSettings)
"""The settings in use, which a reload replaces."""

ADMIN = web.AppKey("admin", web.Application)
"""The application of `server.admin_listen`, which has no lifetime of its own."""


def build_app(
    config: Config,
    reread: Callable[[], Reading] | None = None,
    *,
    live: bool = False,
    problems: Sequence[Problem] = (),
) -> web.Application:
    """Return the gateway as an aiohttp application: serve it, or mount it by host beside others (`add_domain`).

    Serve it with `handler_cancellation=True`, so that a client's disconnect cancels its request. `reread` (see
    `read_config`) reads the configuration again, and file changes take effect while it runs; with `live` the console
    shows changed apps at once, even while a person uses them. `problems` are those of the parts of the files that are
    not in `config`. An app that cannot be packed is not served before its files are corrected. Raises `StartError` and
    `DocumentError` for an unusable configuration, and if there is nothing that can be served.
    """
    return _Gateway(config, reread, live, problems).application()


class _Gateway:
    """All components, built in dependency order."""

    def __init__(
        self, config: Config, reread: Callable[[], Reading] | None, live: bool, problems: Sequence[Problem]
    ) -> None:
        self._built = read_built()
        origins = config.server.origins
        self._config = config
        self._live = live
        self._metrics = Metrics()
        self._connections = Connections(use_aiohttp=config.server.http_client is HttpClientKind.AIOHTTP)
        self._notices = Notices()
        self._database = Database(config.database.reveal())
        self._records = Records(self._database)
        self._recording = AuditParts(
            config,
            records=self._records,
            connections=self._connections,
            metrics=self._metrics,
            notices=self._notices,
            authorization=lambda: self._settings.now.config.telemetry.authorization,
        )
        self._journal = self._recording.journal
        hooks = Hooks(config.plugins, config.path.parent)
        self._accounts = Accounts(config, self._connections, self._database, hooks, self._metrics)
        self._backends = Backends(self._connections, hooks.backend_types())
        self._recorder = self._recording.recorder(hooks)
        self._refused_callers = RefusedCallers(self._metrics, self._recorder)
        self._excess = ExceededBounds(self._metrics, self._recorder.refusals)
        self._in_flight = InFlight(config.server.requests_each, config.server.connections)
        self._entitlements = Entitlements()
        self._settings = LiveSettings(config, self._accounts, self._connections, self._entitlements.note_arrival)
        entitle(self._entitlements, config.apps, config.upstreams)
        admits = self._entitlements.admits
        self._revocations = Revocations(
            IssuedTokens(self._database),
            DatabaseSessions(self._database),
            self._settings.issuers,
            entitlements=self._entitlements,
            keeps=self._settings.keeps,
        )
        self._approving = ApprovalParts(
            config,
            lambda: self._settings.now.config.approvals,
            self._recorder,
            hooks,
            self._connections,
            self._database,
            self._revocations.still,
            admits,
        )
        self._approvals = self._approving.questions
        self._circuits = Circuits()
        self._streams = Streams()
        limiter = Limiter(MemoryRates(), DatabaseQuotas(self._database))
        step = ApprovalStep(self._approvals, self._approving.grants, self._approving.page)
        self._calls = RunningCalls()
        page_tokens = PageTokens(self._accounts.ring)
        calls = ToolCalls(
            step,
            limiter=limiter,
            recorder=self._recorder,
            absences=self._accounts.absences,
            admits=admits,
            running=self._calls,
        )
        self._apps = Apps()
        self._packed = self._apps.part(lambda app: app.packed)
        self._sockets = Sockets(limiter, self._metrics, self._calls, self._revocations.hold)
        self._exchange = Exchange(
            self._apps.part(lambda app: app.guarded),
            limiter=limiter,
            idempotency=Idempotency(IdempotencyKeys(self._database)),
            waiting=RequestApprovals(step),
            recorder=self._recorder,
            sender=Sender(
                self._accounts.authenticator,
                self._accounts.jars,
                self._circuits,
                absences=self._accounts.absences,
                page_tokens=page_tokens,
            ),
            streams=self._streams,
            hooks=hooks,
            proof=lambda: self._settings.now.identity,
            admits=admits,
            running=self._calls,
            sockets=self._sockets,
        )
        self._views = Views(
            self._apps.part(lambda app: app.rules),
            launches=Launches(store=DatabaseLaunches(self._database, self._accounts.ring)),
            directory=MemoryDirectory(),
            keys=self._accounts.ring.derive("views"),
            each=config.mcp.views_each,
            taints=DatabaseTaints(self._database),
            admits=admits,
        )
        self._events = Events(
            self._journal,
            self._approvals,
            self._approving.grants,
            self._approving.door,
            self._views,
            self._notices,
            lambda: [asdict(app.card) for app in self._apps.values()],
            admits,
        )
        self._forwarder = Forwarder(self._views, calls, page_tokens.redactor)
        self._storage = StorageTool(self._accounts.storage)
        self._mcp_sessions = DatabaseMcpSessions(
            self._database,
            self._accounts.ring,
            most=config.mcp.sessions,
            each=config.mcp.sessions_each,
            idle=config.mcp.session_idle,
        )
        self._bodies = Bodies(room=config.mcp.bodies, each=config.mcp.bodies_each)
        self._sandbox = SandboxDoor(
            self._built.folder / "sandbox", origins.sandbox, self._accounts.ring.derive("sandbox addresses")
        )
        self._listener = listener(config, self._apps)
        self._serving = Serving(
            config,
            self._apps,
            backends=self._backends,
            built=self._built,
            sandbox=self._sandbox,
            exchange=self._exchange,
            proxies=lambda: self._upstreams.proxies,
            face=self._face,
            load_keys=self._accounts.ring.load,
            live=self._live,
            room=self._bodies.room,
            in_turn=self._connections.in_turn,
            admits=admits,
        )
        served, broken = self._serving.start(config.apps)
        if broken and not served and not config.upstreams:
            raise DocumentError([notice.problem for notice in broken])
        self._apps.replace(served)
        self._tasks = asyncio.TaskGroup()
        self._upstreams = Upstreams(
            config.upstreams,
            connections=self._connections,
            authenticator=self._accounts.authenticator,
            calls=calls,
            recorder=self._recorder,
            absences=self._accounts.absences,
            tools=UpstreamTools(self._database),
            asking=self._approving.elicitation(),
            room=self._bodies.room,
            shown_in=lambda upstream: show_in(upstream, self._apps, self._views),
            revocation=partial(self._revocations.hold, needs="mcp"),
            runtime=self._built.everything,
            tasks=self._tasks,
            notices=self._notices,
            file=str(config.path),
            face=self._face,
        )
        self._metrics.look(self._upstreams.look)
        merged = self._merged = Merged(lambda: self._upstreams.proxies, admits)
        self._everything = self._face(None, merged)
        merged.stand_before(self._everything)
        for app in self._apps.values():
            app.face.renew()
        self._held = EnteredContexts()
        self._changing = Changing(
            self._apps,
            self._serving,
            self._upstreams,
            merged=merged,
            everything=self._everything,
            approving=self._approving,
            views=self._views,
            events=self._events,
            held=self._held,
            tasks=self._tasks,
            entitlements=self._entitlements,
            revocations=self._revocations,
            exchange=self._exchange,
        )
        self._reloader = Reloader(
            replace(config, apps={id: app.config for id, app in served.items()}),
            reread=reread,
            changing=self._changing,
            settings=self._settings,
            notices=self._notices,
            recorder=self._recorder,
            approvals=self._approving.asked_of_policies,
            problems=[*(Notice(NoticeKind.BROKEN, problem) for problem in problems), *broken],
        )
        self._health = health_of(
            config,
            database=self._database,
            journal=self._journal,
            notices=self._notices,
            upstreams=self._upstreams,
            calls=self._calls,
            needs_restart=lambda: self._reloader.needs_restart,
        )
        stops = (self._events.drain, self._views.drain, self._approvals.stop, self._accounts.absences.stop)
        self._drain = GatewayDrain(self._health, self._calls, stops, self._faces)

    def application(self) -> web.Application:
        """The doors, each on its own hosts, behind the guard."""
        origins = self._config.server.origins
        faces = self._apps.part(lambda app: app.face)
        bridge_state = BridgeState(
            self._views,
            self._approvals,
            self._apps.part(lambda app: app.answers),
            self._apps.part(lambda app: app.packed.resource),
            self._streams,
            self._revocations,
            ResumeTokens(self._accounts.ring.derive("views of host pages")),
            self._entitlements.admits,
            bodies=self._bodies,
        )
        bridge = BridgeDoor(bridge_state, self._connections.in_turn)
        authentication = build_authentication(
            self._settings,
            self._database,
            self._apps,
            # Where access is restricted, the document must not tell which names exist.
            lambda name: self._entitlements.restricts or name in faces or name in self._upstreams.faces,
            self._accounts.hints,
            self._entitlements.note_arrival,
            self._metrics,
        )
        guard = Guard(
            self._listener,
            authentication.identify,
            authentication.challenges,
            self._revocations,
            self._refused_callers,
            self._in_flight,
            apps=authentication.apps,
            console=origins.console,
        )
        self._entitlements.watch(partial(self._changing.access, bridge, authentication.identify))
        root = web.Application(middlewares=[guard.middleware()], client_max_size=BODY)
        mcp_routes = [
            *mcp_door.routes(self._everything, faces, self._upstreams, admits=self._entitlements.admits),
            *authentication.challenges.routes(),
            *self._approving.door.webhook_routes(),
        ]
        metrics = MetricsDoor(self._metrics)
        probe = ProbeDoor(lambda: self._accounts.ring.derive(PURPOSE), guard.client).routes()
        plain = [*self._health.routes(), *metrics.routes(), *mcp_routes, *probe, *entrances(origins.console)]
        inner = self._console(bridge, bridge_state.tickets, authentication).application()
        inner.router.add_routes([*bridge.routes(), *mcp_routes, *probe, *authentication.login.routes()])
        root.add_domain(netloc(origins.console), inner)
        root.add_domain(netloc(origins.sandbox), self._sandbox.application())
        public, sites = netloc(self._config.server.public_url), netloc(origins.app("*"))
        if fnmatchcase(public, sites):  # public_url matches the host pattern of app sites
            shown = web.Application(client_max_size=BODY)
            shown.router.add_routes(plain)
            root.add_domain(public, shown)
        root.add_domain(sites, app_sites(self._apps, authentication.visits.routes()))
        root.router.add_routes(plain)
        root.cleanup_ctx.append(self._lifetime)
        root.on_response_prepare.append(name_server)

        async def stop(_: web.Application) -> None:
            self._drain.begin()  # an application that is mounted in another one has no runner of ours
            await bridge.close()

        root.on_shutdown.append(stop)
        root[DRAIN] = self._drain
        root[ADMIN] = admin_application(self._health, metrics, lambda: self._settings.now.config.server.admin_hosts)
        root[RELOAD] = self._reloader.request_reload
        root[SETTINGS] = self._settings
        server, mcp = self._config.server, self._config.mcp
        peers = Peers(server.connections_each, server.connections, self._settings.now.callers.proxies)
        unread = Unread(mcp.bodies_each, mcp.bodies)
        self._metrics.look(
            gauge_callback(
                self._metrics,
                views=self._views,
                approvals=self._approvals,
                circuits=self._circuits,
                journal=self._journal,
                notices=self._notices,
                counts={
                    self._metrics.connections: peers,
                    self._metrics.sockets: bridge,
                    self._metrics.sessions: self._mcp_sessions,
                    self._metrics.streams: self._streams,
                    self._metrics.app_sockets: self._sockets,
                    self._metrics.calls: self._calls,
                },
            )
        )
        root[LIMITS] = ConnectionLimits(peers, unread, self._refused_callers.note_malformed)
        mounts = (self._everything, faces, self._upstreams)
        admits = self._entitlements.admits
        routes = FastRoutes(guard, self._revocations, self._in_flight, self._apps.site_at, *mounts, admits=admits)

        def connection(state: ServerState) -> HttpConnection:
            is_fast = self._settings.now.config.server.fast_path
            return FastConnection(state, routes) if is_fast else HttpConnection(state)

        root[CONNECTION] = connection
        self._settings.watch(partial(self._apply_settings, bridge, authentication.identify, peers, unread))
        return root

    def _apply_settings(
        self, bridge: BridgeDoor, identify: Identify, peers: Peers, unread: Unread, before: Settings, now: Settings
    ) -> None:
        """Apply changed limits; if callers are identified otherwise, end what those who lost something had open."""
        server, mcp = now.config.server, now.config.mcp
        peers.limit(server.connections_each, server.connections, now.callers.proxies)
        unread.limit(mcp.bodies_each, mcp.bodies)
        self._in_flight.limit(server.requests_each, server.connections)
        self._bodies.room.limit(mcp.bodies_each, mcp.bodies)
        self._mcp_sessions.most, self._mcp_sessions.each = mcp.sessions, mcp.sessions_each
        self._views.each = mcp.views_each
        self._approvals.timeout = now.config.approvals.timeout
        identify.reconsider()
        if (before.config.auth, before.config.roles) != (now.config.auth, now.config.roles):
            recognized = recognition(before, now)
            self._events.rights_changed(lambda principal: recognized.recognize(principal, time.time()))
            self._changing.access(bridge, identify, None)
            self._tasks.create_task(self._revocations.reconsider(recognized.keeps))

    def _console(self, bridge: BridgeDoor, tickets: Tickets, authentication: AuthenticationParts) -> ConsoleDoor:
        rates = OfferRates()
        allowed = partial(may_connect, self._apps, self._upstreams, self._entitlements)
        return ConsoleDoor(
            folder=self._built.folder / "console",
            sandbox=self._config.server.origins.sandbox,
            version=gateway.__version__,
            apps=self._apps.part(lambda app: app.card),
            approvals=self._approving.door,
            keys=self._approving.keys,
            tickets=tickets,
            events=self._events,
            database=self._records,
            notices=self._notices,
            links=LinkDoor(self._views, self._recorder, rates),
            downloads=DownloadDoor(self._views, self._recorder, rates),
            live=self._live,
            logout=logout_handler(authentication.login, self._accounts.jars, self._events, bridge),
            connections=AccountsDoor(self._accounts.connecting, self._recorder, audience, allowed),
            csrf=self._accounts.ring.derive("csrf tokens"),
            admits=self._entitlements.admits,
        )

    def _faces(self) -> tuple[McpMount, ...]:
        """Return all mounts."""
        return (self._everything, *(app.face for app in self._apps.values()), *self._upstreams.faces.values())

    def _face(self, app: str | None, before: MountMiddleware | None = None) -> McpMount:
        return McpMount(
            app,
            before=before,
            apps=self._packed,
            views=self._views,
            forwarder=self._forwarder,
            exchange=self._exchange,
            storage=self._storage,
            version=gateway.__version__,
            hosts=list(self._listener.sites),
            origins=sorted(set(self._listener.origins.values())),
            principal=lambda request: request[PRINCIPAL],
            fast_path=self._config.mcp.fast_path,
            sessions=self._mcp_sessions,
            session_idle=self._config.mcp.session_idle,
            asking=self._approving.elicitation(),
            room=self._bodies.room,
            body_limit=lambda: message_limit(self._apps.largest_request(app)),
            admits=self._entitlements.admits,
        )

    async def _lifetime(self, _: web.Application) -> AsyncIterator[None]:
        """Run the background tasks while the application runs."""
        async with in_one_task(self._running()):
            self._health.stage = Stage.SERVING
            yield

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._journal)
            await stack.enter_async_context(self._database)
            await stack.enter_async_context(self._connections)
            await stack.enter_async_context(self._recording.filling())
            stack.callback(self._health.close)
            await self._accounts.start()
            stack.callback(self._refused_callers.flush)
            stack.callback(self._excess.flush)
            stack.enter_context(report_exceeded(self._excess.note))
            stack.push_async_callback(self._backends.close)
            tasks = await stack.enter_async_context(self._tasks)
            for job in (*self._recording.jobs(), self._approvals.keep(), self._approving.ways.run()):
                stack.callback(tasks.create_task(job).cancel)
            await stack.enter_async_context(self._streams)
            await stack.enter_async_context(self._views)
            stack.push_async_callback(self._held.close)
            stack.push_async_callback(self._upstreams.close)
            for face in self._faces():
                await self._held.enter(tasks, face)
            stack.callback(tasks.create_task(self._mcp_sessions.run()).cancel)
            stack.push_async_callback(self._mcp_sessions.flush)
            self._upstreams.start()
            stack.callback(tasks.create_task(self._upstreams.keep()).cancel)
            stack.callback(tasks.create_task(self._reloader.run()).cancel)
            stack.callback(tasks.create_task(self._revocations.run()).cancel)
            yield

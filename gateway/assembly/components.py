"""Builds every component of a gateway but its doors, in dependency order, and runs their background tasks."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

import gateway
from gateway.assembly.approvals import ApprovalParts
from gateway.assembly.apps import (
    Apps,
    Backends,
    EnteredContexts,
    Serving,
    entitle,
    in_one_task,
    show_in,
)
from gateway.assembly.audit import AuditParts
from gateway.assembly.credentials import Accounts
from gateway.assembly.live_settings import Changing, LiveSettings
from gateway.assembly.observability import GatewayDrain, health_of
from gateway.assembly.packing import Packer
from gateway.assembly.reload import Reloader
from gateway.assembly.shared_state import SharedState
from gateway.backends.connect import Connections
from gateway.backends.reaper import lease_clock
from gateway.bounds import report_exceeded
from gateway.callers.entitlements import Entitlements
from gateway.config import Config, Notice, NoticeKind, Notices, Reading
from gateway.config.values import HttpClientKind
from gateway.doors.access import Site
from gateway.doors.admin import Stage
from gateway.doors.assets import read_built
from gateway.doors.bridge.bridge import send_body
from gateway.doors.bridge.offers import DownloadDoor, LinkDoor, OfferRates
from gateway.doors.bridge.uploads import Bodies
from gateway.doors.client_limits import InFlight
from gateway.doors.dedicated import DedicatedDoor, WithFrames
from gateway.doors.events import Events
from gateway.doors.guard import PRINCIPAL, Listener
from gateway.doors.live_views import ViewsDoor
from gateway.doors.refused_callers import RefusedCallers
from gateway.doors.revocation import Revocations
from gateway.doors.sandbox import SandboxDoor
from gateway.errors import DocumentError, Problem
from gateway.exchange.approval_step import ApprovalStep, RequestApprovals
from gateway.exchange.backend_protection import Circuits
from gateway.exchange.decided_request import Idempotency
from gateway.exchange.drain import CUT_WITHIN, RunningCalls
from gateway.exchange.limit import Limiter
from gateway.exchange.page_tokens import PageTokens
from gateway.exchange.pipeline import Exchange
from gateway.exchange.refusals import ExceededBounds
from gateway.exchange.send import Sender
from gateway.exchange.sockets import Sockets
from gateway.exchange.streams import Streams
from gateway.exchange.tool_calls import ToolCalls
from gateway.hooks import Hooks
from gateway.mcp.own_tools import StorageTool
from gateway.mcp.server import McpMount, MountMiddleware, message_limit
from gateway.mcp.upstreams.merged import MergedUpstreams
from gateway.mcp.upstreams.registry import Upstreams
from gateway.ports.sessions import OneTimeValues
from gateway.ports.views import StoredTaint
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.one_time import DatabaseOneTimeValues, MemoryOneTimeValues
from gateway.stores.records import Records
from gateway.stores.sealing import cluster_ring, login_keys
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.sql import Database
from gateway.stores.upstream_tools import UpstreamTools
from gateway.stores.usage import DatabaseQuotas, IdempotencyKeys
from gateway.stores.view_state import DatabaseLaunches, DatabaseTaints
from gateway.telemetry import Metrics
from gateway.views.forward import Forwarder
from gateway.views.memory import Launches
from gateway.views.registry import Views
from gateway.views.view import View

if TYPE_CHECKING:
    from gateway.assembly.cluster import ClusterParts
    from gateway.doors.nodes import NodeDoor
    from gateway.stores.worker_metrics import WorkerMetrics


class Components:
    """All components, passed to each other as arguments; `live` and the others are as in `build_app`."""

    def __init__(
        self, config: Config, reread: Callable[[], Reading] | None, live: bool, problems: Sequence[Problem]
    ) -> None:
        self.build_files = read_built()
        origins = config.server.origins
        self.config = config
        self.live = live
        self.metrics = Metrics()
        self.connections = Connections(use_aiohttp=config.server.http_client is HttpClientKind.AIOHTTP)
        self.notices = Notices()
        self.database = Database(config.database.reveal())
        self.shared_keys = cluster_ring(config.cluster)
        self.one_time: OneTimeValues = (
            DatabaseOneTimeValues(self.database, self.shared_keys)
            if self.shared_keys is not None
            else MemoryOneTimeValues()
        )
        self.tokens = IssuedTokens(self.database, login_keys(config.cluster))
        self.sessions = DatabaseSessions(self.database, login_keys(config.cluster))
        self.records = Records(self.database)
        self.recording = AuditParts(
            config,
            records=self.records,
            connections=self.connections,
            metrics=self.metrics,
            notices=self.notices,
            authorization=lambda: self.settings.now.config.telemetry.authorization,
        )
        self.journal = self.recording.journal
        hooks = Hooks(config.plugins, config.path.parent)
        self.accounts = Accounts(config, self.connections, self.database, hooks, self.metrics)
        self.cluster = cluster_parts(config, self.database, self.accounts)
        if self.cluster is not None:
            self.cluster.watch(self.metrics)
        self.worker_metrics = worker_metrics(config, self.metrics)
        new_id = self.cluster.new_id if self.cluster is not None else lambda _: partial(secrets.token_urlsafe, 16)
        check = self.cluster.node.check if self.cluster is not None else lambda: None
        self.backends = Backends(self.connections, hooks.backend_types())
        self.recorder = self.recording.recorder(hooks)
        self.refused_callers = RefusedCallers(self.metrics, self.recorder)
        self.excess = ExceededBounds(self.metrics, self.recorder.refusals)
        self.in_flight = InFlight(config.server.requests_each, config.server.connections)
        self.entitlements = Entitlements()
        self.settings = LiveSettings(config, self.accounts, self.connections, self.entitlements.note_arrival)
        entitle(self.entitlements, config.apps, config.upstreams)
        admits = self.entitlements.admits
        self.revocations = Revocations(
            self.tokens,
            self.sessions,
            self.settings.issuers,
            entitlements=self.entitlements,
            keeps=self.settings.keeps,
        )
        self.approving = ApprovalParts(
            config,
            lambda: self.settings.now.config.approvals,
            self.recorder,
            hooks,
            self.connections,
            self.database,
            self.shared_keys,
            self.one_time,
            self.revocations.still,
            admits,
        )
        self.approvals = self.approving.questions
        self.circuits = Circuits()
        self.streams = Streams(new_id=new_id("stream"))
        owner = (lambda: cluster.node.incarnation) if (cluster := self.cluster) is not None else None
        nodes = cluster.count_living if cluster is not None else None
        directory_keys = self.accounts.ring.derive("directory of views")
        self.shared = SharedState(config, self.metrics, directory_keys, owner, nodes)
        limiter = Limiter(self.shared.rates, DatabaseQuotas(self.database))
        step = ApprovalStep(self.approvals, self.approving.grants, self.approving.page)
        self.calls = RunningCalls()
        page_tokens = PageTokens(self.accounts.ring)
        self.recorder.redactor = page_tokens.redactor
        calls = ToolCalls(
            step,
            limiter=limiter,
            recorder=self.recorder,
            absences=self.accounts.absences,
            admits=admits,
            running=self.calls,
            check=check,
        )
        self.apps = Apps()
        self.published_apps = self.apps.part(lambda app: app.published_app)
        self.sockets = Sockets(limiter, self.metrics, self.calls, self.revocations.hold)
        self.exchange = Exchange(
            self.apps.part(lambda app: app.exchange),
            limiter=limiter,
            idempotency=Idempotency(IdempotencyKeys(self.database)),
            waiting=RequestApprovals(step),
            recorder=self.recorder,
            sender=Sender(
                self.accounts.authenticator,
                self.accounts.jars,
                self.circuits,
                absences=self.accounts.absences,
                page_tokens=page_tokens,
                check=check,
            ),
            streams=self.streams,
            hooks=hooks,
            proof=lambda: self.settings.now.identity,
            admits=admits,
            running=self.calls,
            sockets=self.sockets,
        )
        self.views = Views(
            self.apps.part(lambda app: app.rules),
            launches=Launches(
                store=DatabaseLaunches(self.database, self.accounts.ring),
                new_id=new_id("view"),
                shared=self.cluster is not None,
            ),
            directory=self.shared.directory,
            keys=self.accounts.ring.derive("views"),
            each=config.mcp.views_each,
            taints=DatabaseTaints(self.database),
            admits=admits,
            new_id=new_id("view") if self.cluster is not None else None,
            take=self.cluster.forwards.take if self.cluster is not None else None,
            end_former=self.cluster.forwards.end_former if self.cluster is not None else None,
            other_taints=self.cluster.taints if self.cluster is not None else None,
        )
        self.views_door = ViewsDoor(
            self.views, admits, self._stop_view, self.cluster.views if self.cluster is not None else None
        )
        elsewhere, offers = self.cluster.views if self.cluster is not None else None, OfferRates()
        self.links = LinkDoor(self.views, self.recorder, offers, elsewhere)
        self.downloads = DownloadDoor(self.views, self.recorder, offers, elsewhere)
        self.events = Events(
            self.journal,
            self.approvals,
            self.approving.grants,
            self.approving.door,
            self.views,
            self.views_door,
            self.notices,
            lambda: [asdict(app.card) for app in self.apps.values()],
            admits,
        )
        self.forwarder = Forwarder(
            self.views,
            calls,
            page_tokens.redactor,
            new_id("call"),
            self.one_time if self.cluster is not None else None,
        )
        self.storage = StorageTool(self.accounts.storage)
        self.mcp_sessions = DatabaseMcpSessions(
            self.database,
            self.accounts.ring,
            most=config.mcp.sessions,
            each=config.mcp.sessions_each,
            idle=config.mcp.session_idle,
            process=owner,
            lives=self.cluster.node.lives if self.cluster is not None else None,
            adopted=self.metrics.sessions_adopted.inc,
        )
        self.handovers = self.cluster.handovers(self.one_time) if self.cluster is not None else None
        self.bodies = Bodies(
            room=config.mcp.bodies,
            each=config.mcp.bodies_each,
            new_id=new_id("body") if self.cluster is not None else partial(secrets.token_urlsafe, 24),
        )
        self.shared.share({"streams": self.in_flight.streams, "bodies": self.bodies.room})
        self.sandbox = SandboxDoor(
            self.build_files.folder / "sandbox", origins.sandbox, self.accounts.ring.derive("sandbox addresses")
        )
        self.dedicated_door = DedicatedDoor(
            origins,
            self.accounts.ring.derive("dedicated origins"),
            self.sandbox,
            apps=lambda: [id for id, app in self.apps.items() if app.config.dedicated],
            admits=admits,
            script=self.build_files.dedicated,
            new_id=new_id("document") if self.cluster is not None else partial(secrets.token_urlsafe, 32),
            fetch=self.handovers.fetch_document if self.handovers is not None else None,
        )
        self.listener = listener(config, self.apps)
        self.packer = Packer(self.build_files, config.state / "packed", live=live)
        self.serving = Serving(
            config,
            self.apps,
            backends=self.backends,
            packer=self.packer,
            sandbox=self.sandbox,
            dedicated=self.dedicated_door,
            exchange=self.exchange,
            proxies=lambda: self.upstreams.proxies,
            face=self.build_face,
            load_keys=self.accounts.ring.load,
            room=self.bodies.room,
            in_turn=self.connections.in_turn,
            admits=admits,
        )
        running, notices, waiting = self.serving.start(config.apps)
        if notices and not waiting and not running and not config.upstreams:
            raise DocumentError([notice.problem for notice in notices])
        self.apps.replace(running)
        self.tasks = asyncio.TaskGroup()
        self.upstreams = Upstreams(
            config.upstreams,
            connections=self.connections,
            authenticator=self.accounts.authenticator,
            calls=calls,
            recorder=self.recorder,
            absences=self.accounts.absences,
            tools=UpstreamTools(self.database),
            asking=self.approving.elicitation(),
            room=self.bodies.room,
            shown_in=lambda upstream: show_in(upstream, self.apps, self.views),
            revocation=partial(self.revocations.hold, needs="mcp"),
            runtime=self.build_files.everything,
            tasks=self.tasks,
            notices=self.notices,
            file=str(config.path),
            face=self.build_face,
            states=self.cluster.states if self.cluster is not None else None,
            places=self.cluster.places if self.cluster is not None else None,
        )
        self.metrics.look(self.upstreams.look)
        merged_upstreams = self.merged_upstreams = MergedUpstreams(lambda: self.upstreams.proxies, admits)
        self.everything = self.build_face(None, merged_upstreams)
        merged_upstreams.stand_before(self.everything)
        for app in self.apps.values():
            app.face.renew()
        self.contexts = EnteredContexts()
        self.changing = Changing(
            self.apps,
            self.serving,
            self.upstreams,
            merged=merged_upstreams,
            everything=self.everything,
            approving=self.approving,
            views=self.views,
            events=self.events,
            contexts=self.contexts,
            tasks=self.tasks,
            entitlements=self.entitlements,
            revocations=self.revocations,
            exchange=self.exchange,
        )
        self.reloader = Reloader(
            replace(config, apps={id: app.config for id, app in running.items()}),
            reread=reread,
            changing=self.changing,
            settings=self.settings,
            notices=self.notices,
            recorder=self.recorder,
            approvals=self.approving.asked_of_policies,
            approved=self.approving.approved_versions,
            packer=self.packer,
            waiting=waiting,
            order=[*config.apps],
            problems=[*(Notice(NoticeKind.BROKEN, problem) for problem in problems), *notices],
        )
        self.health = health_of(
            config,
            database=self.database,
            journal=self.journal,
            notices=self.notices,
            upstreams=self.upstreams,
            calls=self.calls,
            needs_restart=lambda: self.reloader.needs_restart,
            packing=lambda: self.packer.remaining,
            degraded=self.shared.problem,
            cluster=self.cluster,
        )
        self.views.has_streams = self.streams.has_view
        stops = (
            self.events.drain, self.views.drain, self.approvals.stop, self.accounts.absences.stop,
            self.upstreams.hand_over,
        )  # fmt: skip
        self.drain = GatewayDrain(self.health, self.calls, stops, self.faces, self._announce_stop)

    def faces(self) -> tuple[McpMount, ...]:
        """Return all mounts."""
        return (self.everything, *(app.face for app in self.apps.values()), *self.upstreams.faces.values())

    def build_face(self, app: str | None, before: MountMiddleware | None = None) -> McpMount:
        cluster = self.cluster
        nodes = cluster.other_nodes(self.views, self.mcp_sessions, self.calls) if cluster is not None else None
        return McpMount(
            app,
            before=before,
            apps=self.published_apps,
            views=self.views,
            forwarder=self.forwarder,
            exchange=self.exchange,
            storage=self.storage,
            version=gateway.__version__,
            hosts=list(self.listener.sites),
            origins=sorted(set(self.listener.origins.values())),
            principal=lambda request: request[PRINCIPAL],
            fast_path=self.config.mcp.fast_path,
            sessions=self.mcp_sessions,
            session_idle=self.config.mcp.session_idle,
            asking=self.approving.elicitation(),
            room=self.bodies.room,
            body_limit=lambda: message_limit(self.apps.largest_request(app)),
            admits=self.entitlements.admits,
            nodes=nodes,
        )

    async def lifetime(self, _: web.Application) -> AsyncIterator[None]:
        """Run the background tasks while the application runs."""
        async with in_one_task(self._run_tasks()):
            self.health.stage = Stage.SERVING
            yield

    @asynccontextmanager
    async def _run_tasks(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.journal)
            await stack.enter_async_context(self.database)
            if self.cluster is not None:
                await stack.enter_async_context(self.cluster.joined())
            await stack.enter_async_context(self.shared.run())
            await stack.enter_async_context(self.connections)
            await stack.enter_async_context(self.recording.filling())
            stack.callback(self.health.close)
            await self.accounts.start()
            stack.callback(self.refused_callers.flush)
            stack.callback(self.excess.flush)
            stack.enter_context(report_exceeded(self.excess.note))
            stack.push_async_callback(self.backends.close)
            tasks = await stack.enter_async_context(self.tasks)
            if self.worker_metrics is not None:
                stack.callback(tasks.create_task(self.worker_metrics.run()).cancel)
            for job in (*self.recording.jobs(), *self.approving.jobs()):
                stack.callback(tasks.create_task(job).cancel)
            await stack.enter_async_context(self.streams)
            await stack.enter_async_context(self.views)
            stack.push_async_callback(self.contexts.close)
            stack.push_async_callback(self.upstreams.close)
            for face in self.faces():
                await self.contexts.enter(tasks, face)
            stack.callback(tasks.create_task(self.mcp_sessions.run()).cancel)
            stack.push_async_callback(self.mcp_sessions.flush)
            if self.cluster is not None:
                await stack.enter_async_context(self.cluster.running(self._node_door(self.cluster)))
            self.upstreams.start()
            stack.callback(tasks.create_task(self.upstreams.keep()).cancel)
            stack.callback(tasks.create_task(self.reloader.run()).cancel)
            stack.callback(tasks.create_task(self.revocations.run()).cancel)
            yield

    def _node_door(self, cluster: ClusterParts) -> NodeDoor:
        """Return the door for other nodes; what this node owns stops when its lease ends."""
        from gateway.doors.nodes import NodeDoor  # noqa: PLC0415  here, so that only nodes load it

        def stop_owned() -> None:
            for view in self.views.of(None):
                self._stop_view(view)
            for face in self.faces():
                face.lapse()

        def lose(id: str) -> StoredTaint | None:
            if (view := self.views.note_gone(id)) is None:
                return None
            taint = view.taint.stored()
            self._stop_view(view)
            return taint

        def drop(id: str) -> None:
            lose(id)

        def announce_changes() -> None:
            cluster.renew_certificates()
            if not self.packer.remaining:  # the apps that are still packed at the start were announced
                cluster.announce(self.reloader.running)

        cluster.node.before_renewal = announce_changes
        self.reloader.after_reload = cluster.node.renew_now
        cluster.node.owns = lambda: {
            "views": len(self.views.of(None)),
            "sessions": self.mcp_sessions.count,
            "streams": self.streams.count,
            "calls": self.calls.count,
            "upstreams": cluster.places.count,
        }
        cluster.node.lapsed.add(stop_owned)
        reaper = self.connections.reaper
        reaper.extend(lease_clock() + cluster.node.lease.left)  # the node has joined already
        cluster.node.renewed.add(reaper.extend)
        cluster.node.joined.add(self.shared.rewrite_views)
        cluster.node.lost_views.add(drop)

        async def hand_over() -> None:
            self.views.note_left()
            await self.calls.end(CUT_WITHIN)
            await self.forwarder.later.hand_over()

        cluster.hand_over = hand_over
        return NodeDoor(
            cluster.node,
            cluster.receiver,
            cluster.forwards,
            self.revocations,
            mounts=self._mount,
            has_view=self.views.has,
            lose=lose,
            end_former=self.views.end_former,
            taints=self.views.taints,
            known_taints=cluster.taints,
            admits=self.entitlements.admits,
            redis=self.shared.problem,
            send_body=lambda request, id, principal: send_body(
                request, self.bodies, id, principal, partial(self.views.precedence.rest, principal.id)
            ),
            take_document=self.dedicated_door.take,
            serve_upstream=self.upstreams.serve_node,
            list_views=self.views_door.here,
            close_view=self.views_door.close_here,
            offers={"links": self.links.respond, "downloads": self.downloads.respond},
        )

    def _announce_stop(self) -> None:
        """Let other nodes see that this one is about to stop."""
        if self.cluster is not None:
            self.cluster.node.draining = True

    def _stop_view(self, view: View) -> None:
        self.approvals.cancel_view(view.id)
        self.streams.cancel_view(view.id)
        self.views.close(view)

    def _mount(self, name: str) -> McpMount | None:
        """Return a mount by its name, as in a URL; that of all apps has the empty one."""
        if not name:
            return self.everything
        app = self.apps.get(name)
        return app.face if app is not None else self.upstreams.faces.get(name)


def worker_metrics(config: Config, metrics: Metrics) -> WorkerMetrics | None:
    """Return the metrics of all workers of this machine, which scrapes then get; None without other workers."""
    settings = config.cluster
    if settings is None or settings.metrics is None:
        return None
    from gateway.stores.worker_metrics import WorkerMetrics  # noqa: PLC0415  here, so that only workers load it

    shared = WorkerMetrics(settings.metrics, settings.name, metrics)
    metrics.render_all = shared.render
    return shared


def cluster_parts(config: Config, database: Database, accounts: Accounts) -> ClusterParts | None:
    """Return the parts of a node; None for a gateway of one process."""
    if config.cluster is None:
        return None
    from gateway.assembly.cluster import ClusterParts  # noqa: PLC0415  here, so that only nodes load it

    return ClusterParts(config, config.cluster, database, accounts.ring)


def listener(config: Config, apps: Apps) -> Listener:
    """Return the hosts that the gateway answers to, including those of the running apps."""
    origins, port = config.server.origins, config.server.port
    plain = [f"http://{name}{'' if port == 80 else f':{port}'}" for name in ("localhost", "127.0.0.1", "[::1]")]
    names = [
        *((origin, Site.PLAIN) for origin in (*plain, config.server.public_url)),
        (origins.console, Site.CONSOLE),
        (origins.sandbox, Site.SANDBOX),
    ]
    sites = apps.hosts({netloc(origin): site for origin, site in names}, lambda _: Site.APP)
    of = apps.hosts({netloc(origin): origin for origin, _ in names}, lambda app: origins.app(app.config.id))
    frames = partial(WithFrames, origins.dedicated)
    return Listener(frames(sites, lambda _: Site.DEDICATED), frames(of, origins.frame))


def netloc(origin: str) -> str:
    """Return host and port of an origin, as in `Host`."""
    return urlsplit(origin).netloc

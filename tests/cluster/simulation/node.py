"""One virtual node: the real parts of a gateway, put together as `gateway.assembly.components` does, without its doors.

Calls enter at the mount's catalog, as they do behind the doors; requests of other nodes enter at the real listener.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from gateway.backends.node_connections import NodeConnections
from gateway.cluster.envelope import Receiver
from gateway.cluster.forwards import Forwards
from gateway.cluster.ids import ObjectIds, ObjectKind
from gateway.cluster.lease import LEFT_FOR, steady
from gateway.cluster.node import ClusterNode
from gateway.cluster.taints import ClusterTaints
from gateway.doors.nodes import NodeDoor
from gateway.doors.revocation import Revocations
from gateway.exchange.approval_answers import ApprovalAnswers
from gateway.exchange.approval_step import ApprovalStep, RequestApprovals
from gateway.exchange.authenticate import Authenticator
from gateway.exchange.decided_request import Idempotency
from gateway.exchange.drain import CUT_WITHIN, RunningCalls
from gateway.exchange.limit import Limiter, MemoryRates
from gateway.exchange.pipeline import Exchange, ExchangeApp
from gateway.exchange.record import OnFailure, Recorder
from gateway.exchange.send import Sender
from gateway.exchange.shared_approvals import DatabaseApprovals
from gateway.exchange.shared_grants import DatabaseGrants
from gateway.exchange.streams import Streams
from gateway.exchange.tool_calls import ToolCalls
from gateway.hooks import Hooks
from gateway.mcp.elsewhere import NodeStates, OtherNodes
from gateway.mcp.own_tools import StorageTool
from gateway.mcp.server import McpMount
from gateway.model import AuditRecord, Backend, Principal, Resource, Secret
from gateway.policy import parse_policy
from gateway.ports.nodes import Announcement
from gateway.ports.views import StoredTaint
from gateway.stores.cookie_jars import DatabaseCookieJars
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.nodes import DatabaseNodes, DatabaseViewOwners
from gateway.stores.sealing import GivenKeys, KeyRing
from gateway.stores.sessions import DatabaseSessions, IssuedTokens
from gateway.stores.usage import DatabaseQuotas, IdempotencyKeys
from gateway.stores.view_state import DatabaseLaunches, DatabaseTaints
from gateway.telemetry import Metrics
from gateway.views.forward import Forwarder
from gateway.views.memory import Launches, MemoryDirectory
from gateway.views.registry import Views
from gateway.views.view import AppRules, View
from tests.cluster.simulation.database import Server
from tests.cluster.simulation.virtual_time import Machine, VirtualLoop

APP: Final = "shop"

POLICY: Final = parse_policy(
    """
version: 1
backends: {api: {url: "http://api.test", network: private, cookies: jar}}
routes:
  - {path: "/free/{id}", methods: [POST]}
  - {path: "/edit/{id}", methods: [POST], confirm: {when: model, message: "Edit {params.id}?"}}
  - {path: "/guarded/{id}", methods: [POST], confirm: {when: [person, page, model], message: "Do {params.id}?"}}
  - path: "/granted/{id}"
    methods: [POST]
    confirm: {when: [person, page, model], message: "Do {params.id}?", grant: 10s}
  - {path: "/scarce/{id}", methods: [POST], quota: 3/day per principal}
tools: {add: {}, careful: {confirm: always}}
""",
    "policy.yaml",
)

SCARCE: Final = 3
"""Requests of `/scarce` per principal."""

QUESTIONS: Final = 6.0
"""Seconds for which a question stays open."""

ANNOUNCED: Final = 0.5
"""Seconds between the news that a node will stop, and its end of new requests."""

DRAINED: Final = 5.0
"""Seconds that running calls have at a stop."""

_KEY: Final = Secret("Zr4vKq8mT1xWb6yNc3pLs9dHf2gJa7uEo5iRtY0wQzM=")
_ENCRYPTION: Final = Secret("hV2nBx7cZl4kQw9eRt6yUi1oPa3sDf8gJm5vNb0xCzE=")


class _Packed:
    """The app as it is packed."""

    id = APP
    title = "Shop"
    resource = Resource("ui://shop/app.html", "<p>shop</p>", {})
    opens = True
    keeps = False

    async def html(self) -> str:
        return self.resource.html


class _Paper:
    """A journal that keeps nothing."""

    def append(self, record: AuditRecord) -> AuditRecord:
        return record

    def redact(self, record: AuditRecord) -> AuditRecord:
        return record

    async def sync(self) -> None:
        await asyncio.sleep(0)


class _NoStorage:
    async def load(self, person: str, app: str) -> dict[str, str]:
        return {}

    async def save(self, *_: Any, **__: Any) -> bool:
        return True


async def _no_upstream(*_: object) -> int:
    return 404


async def _no_body(request: web.Request, id: str, principal: Principal) -> None:
    """Find no body: pages of a simulation send none."""


class SimulatedNode:
    """One start of a node. `backend` gets its requests."""

    def __init__(
        self, loop: VirtualLoop, machine: Machine, server: Server, backend: Backend, *, version: str = "1"
    ) -> None:
        self.loop = loop
        self.machine = machine
        self.version = version
        self._server = server
        self._backend = backend
        self.ready = asyncio.Event()
        self.node: ClusterNode
        self.views: Views
        self.mount: McpMount
        self.answers: ApprovalAnswers
        self.tokens: IssuedTokens
        self.calls = RunningCalls()
        self.leaves = asyncio.Event()
        """Set it to stop the node cleanly."""
        self.left = float("inf")
        """When it gave up its lease to stop: only what had begun by then may still end."""

    def build(self) -> None:
        """Build all parts, on the machine."""
        name, database = self.machine.name, self._server.database()
        ring, encryption = KeyRing(GivenKeys("keys", _KEY)), KeyRing(GivenKeys("keys", _ENCRYPTION))
        announced = Announcement(
            "", name, f"unix:{name}", self.version, "digest", " ".join(encryption.ids), {APP: POLICY.version}
        )
        store = DatabaseNodes(database, ring.derive("cluster announcements"))
        node = self.node = ClusterNode(store, announced, clock=steady, sleep=asyncio.sleep, random=os.urandom)
        ids = ObjectIds(ring.derive("cluster ids"), lambda: node.incarnation, os.urandom)
        keys = ring.derive("cluster forwards")
        self.connections = NodeConnections(None)
        self.forwards = Forwards(
            node, ids=ids, owners=DatabaseViewOwners(database), transport=self.connections, keys=keys
        )
        receiver = Receiver(keys, lambda: node.incarnation, node.now)

        def new_id(kind: ObjectKind) -> Callable[[], str]:
            return lambda: ids.new(kind)

        logins = ring.derive("logins")
        self.tokens = IssuedTokens(database, logins)
        self.revocations = Revocations(self.tokens, DatabaseSessions(database, logins))
        self.approvals = DatabaseApprovals(database, ring, QUESTIONS, still=self.revocations.still)
        self.grants = DatabaseGrants(database, ring)
        recorder = Recorder(_Paper(), Hooks([], Path()), OnFailure.CONTINUE, Metrics())
        self.answers = ApprovalAnswers(self.approvals, self.grants, recorder)
        step = ApprovalStep(self.approvals, self.grants, "http://console.test/approvals/")
        limiter = Limiter(MemoryRates(), DatabaseQuotas(database))
        calls = ToolCalls(step, limiter=limiter, recorder=recorder, running=self.calls, check=node.check)
        self.streams = Streams(new_id=new_id(ObjectKind.STREAM))
        app = ExchangeApp(POLICY, {"api": self._backend})
        exchange = Exchange(
            {APP: app},
            limiter=limiter,
            idempotency=Idempotency(IdempotencyKeys(database)),
            waiting=RequestApprovals(step),
            recorder=recorder,
            sender=Sender(Authenticator({}), DatabaseCookieJars(database, encryption), check=node.check),
            streams=self.streams,
            hooks=Hooks([], Path()),
        )
        known_taints = ClusterTaints(node, self.forwards)
        self.views = Views(
            {APP: AppRules("Shop", POLICY)},
            launches=Launches(
                store=DatabaseLaunches(database, encryption), new_id=new_id(ObjectKind.VIEW), shared=True
            ),
            directory=MemoryDirectory(),
            keys=encryption.derive("views"),
            taints=DatabaseTaints(database),
            new_id=new_id(ObjectKind.VIEW),
            take=self.forwards.take,
            end_former=self.forwards.end_former,
            other_taints=known_taints,
        )
        forwarder = Forwarder(self.views, calls, new_id=new_id(ObjectKind.CALL))
        self.sessions = DatabaseMcpSessions(
            database, encryption, most=100, each=50, idle=600.0, process=lambda: node.incarnation, lives=node.lives
        )
        self.mount = McpMount(
            APP,
            apps={APP: _Packed()},
            views=self.views,
            forwarder=forwarder,
            exchange=exchange,
            storage=StorageTool(_NoStorage()),
            sessions=self.sessions,
            version="1",
            hosts=["node", "127.0.0.1:*"],
            origins=[],
            principal=lambda request: principal_of(request.headers.get("x-user", "")),
            fast_path=False,
            nodes=OtherNodes(self.forwards, self.views, self.sessions, NodeStates(ids), self.calls),
        )
        self.door = NodeDoor(
            node,
            receiver,
            self.forwards,
            self.revocations,
            mounts=lambda name: self.mount if name == APP else None,
            has_view=self.views.has,
            lose=self._lose,
            end_former=self.views.end_former,
            taints=self.views.taints,
            known_taints=known_taints,
            admits=lambda _principal, _app: True,
            redis=lambda: None,
            send_body=_no_body,
            take_document=lambda _once, _host: None,
            serve_upstream=_no_upstream,
            list_views=lambda _principal: [],
            close_view=lambda _principal, _view: False,
            offers={},
        )
        node.lapsed.add(self._stop_owned)
        node.lost_views.add(self._drop)

    async def run(self) -> None:
        """Join, and serve until `leaves` is set."""
        self.build()
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            while True:
                try:
                    await self.node.join()
                    await stack.enter_async_context(self.streams)
                    await stack.enter_async_context(self.views)
                    break
                except OSError:
                    await asyncio.sleep(1.0)
            await stack.enter_async_context(self.connections)
            await stack.enter_async_context(self.mount)
            await self._listen(stack)
            jobs = (self.node.run(), self.approvals.keep(), self.grants.keep(), self.revocations.run())
            running = [tasks.create_task(job) for job in (*jobs, self.sessions.run())]
            self.ready.set()
            await self.leaves.wait()
            await self._drain()
            for task in running[1:]:
                task.cancel()
            await self._leave()
            running[0].cancel()

    async def _drain(self) -> None:
        """Stop as `gateway.serve` does: no new requests, then time for running ones, whose rest is answered."""
        self.node.draining = True
        self.ready.clear()
        await asyncio.sleep(ANNOUNCED)
        self.calls.begin()
        self.views.drain()
        self.approvals.stop()
        await self.calls.end(DRAINED)

    async def _leave(self) -> None:
        """Leave as `gateway.assembly.cluster` does: what others send meanwhile is answered."""
        others, self.left = self.node.others(), self.loop.now
        self.views.note_left()
        await self.calls.end(CUT_WITHIN)
        await self.node.step_down()
        if others:
            await asyncio.sleep(LEFT_FOR)
            with suppress(TimeoutError):
                async with asyncio.timeout(CUT_WITHIN):
                    while self.door.running:
                        await asyncio.wait(set(self.door.running))
        await self.node.leave()

    async def _listen(self, stack: AsyncExitStack) -> None:
        public = web.Application()
        public.router.add_route("*", f"/mcp/{APP}", self.mount.handle)
        for app, path in ((self.door.application(), self.machine.name), (public, f"public-{self.machine.name}")):
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.UnixSite(runner, path).start()

    def _stop_owned(self) -> None:
        for view in self.views.of(None):
            self._stop_view(view)
        self.mount.lapse()

    def _lose(self, id: str) -> StoredTaint | None:
        if (view := self.views.note_gone(id)) is None:
            return None
        taint = view.taint.stored()
        self._stop_view(view)
        return taint

    def _drop(self, id: str) -> None:
        self._lose(id)

    def _stop_view(self, view: View) -> None:
        self.approvals.cancel_view(view.id)
        self.streams.cancel_view(view.id)
        self.views.close(view)


def principal_of(name: str, proof: str = "") -> Principal:
    """Return a person."""
    may = frozenset({"mcp", "bridge", "app", "approve"})
    return Principal("local", "test", name, capabilities=may, session=True, proof=proof)

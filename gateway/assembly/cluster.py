"""Builds the parts of a node, if gateway.yaml has the section `cluster`: its lease, its listener, its forwards."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from aiohttp import web

import gateway
from gateway.backends.node_connections import NodeCertificates, NodeConnections
from gateway.cluster.envelope import Receiver
from gateway.cluster.forwards import Forwards
from gateway.cluster.handovers import Handovers
from gateway.cluster.ids import ObjectIds, ObjectKind
from gateway.cluster.lease import LEFT_FOR, steady
from gateway.cluster.node import ClusterNode
from gateway.cluster.places import UpstreamPlaces
from gateway.cluster.report import count_states, differences, node_json, state_of, what_differs
from gateway.cluster.taints import ClusterTaints
from gateway.cluster.views import NodeViews
from gateway.config import ClusterSettings, Config, UpstreamSettings
from gateway.doors.nodes import NodeDoor
from gateway.errors import Refusal, StartError
from gateway.exchange.drain import CUT_WITHIN, RunningCalls
from gateway.mcp.elsewhere import NodeStates, OtherNodes
from gateway.model import Json, Secret
from gateway.policy import Policy
from gateway.ports.nodes import Announcement, NodeRow, NodeState
from gateway.ports.sessions import McpSessions, OneTimeValues
from gateway.stores.nodes import DatabaseNodes, DatabaseUpstreamOwners, DatabaseViewOwners
from gateway.stores.sealing import GivenKeys, KeyRing
from gateway.stores.sql import Database
from gateway.telemetry import Metrics, level
from gateway.views.registry import Views

KEEPALIVE: Final = 75.0
"""Seconds for which the listener keeps an idle connection: longer than the other node does."""

log = logging.getLogger(__name__)


class ClusterParts:
    """The parts of a node. `encryption` are the keys that encrypt what all nodes share."""

    def __init__(self, config: Config, settings: ClusterSettings, database: Database, encryption: KeyRing) -> None:
        if settings.listen is None:
            raise StartError(
                "cluster.listen is missing: the address at which other processes reach this one, host:port or "
                "unix:path. It is not needed with `serve --workers`"
            )
        self.settings = settings
        self.redis = config.redis is not None
        self._announced = config
        self.ring = KeyRing(GivenKeys("cluster.keys", settings.keys))
        self._digest_key = self.ring.derive("cluster configurations").keys[0]
        announced = Announcement(
            "",
            settings.name,
            str(settings.address),
            gateway.__version__,
            self.digest(config),
            " ".join(encryption.ids),
            policies(config),
        )
        store = DatabaseNodes(database, self.ring.derive("cluster announcements"))
        self.node = ClusterNode(store, announced, clock=steady, sleep=asyncio.sleep, random=os.urandom)
        ids_keys, forward_keys = self.ring.derive("cluster ids"), self.ring.derive("cluster forwards")
        self.ids = ObjectIds(ids_keys, lambda: self.node.incarnation, os.urandom)
        self.states = NodeStates(self.ids)
        tls = settings.tls
        self._certificates = NodeCertificates(tls.certificate, tls.key, tls.authority) if tls is not None else None
        self._connections = NodeConnections(self._certificates)
        self.forwards = Forwards(
            self.node,
            ids=self.ids,
            owners=DatabaseViewOwners(database),
            transport=self._connections,
            keys=forward_keys,
        )
        self.taints = ClusterTaints(self.node, self.forwards)
        self.views = NodeViews(self.node, self.forwards)
        self.places = UpstreamPlaces(self.node, self.forwards, DatabaseUpstreamOwners(database))
        self._renewing: asyncio.Task[None]
        self.hand_over: Callable[[], Awaitable[None]]
        """Ends what runs here, and gives other nodes what they can go on with, before the lease ends."""
        self.receiver = Receiver(forward_keys, lambda: self.node.incarnation, self.node.now)

    def new_id(self, kind: str) -> Callable[[], str]:
        """Return a function that makes ids of this kind."""
        return partial(self.ids.new, ObjectKind(kind))

    def count_living(self) -> int:
        """Return how many nodes live, with this one."""
        return 1 + sum(row.signed for row in self.node.others())

    def handovers(self, hints: OneTimeValues) -> Handovers:
        """Return what other nodes hold for callers that reach this one."""
        return Handovers(self.forwards, hints, lambda: self.node.incarnation)

    def other_nodes(self, views: Views, sessions: McpSessions, running: RunningCalls) -> OtherNodes:
        """Return the other nodes as mounts see them."""
        return OtherNodes(self.forwards, views, sessions, self.states, running)

    def watch(self, metrics: Metrics) -> None:
        """Count in `metrics` what this node does with others, and set its gauges before each scrape."""
        self.forwards.forwarded.add(lambda outcome, seconds: metrics.forward_seconds.add(seconds, outcome))
        self.forwards.taken.add(lambda _: metrics.views_moved.inc())
        self.node.lapsed.add(metrics.lapses.inc)

        def set_gauges() -> None:
            rows = self.node.rows()
            differing = len(differences(self.node.announced, rows))
            counts = {**{state.value: count for state, count in count_states(rows).items()}, "differing": differing}
            level(metrics.nodes, {(state,): float(count) for state, count in counts.items()})
            metrics.lease_age.set(self.node.lease.age)

        metrics.look(set_gauges)

    def problem(self) -> str | None:
        """Return in what other nodes differ, so that nothing is forwarded to them; None if they do not."""
        reasons = differences(self.node.announced, self.node.rows())
        return "; ".join(f"{name}: {why}" for name, why in reasons.items()) or None

    async def check_lease(self) -> None:
        """Raise OSError if the lease does not hold."""
        if not self.node.lease.holds:
            raise ConnectionError("the lease of this node has ended: it joins again when the database answers")

    def facts(self) -> Json:
        """Return this node and the others, as far as it knows them."""
        node = self.node
        return {
            "name": node.announced.name,
            "incarnation": node.incarnation,
            "lease": {"holds": node.lease.holds, "renewed": node.lease.age},
            "nodes": {row.announced.name: state_of(row).value for row in sorted(node.rows(), key=lambda row: -row.age)},
        }

    async def report(self) -> dict[str, Json]:
        """Return all nodes, what differs, and whether this node reaches the others."""
        rows = sorted(self.node.rows(), key=lambda row: -row.life)
        others = [row for row in rows if row.announced.incarnation != self.node.incarnation]
        living = [row for row in others if state_of(row) not in (NodeState.ENDED, NodeState.UNSIGNED)]
        reached = dict(zip(map(id, living), await asyncio.gather(*map(self._reach, living)), strict=True))
        return {
            "here": self.node.incarnation,
            "nodes": [{**node_json(row), **reached.get(id(row), {})} for row in rows],
            "differing": [*what_differs(rows)],
            "redis": self.redis,
        }

    async def _reach(self, row: NodeRow) -> dict[str, Json]:
        """Return how long the answer of another node took, how far its clock is ahead, and what it says of Redis."""
        began, clock = time.monotonic(), time.time()
        try:
            pong = await self.forwards.ping(row)
        except (OSError, Refusal, ValueError) as error:
            detail = error.detail if isinstance(error, Refusal) else str(error)
            return {"reached": False, "detail": detail or "it does not answer"}
        seconds = time.monotonic() - began
        return {
            "reached": True, "seconds": seconds, "ahead": pong.time - clock - seconds / 2, "redis_problem": pong.redis
        }  # fmt: skip

    def renew_certificates(self) -> None:
        """Use certificates that were replaced."""
        try:
            if self._certificates is not None:
                self._certificates.refresh()
        except StartError as error:
            log.error("the certificates from before stay in use: %s", error)

    def announce(self, config: Config) -> None:
        """Announce the configuration in use, if it is another one."""
        if config is not self._announced:
            self._announced = config
            self.node.announce(self.digest(config), policies(config))

    def digest(self, config: Config) -> str:
        """Return a digest of what all nodes must agree on; without a key nobody can try secrets against it."""
        server = config.server
        agreed = (
            server.public_url,
            server.origins,
            config.auth,
            config.roles,
            config.hosts,
            {id: replace(app, source=Path(), stamp="") for id, app in config.apps.items()},
            {name: _movable(one, config.path.parent) for name, one in config.upstreams.items()},
            config.credentials,
            config.approvals,
            config.mcp,
            config.plugins,
        )
        return hmac.digest(self._digest_key, repr(_plain(agreed)).encode(), hashlib.sha256).hex()[:32]

    @asynccontextmanager
    async def joined(self) -> AsyncIterator[None]:
        """Join, and renew the lease within the block, also while the rest of the gateway starts and ends."""
        await self.node.join()
        async with asyncio.TaskGroup() as tasks:
            self._renewing = tasks.create_task(self.node.run())
            try:
                yield
            finally:
                self._renewing.cancel()

    @asynccontextmanager
    async def running(self, door: NodeDoor) -> AsyncIterator[None]:
        """Serve other nodes within the block; the node has joined before."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._connections)
            runner = web.AppRunner(
                door.application(), access_log=None, handler_cancellation=True, keepalive_timeout=KEEPALIVE,
                shutdown_timeout=1.0,
            )  # fmt: skip
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await self._listen(runner)
            stack.push_async_callback(self._leave, door)
            yield

    async def _leave(self, door: NodeDoor) -> None:
        """End what runs here, then the lease; others learn of it, and what they have sent is answered."""
        others = self.node.others()
        await self.hand_over()
        await self.places.end()
        await self.taints.close()
        self._renewing.cancel()
        await asyncio.wait([self._renewing])
        await self.node.step_down()
        if others:
            await asyncio.sleep(LEFT_FOR)
            with suppress(TimeoutError):
                async with asyncio.timeout(CUT_WITHIN):
                    while door.running:
                        await asyncio.wait(set(door.running))
        await self.node.leave()

    async def _listen(self, runner: web.AppRunner) -> None:
        listen, certificates = self.settings.listen, self._certificates
        if listen is None:
            return
        try:
            if listen.path is not None:
                _clear(listen.path)
                before = os.umask(0o177)  # the socket is for the gateway's own user alone
                try:
                    await web.UnixSite(runner, str(listen.path)).start()
                finally:
                    os.umask(before)
            elif certificates is not None:
                await web.TCPSite(runner, listen.host, listen.port, ssl_context=certificates.listener).start()
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise StartError(f"cannot listen on {listen} for other nodes: {reason}; set cluster.listen") from error


def _movable(upstream: UpstreamSettings, folder: Path) -> UpstreamSettings:
    """Return an upstream with its paths relative to the folder of gateway.yaml, which may differ between nodes."""
    inside = f"{folder}/"
    command = tuple(os.path.relpath(part, folder) if part.startswith(inside) else part for part in upstream.command)
    cwd = Path(os.path.relpath(upstream.cwd, folder)) if upstream.cwd is not None else None
    return replace(upstream, command=command, cwd=cwd)


def policies(config: Config) -> dict[str, str]:
    """Return the version of the policy of each app, and of each upstream that has one."""
    versions = {id: app.policy.version for id, app in config.apps.items()}
    return versions | {name: one.policy.version for name, one in config.upstreams.items() if one.policy is not None}


def _clear(path: Path) -> None:
    """Remove the socket that an earlier process has left."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise StartError(f"{path} is no socket: remove it, or set cluster.listen")
        path.unlink()


def _plain(value: object) -> object:
    """Return a value whose `repr` depends on the contents alone; code and patterns are left out."""
    match value:
        case Secret():
            return value.reveal()
        case Policy():
            return value.version
        case None | bool() | int() | float() | str() | bytes() | Enum() | Path():
            return value
        case Mapping():
            return sorted((str(key), _plain(one)) for key, one in value.items())
        case tuple() | list():
            return [_plain(one) for one in value]
        case frozenset() | set():
            return sorted(map(repr, map(_plain, value)))
        case _ if is_dataclass(value):
            return [(field.name, _plain(getattr(value, field.name))) for field in fields(value)]
        case _:
            return type(value).__name__

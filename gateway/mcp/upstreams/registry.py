"""All upstreams of a gateway, each with a separate mount; they change at runtime."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from gateway.backends.connect import Connections
from gateway.bounds import Shares
from gateway.config import Notice, NoticeKind, Notices, same_connection, same_upstream
from gateway.config import UpstreamSettings as Spec
from gateway.errors import Problem, Refusal
from gateway.exchange.authenticate import Authenticator, MissingAccounts
from gateway.exchange.record import Recorder
from gateway.exchange.tool_calls import ToolCalls
from gateway.mcp.elicitation import Asking, ElicitingCalls
from gateway.mcp.server import McpMount
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.calls.upstream_calls import (
    CallServices,
    RepeatedCalls,
    RevocationWatch,
    ShownIn,
    refusal_result,
)
from gateway.mcp.upstreams.catalog.listing import rule_of
from gateway.mcp.upstreams.catalog.offers import LARGEST, MOST_THINGS, ROOM, Fingerprints
from gateway.mcp.upstreams.mount import Proxy, RequestStates
from gateway.mcp.upstreams.transport.link import LinkState
from gateway.mcp.upstreams.upstream import Upstream
from gateway.model import Caller, Door, Initiator, Principal
from gateway.stores.upstream_tools import UpstreamTools, key_of
from gateway.telemetry import level

if TYPE_CHECKING:
    from gateway.cluster.places import UpstreamPlaces

Begin = Callable[[], Awaitable[Callable[[bytes], Awaitable[None]]]]

GATEWAY = Principal(issuer="gateway", client="gateway", subject="upstreams")
"""The principal of the gateway's own requests to upstreams."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MountedUpstream:
    """An upstream with its mount."""

    upstream: Upstream
    proxy: Proxy
    face: McpMount


class Upstreams:
    """The upstreams by name.
    `face` makes the mount of one, behind its proxy; `tasks` is entered while they run. `asking` defines which clients
    may send their person to a page; `room` limits the bytes of their calls. `shown_in` finds, for an upstream, the view
    in a host page of the gateway that shows one of its apps. `revocation` watches over calls that continue without a
    connection. `states` names this node in what clients send back, `places` decide which node runs
    a shared one; both are None for a gateway of one process.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        *,
        connections: Connections,
        authenticator: Authenticator,
        calls: ToolCalls,
        recorder: Recorder,
        absences: MissingAccounts,
        tools: UpstreamTools,
        asking: Asking,
        room: Shares,
        shown_in: Callable[[str], ShownIn],
        revocation: RevocationWatch,
        runtime: str,
        tasks: asyncio.TaskGroup,
        notices: Notices,
        file: str,
        face: Callable[[str, Proxy], McpMount],
        states: RequestStates | None = None,
        places: UpstreamPlaces | None = None,
    ) -> None:
        self._connections = connections
        self._authenticator = authenticator
        self._recorder = recorder
        self._runtime = runtime
        self._tasks = tasks
        self._face = face
        self._notices = notices
        self._file = file
        self._tools = tools
        self._asking = asking
        self._room = room
        self._shown_in = shown_in
        self._states = states
        self._places = places
        self._services = CallServices(calls, authenticator, absences, RepeatedCalls(), self._spec, revocation)
        self.mounts: dict[str, MountedUpstream] = {name: self._mount(spec) for name, spec in specs.items()}

    @property
    def faces(self) -> Mapping[str, McpMount]:
        """The current mounts by name."""
        return {name: one.face for name, one in self.mounts.items()}

    @property
    def proxies(self) -> Mapping[str, Proxy]:
        """The proxies before the mounts, in the order of the configuration."""
        return {name: one.proxy for name, one in self.mounts.items()}

    @property
    def specs(self) -> Mapping[str, Spec]:
        """The current settings by name."""
        return {name: one.upstream.spec for name, one in self.mounts.items()}

    def get(self, name: str) -> McpMount | None:
        """Return the mount of the upstream `name`."""
        one = self.mounts.get(name)
        return one.face if one is not None else None

    def states(self) -> Mapping[str, tuple[LinkState, str | None]]:
        """Return the state of each, and its problem if there is one."""
        return {name: one.upstream.state for name, one in self.mounts.items()}

    def say(self) -> None:
        """Report failing upstreams and changed tools on the console."""
        failures = [
            f"{name}: {problem}"
            for name, (state, problem) in self.states().items()
            if state is LinkState.FAILED and problem
        ]
        changes = [
            f"{name}: the tool {tool[:128]} changed from {pin} to {now}: check it, and pin it in its policy"
            for name, one in self.mounts.items()
            for offer in one.upstream.offers.all()
            for tool, (pin, now) in offer.fingerprints.changes.items()
        ]
        waiting_tools = [
            f"{name}: the tool {tool[:128]} is new, and held back: there were {MOST_THINGS} before; "
            "pin it in its policy"
            for name, one in self.mounts.items()
            for offer in one.upstream.offers.all()
            if (tool := offer.fingerprints.held_back) is not None
        ]
        large = [
            f"{name}: the tool {tool} is left out: the list of tools has more than {LARGEST} bytes"
            for name, one in self.mounts.items()
            for offer in one.upstream.offers.all()
            for tool in list(offer.left_out.values())[:1]
        ]
        full = [
            f"{name}: its lists for all persons have more than {ROOM} bytes: it is requested again more often"
            for name, one in self.mounts.items()
            if one.upstream.offers.full
        ]
        unknown = [
            f"{name}: its policy names tools that it does not have: {', '.join(missing)[:200]}"
            for name, one in self.mounts.items()
            if (missing := _unknown_names(one.upstream))
        ]
        texts = dict.fromkeys((*failures, *changes, *waiting_tools, *large, *full, *unknown))
        problems = [Problem(self._file, 1, 1, text[:500]) for text in texts]
        self._notices.say([Notice(NoticeKind.UPSTREAM, problem) for problem in problems], "upstreams")

    def look(self) -> None:
        """Set the gauge of each upstream."""
        states = self.states()
        level(
            self._recorder.metrics.upstreams, {(name,): state is LinkState.READY for name, (state, _) in states.items()}
        )

    async def keep(self) -> None:
        """Update the console's notices every second, until cancelled."""
        while True:
            await asyncio.sleep(1)
            self.say()

    def start(self) -> None:
        """Start those that are not lazy."""
        for one in self.mounts.values():
            self._wake_early(one)

    async def prepare(
        self, specs: Mapping[str, Spec], enter: Callable[[McpMount], Awaitable[None]]
    ) -> dict[str, MountedUpstream]:
        """Return the upstreams for `replace`; those with an unchanged connection keep it. `enter` opens a new mount."""
        now = {}
        for name, spec in specs.items():
            old = self.mounts.get(name)
            if old is not None and same_connection(old.upstream.spec, spec):
                now[name] = old
            else:
                now[name] = self._mount(spec)
                await enter(now[name].face)
        return now

    def replace(
        self, specs: Mapping[str, Spec], now: dict[str, MountedUpstream], leave: Callable[[McpMount], Awaitable[None]]
    ) -> None:
        """Replace the upstreams, at once. Removed ones end in the background, as they may take their time."""
        before = self.mounts
        stale = [one for name, one in before.items() if now.get(name) is not one]
        self.mounts = now
        for name, one in now.items():
            if before.get(name) is not one:
                self._wake_early(one)
            elif not same_upstream(one.upstream.spec, specs[name]):
                one.upstream.spec = specs[name]
                one.upstream.tools_changed()
        for one in stale:
            self._tasks.create_task(_end(one, leave))
        self.say()

    def credentials_changed(self, names: Collection[str]) -> None:
        """Use the new credentials of these names also where a connection carries the one that it began with."""
        for one in self.mounts.values():
            if one.upstream.spec.credential in names:
                one.upstream.credential_changed()

    def hand_over(self) -> None:
        """Let other nodes run the shared ones: the calls in flight are still answered here."""
        for name, one in self.mounts.items():
            if self._places is not None and one.upstream.is_shared:
                self._places.begin_handing_over(name)
                one.upstream.renew("this process of the gateway stops")

    async def serve_node(self, name: str, chunks: AsyncIterator[bytes], begin: Begin) -> int | None:
        """Serve a shared upstream to another node; return the status of a refusal, None if it was served.

        `begin` begins the answer, and returns the function that writes it.
        """
        one = self.mounts.get(name)
        if self._places is None or one is None or not one.upstream.is_shared:
            return HTTPStatus.NOT_FOUND
        if self._places.handing_over:
            return HTTPStatus.SERVICE_UNAVAILABLE
        try:
            if await self._places.owner(name) is not None:
                return HTTPStatus.MISDIRECTED_REQUEST
        except Refusal:
            return HTTPStatus.SERVICE_UNAVAILABLE
        from gateway.mcp.upstreams.for_nodes import NodeService  # noqa: PLC0415  here, so that only nodes load it

        await NodeService(one.proxy, await begin(), self._connections.in_turn).run(chunks)
        return None

    async def close(self) -> None:
        """End all connections concurrently: a slow or failing one keeps no other open."""
        ending = [_close(one) for one in self.mounts.values()]
        for name, failure in zip(self.mounts, await asyncio.gather(*ending, return_exceptions=True), strict=True):
            if isinstance(failure, BaseException):
                log.error("the connections of upstream %s did not end as they should: %r", name, failure)

    def _wake_early(self, one: MountedUpstream) -> None:
        if not one.upstream.spec.lazy:
            one.upstream.spawn(self._wake(one))

    async def _wake(self, one: MountedUpstream) -> None:
        await one.upstream.session(UpstreamClient(GATEWAY, "", "2025-11-25"))

    def _spec(self, name: str) -> Spec | None:
        one = self.mounts.get(name)
        return one.upstream.spec if one is not None else None

    def _mount(self, spec: Spec) -> MountedUpstream:
        self._recorder.metrics.upstream_changes.labels(spec.name)  # from 0 on, so that the first one is an increase

        def on_echo(principal: Principal, first: bool) -> None:
            self._recorder.metrics.secrets_masked.labels(str(spec.credential)).inc()
            if first:
                log.warning("upstream %s echoed what was injected of %s; it is masked", spec.name, spec.credential)
                upstream.spawn(self._record_echo(spec, principal if spec.personal else GATEWAY))

        def pin(tool: str) -> str | None:
            rule = rule_of(upstream.spec, tool)
            return rule.pin if rule is not None else None

        def fingerprints(principal: Principal | None) -> Fingerprints:
            def on_change(tool: str, before: str, now: str) -> None:
                self._recorder.metrics.upstream_changes.labels(spec.name).inc()
                log.warning("upstream %s: the tool %s has changed: %s, now %s", spec.name, tool, before, now)
                upstream.spawn(self._record_change(spec.name, principal or GATEWAY, tool, before, now))

            name = spec.name if principal is None else f"{spec.name} {key_of(principal.person)}"
            return Fingerprints(name, store=self._tools, pin=pin, on_change=on_change)

        upstream = Upstream(
            spec,
            connections=self._connections,
            authenticator=self._authenticator,
            tasks=self._tasks,
            echoed=on_echo,
            fingerprints=fingerprints,
            places=self._places,
        )
        proxy = Proxy(
            upstream,
            services=self._services,
            runtime=self._runtime,
            eliciting=ElicitingCalls(self._tasks, self._asking, refusal_result, self._room),
            shown_in=self._shown_in(spec.name),
            states=self._states,
        )
        return MountedUpstream(upstream, proxy, self._face(spec.name, proxy))

    async def _record_echo(self, spec: Spec, principal: Principal) -> None:
        caller = Caller(principal, spec.name, Door.MCP, Initiator.PAGE, "echo")
        record = self._recorder.start("upstream", caller, safe=True)
        record.note(masked=[spec.credential], credential=spec.credential)
        await record.close(status=200)

    async def _record_change(self, name: str, principal: Principal, tool: str, before: str, now: str) -> None:
        caller = Caller(principal, name, Door.MCP, Initiator.PAGE, "fingerprint")
        record = self._recorder.start("upstream", caller, safe=True)
        record.note(method="tools/list", tool=tool[:200], before=before, now=now, message="the tool changed")
        await record.close(status=200)


def _unknown_names(upstream: Upstream) -> list[str]:
    """Return the tools that the policy names and the upstream lacks, if it listed all its tools to everyone."""
    policy, offers = upstream.spec.policy, upstream.offers.all()
    if policy is None or upstream.spec.personal or not any(offer.whole for offer in offers):
        return []
    return [tool for tool in policy.tools if not any(tool in offer.tools for offer in offers)]


async def _end(one: MountedUpstream, leave: Callable[[McpMount], Awaitable[None]]) -> None:
    one.face.drain()
    try:
        await _close(one)
    except Exception:
        log.exception("the connections of upstream %s did not end as they should", one.upstream.spec.name)
    await leave(one.face)


async def _close(one: MountedUpstream) -> None:
    try:
        await one.proxy.close()
    finally:
        await one.upstream.close()

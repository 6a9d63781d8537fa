"""The settings that change while the gateway runs, as one immutable object, replaced as one with apps and upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from gateway.assembly.approvals import ApprovalParts
from gateway.assembly.apps import Apps, EnteredContexts, Running, Serving, entitle
from gateway.assembly.credentials import Accounts, CredentialSet
from gateway.backends.connect import Connections, Network
from gateway.backends.http import HttpBackend
from gateway.callers.entitlements import Entitlements, Recognition
from gateway.callers.methods import NoAuth, OAuthIssuer, identity_headers
from gateway.config import App, Config, Notice, NoticeKind, UpstreamSettings, comparable, place_of
from gateway.config.locations import is_loopback
from gateway.doors.bridge.bridge import BridgeDoor
from gateway.doors.events import Events
from gateway.doors.identify import CallerRules, Identify
from gateway.doors.issuers import Issuer
from gateway.doors.revocation import Revocations
from gateway.errors import DocumentError, Problem, StartError
from gateway.exchange.pipeline import Exchange
from gateway.mcp.server import McpMount
from gateway.mcp.upstreams.merged import MergedUpstreams
from gateway.mcp.upstreams.registry import MountedUpstream, Upstreams
from gateway.model import Principal
from gateway.views.registry import Views
from gateway.watchers import Watchers


@dataclass(frozen=True, slots=True)
class IssuerServer:
    """The fields of an issuer that `HttpBackend` reads."""

    name: str
    network: Network


@dataclass(frozen=True, slots=True, eq=False)
class Settings:
    """All settings of one configuration, beside apps and upstreams; each request reads one of these.

    `identity` are the header fields in which proxies name callers. `callers_of` compares callers with themselves.
    """

    config: Config
    callers: CallerRules
    credentials: CredentialSet
    identity: frozenset[str]
    callers_of: Recognition


class LiveSettings:
    """The settings in use. `on_arrival` is called with each caller whose token was read, or introspected again."""

    def __init__(
        self, config: Config, accounts: Accounts, connections: Connections, on_arrival: Callable[[Principal], None]
    ) -> None:
        self._accounts = accounts
        self._connections = connections
        self._on_arrival = on_arrival
        self._watchers = Watchers[[Settings, Settings]]()
        self._unused: list[HttpBackend] = []
        self.now = self._make(config, accounts.now, {})

    def issuers(self) -> Collection[Issuer]:
        """Return the issuers of tokens."""
        return self.now.callers.issuers.values()

    def keeps(self, principal: Principal, needs: str, now: float) -> bool:
        """Return whether a caller is still one; see `Recognition.keeps`."""
        return self.now.callers_of.keeps(principal, needs, now)

    async def prepare(self, config: Config) -> Settings:
        """Return the settings of `config`, which can take effect as it is. Raises `DocumentError`; nothing changes."""
        running = self.now.config.server.host
        if any(isinstance(method, NoAuth) for method in config.auth) and not is_loopback(running):
            why = (
                f"auth: the gateway listens on {running}, which other machines reach, and none lets everybody in: "
                "name token, oauth or proxy alone, or restart it with server.listen on 127.0.0.1"
            )
            raise DocumentError([Problem(str(config.path), *place_of(config, "auth"), why)])
        try:
            credentials = await self._accounts.prepare(config)
        except StartError as error:
            where = place_of(config, "credentials")
            raise DocumentError([Problem(str(config.path), *where, f"credentials: {error}")]) from error
        return self._make(config, credentials, self.now.callers.issuers)

    def replace(self, settings: Settings) -> None:
        """Use `settings` from now on, at once, and notify the watchers with the settings before and after."""
        before, self.now = self.now, settings
        self._unused += self._accounts.replace(settings.credentials)
        self._watchers.notify(before, settings)

    def watch(self, callback: Callable[[Settings, Settings], None]) -> None:
        """Call `callback` with the settings before and after each change."""
        self._watchers.add(callback)

    async def close_unused(self) -> None:
        """Close the idle connections of replaced settings; requests in flight end by themselves."""
        unused, self._unused = self._unused, []
        for backend in unused:
            await backend.close()

    def _make(self, config: Config, credentials: CredentialSet, before: Mapping[OAuthIssuer, Issuer]) -> Settings:
        issuers = {
            method: self._issuer(config, method, before) for method in config.auth if isinstance(method, OAuthIssuer)
        }
        server = config.server
        return Settings(
            config=config,
            callers=CallerRules(config.auth, config.roles, issuers, server.trusted_proxies, server.client_header),
            credentials=credentials,
            identity=identity_headers(config.auth),
            callers_of=Recognition(config.auth, config.auth, config.roles, server.public_url),
        )

    def _issuer(self, config: Config, method: OAuthIssuer, before: Mapping[OAuthIssuer, Issuer]) -> Issuer:
        """Return an issuer, the same if nothing about it has changed; with what it published if it is reached alike."""
        same_roles = bool(before) and config.roles == self.now.config.roles
        for known, issuer in before.items():
            if same_roles and comparable(known) == comparable(method):
                return issuer
            if (known.issuer, known.network) == (method.issuer, method.network):
                return issuer.under(method, config.roles)
        backend = HttpBackend(IssuerServer("auth", method.network), self._connections)
        return Issuer(method, config.roles, backend, arrived=self._on_arrival)


def recognition(before: Settings, now: Settings) -> Recognition:
    """Return who the callers under the settings `before` are under `now`."""
    config = now.config
    return Recognition(before.config.auth, config.auth, config.roles, config.server.public_url)


class Changing:
    """Replaces apps, upstreams and settings, and voids what depended on them.

    `contexts` and `tasks` keep mounts open.
    """

    def __init__(
        self,
        apps: Apps,
        serving: Serving,
        upstreams: Upstreams,
        *,
        merged: MergedUpstreams,
        everything: McpMount,
        approving: ApprovalParts,
        views: Views,
        events: Events,
        contexts: EnteredContexts,
        tasks: asyncio.TaskGroup,
        entitlements: Entitlements,
        revocations: Revocations,
        exchange: Exchange,
    ) -> None:
        self._exchange = exchange
        self._entitlements = entitlements
        self._revocations = revocations
        self._apps = apps
        self._serving = serving
        self._upstreams = upstreams
        self._merged = merged
        self._everything = everything
        self._approving = approving
        self._views = views
        self._events = events
        self._contexts = contexts
        self._tasks = tasks

    def unshown(self) -> list[Notice]:
        """Return a notice for each running app whose page no view can show."""
        problems = ((id, app.published_app.resource.unshown) for id, app in self._apps.items())
        return [Notice(NoticeKind.VIEW, problem, id) for id, problem in problems if problem is not None]

    async def take(
        self,
        configs: Mapping[str, App] | None = None,
        specs: Mapping[str, UpstreamSettings] | None = None,
        settings: Callable[[], None] = lambda: None,
    ) -> None:
        """Replace the apps, the upstreams (None: not these) and, by `settings`, the settings: all at once.

        Raises `StartError` or `DocumentError` for unusable apps; nothing changed then.
        """
        configs = configs if configs is not None else {id: app.config for id, app in self._apps.items()}
        specs = specs if specs is not None else self._upstreams.specs
        before = dict(self._apps)
        same = list(configs) == list(before) and all(app is before[id].config for id, app in configs.items())
        apps = before if same else {id: await self._make(before.get(id), app) for id, app in configs.items()}
        for id in apps.keys() - before.keys():
            await self._enter(apps[id].face)
        mounts = await self._upstreams.prepare(specs, self._enter)
        # No await from here on: each request sees all of the old or all of the new.
        settings()
        entitle(self._entitlements, configs, specs)
        self._replace_upstreams(specs, mounts)
        stale = [] if same else self._replace_apps(before, apps)
        for face in stale:
            face.drain()
            await self._contexts.leave(face)

    async def _make(self, before: Running | None, app: App) -> Running:
        """Return everything that serves an app; the same if the app is."""
        if before is not None and before.config is app:
            return before
        return await asyncio.to_thread(self._serving.of, app)

    def _replace_apps(self, before: Mapping[str, Running], apps: Mapping[str, Running]) -> list[McpMount]:
        """Replace the apps; return the mounts of those that are gone."""
        stale = before.keys() - apps.keys()
        for id in stale:
            self._approving.void_outdated(id, "")
            for view in self._views.of(None, id):
                self._views.close(view)
        self._apps.replace(apps)
        for id, app in apps.items():
            self._renew(before.get(id), app)
        self._exchange.recheck_sockets()
        self._merged.forget(())
        self._everything.renew()
        self._events.apps_changed()
        return [before[id].face for id in stale]

    def _replace_upstreams(self, specs: Mapping[str, UpstreamSettings], mounts: dict[str, MountedUpstream]) -> None:
        """Replace the upstreams; unchanged ones keep their connections."""
        if specs == self._upstreams.specs and list(specs) == list(self._upstreams.specs):
            return
        before = dict(self._upstreams.mounts)
        self._upstreams.replace(specs, mounts, self._contexts.leave)
        self._merged.forget([name for name, one in before.items() if self._upstreams.mounts.get(name) is not one])
        for name in before.keys() - specs.keys():
            for view in self._views.of(None, name):
                self._views.close(view)
        for name in before.keys() | specs.keys():
            policy = specs[name].policy if name in specs else None
            self._approving.void_outdated(name, policy.version if policy is not None else "")
        self._everything.tools_changed()

    def access(self, bridge: BridgeDoor, identify: Identify, principal: Principal | None) -> None:
        """End what is open of apps that `principal`, or any caller, may not use any more; update what they are shown.

        Requests and streams are ended by `Revocations`.
        """
        identify.reconsider()
        self._events.access_changed(principal)
        self._merged.access_changed(principal)
        for face in (self._everything, *(app.face for app in self._apps.values())):
            face.tools_changed(principal)
        for one in self._upstreams.mounts.values():
            one.upstream.tools_changed(principal)

        def admits(caller: Principal, app: str) -> bool:
            return self._entitlements.admits(caller, app) and self._revocations.accepts(caller)

        for job in (bridge.end_excluded(), self._approving.end_excluded(admits)):
            self._tasks.create_task(job)

    def _renew(self, before: Running | None, now: Running) -> None:
        """Renew or void the state that depends on a changed app."""
        if before is None or before.published_app is not now.published_app:
            now.face.renew()
        if before is not None and before.config.policy is not now.config.policy:
            self._approving.void_outdated(now.config.id, now.config.policy.version)
        if before is not None and before.rules != now.rules:
            self._views.renew(now.config.id)

    async def _enter(self, face: McpMount) -> None:
        await self._contexts.enter(self._tasks, face)

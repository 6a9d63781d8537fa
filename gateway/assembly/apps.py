"""The apps and upstreams that a gateway runs: made from the configuration, served, and replaced while it runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit

from gateway.apps import own_files, with_snapshot
from gateway.assembly.packing import Packer
from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.backends.in_process import AsgiBackend, load_application, wrap_plugin
from gateway.bounds import Shares
from gateway.callers.entitlements import AccessRule, Admits, Entitlements
from gateway.config import (
    App,
    BackendApp,
    Config,
    Notice,
    NoticeKind,
    Origins,
    StorageKind,
    UpstreamApp,
    UpstreamSettings,
    place_of,
)
from gateway.doors.console import AppCard
from gateway.doors.dedicated import DedicatedDoor
from gateway.doors.sandbox import SandboxDoor
from gateway.doors.site import SiteDoor, SiteFiles
from gateway.errors import DocumentError, Problem, StartError
from gateway.eventloop.fair_share import RoundRobin
from gateway.exchange.pages import origin_of
from gateway.exchange.pipeline import Exchange, ExchangeApp
from gateway.exchange.snapshot import Snapshot
from gateway.hooks import make_plugin
from gateway.hookspecs import BackendFactory
from gateway.mcp.server import McpMount
from gateway.mcp.upstreams.calls.upstream_calls import ShownIn
from gateway.mcp.upstreams.calls.views import UpstreamAnswers
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.upstreams.registry import Upstreams
from gateway.mcp.view_server import GatewayAnswers, ViewServer
from gateway.model import Backend, Json, Principal, Resource
from gateway.policy import BackendSpec
from gateway.views.registry import Views
from gateway.views.shown import ShownView
from gateway.views.view import AppRules

T = TypeVar("T")


RECENT = 8
"""Versions of a page, which differ in their data, that hosts may have read."""

SnapshotData: TypeAlias = tuple[Mapping[str, Json], tuple[str, ...], list[Json]]
"""The responses, free tools and secret routes in a page."""


@dataclass(frozen=True, slots=True)
class PublishedApp:
    """An app as MCP clients and hosts see it; an upstream's app has no page here and no snapshot.

    `keeps` means that the gateway stores what its page saves. `recent` are the data with which the page was read last:
    a host may still have the page with one of them.
    """

    id: str
    title: str
    resource: Resource
    snapshot: Snapshot | None
    keeps: bool = False
    recent: deque[SnapshotData] = field(default_factory=lambda: deque(maxlen=RECENT), compare=False)

    @property
    def opens(self) -> bool:
        """True if models open it by a tool of the gateway."""
        return self.snapshot is not None

    async def html(self) -> str:
        """Return its page, with the current content of the snapshot."""
        if self.snapshot is None:
            return self.resource.html
        data = await self.snapshot.responses(), self.snapshot.tools(), self.snapshot.secret_routes()
        if data not in self.recent:
            self.recent.append(data)
        return with_snapshot(self.resource, *data)

    def pages(self) -> Iterator[str]:
        """Yield the pages as they were read last, each with the data of then."""
        yield from (with_snapshot(self.resource, *data) for data in reversed(self.recent))


@dataclass(frozen=True, slots=True)
class Running:
    """One app with everything that serves it; `host` is the `Host` of its site.

    An upstream's app has no `site`. `answers` handles the calls of its views.
    """

    config: App
    exchange: ExchangeApp
    rules: AppRules
    published_app: PublishedApp
    card: AppCard
    face: McpMount
    answers: ViewServer
    site: SiteDoor | None
    host: str


class Apps(Mapping[str, Running]):
    """The running apps, replaced as one. Components hold this, or a part of it, and read it for each call."""

    def __init__(self) -> None:
        self._now: Mapping[str, Running] = {}
        self._hosts: Mapping[str, Running] = {}
        self._parts: list[_PartOfApps[Any]] = []

    def replace(self, apps: Mapping[str, Running]) -> None:
        """Replace the apps; calls in progress keep the ones they have."""
        self._now = apps
        self._hosts = {app.host: app for app in apps.values()}
        for part in self._parts:
            part.recompute(apps)

    def at(self, host: str) -> Running | None:
        """Return the app whose site is at `host`, or None."""
        return self._hosts.get(host)

    def part(self, take: Callable[[Running], T]) -> Mapping[str, T]:
        """Return a live mapping of one part of each app."""
        part = _PartOfApps(take)
        part.recompute(self._now)
        self._parts.append(part)
        return part

    def hosts(self, others: Mapping[str, T], take: Callable[[Running], T]) -> Mapping[str, T]:
        """Return the same by the hosts of their sites, beside `others`."""
        return _Hosts(self, others, take)

    def has_rule(self, app: str, path: str) -> bool:
        """Return whether a route of the app may match `path`, by its first segment."""
        return app in self._now and self._now[app].config.policy.routes.begins(path)

    def largest_request(self, app: str | None) -> int:
        """Return the bytes of the largest body that the policy of `app`, or any policy, allows; 0 if there is none."""
        apps = self._now.values() if app is None else [self._now[app]] if app in self._now else []
        return max((one.config.policy.largest_request for one in apps), default=0)

    def site_at(self, host: str) -> SiteDoor | None:
        """Return the site at `host`, or None."""
        app = self._hosts.get(host)
        return app.site if app is not None else None

    def senders(self, credential: str) -> list[str]:
        """Return the apps whose backends are sent this credential."""
        policies = ((id, app.config.policy) for id, app in self._now.items())
        return [id for id, policy in policies if any(one.credential == credential for one in policy.backends.values())]

    def __getitem__(self, key: str) -> Running:
        return self._now[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)


class _PartOfApps(dict[str, T]):
    """A precomputed mapping: each request reads several."""

    def __init__(self, take: Callable[[Running], T]) -> None:
        self._take = take

    def recompute(self, apps: Mapping[str, Running]) -> None:
        """Recompute the mapping from the running apps."""
        now = {id: self._take(app) for id, app in apps.items()}
        self.clear()
        self.update(now)


class _Hosts(Mapping[str, T], Generic[T]):
    def __init__(self, apps: Apps, others: Mapping[str, T], take: Callable[[Running], T]) -> None:
        self._apps = apps
        self._others = others
        self._take = take

    def __getitem__(self, host: str) -> T:
        if host in self._others:
            return self._others[host]
        app = self._apps.at(host)
        if app is None:
            raise KeyError(host)
        return self._take(app)

    def __iter__(self) -> Iterator[str]:
        yield from self._others
        yield from (app.host for app in self._apps.values())

    def __len__(self) -> int:
        return len(self._others) + len(self._apps)


class Backends:
    """Makes the backends of apps; `types` are those that plugins register."""

    def __init__(self, connections: Connections, types: Mapping[str, BackendFactory]) -> None:
        self._connections = connections
        self._types = types
        self._new: list[Backend] = []

    def of(self, app: App, before: Running | None) -> dict[str, Backend]:
        """Return the backends of an app by name; unchanged ones are the same objects. Raises `StartError`."""
        exchange = before.exchange if before is not None else ExchangeApp(app.policy, {})
        specs = {name: spec for name, spec in exchange.policy.backends.items() if name in exchange.backends}
        return {
            name: exchange.backends[name] if specs.get(name) == spec else self._backend(app, spec)
            for name, spec in app.policy.backends.items()
        }

    async def close(self) -> None:
        """Close all, also those of replaced policies: requests under them may have continued until now."""
        for backend in self._new:
            await backend.close()

    def _backend(self, app: App, spec: BackendSpec) -> Backend:
        what = f"app {app.id}: backend {spec.name!r}"
        if spec.type == "http":
            backend: Backend = HttpBackend(spec, self._connections)
        elif spec.type == "asgi":
            backend = AsgiBackend(spec.name, load_application(str(spec.options["app"]), what))
        elif spec.type in self._types:
            backend = wrap_plugin(
                spec.name, make_plugin(self._types[spec.type], what, spec.name, spec.options, "send", "close")
            )
        else:
            known = ", ".join(["http", "asgi", *self._types])
            raise StartError(f"{what} has the type {spec.type!r}; known: {known}. Other types come from plugins.")
        self._new.append(backend)
        return backend


class EnteredContexts:
    """Keeps context managers entered, each in a separate task, as task groups and the MCP SDK require."""

    def __init__(self) -> None:
        self._contexts: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def enter(self, tasks: asyncio.TaskGroup, manager: AbstractAsyncContextManager[object]) -> None:
        """Enter `manager`; `leave` or `close` exits it."""
        entry: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        end = asyncio.Event()
        self._contexts[id(manager)] = (tasks.create_task(_hold(manager, entry, end)), end)
        await entry

    async def leave(self, manager: object) -> None:
        """Exit `manager` if it is held, and wait for that."""
        if (context := self._contexts.pop(id(manager), None)) is not None:
            await _leave([context])

    async def close(self) -> None:
        """Exit every manager still held, also those no longer in use."""
        contexts, self._contexts = list(self._contexts.values()), {}
        await _leave(contexts)


async def _leave(contexts: Collection[tuple[asyncio.Task[None], asyncio.Event]]) -> None:
    for _, end in contexts:
        end.set()
    for task, _ in contexts:
        await task


async def _hold(manager: AbstractAsyncContextManager[object], entry: asyncio.Future[None], end: asyncio.Event) -> None:
    async with manager:
        entry.set_result(None)
        await end.wait()


@asynccontextmanager
async def in_one_task(manager: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
    """Enter and exit `manager` in the same task, as task groups require, even if the caller's tasks differ."""
    entry: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    end = asyncio.Event()

    async def live() -> None:
        try:
            await _hold(manager, entry, end)
        except Exception as error:  # any error must reach the waiting start
            if entry.done():
                raise
            entry.set_exception(error)

    task = asyncio.create_task(live())  # the one task outside a group: it holds the groups
    await entry
    yield
    end.set()
    await task


BODY = 16 * 1024 * 1024
"""Bytes of the largest request body at a door if no policy allows more."""


class Serving:
    """Prepares apps. `face` makes a mount, `proxies` returns the upstreams, `load_keys` loads the encryption keys.

    `room` is the memory shared by all request bodies, `in_turn` the turns of
    large ones. `admits` are the access rules.
    """

    def __init__(
        self,
        config: Config,
        apps: Apps,
        *,
        backends: Backends,
        packer: Packer,
        sandbox: SandboxDoor,
        dedicated: DedicatedDoor,
        exchange: Exchange,
        proxies: Callable[[], Mapping[str, Proxy]],
        face: Callable[[str], McpMount],
        load_keys: Callable[[], None],
        room: Shares,
        in_turn: RoundRobin,
        admits: Admits,
    ) -> None:
        self._in_turn = in_turn
        self._admits = admits
        self._config = config
        self._apps = apps
        self._backends = backends
        self._packer = packer
        self._sandbox = sandbox
        self._dedicated_door = dedicated
        self._exchange = exchange
        self._proxies = proxies
        self._face = face
        self._load_keys = load_keys
        self._room = room

    def start(self, apps: Mapping[str, App]) -> tuple[dict[str, Running], list[Notice], list[App]]:
        """Build the apps, each separately: one that cannot be served is left out, and a notice says why.

        Returns also the apps that are to be packed while the gateway runs.
        """
        running: dict[str, Running] = {}
        notices: list[Notice] = []
        waiting = self._packer.waits(apps)
        for id, app in apps.items():
            if any(app is one for one in waiting):
                continue
            try:
                running[id] = self.of(app)
            except DocumentError as error:
                notices += [Notice(NoticeKind.BROKEN, problem, id) for problem in error.problems]
            except StartError as error:
                place = place_of(self._config, f"apps.{id}")
                notices.append(Notice(NoticeKind.BROKEN, Problem(str(self._config.path), *place, str(error)), id))
        self._packer.drop(apps)
        return running, notices, waiting

    def of(self, app: App) -> Running:
        """Build everything that serves an app, reusing unchanged parts. Raises `StartError`, `DocumentError`."""
        before = self._apps.get(app.id)
        face = before.face if before is not None else self._face(app.id)
        if before is not None and _page(app) == _page(before.config):
            published_app, site, card = before.published_app, before.site, before.card
            answers: ViewServer = before.answers
        elif not isinstance(app.source, UpstreamApp):
            published_app, site, card = self._pack_app(app, app.source)
            external = published_app.resource.external
            answers = GatewayAnswers(
                face.catalog, self._dedicated_door.show(app.id, external) if app.dedicated else None
            )
        else:
            published_app, site, card = self._borrow_app(app, app.source)
            answers = UpstreamAnswers(
                app.source,
                proxies=self._proxies,
                own=GatewayAnswers(face.catalog),
                sandbox=self._url_function(app.source.upstream),
                show=(
                    self._dedicated_door.show_declared(app.id, self._origins_of(app.source.upstream))
                    if app.dedicated
                    else None
                ),
            )
        folder = published_app.resource.folder
        own = own_files(app.source, folder.prefix) if isinstance(app.source, Path) and folder is not None else {}
        return Running(
            config=app,
            exchange=ExchangeApp(
                app.policy,
                self._backends.of(app, before),
                own,
                pages=isinstance(app.source, BackendApp),
                frame=partial(self._packer.frame, app) if isinstance(app.source, Path) else None,
            ),
            rules=AppRules(app.title, app.policy, app.unproven, app.trust_view_gestures, app.dedicated),
            published_app=published_app,
            card=card,
            face=face,
            answers=answers,
            site=site,
            host=urlsplit(self._config.server.origins.app(app.id)).netloc,
        )

    def _pack_app(self, app: App, source: Path | BackendApp) -> tuple[PublishedApp, SiteDoor, AppCard]:
        """Build page, site and card of our own app. Raises `StartError`, `DocumentError`."""
        origins = self._config.server.origins
        keeps = app.storage is StorageKind.GATEWAY
        if keeps:
            self._load_keys()
        resource = (
            self._packer.pack(app, source)
            if isinstance(source, Path)
            else self._packer.shell(app, _origin(app, source), origins.app(app.id))
        )
        if app.domain:
            resource = replace(resource, meta={**resource.meta, "domain": app.domain})
        published_app = PublishedApp(app.id, app.title, resource, self._snapshot(app.id), keeps)
        site = SiteDoor(
            app.id,
            SiteFiles(source, resource.folder) if isinstance(source, Path) else None,
            self._exchange,
            start=app.start,
            secure=origins.app(app.id).startswith("https:"),
            largest=lambda: max(BODY, self._apps.largest_request(app.id)),
            ruled=lambda path: self._apps.has_rule(app.id, path),
            room=self._room,
            in_turn=self._in_turn,
            admits=self._admits,
        )
        sandbox_url = self._sandbox.url(origins.console, resource.meta, resource.allow, resource.external)
        card = AppCard(app.id, app.title, _site(origins, app), resource.uri, sandbox_url, story=app.story)
        return published_app, site, card

    def _borrow_app(self, app: App, source: UpstreamApp) -> tuple[PublishedApp, None, AppCard]:
        """Build the same for an upstream's app: its page is read from the upstream whenever it is shown."""
        published_app = PublishedApp(app.id, app.title, Resource(source.resource, "", {}), None)
        sandbox_url = self._sandbox.url_for_declared(self._config.server.origins.console, {})
        return (
            published_app,
            None,
            AppCard(app.id, app.title, None, source.resource, sandbox_url, source.upstream, app.story),
        )

    def sandbox_url(self, app: str, page: str) -> str:
        """Return the signed address of the sandbox proxy of an app in the host page at an origin."""
        if isinstance(self._apps[app].config.source, UpstreamApp):
            return self._sandbox.url_for_declared(page, {})
        resource = self._apps[app].published_app.resource
        return self._sandbox.url(page, resource.meta, resource.allow, resource.external)

    def upstream_url(self, upstream: str, page: str) -> str:
        """Return the same for an app of an upstream that declares no sites."""
        return self._url_function(upstream)({}, page)

    def borrow(self, upstream: str, resource: str) -> UpstreamAnswers | None:
        """Return the answers to views of an upstream's app that has no entry; None without such an upstream."""
        if upstream not in self._proxies():
            return None
        source, sandbox = UpstreamApp(upstream, resource), self._url_function(upstream)
        return UpstreamAnswers(source, proxies=self._proxies, own=None, sandbox=sandbox)

    def _url_function(self, upstream: str) -> Callable[[Mapping[str, Any], str | None], str]:
        """Return a function from `_meta.ui` to the signed URL under which a host page shows an app of this upstream."""

        allowed = self._origins_of(upstream)

        def url(ui: Mapping[str, Any], page: str | None) -> str:
            return self._sandbox.url_for_declared(page or self._config.server.origins.console, ui, allowed())

        return url

    def _origins_of(self, upstream: str) -> Callable[[], Collection[str]]:
        """Return a function that returns what the current configuration allows the apps of this upstream."""

        def origins() -> Collection[str]:
            proxy = self._proxies().get(upstream)
            return proxy.upstream.spec.allow if proxy is not None else ()

        return origins

    def _snapshot(self, app: str) -> Snapshot:
        return Snapshot(app, lambda: self._apps[app].config.policy if app in self._apps else None, self._exchange)


def entitle(entitlements: Entitlements, apps: Mapping[str, App], upstreams: Mapping[str, UpstreamSettings]) -> None:
    """Set the access rules of these apps and upstreams; an upstream's app has those of its upstream, too."""
    rules: dict[str, tuple[AccessRule, ...]] = {
        name: (one.access,) if one.access is not None else () for name, one in upstreams.items()
    }
    for id, app in apps.items():
        behind = rules.get(app.source.upstream, ()) if isinstance(app.source, UpstreamApp) else ()
        rules[id] = ((app.access,) if app.access is not None else ()) + behind
    behind_apps = [one.policy for one in upstreams.values() if one.policy is not None]
    entitlements.replace(rules, [*(app.policy for app in apps.values()), *behind_apps])


def _origin(app: App, source: BackendApp) -> str:
    """Return the origin of the pages of a backend: the first that the policy gives it, else that of its URL."""
    spec = app.policy.backends[source.backend]
    return spec.origins[0] if spec.origins else origin_of(spec.url)


def _site(origins: Origins, app: App) -> str:
    """Return the URL at which the app begins on its own site."""
    return origins.app(app.id) + (app.start if app.start != "/" else "")


def _page(app: App) -> tuple[object, ...]:
    """Return the settings that the packed page of an app depends on."""
    return (
        app.source,
        app.start,
        app.title,
        app.stamp,
        app.permissions,
        app.storage,
        app.policy.frames,
        app.policy.external,
        app.story,
        _origin(app, app.source) if isinstance(app.source, BackendApp) else None,
        app.sandbox,
        app.domain,
    )


def show_in(upstream: str, apps: Apps, views: Views) -> ShownIn:
    """Return a function that finds the view in one of our host pages that shows an app of this upstream."""

    def find(principal: Principal, resource: str) -> ShownView | None:
        for id, app in apps.items():
            source = app.config.source
            if isinstance(source, UpstreamApp) and (source.upstream, source.resource) == (upstream, resource):
                return views.find_shown(principal, id)
        return None

    return find


def may_connect(
    apps: Apps, upstreams: Upstreams, entitlements: Entitlements, principal: Principal, credential: str
) -> bool:
    """Return whether an app or upstream that `principal` may use sends this credential, or none does directly."""
    users = apps.senders(credential)
    users += [name for name, spec in upstreams.specs.items() if spec.credential == credential]
    return not users or any(entitlements.admits(principal, name) for name in users)

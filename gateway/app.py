"""The composition root: everything is built here, and handed on by argument."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

import gateway
from gateway.apps import pack
from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.config import App as AppConfig
from gateway.config import Config, Notices, Reading
from gateway.credentials import client_credentials
from gateway.doors import mcp as mcp_door
from gateway.doors.bridge import BridgeDoor
from gateway.doors.console import AppCard, ConsoleDoor
from gateway.doors.events import Events
from gateway.doors.guard import PRINCIPAL, Guard, Listener, Site
from gateway.doors.health import Health
from gateway.doors.links import LinkDoor
from gateway.doors.sandbox import SandboxDoor
from gateway.doors.site import SiteDoor
from gateway.errors import StartError
from gateway.exchange.approve import Approvals
from gateway.exchange.authenticate import Authenticator, Credential
from gateway.exchange.idempotency import Idempotency
from gateway.exchange.limit import Limiter
from gateway.exchange.pipeline import Exchange, Guarded
from gateway.exchange.record import OnFailure, Recorder
from gateway.exchange.send import Sender
from gateway.exchange.streams import Streams
from gateway.exchange.wait import Waiting
from gateway.hooks import Hooks
from gateway.mcp.server import Face
from gateway.model import Backend, Resource
from gateway.policy import BackendSpec
from gateway.reload import Current, Reloader
from gateway.stores.journal import Journal
from gateway.stores.keys import IdempotencyKeys
from gateway.stores.quotas import Quotas
from gateway.stores.sql import Database
from gateway.views.forward import Forwarder
from gateway.views.registry import AppRules, Views

BODY = 16 * 1024 * 1024
"""Bytes of the largest request body that any door takes; policies set lower limits."""


RELOAD: web.AppKey[Callable[[], None]] = web.AppKey("reload", Callable[[], None])  # type: ignore[arg-type]  # any callable
"""Makes the gateway read its files at once; only in an application that was built with `reread`."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An app as MCP clients and hosts see it."""

    id: str
    title: str
    resource: Resource


def build_app(config: Config, reread: Callable[[], Reading] | None = None) -> web.Application:
    """The gateway as an aiohttp application: serve it, or mount it by host beside others (`add_domain`).

    Serve it with `handler_cancellation=True`, so that a client that goes away ends what it asked for. With `reread`,
    which reads `config` again (`read_config`), changes of its files take effect while it runs. Raises `StartError` and
    `DocumentError` for a configuration that cannot work.
    """
    return _Gateway(config, reread).application()


class _Gateway:
    """All rooms, built in the order in which they need each other."""

    def __init__(self, config: Config, reread: Callable[[], Reading] | None) -> None:
        static = _static()
        origins = config.server.origins
        self._config = config
        self._static = static
        self._connections = Connections()
        self._journal = Journal(config.journal, redact=config.audit.redact)
        self._database = Database(config.database)
        hooks = Hooks(config.plugins, config.path.parent)
        self._backend_types = hooks.backend_types()
        self._approvals = Approvals(config.approvals.timeout)
        self._recorder = Recorder(self._journal, hooks, OnFailure(config.audit.on_failure))
        self._streams = Streams()
        limiter = Limiter(Quotas(self._database))
        self._made: list[Backend] = []
        self._guarded: Current[Guarded] = Current({})
        self._guarded.replace(self._guard(config.apps))
        self._rules = Current(_rules(config.apps))
        self._exchange = Exchange(
            self._guarded,
            limiter=limiter,
            idempotency=Idempotency(IdempotencyKeys(self._database)),
            waiting=Waiting(self._approvals, f"{origins.console}/approvals/"),
            recorder=self._recorder,
            sender=Sender(self._authenticator()),
            streams=self._streams,
            hooks=hooks,
        )
        self._views = Views(self._rules)
        self._notices = Notices()
        self._reloader = (
            Reloader(config, reread=reread, take=self._take, notices=self._notices, recorder=self._recorder)
            if reread is not None
            else None
        )
        self._events = Events(self._journal, self._approvals, self._views, self._notices)
        forwarder = Forwarder(self._views, approvals=self._approvals, limiter=limiter, recorder=self._recorder)
        runtime = (static / "view" / "runtime.js").read_text("utf-8")
        self._packed = {
            app.id: Packed(app.id, app.title, pack(app.source, app=app.id, title=app.title, runtime=runtime))
            for app in config.apps.values()
        }
        listener = _listener(config)
        faces = {
            app: Face(
                app,
                apps=self._packed,
                views=self._views,
                forwarder=forwarder,
                exchange=self._exchange,
                version=gateway.__version__,
                hosts=list(listener.sites),
                origins=sorted(set(listener.origins.values())),
                principal=lambda request: request[PRINCIPAL],
            )
            for app in (None, *config.apps)
        }
        self._everything = faces[None]
        self._faces = {app: face for app, face in faces.items() if app is not None}
        self._listener = listener
        self._health = Health()

    def application(self) -> web.Application:
        """The doors, each on its own hosts, behind the guard."""
        config = self._config
        sandbox = SandboxDoor(self._static / "sandbox", config.server.origins.sandbox)
        resources = {id: packed.resource for id, packed in self._packed.items()}
        bridge = BridgeDoor(self._views, self._approvals, self._faces, resources, self._streams)
        console = self._console(sandbox, bridge)
        root = web.Application(middlewares=[Guard(self._listener).middleware()], client_max_size=BODY)
        mcp_routes = mcp_door.routes(self._everything, self._faces)
        inner = console.application()
        inner.router.add_routes([*bridge.routes(), *mcp_routes])
        root.add_domain(_netloc(config.server.origins.console), inner)
        root.add_domain(_netloc(config.server.origins.sandbox), sandbox.application())
        for app in config.apps.values():
            site = SiteDoor(app.id, app.source, self._exchange, patience=config.approvals.timeout, largest=BODY)
            root.add_domain(_netloc(config.server.origins.app(app.id)), site.application())
        root.router.add_routes([*self._health.routes(), *mcp_routes, *_entrances(config.server.origins.console)])
        root.cleanup_ctx.append(self._lifetime)

        async def drain(_: web.Application) -> None:
            self._health.ready = False
            self._events.drain()
            await bridge.close()
            for face in (self._everything, *self._faces.values()):
                face.drain()

        root.on_shutdown.append(drain)
        if self._reloader is not None:
            root[RELOAD] = self._reloader.at_once
        return root

    def _console(self, sandbox: SandboxDoor, bridge: BridgeDoor) -> ConsoleDoor:
        origins = self._config.server.origins
        cards = [
            AppCard(
                id=packed.id,
                title=packed.title,
                site=origins.app(packed.id),
                resource=packed.resource.uri,
                sandbox_url=sandbox.url(origins.console, packed.resource.meta),
            )
            for packed in self._packed.values()
        ]
        return ConsoleDoor(
            folder=self._static / "console",
            sandbox=origins.sandbox,
            version=gateway.__version__,
            apps=cards,
            approvals=self._approvals,
            recorder=self._recorder,
            tickets=bridge.tickets,
            events=self._events,
            database=self._database,
            notices=self._notices,
            links=LinkDoor(self._views, self._recorder),
        )

    def _take(self, apps: Mapping[str, AppConfig]) -> None:
        """Let changed apps take effect, all at once: no await stands between the rooms."""
        guarded = self._guard(apps)
        old = {id: app.policy.version for id, app in self._guarded.items()}
        self._guarded.replace(guarded)
        self._rules.replace(_rules(apps))
        for app in apps.values():
            if app.policy.version != old[app.id]:
                self._approvals.cancel_outdated(app.id, app.policy.version)
                self._views.renew(app.id)

    def _guard(self, apps: Mapping[str, AppConfig]) -> dict[str, Guarded]:
        return {app.id: Guarded(app.policy, self._backends(app)) for app in apps.values()}

    def _backends(self, app: AppConfig) -> dict[str, Backend]:
        """The backends of an app; those that are as before are the same objects."""
        before = self._guarded.get(app.id)
        kept = before.policy.backends if before is not None else {}
        return {
            name: before.backends[name] if before is not None and kept.get(name) == spec else self._backend(app, spec)
            for name, spec in app.policy.backends.items()
        }

    def _backend(self, app: AppConfig, spec: BackendSpec) -> Backend:
        types = self._backend_types
        if spec.type == "http":
            backend: Backend = HttpBackend(spec, self._connections)
        elif spec.type in types:
            try:
                backend = types[spec.type](spec.name, spec.options)
            except ValueError as error:
                raise StartError(f"app {app.id}: backend {spec.name!r}: {error}") from error
        else:
            known = ", ".join(["http", *types])
            raise StartError(
                f"app {app.id}: backend {spec.name!r} has the type {spec.type!r}; there is {known}. "
                "Other types come from plugins."
            )
        self._made.append(backend)
        return backend

    def _authenticator(self) -> Authenticator:
        return Authenticator(
            {
                name: Credential(
                    flow=partial(client_credentials, spec),
                    issuer=HttpBackend(spec, self._connections),
                    version=spec.client_id,
                )
                for name, spec in self._config.credentials.items()
            }
        )

    async def _lifetime(self, _: web.Application) -> AsyncIterator[None]:
        """What runs while the application does. One task enters and leaves it, as task groups ask for."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()

        async def live() -> None:
            try:
                async with self._running():
                    started.set_result(None)
                    await stop.wait()
            except Exception as error:
                if started.done():
                    raise
                started.set_exception(error)

        task = asyncio.create_task(live())  # the one task that no group holds: it holds the groups
        await started
        self._health.ready = True
        yield
        stop.set()
        await task

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._journal)
            await stack.enter_async_context(self._database)
            await stack.enter_async_context(self._connections)
            stack.push_async_callback(self._close_backends)
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            jobs = [self._database.fill(self._journal), self._approvals.keep()]
            if self._reloader is not None:
                jobs.append(self._reloader.run())
            for job in jobs:
                stack.callback(tasks.create_task(job).cancel)
            await stack.enter_async_context(self._streams)
            await stack.enter_async_context(self._views)
            for face in (self._everything, *self._faces.values()):
                await stack.enter_async_context(face)
            yield

    async def _close_backends(self) -> None:
        """At the end, those of policies of before too: a request that began under one could have gone on."""
        for backend in self._made:
            await backend.close()


def _rules(apps: Mapping[str, AppConfig]) -> dict[str, AppRules]:
    return {app.id: AppRules(app.title, app.policy, app.unproven, app.trust_view_gestures) for app in apps.values()}


def _listener(config: Config) -> Listener:
    origins, port = config.server.origins, config.server.port
    plain = [f"http://{name}{'' if port == 80 else f':{port}'}" for name in ("localhost", "127.0.0.1", "[::1]")]
    named = [
        *((origin, Site.PLAIN) for origin in (*plain, config.server.public_url)),
        (origins.console, Site.CONSOLE),
        (origins.sandbox, Site.SANDBOX),
        *((origins.app(app), Site.APP) for app in config.apps),
    ]
    return Listener(
        sites={_netloc(origin): site for origin, site in named},
        origins={_netloc(origin): origin for origin, _ in named},
    )


def _entrances(console: str) -> list[web.RouteDef]:
    """A person who comes to the plain address is led to the console."""

    async def enter(_: web.Request) -> web.Response:
        raise web.HTTPFound(console)

    return [web.get("/", enter)]


def _netloc(origin: str) -> str:
    return urlsplit(origin).netloc


def _static() -> Path:
    """The built browser files. Raises `StartError` where they were not built."""
    folder = Path(str(files("gateway"))) / "static"
    if not (folder / "view" / "runtime.js").is_file():
        raise StartError("The browser files are not built: install with `pip install .`, which builds them.")
    return folder

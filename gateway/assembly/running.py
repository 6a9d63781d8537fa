"""The running state of each app: policy, backends, packed page, MCP mount and site, replaced as one."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from gateway.apps import with_snapshot
from gateway.backends.asgi import Application, AsgiBackend
from gateway.backends.connect import Connections
from gateway.backends.http import HttpBackend
from gateway.backends.plugged import plugged
from gateway.config import App
from gateway.doors.console import AppCard
from gateway.doors.site import SiteDoor
from gateway.errors import StartError
from gateway.exchange.pipeline import Guarded
from gateway.exchange.snapshot import Snapshot
from gateway.hooks import made
from gateway.hookspecs import BackendFactory
from gateway.mcp.server import Face
from gateway.mcp.view_calls import ViewServer
from gateway.model import Backend, Resource
from gateway.policy import BackendSpec
from gateway.views.view import AppRules

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Packed:
    """An app as MCP clients and hosts see it; an upstream's app has no page here and no snapshot.

    `keeps` means that the gateway stores what its page saves.
    """

    id: str
    title: str
    resource: Resource
    snapshot: Snapshot | None
    keeps: bool = False

    @property
    def opens(self) -> bool:
        """Whether models open it by a tool of the gateway."""
        return self.snapshot is not None

    async def html(self) -> str:
        """Return its page, with the current content of the snapshot."""
        if self.snapshot is None:
            return self.resource.html
        return with_snapshot(self.resource, await self.snapshot.responses(), self.snapshot.tools())


@dataclass(frozen=True, slots=True)
class Running:
    """One app with everything that serves it; `host` is the `Host` of its site.

    An upstream's app has no `site`. `answers` handles the calls of its views.
    """

    config: App
    guarded: Guarded
    rules: AppRules
    packed: Packed
    card: AppCard
    face: Face
    answers: ViewServer
    site: SiteDoor | None
    host: str


class Apps(Mapping[str, Running]):
    """The running apps, replaced as one. Components hold this, or a part of it, and read it for each call."""

    def __init__(self) -> None:
        self._now: Mapping[str, Running] = {}
        self._hosts: Mapping[str, Running] = {}
        self._parts: list[_Part[Any]] = []

    def replace(self, apps: Mapping[str, Running]) -> None:
        """Replace the apps; calls in progress keep the ones they have."""
        self._now = apps
        self._hosts = {app.host: app for app in apps.values()}
        for part in self._parts:
            part.taken_from(apps)

    def at(self, host: str) -> Running | None:
        """Return the app whose site is at `host`, or None."""
        return self._hosts.get(host)

    def part(self, take: Callable[[Running], T]) -> Mapping[str, T]:
        """Return a live mapping of one part of each app."""
        part = _Part(take)
        part.taken_from(self._now)
        self._parts.append(part)
        return part

    def hosts(self, others: Mapping[str, T], take: Callable[[Running], T]) -> Mapping[str, T]:
        """Return the same by the hosts of their sites, beside `others`."""
        return _Hosts(self, others, take)

    def ruled(self, app: str, path: str) -> bool:
        """Return whether a route of the app may match `path`, by its first segment."""
        return app in self._now and self._now[app].config.policy.routes.begins(path)

    def largest_request(self, app: str | None) -> int:
        """Return the bytes of the largest body that the policy of `app`, or any policy, allows; 0 if there is none."""
        apps = self._now.values() if app is None else [self._now[app]] if app in self._now else []
        return max((one.config.policy.largest_request for one in apps), default=0)

    def __getitem__(self, key: str) -> Running:
        return self._now[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)


class _Part(dict[str, T]):
    """A precomputed mapping: each request reads several."""

    def __init__(self, take: Callable[[Running], T]) -> None:
        self._take = take

    def taken_from(self, apps: Mapping[str, Running]) -> None:
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
        self._made: list[Backend] = []

    def of(self, app: App, before: Running | None) -> dict[str, Backend]:
        """Return the backends of an app by name; unchanged ones are the same objects. Raises `StartError`."""
        guarded = before.guarded if before is not None else Guarded(app.policy, {})
        kept = {name: spec for name, spec in guarded.policy.backends.items() if name in guarded.backends}
        return {
            name: guarded.backends[name] if kept.get(name) == spec else self._backend(app, spec)
            for name, spec in app.policy.backends.items()
        }

    async def close(self) -> None:
        """Close all, also those of replaced policies: requests under them may have continued until now."""
        for backend in self._made:
            await backend.close()

    def _backend(self, app: App, spec: BackendSpec) -> Backend:
        if spec.type == "http":
            backend: Backend = HttpBackend(spec, self._connections)
        elif spec.type == "asgi":
            backend = AsgiBackend(spec.name, _application(app.id, spec))
        elif spec.type in self._types:
            what = f"app {app.id}: backend {spec.name!r}"
            backend = plugged(spec.name, made(self._types[spec.type], what, spec.name, spec.options, "send", "close"))
        else:
            known = ", ".join(["http", "asgi", *self._types])
            raise StartError(
                f"app {app.id}: backend {spec.name!r} has the type {spec.type!r}; there is {known}. "
                "Other types come from plugins."
            )
        self._made.append(backend)
        return backend


def _application(app: str, spec: BackendSpec) -> Application:
    """Import the ASGI application of a backend. Raises `StartError`."""
    path = str(spec.options["app"])
    module, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # foreign code may raise anything on import; it stops the start
        raise StartError(f"app {app}: backend {spec.name!r}: {path} cannot be imported: {error!r}") from error
    if not callable(found):
        raise StartError(f"app {app}: backend {spec.name!r}: {path} is no ASGI application, it cannot be called")
    return cast(Application, found)


class Held:
    """Keeps context managers entered, each in a separate task, as task groups and the MCP SDK require."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def enter(self, tasks: asyncio.TaskGroup, manager: AbstractAsyncContextManager[object]) -> None:
        """Enter `manager`; `leave` or `close` exits it."""
        entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        end = asyncio.Event()
        self._held[id(manager)] = (tasks.create_task(_hold(manager, entered, end)), end)
        await entered

    async def leave(self, manager: object) -> None:
        """Exit `manager` if it is held, and wait for that."""
        if (held := self._held.pop(id(manager), None)) is not None:
            await _left([held])

    async def close(self) -> None:
        """Exit every manager still held, also those no longer in use."""
        held, self._held = list(self._held.values()), {}
        await _left(held)


async def _left(held: Collection[tuple[asyncio.Task[None], asyncio.Event]]) -> None:
    for _, end in held:
        end.set()
    for task, _ in held:
        await task


async def _hold(
    manager: AbstractAsyncContextManager[object], entered: asyncio.Future[None], end: asyncio.Event
) -> None:
    async with manager:
        entered.set_result(None)
        await end.wait()


@asynccontextmanager
async def in_one_task(manager: AbstractAsyncContextManager[None]) -> AsyncIterator[None]:
    """Enter and exit `manager` in the same task, as task groups require, even if the caller's tasks differ."""
    entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    end = asyncio.Event()

    async def live() -> None:
        try:
            await _hold(manager, entered, end)
        except Exception as error:  # any error must reach the waiting start
            if entered.done():
                raise
            entered.set_exception(error)

    task = asyncio.create_task(live())  # the one task outside a group: it holds the groups
    await entered
    yield
    end.set()
    await task

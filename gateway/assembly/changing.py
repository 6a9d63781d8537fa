"""Puts changed apps and upstreams into effect everywhere at once, while the gateway runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.assembly.approvals import Approving
from gateway.assembly.running import Apps, Held, Running
from gateway.assembly.serving import Serving
from gateway.config import App, UpstreamSettings
from gateway.doors.events import Events
from gateway.mcp.server import Face
from gateway.mcp.upstreams.merged import Merged
from gateway.mcp.upstreams.registry import Upstreams
from gateway.views.registry import Views


class Changing:
    """Replaces running apps and upstreams, and voids what depended on them; `held` and `tasks` keep new faces open."""

    def __init__(
        self,
        apps: Apps,
        serving: Serving,
        upstreams: Upstreams,
        *,
        merged: Merged,
        everything: Face,
        approving: Approving,
        views: Views,
        events: Events,
        held: Held,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._apps = apps
        self._serving = serving
        self._upstreams = upstreams
        self._merged = merged
        self._everything = everything
        self._approving = approving
        self._views = views
        self._events = events
        self._held = held
        self._tasks = tasks

    async def apps(self, configs: Mapping[str, App]) -> None:
        """Replace the apps, without an await between the updates of the registries.

        Raises `StartError` or `DocumentError` for unusable apps; nothing changed then.
        """
        apps = {id: await asyncio.to_thread(self._serving.of, app) for id, app in configs.items()}
        before = dict(self._apps)
        gone, new = before.keys() - apps.keys(), apps.keys() - before.keys()
        for id in new:
            await self._enter(apps[id].face)
        for id in gone:
            self._approving.outdated(id, "")
            for view in self._views.of(None, id):
                self._views.close(view)
        self._apps.replace(apps)
        for id, app in apps.items():
            self._renew(before.get(id), app)
        self._merged.forget(())
        self._everything.renew()
        self._events.apps_changed()
        for id in gone:
            before[id].face.drain()
            await self._held.leave(before[id].face)

    async def upstreams(self, specs: Mapping[str, UpstreamSettings]) -> None:
        """Replace the upstreams; unchanged ones keep their connections."""
        before = dict(self._upstreams.mounted)
        await self._upstreams.replace(specs, self._enter, self._held.leave)
        self._merged.forget([name for name, one in before.items() if self._upstreams.mounted.get(name) is not one])
        for name in before.keys() | specs.keys():
            policy = specs[name].policy if name in specs else None
            self._approving.outdated(name, policy.version if policy is not None else "")
        self._everything.tools_changed()

    def _renew(self, before: Running | None, now: Running) -> None:
        """Renew or void the state that depends on a changed app."""
        if before is None or before.packed is not now.packed:
            now.face.renew()
        if before is not None and before.config.policy is not now.config.policy:
            self._approving.outdated(now.config.id, now.config.policy.version)
            self._views.renew(now.config.id)

    async def _enter(self, face: Face) -> None:
        await self._held.enter(self._tasks, face)

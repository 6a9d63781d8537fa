"""Builds what serves an app from its configuration: page, site, card, backends, mount."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.apps import own_files, pack
from gateway.assembly.running import Apps, Backends, Packed, Running
from gateway.built import Built
from gateway.config import App as AppConfig
from gateway.config import Config, StorageKind, UpstreamApp
from gateway.doors.console import AppCard
from gateway.doors.sandbox import SandboxDoor, declared
from gateway.doors.site import SiteDoor
from gateway.exchange.pipeline import Exchange, Guarded
from gateway.exchange.snapshot import Snapshot
from gateway.mcp.server import Face
from gateway.mcp.upstreams.calls.views import UpstreamAnswers
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.view_calls import OwnAnswers, ViewServer
from gateway.model import Resource
from gateway.shares import Shares
from gateway.views.view import AppRules

log = logging.getLogger(__name__)

BODY = 16 * 1024 * 1024
"""Bytes of the largest request body at a door if no policy allows more."""


class Serving:
    """Prepares apps. `face` makes a mount, `proxies` returns the upstreams, `load_keys` loads the encryption keys.

    `live` logs notes for the app's author. `room` is the memory shared by all request bodies.
    """

    def __init__(
        self,
        config: Config,
        apps: Apps,
        *,
        backends: Backends,
        built: Built,
        sandbox: SandboxDoor,
        exchange: Exchange,
        proxies: Callable[[], Mapping[str, Proxy]],
        face: Callable[[str], Face],
        load_keys: Callable[[], None],
        live: bool,
        room: Shares,
    ) -> None:
        self._config = config
        self._apps = apps
        self._backends = backends
        self._built = built
        self._sandbox = sandbox
        self._exchange = exchange
        self._proxies = proxies
        self._face = face
        self._load_keys = load_keys
        self._live = live
        self._room = room

    def of(self, app: AppConfig) -> Running:
        """Build everything that serves an app, reusing unchanged parts. Raises `StartError`, `DocumentError`."""
        before = self._apps.get(app.id)
        face = before.face if before is not None else self._face(app.id)
        if before is not None and _page(app) == _page(before.config):
            packed, site, card = before.packed, before.site, before.card
            answers: ViewServer = before.answers
        elif isinstance(app.source, Path):
            packed, site, card = self._packed(app, app.source)
            answers = OwnAnswers(face.catalog)
        else:
            packed, site, card = self._borrowed(app, app.source)
            answers = UpstreamAnswers(
                app.source,
                proxies=self._proxies,
                own=OwnAnswers(face.catalog),
                sandbox=self._shown_by(app.source.upstream),
            )
        own = own_files(app.source) if isinstance(app.source, Path) else {}
        return Running(
            config=app,
            guarded=Guarded(app.policy, self._backends.of(app, before), own),
            rules=AppRules(app.title, app.policy, app.unproven, app.trust_view_gestures),
            packed=packed,
            card=card,
            face=face,
            answers=answers,
            site=site,
            host=urlsplit(self._config.server.origins.app(app.id)).netloc,
        )

    def _packed(self, app: AppConfig, source: Path) -> tuple[Packed, SiteDoor, AppCard]:
        """Build page, site and card of our own app. Raises `StartError`, `DocumentError`."""
        origins = self._config.server.origins
        keeps = app.storage is StorageKind.GATEWAY
        if keeps:
            self._load_keys()
        resource = pack(
            source,
            app=app.id,
            title=app.title,
            runtime=self._built.runtime,
            parts=self._built.parts,
            storage=self._built.storage if keeps else None,
            permissions=app.permissions,
            frames=app.policy.frames,
            routed=app.policy.lets_get,
            checked=self._live,
        )
        for note in resource.notes if self._live else ():
            log.info("app %s: %s", app.id, note)
        for problem in resource.unread:
            log.error("app %s: %s", app.id, problem)
        packed = Packed(app.id, app.title, resource, self._snapshot(app.id), keeps)
        site = SiteDoor(
            app.id,
            source,
            self._exchange,
            largest=lambda: max(BODY, self._apps.largest_request(app.id)),
            ruled=lambda path: self._apps.ruled(app.id, path),
            room=self._room,
        )
        sandbox_url = self._sandbox.url(origins.console, resource.meta)
        return packed, site, AppCard(app.id, app.title, origins.app(app.id), resource.uri, sandbox_url)

    def _borrowed(self, app: AppConfig, source: UpstreamApp) -> tuple[Packed, None, AppCard]:
        """Build the same for an upstream's app: its page is read from the upstream whenever it is shown."""
        packed = Packed(app.id, app.title, Resource(source.resource, "", {}), None)
        sandbox_url = self._sandbox.url(self._config.server.origins.console, {})
        return packed, None, AppCard(app.id, app.title, None, source.resource, sandbox_url, source.upstream)

    def _shown_by(self, upstream: str) -> Callable[[Mapping[str, Any]], str]:
        """Return a function from `_meta.ui` to the signed URL under which the console shows an app of this upstream."""

        def url(ui: Mapping[str, Any]) -> str:
            proxy = self._proxies().get(upstream)
            allow = proxy.upstream.spec.allow if proxy is not None else ()
            return self._sandbox.url(self._config.server.origins.console, declared(ui), allow)

        return url

    def _snapshot(self, app: str) -> Snapshot:
        return Snapshot(app, lambda: self._apps[app].config.policy if app in self._apps else None, self._exchange)


def _page(app: AppConfig) -> tuple[object, ...]:
    """Return the settings that the packed page of an app depends on."""
    return app.source, app.title, app.stamp, app.permissions, app.storage, app.policy.frames

"""The composition root: `build_app` builds every component, and the doors to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from gateway.assembly.components import Components
from gateway.assembly.doors import Doors
from gateway.assembly.live_settings import LiveSettings
from gateway.assembly.packing import Packer
from gateway.config import Config, Reading
from gateway.errors import Problem

RELOAD: web.AppKey[Callable[[], None]] = web.AppKey("reload", Callable[[], None])  # type: ignore[arg-type]  # any callable
"""Makes the gateway reload its files at once, if it was built with `reread`."""

SETTINGS = web.AppKey("settings", LiveSettings)
"""The settings in use, which a reload replaces."""

PACKER = web.AppKey("packer", Packer)
"""Packs the apps, and knows how many are left."""

ADMIN = web.AppKey("admin", web.Application)
"""The application of `server.admin_listen`, which has no lifetime of its own."""


def build_app(
    config: Config,
    reread: Callable[[], Reading] | None = None,
    *,
    live: bool = False,
    problems: Sequence[Problem] = (),
) -> web.Application:
    """Return the gateway as an aiohttp application: serve it, or mount it by host beside others (`add_domain`).

    Serve it with `handler_cancellation=True`, so that a client's disconnect cancels its request. `reread` (see
    `read_config`) reads the configuration again, and file changes take effect while it runs; with `live` the console
    shows changed apps at once, even while a person uses them. `problems` are those of the parts of the files that are
    not in `config`. An app that cannot be packed is not served before its files are corrected. Raises `StartError` and
    `DocumentError` for an unusable configuration, and if there is nothing that can be served.
    """
    parts = Components(config, reread, live, problems)
    doors = Doors(parts)
    root = doors.application()
    root[ADMIN] = doors.admin()
    root[RELOAD] = parts.reloader.request_reload
    root[SETTINGS] = parts.settings
    root[PACKER] = parts.packer
    return root

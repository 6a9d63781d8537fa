"""Maps the gateway's hosts to its sites, and serves the sites of the apps."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import web

from gateway.assembly.apps import BODY, Apps
from gateway.config import Config
from gateway.doors.access import Site
from gateway.doors.guard import Listener
from gateway.doors.responses import refusal_response
from gateway.doors.site import ANY_PATH


def listener(config: Config, apps: Apps) -> Listener:
    """Return the hosts that the gateway answers to, including those of the running apps."""
    origins, port = config.server.origins, config.server.port
    plain = [f"http://{name}{'' if port == 80 else f':{port}'}" for name in ("localhost", "127.0.0.1", "[::1]")]
    named = [
        *((origin, Site.PLAIN) for origin in (*plain, config.server.public_url)),
        (origins.console, Site.CONSOLE),
        (origins.sandbox, Site.SANDBOX),
    ]
    return Listener(
        sites=apps.hosts({netloc(origin): site for origin, site in named}, lambda _: Site.APP),
        origins=apps.hosts({netloc(origin): origin for origin, _ in named}, lambda app: origins.app(app.config.id)),
    )


def entrances(console: str) -> list[web.RouteDef]:
    """Return the route that redirects people from the plain address to the console."""

    async def enter(_: web.Request) -> web.Response:
        raise web.HTTPFound(console)

    return [web.get("/", enter)]


def netloc(origin: str) -> str:
    """Return host and port of an origin, as in `Host`."""
    return urlsplit(origin).netloc


def app_sites(apps: Apps, visits: Iterable[web.RouteDef]) -> web.Application:
    """Serve the sites of the running apps, each on its own host; `visits` are the routes of their logins."""

    async def handle(request: web.Request) -> web.StreamResponse:
        app = apps.at(request.headers.get("host", "").lower())
        return (
            refusal_response(421, "unknown-host", "There is no such app here.")
            if app is None or app.site is None
            else await app.site.handle(request)
        )

    sites = web.Application(client_max_size=BODY)
    sites.router.add_routes(visits)
    sites.router.add_route("*", ANY_PATH, handle)
    return sites

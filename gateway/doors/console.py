"""The console: its page, its live data, and the approvals that a person gives there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import quote

from aiohttp import web

from gateway.callers.entitlements import Admits, admit_all
from gateway.callers.methods import HostSite
from gateway.callers.people import display_name, is_login
from gateway.config import Notices
from gateway.crypto import SigningKeys
from gateway.doors.access import CALLBACK, HOST_FILES, OWN_CALLBACK
from gateway.doors.accounts import AccountsDoor
from gateway.doors.approvals import ApprovalDoor, SecurityKeyDoor
from gateway.doors.assets import asset, assets, file_response
from gateway.doors.authorization import refuse_without, sees_record
from gateway.doors.bridge.bridge_state import Tickets
from gateway.doors.bridge.offers import DownloadDoor, LinkDoor
from gateway.doors.events import Events, problems
from gateway.doors.guard import PRINCIPAL
from gateway.doors.host_pages import HOST
from gateway.doors.live_views import ViewsDoor
from gateway.doors.responses import SECURE, SMALL, fresh, object_of, refusal_response, state_refusal
from gateway.errors import Refusal
from gateway.jsontext.writing import plain_json
from gateway.model import LOCAL, Json, Principal
from gateway.stores.records import Filter, Records, StoredRecord

CSRF = "webmcp-gateway-csrf"

FOREVER = "public, max-age=31536000, immutable"

PAGE = 200
PAGES = 10
"""Pages of records that are searched for a caller who may see only their own."""

Logout: TypeAlias = Callable[[web.Request, web.StreamResponse], Awaitable[str]]
"""Ends the login of a request's browser, and all that it has open; returns the next URL.
The answer then drops its cookie.
"""


@dataclass(frozen=True, slots=True)
class AppCard:
    """An app on the console; `sandbox_url` is the address of its sandbox proxy. `site` is None for an app without one.
    `upstream` is the upstream that the app belongs to, `story` what the console can play.
    """

    id: str
    title: str
    site: str | None
    resource: str
    sandbox_url: str
    upstream: str | None = None
    story: Json = None


class Frames(Protocol):
    """The origins of frames of apps that have their own."""

    def patterns(self) -> Sequence[str]:
        """Return the sources (CSP) that match these origins; empty if no app has one."""
        ...

    def clearing(self, principal: Principal) -> list[str]:
        """Return URLs at which a browser deletes what these frames stored for `principal`."""
        ...


class ConsoleDoor:
    """The console's pages and REST API. `folder` holds its built files; `apps` are read for each request, `upstreams`
    are the names of those whose apps host pages may show without an entry under `apps`. `sandbox_url` and
    `upstream_url` return the address of the sandbox proxy of an app, and of an upstream's app that declares nothing, in
    pages of an origin. `still` asks whether a credential is still valid.

    `csrf` signs the tokens of pages, which go on after a restart. `advice` tells what of an app works in a view.
    At a logout the browser deletes what `frames` stored. `nodes` tells of the nodes; it is None for one process.
    """

    def __init__(
        self,
        *,
        folder: Path,
        sandbox: str,
        sandbox_url: Callable[[str, str], str],
        upstream_url: Callable[[str, str], str],
        version: str,
        apps: Mapping[str, AppCard],
        upstreams: Callable[[], Iterable[str]],
        approvals: ApprovalDoor,
        keys: SecurityKeyDoor,
        tickets: Tickets,
        events: Events,
        database: Records,
        notices: Notices,
        links: LinkDoor,
        downloads: DownloadDoor,
        views: ViewsDoor,
        live: bool,
        logout: Logout,
        connections: AccountsDoor,
        csrf: SigningKeys,
        still: Callable[[Principal], Awaitable[bool]],
        advice: Callable[[str], Awaitable[Json]],
        frames: Frames | None = None,
        nodes: Callable[[], Awaitable[dict[str, Json]]] | None = None,
        admits: Admits = admit_all,
    ) -> None:
        self._advice = advice
        self._admits = admits
        self._index = asset(folder / "index.html")
        self._assets = assets(folder / "assets")
        self._host_files = assets(folder.parent / "host")
        self._sandbox = sandbox
        self._sandbox_url = sandbox_url
        self._upstream_url = upstream_url
        self._version = version
        self._apps = apps
        self._upstreams = upstreams
        self._approvals = approvals
        self._keys_door = keys
        self._tickets = tickets
        self._events = events
        self._database = database
        self._notices = notices
        self._links = links
        self._downloads = downloads
        self._views = views
        self._live = live
        self._logout = logout
        self._connections = connections
        self._csrf = csrf
        self._still = still
        self._frames = frames
        self._nodes = nodes

    def application(self) -> web.Application:
        """Return the aiohttp application of the console's site, without the bridge and `/mcp`."""
        app = web.Application()
        app.router.add_routes(
            [
                web.get("/", self._page),
                web.get("/approvals/{id}", _approval),
                web.get("/api/state", self._state),
                web.get("/api/events", self._events.handle, allow_head=False),
                web.get("/api/audit", self._audit),
                web.get("/api/apps/{id}/advice", self._advise),
                web.get("/api/nodes", self._list_nodes),
                web.post("/api/views/{id}/close", self._changing(self._close_view)),
                *self._approvals.routes(self._changing),
                *self._keys_door.routes(self._changing),
                web.post("/api/logout", self._changing(self._log_out)),
                web.get("/connect/{name}", self._connections.page),
                web.get(CALLBACK, self._connections.callback),
                web.get(OWN_CALLBACK, self._connections.callback),
                web.get("/api/connections", self._connections.list),
                web.post("/api/connections/finish", self._changing(self._connections.finish)),
                web.post("/api/connections/{name}", self._changing(self._connections.begin)),
                web.post("/api/connections/{name}/disconnect", self._changing(self._connections.disconnect)),
                web.post("/api/links", self._changing(self._links.handle)),
                web.post("/api/downloads", self._changing(self._downloads.handle)),
                web.post("/bridge/tickets", self._changing(self._ticket)),
                web.get("/assets/{name:.+}", self._asset_response),
                web.get(HOST_FILES, self._host_file),
            ]
        )
        app.on_response_prepare.append(self._secure)
        return app

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return file_response(request, self._index, {"cache-control": "no-cache"})

    async def _asset_response(self, request: web.Request) -> web.StreamResponse:
        """Serve a file whose name changes with its content."""
        return file_response(request, self._assets.get(request.match_info["name"]), {"cache-control": FOREVER})

    async def _host_file(self, request: web.Request) -> web.StreamResponse:
        """Serve a script for host pages of any origin; it reveals nothing, and what it requests is checked."""
        anywhere = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}
        headers = {**anywhere, "cache-control": "no-cache"}
        return file_response(request, self._host_files.get(request.match_info["name"]), headers)

    async def _state(self, request: web.Request) -> web.Response:
        principal = request[PRINCIPAL]
        if (site := request.get(HOST)) is not None:
            return fresh(self._state_of_host(principal, site))
        apps = self._shown_apps(principal)
        return fresh(
            {
                "version": self._version,
                "csrf": self._csrf.sign(principal.id),
                "principal": {"id": principal.id, "name": display_name(principal)},
                "may": {"answer": principal.session or principal.may("approve"), "logout": is_login(principal)},
                "checks": principal.may("admin"),
                "nodes": self._nodes is not None and principal.may("admin"),
                "sandbox": self._sandbox,
                "apps": [asdict(app) for app in apps],
                "excluded": len(apps) < len(self._apps),
                "loopback": principal == LOCAL,
                "accounts": self._connections.has_accounts(principal),
                "live": self._live,
                "asks": self._approvals.asks,
                "problems": problems(self._notices, principal, self._admits),
            }
        )

    def _state_of_host(self, principal: Principal, site: HostSite) -> dict[str, Json]:
        """Return what pages of a host site may show: the apps, and the upstreams with the address of a proxy."""
        apps = [
            replace(app, sandbox_url=self._sandbox_url(app.id, site.origin), story=None)
            for app in self._shown_apps(principal)
        ]
        upstreams: dict[str, Json] = {
            name: self._upstream_url(name, site.origin)
            for name in self._upstreams()
            if self._admits(principal, name) and principal.may("bridge", name)
        }
        return {
            "principal": {"id": principal.id, "name": display_name(principal)},
            "sandbox": self._sandbox,
            "apps": [asdict(app) for app in apps],
            "upstreams": upstreams,
            "host": site.name,
        }

    def _shown_apps(self, principal: Principal) -> list[AppCard]:
        """Return the apps that a caller may show."""
        return [app for app in self._admitted_apps(principal) if principal.may("bridge", app.id)]

    def _admitted_apps(self, principal: Principal) -> list[AppCard]:
        """Return the apps that exist for a caller."""
        return [app for app in self._apps.values() if self._admits(principal, app.id)]

    async def _audit(self, request: web.Request) -> web.Response:
        limit = request.query.get("limit", "100")
        if not re.fullmatch("[1-9][0-9]{0,3}", limit) or int(limit) > 1000:
            return refusal_response(400, "bad-request", "limit: a whole number from 1 to 1000.")
        try:
            records = await self._visible_records(request[PRINCIPAL], int(limit), request.query)
        except OSError:
            return refusal_response(
                503, "database-unavailable", "The database does not respond; the journal continues without it."
            )
        return fresh({"records": [_line(record) for record in records]})

    async def _advise(self, request: web.Request) -> web.Response:
        """Answer what of an app works in a view; it names files and the policy, so it is for administrators."""
        principal, app = request[PRINCIPAL], request.match_info["id"]
        if app not in self._apps or not self._admits(principal, app):
            return refusal_response(404, "unknown-app", "There is no such app.")
        if (refusal := refuse_without(request, "admin")) is not None:
            return refusal
        return fresh(await self._advice(app))

    async def _list_nodes(self, request: web.Request) -> web.Response:
        """Answer the nodes of the gateway; it names machines, so it is for administrators."""
        if (refusal := refuse_without(request, "admin")) is not None:
            return refusal
        if self._nodes is None:
            return refusal_response(404, "not-found", "This gateway is one process.")
        return fresh(await self._nodes())

    async def _close_view(self, request: web.Request) -> web.Response:
        """Close a view that the caller may see, at whichever node it is."""
        try:
            closed = await self._views.close(request[PRINCIPAL], request.match_info["id"])
        except Refusal as refusal:
            return refusal_response(refusal.status, refusal.reason, refusal.detail)
        return fresh({}) if closed else refusal_response(404, "unknown-view", "There is no such view any more.")

    async def _visible_records(self, principal: Principal, limit: int, query: Mapping[str, str]) -> list[StoredRecord]:
        """Return the records that the caller may see; without `audit:read`, their own among the newest ones."""
        app, before = query.get("app"), query.get("before")
        if principal.may("audit:read"):
            return await self._database.query(limit, Filter(app=app), before)
        records: list[StoredRecord] = []
        for _ in range(PAGES):
            page = await self._database.query(PAGE, Filter(app=app), before)
            records += [record for record in page if sees_record(principal, record.fields, self._admits)]
            if len(records) >= limit or len(page) < PAGE:
                break
            before = page[-1].id
        return records[:limit]

    async def _log_out(self, request: web.Request) -> web.Response:
        if not request[PRINCIPAL].session:
            return refusal_response(403, "not-allowed", "A person logs out, in the browser that is logged in.")
        answer = fresh({})
        clear = self._frames.clearing(request[PRINCIPAL]) if self._frames is not None else []
        answer.text = plain_json({"to": await self._logout(request, answer), "clear": clear})
        return answer

    async def _ticket(self, request: web.Request) -> web.Response:
        """Answer `{apps}` with a ticket for these.

        A page of a host site may send `{state: true}` to save a round trip: the answer is then that of `/api/state`
        with a ticket for everything in it.
        """
        body, principal, site = await object_of(request), request[PRINCIPAL], request.get(HOST)
        known = {name for name in (*self._apps, *self._upstreams()) if self._admits(principal, name)}
        app_names, state = body.get("apps"), dict[str, Json]()
        if site is not None and body.get("state") is True:
            app_names = [name for name in site.apps if name in known and principal.may("bridge", name)]
            state = self._state_of_host(principal, site)
        if not isinstance(app_names, list) or not all(isinstance(app, str) for app in app_names):
            return refusal_response(400, "bad-request", f"apps: a list of {', '.join(sorted(known))}.")
        # An app that is gone, or another's by now, ends its own views, and not those of the others on this page.
        named = sorted(known.intersection(map(str, app_names)))
        if app_names and not named:
            return refusal_response(400, "bad-request", f"apps: a list of {', '.join(sorted(known))}.")
        refusals = {app: refuse_without(request, "bridge", app) for app in named}
        apps = frozenset(app for app, refusal in refusals.items() if refusal is None)
        if named and not apps:
            return refusals[named[0]] or refusal_response(403, "not-allowed", "This page may open none of these apps.")
        if site is not None and not await self._still(principal):
            return refusal_response(401, "unidentified", "The person of this token has no access any more.")
        # only a browser's page observes gestures: a program with a token could invent them
        attest = principal.session if site is None else site.attest
        origin = request.headers.get("origin")
        try:
            token = await self._tickets.issue(origin, principal, apps, attest=attest, hosted=site is not None)
        except OSError:
            return state_refusal("No ticket can be issued")
        return fresh({**state, "ticket": token})

    def _changing(
        self, handler: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Wrap a handler that changes state with a check of the CSRF token, which only the console's own page knows.

        Pages of host sites are identified by a token of their own, which no browser adds to a request by itself.
        """

        async def handle(request: web.Request) -> web.Response:
            token = request.headers.get(CSRF, "")
            if HOST not in request and not self._csrf.verify(token, request[PRINCIPAL].id):
                return refusal_response(403, "bad-csrf", f"The header `{CSRF}` must carry the token of /api/state.")
            try:
                return await handler(request)
            except web.HTTPRequestEntityTooLarge:
                return refusal_response(413, "request-too-large", f"A body may have {SMALL} bytes at most.")
            except (ValueError, RecursionError):
                return refusal_response(400, "bad-request", "The body must be a JSON object.")

        return handle

    async def _secure(self, request: web.Request, response: web.StreamResponse) -> None:
        frame_sources = " ".join([self._sandbox, *(self._frames.patterns() if self._frames is not None else ())])
        policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
            f"connect-src 'self'; frame-src {frame_sources}; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        )
        headers = {**SECURE, "content-security-policy": policy, "cross-origin-opener-policy": "same-origin"}
        for name, value in headers.items():
            response.headers.setdefault(name, value)


async def _approval(request: web.Request) -> web.Response:
    """Redirect from the address of one question to the console's view of it."""
    raise web.HTTPFound(f"/#/approvals/{quote(request.match_info['id'], safe='')}")


def _line(record: StoredRecord) -> dict[str, Json]:
    fields: dict[str, Json] = dict(record.fields)
    return {"id": record.id, "time": record.time, "ended": record.ended_at, "fields": fields}

"""Finds the door of a request on the fast path, by host and path as aiohttp's router does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from gateway.doors.client_limits import InFlight
from gateway.doors.guard import Guard
from gateway.doors.mcp import Mounts
from gateway.doors.revocation import Revocations
from gateway.doors.site import SiteDoor
from gateway.fastpath.mcp_route import McpRoute
from gateway.fastpath.request_head import RequestHead
from gateway.fastpath.route import FastRoute
from gateway.fastpath.site_route import SiteRoute
from gateway.mcp.fast import Fast
from gateway.mcp.server import McpMount

_MCP: Final = re.compile(r"/mcp(?:/([A-Za-z0-9_-]{1,64}))?")


class FastRoutes:
    """The routes of a gateway: `everything` is the MCP server at `/mcp` itself, `site` finds a site by its host."""

    def __init__(
        self,
        guard: Guard,
        revocations: Revocations,
        in_flight: InFlight,
        site: Callable[[str], SiteDoor | None],
        everything: McpMount,
        *mounts: Mounts,
    ) -> None:
        self._guard = guard
        self._site = site
        self._everything = everything
        self._mounts = mounts
        self.held = revocations.held
        self.places = in_flight.requests
        self.client = guard.client
        self.generation = guard.generation

    def find(self, head: RequestHead) -> FastRoute[Any] | None:
        """Return the route of a head, None if the fast path has none."""
        host = head.headers.get("host", "").lower()
        site = self._site(host)
        if site is not None:
            return SiteRoute(head, site, lambda: self._site(host), self._guard.caller_at_site)
        found = _MCP.fullmatch(head.target) if head.method == "POST" else None
        if found is None:
            return None
        mount = found[1] or ""
        fast = self._fast(mount)
        tool = fast.tool(head.fields) if fast is not None else None
        if fast is None or tool is None:
            return None
        return McpRoute(head, mount, fast, tool, lambda: self._fast(mount), self._guard.caller)

    def _fast(self, mount: str) -> Fast[Any] | None:
        """Return the current fast path of a mount past the MCP SDK."""
        if not mount:
            return self._everything.fast
        for faces in self._mounts:
            face = faces.get(mount)
            if face is not None:
                return face.fast
        return None

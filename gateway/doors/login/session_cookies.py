"""The session cookies of a login, with the strictest attributes that browsers accept at a site's origin."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from gateway.doors.access import IncomingRequest

NAME = "webmcp-gateway"


@dataclass(frozen=True, slots=True)
class SessionCookies:
    """The cookies of the site at `origin`.
    Over https their names begin with `__Host-` (RFC 6265bis 4.1.3.2). Plain http, which only this machine may use, does
    not accept such a name everywhere; there the name contains the port, since cookies ignore ports.
    """

    origin: str

    def name(self, what: str) -> str:
        """Return the name of a cookie."""
        parts = urlsplit(self.origin)
        return f"__Host-{NAME}-{what}" if self._secure else f"{NAME}-{what}-{parts.port or 80}"

    def read(self, request: IncomingRequest, what: str) -> str | None:
        """Return its value; None if there is none, or more than one."""
        found = self.values_in(request, what)
        return found[0] if len(found) == 1 and found[0] else None

    def values_in(self, request: IncomingRequest, what: str) -> list[str]:
        """Return all values that a request has for it."""
        name = self.name(what)
        return [
            value.strip()
            for field in request.headers.getall("cookie", ())
            for key, _, value in (pair.partition("=") for pair in field.split(";"))
            if key.strip() == name
        ]

    def keep(
        self, response: web.StreamResponse, what: str, value: str, seconds: float, *, crossing: bool = False
    ) -> None:
        """Set it for `seconds`. With `crossing` it is also sent with a navigation from another site."""
        response.set_cookie(
            self.name(what),
            value,
            max_age=int(seconds),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="Lax" if crossing else "Strict",
        )

    def drop(self, response: web.StreamResponse, what: str) -> None:
        """Delete it."""
        response.del_cookie(self.name(what), path="/", secure=self._secure, httponly=True, samesite="Strict")

    @property
    def _secure(self) -> bool:
        return self.origin.startswith("https://")

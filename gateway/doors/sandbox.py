"""The sandbox proxy: a page on a site of its own, under the content security policy that its signed address carries."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from gateway.doors.answers import SECURE, refused

_ORIGIN = re.compile(r"(https?|wss?)://[A-Za-z0-9.-]+(:[0-9]{1,5})?")


class SandboxDoor:
    """The site of the proxy. `folder` holds its built files; `origin` is where it answers."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._folder = folder
        self._origin = origin
        self._key = secrets.token_bytes(32)

    def url(self, host: str, meta: Mapping[str, Any]) -> str:
        """The address of a proxy that pages of origin `host` may show, for a resource with this `_meta.ui`."""
        policy = content_policy(meta.get("csp") or {}, host)
        query = {"csp": policy, "host": host, "sig": self._signature(policy, host)}
        return f"{self._origin}/proxy.html?{urlencode(query)}"

    def application(self) -> web.Application:
        """The aiohttp application of this site."""
        app = web.Application()
        app.router.add_get("/proxy.html", self._proxy)
        app.router.add_static("/", self._folder)
        app.on_response_prepare.append(_secure)
        return app

    async def _proxy(self, request: web.Request) -> web.StreamResponse:
        policy, host = request.query.get("csp", ""), request.query.get("host", "")
        signature = request.query.get("sig", "")
        if not hmac.compare_digest(signature.encode(), self._signature(policy, host).encode()):
            return refused(403, "bad-signature", "This address of the sandbox proxy was not made by this gateway.")
        headers = {"content-security-policy": policy, "cache-control": "no-cache"}
        return web.FileResponse(self._folder / "proxy.html", headers=headers)

    def _signature(self, policy: str, host: str) -> str:
        return hmac.new(self._key, f"{host}\n{policy}".encode(), hashlib.sha256).hexdigest()


def content_policy(csp: Mapping[str, Any], host: str) -> str:
    """The header under which an app runs. Raises `ValueError` for an entry that is no plain origin."""
    connect = _origins(csp.get("connectDomains") or ())
    resources = _origins(csp.get("resourceDomains") or ())
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'unsafe-inline'{resources}",
            f"style-src 'self' 'unsafe-inline'{resources}",
            f"img-src 'self' data: blob:{resources}",
            f"font-src data:{resources}",
            f"media-src data: blob:{resources}",
            f"connect-src{connect or ' ' + repr('none')}",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            f"frame-ancestors {host}",
        )
    )


def _origins(entries: Sequence[str]) -> str:
    for entry in entries:
        if not _ORIGIN.fullmatch(entry):
            raise ValueError(f"{entry!r} is no plain origin such as https://cdn.example.com")
    return "".join(f" {entry}" for entry in entries)


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURE.items():
        response.headers.setdefault(name, value)

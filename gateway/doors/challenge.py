"""The authentication challenge: the 401 answer, and the protected resource's metadata (RFC 6750, RFC 9728)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from aiohttp import web

from gateway.callers.nouns import Method, OAuthIssuer
from gateway.doors.access import METADATA
from gateway.doors.responses import refused
from gateway.errors import Unidentified

_UNQUOTED = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")  # RFC 6750 3: not allowed in error_description


class Challenges:
    """`public` is the gateway's public URL; `mounts` returns whether a name below `/mcp` is an MCP server."""

    def __init__(self, methods: Sequence[Method], public: str, mounts: Callable[[str], bool]) -> None:
        self._issuers = [method for method in methods if isinstance(method, OAuthIssuer)]
        self._public = public
        self._mounts = mounts

    def routes(self) -> list[web.RouteDef]:
        """Return the metadata routes of the gateway, and of each mount (RFC 9728 3.1)."""
        return [web.get(f"{METADATA}{path}", self._metadata) for path in ("", "/mcp", "/mcp/{app}")]

    def resources(self, mount: str | None) -> frozenset[str]:
        """Return the accepted audiences of a token for this mount (RFC 8707 2); `mount` "" is `/mcp` itself."""
        if mount is None:
            return frozenset()
        whole = f"{self._public}/mcp"
        return frozenset({whole, f"{whole}/{mount}"} if mount else {whole})

    def unidentified(self, error: Unidentified, mount: str | None) -> web.Response:
        """Return the refusal with its challenge; `mount` is as in `resources`."""
        code = "unidentified" if error.status == 401 else error.error.replace("_", "-") or "unidentified"
        headers = {"www-authenticate": self._challenge(error, mount)} if error.status in (401, 403) else {}
        headers |= {"retry-after": "1"} if error.status == 429 else {}
        return refused(error.status, code, error.detail, headers)

    def _challenge(self, error: Unidentified, mount: str | None) -> str:
        fields = {}
        if self._issuers:
            path = {None: "", "": "/mcp"}.get(mount, f"/mcp/{mount}")
            fields["resource_metadata"] = f"{self._public}{METADATA}{path}"
            scope = " ".join(dict.fromkeys(word for issuer in self._issuers for word in issuer.scope))
            fields |= {"scope": scope} if scope else {}
        if error.error:
            fields |= {"error": error.error, "error_description": _UNQUOTED.sub("'", error.detail)}
        fields = fields or {"realm": "webmcp-gateway"}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in fields.items())

    async def _metadata(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix(METADATA)
        mount = request.match_info.get("app")
        if not self._issuers or (mount is not None and not self._mounts(mount)):
            return refused(404, "not-found", "This gateway takes no tokens of an authorization server here.")
        document = {
            "resource": f"{self._public}{path}",
            "authorization_servers": [issuer.issuer for issuer in self._issuers],
            "bearer_methods_supported": ["header"],
            "resource_name": f"webmcp-gateway {mount}" if mount else "webmcp-gateway",
        }
        scopes = list(dict.fromkeys(word for issuer in self._issuers for word in issuer.scope))
        return web.json_response({**document, **({"scopes_supported": scopes} if scopes else {})})

"""The access of each route: open to anybody, or how its caller must be identified."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Final, Protocol

from aiohttp import web
from multidict import MultiMapping

from gateway.callers.methods import OAuthIssuer
from gateway.doors.responses import refusal_response
from gateway.errors import Unidentified


class IncomingRequest(Protocol):
    """A request before its handler: aiohttp's, or the fast path's."""

    @property
    def method(self) -> str:
        """The method, in upper case."""
        ...

    @property
    def headers(self) -> MultiMapping[str]:
        """The header fields, by case-insensitive names."""
        ...

    @property
    def remote(self) -> str | None:
        """The address of the peer."""
        ...


SCRAPED: Final = "/metrics"

SIGNED: Final = "/approvals/webhook"
"""The endpoint for signed answers to questions: their signature authenticates them."""

METADATA: Final = "/.well-known/oauth-protected-resource"
"""The document of the issuers whose tokens the gateway accepts (RFC 9728 3.1)."""

EXCHANGE: Final = "/oauth/token"
"""The token endpoint for the back ends of host sites, which authenticates them itself."""

SERVER_METADATA: Final = "/.well-known/oauth-authorization-server"
"""The document about that endpoint (RFC 8414 3)."""

VISIT: Final = "/.well-known/webmcp-gateway/session"
"""The endpoint of an app's own site that accepts a login from the console."""


PROBE: Final = "/.well-known/webmcp-gateway/probe"
"""The endpoint of `doctor --url`: its handler requires a proof, and does not exist without one."""


class Site(StrEnum):
    """The kind of site behind a `Host`. Sites share nothing."""

    CONSOLE = "console"
    APP = "app"
    SANDBOX = "sandbox"
    DEDICATED = "dedicated"
    PLAIN = "plain"


class Access(StrEnum):
    """The access to a route."""

    OPEN = "open"
    """Anybody: it reveals nothing of a caller, and starts nothing."""

    SHOWN = "shown"
    """Anybody: the handler itself checks the principal, if there is one."""

    MCP = "mcp"
    """A client with a token; cookies are ignored."""

    PERSON = "person"
    """A person's session, or a client with a token."""


CALLBACK: Final = "/oauth/callback"
"""The redirect URI for people who connect an account; it only passes on the authorization server's answer."""

OWN_CALLBACK: Final = f"{CALLBACK}/{{name}}"
"""The redirect URI for the authorization server of one credential."""

HOST_FILES: Final = "/host/{name}"
"""The scripts for host pages, with the element `<mcp-app>`; pages of any origin may load them."""

STREAMS: Final = "/streams/"
"""The path on the site of the sandbox proxy below which pages of apps read their event streams."""

STREAM: Final = f"{STREAMS}{{id}}"
"""The route of one: its id is a secret that is used once."""

_OPEN_ON_CONSOLE: Final = (
    "/",
    HOST_FILES,
    "/assets/{name}",
    "/approvals/{id}",
    "/connect/{name}",
    CALLBACK,
    OWN_CALLBACK,
    "/bridge",
)
"""Pages and files without personal data; the bridge requires a ticket, which names its caller."""


_NO_SERVER: Final = "/mcp/{rest}"
"""Other paths below that of MCP servers, which answer with a hint."""


def access(site: Site, route: str) -> Access:
    """Return the access of a route in aiohttp's canonical form; an unknown one requires a person."""
    if site in (Site.SANDBOX, Site.DEDICATED) or is_metadata(site, route):
        return Access.OPEN
    if route in (SIGNED, PROBE, EXCHANGE) and site is not Site.APP:
        return Access.OPEN
    if site is Site.APP:
        return Access.OPEN if route == VISIT else Access.PERSON
    if route == _NO_SERVER:
        return Access.OPEN
    if route.startswith("/mcp"):
        return Access.MCP
    if site is Site.CONSOLE:
        is_open = route in _OPEN_ON_CONSOLE or route == "/login" or route.startswith("/login/")
        return Access.OPEN if is_open else Access.PERSON
    if route == SCRAPED:
        return Access.SHOWN
    return Access.OPEN if route in ("/", "/healthz", "/readyz") else Access.PERSON


def is_metadata(site: Site, route: str) -> bool:
    """Return whether this is a metadata document that clients read before they have a token."""
    return site in (Site.CONSOLE, Site.PLAIN) and (route.startswith(METADATA) or route == SERVER_METADATA)


_UNQUOTED = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")  # RFC 6749 5.2, RFC 6750 3


def describe(error: Unidentified) -> str:
    """Return the `error_description` of an error, in the characters that are allowed there."""
    return _UNQUOTED.sub("'", error.detail)


class Challenges:
    """Names the current `issuers`; `public` is the gateway's public URL.

    `mounts` returns whether a name below `/mcp` is an MCP server.
    """

    def __init__(
        self, issuers: Callable[[], Collection[OAuthIssuer]], public: str, mounts: Callable[[str], bool]
    ) -> None:
        self._issuers = issuers
        self._public = public
        self._mounts = mounts

    def routes(self) -> list[web.RouteDef]:
        """Return the metadata routes of the gateway, and of each mount (RFC 9728 3.1, which Authlib 1.9 has not)."""
        return [web.get(f"{METADATA}{path}", self._metadata) for path in ("", "/mcp", "/mcp/{app}")]

    def resources(self, mount: str | None) -> frozenset[str]:
        """Return the accepted audiences of a token for this mount (RFC 8707 2); `mount` "" is `/mcp` itself."""
        if mount is None:
            return frozenset()
        whole = f"{self._public}/mcp"
        return frozenset({whole, f"{whole}/{mount}"} if mount else {whole})

    def challenge(self, error: Unidentified, mount: str | None) -> web.Response:
        """Return the refusal with its challenge; `mount` is as in `resources`."""
        code = "unidentified" if error.status == 401 else error.error.replace("_", "-") or "unidentified"
        headers = {"www-authenticate": self._challenge(error, mount)} if error.status in (401, 403) else {}
        headers |= {"retry-after": "1"} if error.status == 429 else {}
        return refusal_response(error.status, code, error.detail, headers)

    def _challenge(self, error: Unidentified, mount: str | None) -> str:
        """Return the challenge (RFC 6750 3, RFC 9728 5.1).

        Authlib 1.9's `InvalidTokenError` always names an error, also to a caller that sent no token, and raises
        ValueError if a description has a quotation mark.
        """
        fields, issuers = {}, self._issuers()
        if issuers:
            path = {None: "", "": "/mcp"}.get(mount, f"/mcp/{mount}")
            fields["resource_metadata"] = f"{self._public}{METADATA}{path}"
            scope = " ".join(dict.fromkeys(word for issuer in issuers for word in issuer.scope))
            fields |= {"scope": scope} if scope else {}
        if error.error:
            fields |= {"error": error.error, "error_description": describe(error)}
        fields = fields or {"realm": "webmcp-gateway"}
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in fields.items())

    async def _metadata(self, request: web.Request) -> web.Response:
        path = request.path.removeprefix(METADATA)
        mount, issuers = request.match_info.get("app"), self._issuers()
        if not issuers or (mount is not None and not self._mounts(mount)):
            return refusal_response(404, "not-found", "This gateway accepts no tokens of an authorization server here.")
        document = {
            "resource": f"{self._public}{path}",
            "authorization_servers": [issuer.issuer for issuer in issuers],
            "bearer_methods_supported": ["header"],
            "resource_name": f"webmcp-gateway {mount}" if mount else "webmcp-gateway",
        }
        scopes = list(dict.fromkeys(word for issuer in issuers for word in issuer.scope))
        return web.json_response({**document, **({"scopes_supported": scopes} if scopes else {})})

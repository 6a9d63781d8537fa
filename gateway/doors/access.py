"""The access of each route: open to anybody, or how its caller must be identified."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SCRAPED: Final = "/metrics"

SIGNED: Final = "/approvals/webhook"
"""The endpoint for signed answers to questions: their signature authenticates them."""

METADATA: Final = "/.well-known/oauth-protected-resource"
"""The document of the issuers whose tokens the gateway accepts (RFC 9728 3.1)."""

VISIT: Final = "/.well-known/webmcp-gateway/session"
"""The endpoint of an app's own site that accepts a login from the console."""


class Site(StrEnum):
    """The kind of site behind a `Host`. Sites share nothing."""

    CONSOLE = "console"
    APP = "app"
    SANDBOX = "sandbox"
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

_OPEN_ON_CONSOLE: Final = (
    "/",
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
    if site is Site.SANDBOX or is_metadata(site, route) or (route == SIGNED and site is not Site.APP):
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
    """Whether this is the metadata document that clients read before they have a token."""
    return site in (Site.CONSOLE, Site.PLAIN) and route.startswith(METADATA)

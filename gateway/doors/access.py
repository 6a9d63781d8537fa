"""Which routes anybody may have, and how the others want their callers to be known."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

SCRAPED: Final = "/metrics"

SIGNED: Final = "/approvals/webhook"
"""Where signed answers to questions come: their signature proves them, no caller."""

METADATA: Final = "/.well-known/oauth-protected-resource"
"""Where the gateway says which issuers it takes tokens of (RFC 9728 3.1)."""

VISIT: Final = "/.well-known/webmcp-gateway/session"
"""Where an app's own site takes up a login that the console has handed over."""


class Site(StrEnum):
    """What a `Host` stands for. Sites share nothing."""

    CONSOLE = "console"
    APP = "app"
    SANDBOX = "sandbox"
    PLAIN = "plain"


class Access(StrEnum):
    """Who may have a route."""

    OPEN = "open"
    """Anybody: it shows nothing of a caller's, and starts nothing."""

    SHOWN = "shown"
    """Anybody, and it asks itself who it is, if somebody."""

    MCP = "mcp"
    """A client with a token; cookies are not looked at."""

    PERSON = "person"
    """A person's session, or a client with a token."""


CALLBACK: Final = "/oauth/callback"
"""Where authorization servers send people back to who connect an account; it hands on what they say, and no more."""

OWN_CALLBACK: Final = f"{CALLBACK}/{{name}}"
"""The same for the server of one credential alone."""

_OPEN_ON_CONSOLE: Final = (
    "/",
    "/assets/{name}",
    "/approvals/{id}",
    "/connect/{name}",
    CALLBACK,
    OWN_CALLBACK,
    "/bridge",
)
"""Pages and files that are the same for everybody; the bridge takes a ticket, which names its caller."""


_NO_SERVER: Final = "/mcp/{rest}"
"""Paths beside those of MCP servers: whoever comes there is told where these are."""


def access(site: Site, route: str) -> Access:
    """What the route, in aiohttp's canonical form, asks of its caller; an unknown one is a person's."""
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
    """Whether this is the document that clients read before they have a token."""
    return site in (Site.CONSOLE, Site.PLAIN) and route.startswith(METADATA)

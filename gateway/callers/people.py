"""What a person who is logged in may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gateway.callers.nouns import NOT_AT_MCP, Method, NoAuth, OAuth, ProxyAuth, Roles, TokenAuth
from gateway.errors import Unidentified
from gateway.model import LOCAL, Principal

EVERYBODY = frozenset({"bridge", "app"})
"""What the gateway's own links give to everybody."""


def proxy_issuer(method: ProxyAuth) -> str:
    """The issuer of the principals that this proxy names."""
    return f"proxy:{method.name}"


def on_console(principal: Principal, methods: Sequence[Method], roles: Roles) -> Principal:
    """The person of a login, with what they may do under this configuration.

    Raises `Unidentified` where the configuration no longer knows who vouched for them.
    """
    for method in methods:
        match method:
            case TokenAuth() if principal.issuer == LOCAL.issuer:
                held = LOCAL.capabilities if principal.subject == LOCAL.subject else EVERYBODY
                return replace(principal, capabilities=held - {"mcp"})
            case OAuth(issuer=issuer) if principal.issuer == issuer:
                return replace(principal, capabilities=roles.capabilities(principal.roles) - {"mcp"})
            case _:
                pass
    raise Unidentified("This login is no longer known here. Log in again.")


def on_site(principal: Principal, app: str) -> Principal:
    """The same person on the site of an app: there they may use that app, and nothing else."""
    return replace(principal, capabilities=frozenset({f"app:{app}"} if principal.may("app", app) else ()))


def as_client(principal: Principal) -> Principal:
    """The same caller where a model's client may be: it answers for nobody."""
    if principal.session or principal.capabilities & NOT_AT_MCP:
        return replace(principal, capabilities=principal.capabilities - NOT_AT_MCP, session=False)
    return principal


def is_login(principal: Principal) -> bool:
    """Whether this is a login of a browser, which can be ended: one that lasts as long as the gateway cannot."""
    return principal.session and principal.expires is not None


def display_name(principal: Principal) -> str:
    """What a person is called; the subject where nothing better is known."""
    for claim in ("name", "preferred_username", "email"):
        value = principal.claims.get(claim)
        if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable():
            return value
    return principal.subject or principal.client


def is_open(methods: Sequence[Method]) -> bool:
    """Whether there is no way to be anybody else than `local`."""
    return all(isinstance(method, NoAuth) for method in methods)

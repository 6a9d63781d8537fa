"""The principal of a request in the form in which the MCP SDK binds sessions to it."""

from __future__ import annotations

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST
from starlette.requests import Request

from gateway.client_address import CLIENT
from gateway.model import Principal


class User(AuthenticatedUser):
    """A principal as the SDK's authenticated user; the SDK compares client, issuer and subject."""

    def __init__(self, principal: Principal) -> None:
        super().__init__(
            AccessToken(
                token="",  # required by the SDK, which only ever compares the three below
                client_id=principal.client,
                scopes=sorted(principal.capabilities),
                subject=principal.subject,
                claims={"iss": principal.issuer},
            )
        )
        self.principal = principal
        self.address = CLIENT.get()


def principal_of(request: Request | None) -> Principal:
    """Return the sender of `request`; the audit log gets its client's address from here on.
    A session of the SDK runs in a separate task, which began with another request. Raises `MCPError` for a request that
    passed no door of the gateway.
    """
    user = request.scope.get("user") if request is not None else None
    if not isinstance(user, User):
        raise MCPError(INVALID_REQUEST, "This request came without a principal.")
    CLIENT.set(user.address)
    return user.principal


def current_principal() -> Principal | None:
    """Return the sender of the current request, for callbacks to which the SDK passes no request."""
    user = auth_context_var.get()
    return user.principal if isinstance(user, User) else None

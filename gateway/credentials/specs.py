"""The configuration of credentials, and the tokens that they yield."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

from gateway.model import Headers, Principal, Secret


class Network(Protocol):
    """The allowed addresses of an authorization server; hashable, so that equal networks share connections."""

    def allows(self, ip: str) -> bool:
        """Return whether a connection to the address is allowed."""
        ...


class ClientAuthentication(StrEnum):
    """A client authentication method (RFC 6749 2.3.1, RFC 7523 2.2, RFC 8705 2)."""

    BASIC = "client_secret_basic"
    POST = "client_secret_post"
    PRIVATE_KEY_JWT = "private_key_jwt"
    TLS = "tls_client_auth"
    SELF_SIGNED_TLS = "self_signed_tls_client_auth"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key in PEM that signs assertions; `id` is its `kid`, if any."""

    pem: Secret
    algorithm: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a client certificate and its key, in PEM."""

    chain: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Client:
    """The gateway as a client of an authorization server; without `authentication` the server's metadata decide."""

    id: str
    secret: Secret | None = None
    authentication: ClientAuthentication | None = None
    key: SigningKey | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """An authorization server. Endpoints that are not given come from its metadata.

    `authorities` is a file of certificate authorities trusted in addition to the system's.
    """

    issuer: str
    network: Network
    token_endpoint: str | None = None
    authorization_endpoint: str | None = None
    revocation_endpoint: str | None = None
    certificate: Certificate | None = None
    authorities: Path | None = None


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """The gateway's own account (RFC 6749 4.4)."""


@dataclass(frozen=True, slots=True)
class AuthorizationCode:
    """Each person's own account, which they connect at the server's login (RFC 6749 4.1, RFC 7636).

    With `own_callback` the server has a separate callback address (RFC 9700 4.4.2.2).
    """

    own_callback: bool = False


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """A token exchanged for the token of another credential, `subject`, and optionally of an `actor` (RFC 8693).

    With `by_id_token` the ID token of the subject's account is exchanged.
    """

    subject: str
    actor: str | None = None
    audience: str | None = None
    requested: str | None = None
    by_id_token: bool = False
    per_person: bool = False


@dataclass(frozen=True, slots=True)
class JwtBearer:
    """A token for an assertion that the gateway signs about `subject`, or a `claim` of its caller (RFC 7523 2.1).

    `assertion` names another credential whose token is used as the assertion.
    """

    key: SigningKey | None = None
    subject: str | None = None
    claim: str | None = None
    audience: str | None = None
    assertion: str | None = None
    per_person: bool = False


Grant: TypeAlias = ClientCredentials | AuthorizationCode | TokenExchange | JwtBearer


@dataclass(frozen=True, slots=True)
class OAuth:
    """A credential issued by an authorization server. `title` is the display name of the account's service."""

    name: str
    grant: Grant
    server: Server
    client: Client
    scope: tuple[str, ...] = ()
    resource: str | None = None
    dpop: bool = False
    title: str = ""

    @property
    def network(self) -> Network:
        """The allowed addresses of the server."""
        return self.server.network

    @property
    def per_person(self) -> bool:
        """True if each person has a separate token."""
        match self.grant:
            case AuthorizationCode():
                return True
            case TokenExchange(per_person=per_person) | JwtBearer(per_person=per_person):
                return per_person
            case ClientCredentials():
                return False


@dataclass(frozen=True, slots=True)
class FixedHeader:
    """A static header field; `prefix` precedes its secret value."""

    name: str
    field: str
    prefix: str
    value: Secret


@dataclass(frozen=True, slots=True)
class Basic:
    """A user name and a password (RFC 7617)."""

    name: str
    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """A credential of a type that a plugin registers, with its other keys."""

    name: str
    type: str
    options: dict[str, object]


Spec: TypeAlias = OAuth | FixedHeader | Basic | PluginSpec


@dataclass(frozen=True, slots=True)
class Account:
    """The owner of an account as the server names them: shown to the person who connected it."""

    subject: str
    label: str


@dataclass(frozen=True, slots=True)
class Token:
    """An access token with its data. `expires_at` is in seconds since the epoch, None if unknown.

    `key` is the private JWK to which it is bound (RFC 9449). `type` is its token type for a token exchange. `id_token`
    is the server's statement of the account's owner. `source` are the settings that it was issued for, as
    `token_source` returns them; empty for a token that was stored before these were.
    """

    value: Secret
    token_type: str
    expires_at: float | None
    refresh: Secret | None = None
    scope: str = ""
    key: Secret | None = None
    account: Account | None = None
    type: str = field(default="urn:ietf:params:oauth:token-type:access_token", repr=False)
    id_token: Secret | None = None
    source: str = field(default="", repr=False)

    def header(self) -> tuple[str, str]:
        """Return the header field that carries it (RFC 6750 2.1, RFC 9449 7.1)."""
        return "authorization", f"{self.token_type} {self.value.reveal()}"


def token_source(name: str, specs: Mapping[str, Spec]) -> str:
    """Return a name of the settings for which the tokens of a credential are issued.

    With other ones its tokens are of no use, and must not be sent to another server; with another client secret or
    endpoint they are the same tokens.
    """
    return hashlib.sha256(repr(_issued_for(name, specs)).encode()).hexdigest()[:16]


def _issued_for(name: str, specs: Mapping[str, Spec]) -> object:
    spec = specs.get(name)
    if not isinstance(spec, OAuth):
        return None
    account, request = (spec.server.issuer, spec.client.id), (spec.scope, spec.resource, spec.dpop)
    match spec.grant:
        case AuthorizationCode():
            return account  # what the person agreed to holds until they connect it again
        case ClientCredentials():
            return account, request
        case TokenExchange(subject=subject, actor=actor) as grant:
            others = _issued_for(subject, specs), _issued_for(actor or "", specs)
            return account, request, grant.audience, grant.requested, grant.by_id_token, others
        case JwtBearer() as grant:
            other = _issued_for(grant.assertion or "", specs)
            return account, request, grant.subject, grant.claim, grant.audience, other


class Tokens(Protocol):
    """A plugin's credential: returns header fields for a caller's request."""

    async def headers(self, principal: Principal, method: str, url: str) -> Headers:
        """Return the fields to add. Any exception, such as `Refusal`, refuses the request."""
        ...

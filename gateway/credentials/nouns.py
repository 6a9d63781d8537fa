"""What a credential is made from, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

from gateway.model import Headers, Principal, Secret


class Network(Protocol):
    """Which addresses the authorization server may have."""

    def allows(self, ip: str) -> bool:
        """True for an address that may be connected to."""
        ...


class ClientAuthentication(StrEnum):
    """How a client says who it is (RFC 6749 2.3.1, RFC 7523 2.2, RFC 8705 2)."""

    BASIC = "client_secret_basic"
    POST = "client_secret_post"
    PRIVATE_KEY_JWT = "private_key_jwt"
    TLS = "tls_client_auth"
    SELF_SIGNED_TLS = "self_signed_tls_client_auth"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key in PEM, with which assertions are signed; `id` is its `kid`, if it has one."""

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
    """The gateway as a client of an authorization server; without `authentication` the server's metadata choose."""

    id: str
    secret: Secret | None = None
    authentication: ClientAuthentication | None = None
    key: SigningKey | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """An authorization server. Endpoints that are not given are those that its metadata name.

    `authorities` is a file of certificate authorities that are trusted beside the system's.
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
    """The account of each person, who connects it at the server's own pages (RFC 6749 4.1, RFC 7636).

    With `own_callback` its server, and no other, sends persons back to an address of its own (RFC 9700 4.4.2.2).
    """

    own_callback: bool = False


@dataclass(frozen=True, slots=True)
class TokenExchange:
    """A token made of the token of another credential, `subject`, and maybe of an `actor`'s (RFC 8693).

    With `by_id_token` it is made of the ID token of the subject's account, which says who logged in there.
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

    `assertion` names another credential whose token is the assertion, in place of one of our own.
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
    """A credential that an authorization server gives out. `title` is what people call the account's service."""

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
        """Where the server may be."""
        return self.server.network

    @property
    def per_person(self) -> bool:
        """Whether each person has one of their own."""
        match self.grant:
            case AuthorizationCode():
                return True
            case TokenExchange(per_person=per_person) | JwtBearer(per_person=per_person):
                return per_person
            case ClientCredentials():
                return False


@dataclass(frozen=True, slots=True)
class Fixed:
    """A header field that is the same for every request; `prefix` stands before its secret value."""

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
class Plugged:
    """A credential of a type that a plugin registers, with what stands there beside the type."""

    name: str
    type: str
    options: dict[str, object]


Spec: TypeAlias = OAuth | Fixed | Basic | Plugged


@dataclass(frozen=True, slots=True)
class Account:
    """Whose account it is, in the server's words: shown to the person who connected it."""

    subject: str
    label: str


@dataclass(frozen=True, slots=True)
class Token:
    """An access token with what belongs to it. `expires_at` is in seconds since the epoch, None where unknown.

    `key` is the private JWK to which it is bound (RFC 9449). `type` is its token type at the server that exchanges it.
    `id_token` says whose account it is, in the words of the server that gave it.
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

    def header(self) -> tuple[str, str]:
        """The header field that carries it (RFC 6750 2.1, RFC 9449 7.1)."""
        return "authorization", f"{self.token_type} {self.value.reveal()}"


class Tokens(Protocol):
    """What a plugin's credential gives: header fields for a request of a caller."""

    async def headers(self, principal: Principal, method: str, url: str) -> Headers:
        """The fields to add. Raises `Refusal`, or whatever else: the request is refused then."""
        ...

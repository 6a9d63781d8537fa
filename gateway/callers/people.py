"""Logged-in persons: their login attempt, their capabilities at each door, and the stored form of their login."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from authlib.oauth2.rfc7636 import create_s256_code_challenge

from gateway.callers.methods import NOT_AT_MCP, Method, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.crypto import base64url, equals_secret
from gateway.errors import Unidentified
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import LOCAL, Json, Principal


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login at an issuer, from its start to the callback.

    State, nonce and PKCE verifier are derived from the cookie under a key of the gateway: creating them needs both, and
    abandoned attempts take no memory.

    `cookie`: the value that the browser stores.
    `issuer`: the issuer's name.
    `fresh`: the issuer must authenticate the person again.
    `to`: the final destination.
    """

    cookie: str
    issuer: str
    fresh: bool
    to: str
    _key: bytes = field(repr=False)

    @classmethod
    def of(cls, cookie: str | None, key: bytes, now: float, life: float) -> Self | None:
        """Return the attempt of a cookie that this gateway issued less than `life` seconds ago."""
        payload, _, signature = (cookie or "").rpartition(".")
        parts = payload.split(".")
        if len(parts) != 5 or not equals_secret(signature, _derive(key, "cookie", payload)):
            return None
        _, started_at, issuer, fresh, to = parts
        if not 0 <= now - int(started_at) <= life:
            return None
        return cls(cookie or "", issuer, fresh == "1", base64.urlsafe_b64decode(f"{to}==").decode(), key)

    @property
    def state(self) -> str:
        """The OAuth `state` (RFC 6749 10.12)."""
        return _derive(self._key, "state", self.cookie)

    @property
    def nonce(self) -> str:
        """The nonce that the ID token must repeat (OpenID Connect Core 3.1.2.1)."""
        return _derive(self._key, "nonce", self.cookie)

    @property
    def verifier(self) -> str:
        """The PKCE code verifier (RFC 7636 4.1)."""
        return _derive(self._key, "verifier", self.cookie)

    @property
    def challenge(self) -> str:
        """The PKCE code challenge, S256 (RFC 7636 4.2)."""
        challenge: str = create_s256_code_challenge(self.verifier)
        return challenge

    def has_state(self, state: str) -> bool:
        """Return whether a callback's state belongs to this attempt."""
        return equals_secret(state, self.state)


def start_attempt(key: bytes, issuer: str, to: str, now: float, *, fresh: bool = False) -> LoginAttempt:
    """Return a new attempt; `issuer` is one of `issuer_names`, `to` a path."""
    payload = f"{secrets.token_urlsafe(24)}.{int(now)}.{issuer}.{int(fresh)}.{base64url(to.encode())}"
    return LoginAttempt(f"{payload}.{_derive(key, 'cookie', payload)}", issuer, fresh, to, key)


def issuer_names(issuers: Iterable[str]) -> list[str]:
    """Return a name for each issuer, for its redirect URI.

    `login-example-com-realm` of https://login.example.com/realm; of equal names the later one gets a number.
    """
    pages: list[str] = []
    for issuer in issuers:
        name = re.sub(r"[^a-z0-9]+", "-", issuer.partition("://")[2].lower()).strip("-") or "issuer"
        like = (name, *(f"{name}-{number}" for number in range(2, len(pages) + 3)))
        pages.append(next(one for one in like if one not in pages))
    return pages


def _derive(key: bytes, purpose: str, text: str) -> str:
    return base64url(hmac.digest(key, f"{purpose}\n{text}".encode("utf-8", "surrogatepass"), hashlib.sha256))


EVERYBODY = frozenset({"bridge", "app"})
"""The capabilities of a login by the gateway's own links."""


def proxy_issuer(method: ProxyAuth) -> str:
    """Return the issuer of the principals that this proxy names."""
    return f"proxy:{method.name}"


def person_on_console(principal: Principal, methods: Sequence[Method], roles: Roles) -> Principal:
    """Return the person of a login with their capabilities under this configuration.

    Raises `Unidentified` if the configuration no longer has the issuer of the login.
    """
    for method in methods:
        match method:
            case TokenAuth() if principal.issuer == LOCAL.issuer:
                capabilities = LOCAL.capabilities if principal.subject == LOCAL.subject else EVERYBODY
                return replace(principal, capabilities=capabilities - {"mcp"})
            case OAuthIssuer(issuer=issuer) if principal.issuer == issuer:
                return replace(principal, capabilities=roles.capabilities(principal.roles) - {"mcp"})
            case _:
                pass
    raise Unidentified("This login is no longer known here. Log in again.")


def person_on_site(principal: Principal, app: str) -> Principal:
    """Return the same person on the site of an app: with no capability but that app."""
    return replace(principal, capabilities=frozenset({f"app:{app}"} if principal.may("app", app) else ()))


def without_console_rights(principal: Principal) -> Principal:
    """Return the same caller without the capabilities that a model's client must not have."""
    if principal.session or principal.capabilities & NOT_AT_MCP:
        return replace(principal, capabilities=principal.capabilities - NOT_AT_MCP, session=False)
    return principal


def is_login(principal: Principal) -> bool:
    """Return whether this is a browser login that can be ended; `local` without authentication cannot."""
    return principal.session and principal.expires is not None


def display_name(principal: Principal) -> str:
    """Return a person's display name; by default the subject."""
    for claim in ("name", "preferred_username", "email"):
        value = principal.claims.get(claim)
        if isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable():
            return value
    return principal.subject or principal.client


def is_open(methods: Sequence[Method]) -> bool:
    """Return whether `local` is the only possible principal."""
    return all(isinstance(method, NoAuth) for method in methods)


CLAIMS = 16 * 1024
"""Maximum characters of claims stored with a login; larger claims are omitted."""


def principal_fields(principal: Principal) -> dict[str, Json]:
    """Return the stored fields of a principal."""
    claims = plain_json(dict(principal.claims))
    return {
        "issuer": principal.issuer,
        "client": principal.client,
        "subject": principal.subject,
        "roles": list[Json](sorted(principal.roles)),
        "claims": parse_json(claims) if len(claims) <= CLAIMS else {},
    }


def principal_of(values: Mapping[str, Json], expires: float, proof: str = "") -> Principal:
    """Return the principal of a login that ends at `expires`, or when `proof` is revoked."""
    return Principal(
        issuer=str(values["issuer"]),
        client=str(values["client"]),
        subject=str(values["subject"]),
        roles=_texts(values["roles"]),
        claims=claims if isinstance(claims := values["claims"], dict) else {},
        session=True,
        expires=expires,
        proof=proof,
    )


def caller_fields(principal: Principal) -> dict[str, Json]:
    """Return the stored fields of a caller whose rights go with it, such as into a ticket."""
    return {
        **principal_fields(principal),
        "capabilities": list[Json](sorted(principal.capabilities)),
        "shared": principal.shared,
        "session": principal.session,
        "expires": principal.expires,
        "proof": principal.proof,
    }


def caller_of(fields: Mapping[str, Json]) -> Principal:
    """Return the caller of `caller_fields`."""
    expires = fields["expires"]
    return replace(
        principal_of(fields, 0.0, str(fields["proof"])),
        capabilities=_texts(fields["capabilities"]),
        shared=fields["shared"] is True,
        session=fields["session"] is True,
        expires=float(expires) if isinstance(expires, int | float) else None,
    )


def _texts(value: Json) -> frozenset[str]:
    return frozenset(map(str, value)) if isinstance(value, list) else frozenset()

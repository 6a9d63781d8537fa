"""What a credential is made from, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gateway.model import Secret


class Network(Protocol):
    """Which addresses the authorization server may have."""

    def allows(self, ip: str) -> bool:
        """True for an address that may be connected to."""
        ...


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A client of its own at an authorization server; without `token_endpoint` the issuer's metadata name it."""

    name: str
    issuer: str
    token_endpoint: str | None
    client_id: str
    client_secret: Secret
    scope: tuple[str, ...]
    network: Network


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `expires_at` is in seconds since the epoch, None where the server did not say."""

    value: Secret
    token_type: str
    expires_at: float | None

    def fresh(self, now: float, margin: float) -> bool:
        """Whether it can be used for `margin` seconds more."""
        return self.expires_at is None or now + margin < self.expires_at

    def header(self) -> tuple[str, str]:
        """The header field that carries it (RFC 6750 2.1)."""
        return "authorization", f"{self.token_type} {self.value.reveal()}"

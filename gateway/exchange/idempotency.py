"""Idempotency keys: an app's key is sent as a keyed hash, and is valid for one request only."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol

from msgspec.structs import replace

from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import Leg
from gateway.model import Caller
from gateway.policy import SAFE_METHODS

FIELD: Final = "idempotency-key"
LONGEST: Final = 255

_NAMES: Final = (FIELD, "idempotency_key")
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

log = logging.getLogger(__name__)


class Keys(Protocol):
    """The storage of keys: `gateway.stores.keys.IdempotencyKeys`. Both methods raise OSError."""

    async def secret(self) -> bytes: ...

    async def claim(self, owner: str, key: str, digest: str, now: float) -> bool: ...


class Idempotency:
    """Gives each request the idempotency key that is sent with it. `now` is the time of day, in seconds."""

    def __init__(self, keys: Keys, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._now = now

    async def keyed(self, leg: Leg, caller: Caller) -> Leg:
        """Return `leg` with its key; safe methods have none.

        The key is the app's, hashed with principal, app and route, or a random one for the retries of an idempotent
        route. Raises `Refusal`: `bad-request` for an invalid key, `idempotency-conflict` for one that was used for
        another request, or that cannot be looked up at present.
        """
        if leg.canonical.method in SAFE_METHODS:
            return leg
        given = [value for name, value in leg.canonical.headers if name in _NAMES]
        if not given:
            return replace(leg, key=secrets.token_urlsafe(24)) if leg.obligations.idempotent else leg
        if len(given) > 1 or len(given[0]) > LONGEST or not _KEY.fullmatch(given[0]):
            raise Refusal(Reason.BAD_REQUEST, f"{FIELD}: must be one text of up to {LONGEST} visible characters.")
        try:
            key = _hashed(await self._keys.secret(), leg, caller, given[0])
            owner = hashlib.sha256(_joined(*_owner(caller))).hexdigest()
            fresh = await self._keys.claim(owner, key, _digest(leg), self._now())
        except OSError as error:
            log.error("idempotency keys cannot be looked up: %s", error)
            detail = "The idempotency key of this call cannot be looked up at present; nothing was sent."
            raise Refusal(Reason.IDEMPOTENCY_CONFLICT, detail, status=503) from error
        if not fresh:
            raise Refusal(Reason.IDEMPOTENCY_CONFLICT, "This idempotency key was used for another request.")
        return replace(leg, key=key)


def _hashed(secret: bytes, leg: Leg, caller: Caller, key: str) -> str:
    """Return the key as the backend sees it: callers share a credential there, so their keys must not collide."""
    parts = (*_owner(caller), leg.canonical.backend, leg.decision.route or "", key)
    return hmac.new(secret, _joined(*parts), hashlib.sha256).hexdigest()


def _owner(caller: Caller) -> tuple[str, str, str]:
    """Return the namespace of a caller's keys; each view of a shared principal has a separate one."""
    return (caller.principal.id, caller.app, (caller.view or "") if caller.principal.shared else "")


def _digest(leg: Leg) -> str:
    """Return the digest of the request that the key is bound to, without fields that differ on each attempt."""
    kept = tuple(field for field in leg.canonical.headers if field[0].startswith("content-"))
    return replace(leg.canonical, headers=kept).digest


def _joined(*parts: str) -> bytes:
    return b"".join(b"%d:%s" % (len(data), data) for data in (part.encode("utf-8", "surrogatepass") for part in parts))

"""One request to one backend: decided, with the idempotency key that is sent with it; and the backend's answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from gateway.crypto import frame_parts
from gateway.errors import Reason, Refusal
from gateway.exchange.record import Record
from gateway.model import BackendSocket, Caller, CanonicalRequest, Effect, Headers, Request, Response
from gateway.policy import SAFE_METHODS, Decision, Obligations, Policy, canonicalise, canonicalise_in_steps, decide


async def do_nothing() -> None:
    """Do nothing: the default `close`."""


class BackendAnswer(Struct, frozen=True):
    """A backend's answer: `response` has its body, unless `parts` yield it; `close` discards what was not read.

    `credentialed` is true if the gateway added a credential or cookies to the request; `secrets` maps each text that
    must not reach the app to the name of its credential. `socket` is the WebSocket that the backend opened.
    `dropped`: the page set an `Authorization` field itself, which the backend did not get. `page` are the fields for
    the shell of an app whose pages a backend renders. `later` returns the page's tokens that must not
    reach the app by now: a login may be newer than a stream or a WebSocket.
    """

    response: Response
    secrets: Mapping[str, str]
    parts: AsyncIterator[bytes] | None = None
    close: Callable[[], Awaitable[None]] = do_nothing
    credentialed: bool = False
    socket: BackendSocket | None = None
    dropped: bool = False
    page: Headers = ()
    later: Callable[[], Sequence[str]] = tuple


LONG: Final = 256 * 1024
"""Bytes from which a body is scanned without blocking the event loop."""


class DecidedRequest(Struct, frozen=True):
    """A request, its canonical form, and the policy's decision on it.

    `obligations` are those of the decision. `key` is the idempotency key that is sent with it, None without one.
    """

    request: Request
    canonical: CanonicalRequest
    decision: Decision
    obligations: Obligations
    key: str | None = None

    @property
    def streams(self) -> bool:
        """True if the answer may be sent before it is complete; values can be changed in a complete answer only."""
        whole = self.obligations.mask or self.obligations.vault
        return (self.request.stream and self.obligations.stream and not whole) or self.canonical.opens_socket

    @property
    def wants_events(self) -> bool:
        """True if an event stream or a WebSocket is requested: such an answer has no end to wait for."""
        events = any(name == "accept" and "text/event-stream" in value for name, value in self.canonical.headers)
        return events or self.canonical.opens_socket


async def decide_request(
    policy: Policy, request: Request, caller: Caller, record: Record, now: float, backend: str | None = None
) -> DecidedRequest:
    """Return the request with the decision that allows it. Raises `Refusal` if it is denied.

    `now` is in seconds since the epoch; `backend` is given if it is already known.
    """
    if len(request.body) > LONG:
        canonical = await _beside(policy, request, backend)
    else:
        canonical = canonicalise(policy, request, backend)
    decision = decide(policy, canonical, caller, now)
    obligations = decision.obligations
    record.note(
        method=canonical.shown_method,
        url=canonical.url,
        backend=canonical.backend,
        request_size=len(canonical.body),
        route=decision.route,
        decision=decision.effect,
        reasons=list(decision.reasons),
    )
    if canonical.protocols is not None:
        record.note(protocols=list(canonical.protocols))
    record.mark("decide")
    if decision.effect is Effect.DENY:
        raise decision.refusal()
    if obligations.reported:
        record.report(*decision.reasons)
    if len(canonical.body) > obligations.request_limit:
        limit = obligations.request_limit
        raise Refusal(Reason.REQUEST_TOO_LARGE, f"The body has {len(canonical.body)} bytes; {limit} are allowed here.")
    return DecidedRequest(request, canonical, decision, obligations)


async def _beside(policy: Policy, request: Request, backend: str | None) -> CanonicalRequest:
    """Run `canonicalise` in a thread, or in steps that let the event loop run in between."""
    if policy.reads_body:  # a parsed body has no steps
        return await asyncio.to_thread(canonicalise, policy, request, backend)
    # In a thread, the scan would contend for the GIL at each system call of the event loop.
    steps = canonicalise_in_steps(policy, request, backend)
    canonical = next(steps)
    while canonical is None:
        await asyncio.sleep(0)
        canonical = next(steps)
    return canonical


FIELD: Final = "idempotency-key"
LONGEST: Final = 255

_NAMES: Final = (FIELD, "idempotency_key")
_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")

log = logging.getLogger(__name__)


class KeyStore(Protocol):
    """The storage of keys: `gateway.stores.usage.IdempotencyKeys`. Both methods raise OSError."""

    async def secret(self) -> bytes: ...

    async def claim(self, owner: str, key: str, digest: str, now: float) -> bool: ...


class Idempotency:
    """Gives each request the idempotency key that is sent with it. `now` is the time of day, in seconds."""

    def __init__(self, keys: KeyStore, now: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._now = now

    async def add_key(self, decided_request: DecidedRequest, caller: Caller) -> DecidedRequest:
        """Return `decided_request` with its key; safe methods have none.

        The key is the app's, hashed with principal, app and route, or a random one for the retries of an idempotent
        route. Raises `Refusal`: `bad-request` for an invalid key, `idempotency-conflict` for one that was used for
        another request, `state-unavailable` for one that cannot be looked up at present.
        """
        if decided_request.canonical.method in SAFE_METHODS:
            return decided_request
        keys = [value for name, value in decided_request.canonical.headers if name in _NAMES]
        if not keys:
            return (
                replace(decided_request, key=secrets.token_urlsafe(24))
                if decided_request.obligations.idempotent
                else decided_request
            )
        if len(keys) > 1 or len(keys[0]) > LONGEST or not _KEY.fullmatch(keys[0]):
            raise Refusal(Reason.BAD_REQUEST, f"{FIELD}: must be one text of up to {LONGEST} visible characters.")
        try:
            key = _hash_key(await self._keys.secret(), decided_request, caller, keys[0])
            owner = hashlib.sha256(frame_parts(*_owner(caller))).hexdigest()
            fresh = await self._keys.claim(owner, key, _digest(decided_request), self._now())
        except OSError as error:
            log.error("idempotency keys cannot be looked up: %s", error)
            detail = "The idempotency key of this call cannot be looked up at present; nothing was sent."
            raise Refusal(Reason.STATE_UNAVAILABLE, detail) from error
        if not fresh:
            raise Refusal(Reason.IDEMPOTENCY_CONFLICT, "This idempotency key was used for another request.")
        return replace(decided_request, key=key)


def _hash_key(secret: bytes, decided_request: DecidedRequest, caller: Caller, key: str) -> str:
    """Return the key as the backend sees it: callers share a credential there, so their keys must not collide."""
    parts = (*_owner(caller), decided_request.canonical.backend, decided_request.decision.route or "", key)
    return hmac.new(secret, frame_parts(*parts), hashlib.sha256).hexdigest()


def _owner(caller: Caller) -> tuple[str, str, str]:
    """Return the namespace of a caller's keys; each view of a shared principal has a separate one."""
    return (caller.principal.id, caller.app, (caller.view or "") if caller.principal.shared else "")


def _digest(decided_request: DecidedRequest) -> str:
    """Return the digest of the request that the key is bound to, without fields that differ on each attempt."""
    content_headers = tuple(field for field in decided_request.canonical.headers if field[0].startswith("content-"))
    return replace(decided_request.canonical, headers=content_headers).digest

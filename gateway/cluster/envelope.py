"""The signed envelope of a request from one node to another, and the protection against its repetition."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.crypto import SigningKeys, base64url, frame_parts
from gateway.model import Principal

FRESH: Final = 30.0
"""Seconds for which an envelope is accepted after it was made; both times are those of the database."""

WINDOW: Final = 16_384
"""The distance behind the newest number of a sender at which one is still accepted: requests overtake each other."""

SENDERS: Final = 1024
"""Senders whose numbers are remembered; those that have not sent for longest are forgotten when they are not fresh."""

LARGEST: Final = 64 * 1024
"""Characters of the largest envelope, which contains the caller's claims."""

STREAM: Final = "stream"
"""The body digest of a request whose body is streamed: the connection protects it."""

FIELDS: Final = (
    "accept",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "origin",
    "traceparent",
    "tracestate",
)
"""The header fields of a request that another node gets: none that authenticates the caller, whom it is told."""

HEADER: Final = "webmcp-gateway-forward"
"""The header field with the envelope."""


class ForwardedCaller(Struct, frozen=True, forbid_unknown_fields=True):
    """The caller as the first node has authenticated it."""

    issuer: str
    client: str
    subject: str
    roles: tuple[str, ...]
    capabilities: tuple[str, ...]
    claims: dict[str, Any]
    shared: bool
    session: bool
    expires: float | None
    proof: str

    @classmethod
    def of(cls, principal: Principal) -> ForwardedCaller:
        """Return what another node needs of `principal`."""
        return cls(
            principal.issuer, principal.client, principal.subject, tuple(sorted(principal.roles)),
            tuple(sorted(principal.capabilities)), dict(principal.claims), principal.shared, principal.session,
            principal.expires, principal.proof,
        )  # fmt: skip

    def principal(self) -> Principal:
        """Return the principal."""
        return Principal(
            self.issuer, self.client, self.subject, frozenset(self.roles), frozenset(self.capabilities), self.claims,
            self.shared, self.session, self.expires, self.proof,
        )  # fmt: skip


class Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a forwarded request is bound to.

    `sender` and `receiver` are incarnations. `mount` is the MCP server, empty for that of all apps. `target` is path
    and query. `authenticated` is when the first node has authenticated the caller; `capabilities` are the negotiated
    ones of its client. `client` is its address, `trace` its trace context. `deadline`, `time` and `authenticated` are
    in seconds since the epoch on the clock of the database. `body` is the SHA-256 of the body in hex, or `STREAM`.
    `fields` is the digest of the header fields in `FIELDS`. `number` is used once between these two incarnations.
    """

    sender: str
    receiver: str
    mount: str
    method: str
    target: str
    caller: ForwardedCaller
    authenticated: float
    capabilities: tuple[str, ...]
    client: str
    trace: dict[str, str]
    deadline: float
    fields: str
    body: str
    time: float
    number: int


class BadEnvelope(Exception):
    """The request was not made by a node with these keys for this one, now; the message says why, for the log."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Envelope)


def body_digest(body: bytes) -> str:
    """Return the digest of a body."""
    return hashlib.sha256(body).hexdigest()


def fields_digest(headers: Mapping[str, str]) -> str:
    """Return the digest of those header fields that another node reads; names are in lower case, or in any."""
    fields = [(name, value) for name in FIELDS if (value := headers.get(name)) is not None]
    return hashlib.sha256(frame_parts(*(part for field in fields for part in field))).hexdigest()


def seal(envelope: Envelope, keys: SigningKeys) -> str:
    """Return the envelope with its signature, for a header field."""
    text = base64url(_ENCODER.encode(envelope))
    return f"{text}.{keys.sign('forward', text)}"


class _Numbers:
    """The used numbers of one sender: a bit for each of the last `WINDOW`."""

    __slots__ = ("_newest", "_seen", "last")

    def __init__(self) -> None:
        self._newest = 0
        self._seen = 0
        self.last = 0.0

    def use(self, number: int) -> bool:
        """Mark a number as used; False if it was, or is too old to know."""
        if number > self._newest:
            ahead = number - self._newest
            self._seen = ((self._seen << ahead) | 1) & ((1 << WINDOW) - 1) if ahead < WINDOW else 1
            self._newest = number
            return True
        behind = self._newest - number
        if number < 1 or behind >= WINDOW or self._seen >> behind & 1:
            return False
        self._seen |= 1 << behind
        return True


class Receiver:
    """Opens the envelopes of other nodes: each is accepted once, by the node that it names, while it is fresh.

    `incarnation` returns that of this node, `now` the time of the database.
    """

    def __init__(self, keys: SigningKeys, incarnation: Callable[[], str], now: Callable[[], float]) -> None:
        self._keys = keys
        self._incarnation = incarnation
        self._now = now
        self._numbers: dict[str, _Numbers] = {}

    def open(self, text: str, method: str, target: str, headers: Mapping[str, str]) -> Envelope:
        """Return the envelope of a request. Raises `BadEnvelope`. The body is checked by `check_body`."""
        signed, _, signature = text.rpartition(".")
        if not signed or len(text) > LARGEST or not self._keys.verify(signature, "forward", signed):
            raise BadEnvelope("it is not signed with a key of this cluster")
        try:
            envelope = _DECODER.decode(base64.urlsafe_b64decode(signed + "=" * (-len(signed) % 4)))
        except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
            raise BadEnvelope("it has another form: the other node may have another version") from error
        if envelope.receiver != self._incarnation():
            raise BadEnvelope("it is for another node, or for an earlier start of this one")
        if (envelope.method, envelope.target, envelope.fields) != (method, target, fields_digest(headers)):
            raise BadEnvelope("it is for another request")
        now = self._now()
        if not now - FRESH <= envelope.time <= now + FRESH:
            raise BadEnvelope("it is not fresh")
        if envelope.deadline <= now:
            raise BadEnvelope("its deadline has passed")
        if not self._numbers_of(envelope.sender, now).use(envelope.number):
            raise BadEnvelope("it was used before")
        return envelope

    def _numbers_of(self, sender: str, now: float) -> _Numbers:
        """Return the numbers of a sender; they are forgotten only once its envelopes are no longer fresh."""
        known = self._numbers.get(sender)
        if known is None:
            if len(self._numbers) >= SENDERS:
                old = now - 2 * FRESH
                self._numbers = {one: numbers for one, numbers in self._numbers.items() if numbers.last > old}
            known = self._numbers[sender] = _Numbers()
        known.last = now
        return known


def check_streamed(envelope: Envelope) -> None:
    """Raise `BadEnvelope` unless it was signed for a streamed body."""
    if envelope.body != STREAM:
        raise BadEnvelope("its body is not a stream")


def check_body(envelope: Envelope, body: bytes) -> None:
    """Raise `BadEnvelope` if this is not the body that was signed."""
    if envelope.body != body_digest(body):
        raise BadEnvelope("its body is another one")

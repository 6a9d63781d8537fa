"""Forwarded requests: only what a node with the keys made for this one, now, is accepted, and only once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.cluster.envelope import (
    FRESH,
    STREAM,
    WINDOW,
    BadEnvelope,
    Envelope,
    ForwardedCaller,
    Receiver,
    body_digest,
    check_body,
    fields_digest,
    seal,
)
from gateway.crypto import SigningKeys
from gateway.model import Principal

NEW, OLD, FOREIGN = (SigningKeys((bytes([n]) * 32,)) for n in (1, 2, 3))
ANN = Principal(
    "https://issuer", "client", "ann", frozenset({"staff"}), frozenset({"mcp"}), {"team": ["a"]}, expires=9e9
)
FIELDS = {"host": "node", "mcp-session-id": "s"}


@dataclass
class Clock:
    """A clock that is set by hand."""

    now: float = 1000.0


@dataclass
class World:
    """A receiver with both keys, and its clock."""

    clock: Clock = field(default_factory=Clock)
    receiver: Receiver = field(init=False)

    def __post_init__(self) -> None:
        self.receiver = Receiver(SigningKeys((*NEW.keys, *OLD.keys)), lambda: "receiver", lambda: self.clock.now)

    def open(self, text: str, method: str = "POST", target: str = "/calls", **fields: str) -> Envelope:
        """Open an envelope that came with this request."""
        return self.receiver.open(text, method, target, fields or FIELDS)


def envelope(number: int = 1, **changes: Any) -> Envelope:
    """Return an envelope that the receiver accepts, with changes."""
    made = Envelope(
        sender="sender",
        receiver="receiver",
        mount="cart",
        method="POST",
        target="/calls",
        caller=ForwardedCaller.of(ANN),
        authenticated=1000.0,
        capabilities=("app",),
        client="192.0.2.1",
        trace={},
        deadline=1060.0,
        fields=fields_digest(FIELDS),
        body=body_digest(b"{}"),
        time=1000.0,
        number=number,
    )
    return replace(made, **changes)


def test_a_good_one_brings_the_caller() -> None:
    """The principal is as the first node has authenticated it, by either key."""
    world = World()
    for number, keys in ((1, NEW), (2, OLD)):
        opened = world.open(seal(envelope(number), keys))
        found = opened.caller.principal()
        assert (found, found.roles, found.capabilities, found.claims, found.expires) == (
            ANN, ANN.roles, ANN.capabilities, ANN.claims, ANN.expires,
        )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, receiver="another"),
        lambda one: replace(one, method="GET"),
        lambda one: replace(one, target="/mcp"),
        lambda one: replace(one, fields=fields_digest({"host": "node"})),
        lambda one: replace(one, time=1000 - FRESH - 1),
        lambda one: replace(one, time=1000 + FRESH + 1),
        lambda one: replace(one, deadline=999.0),
        lambda one: replace(one, number=0),
        lambda one: replace(one, number=-1),
    ],
    ids=["redirected", "method", "target", "fields", "stale", "early", "deadline", "zero", "negative"],
)
def test_others_are_refused(change: Callable[[Envelope], Envelope]) -> None:
    """A signed envelope for another node, request or time."""
    with pytest.raises(BadEnvelope):
        World().open(seal(change(envelope()), NEW))


def test_a_foreign_key_is_refused() -> None:
    """So is an envelope without a signature, with another one's, or a part of one."""
    world, good = World(), seal(envelope(), NEW)
    other = seal(envelope(2), NEW)
    text, _, signature = good.rpartition(".")
    forged = [
        seal(envelope(), FOREIGN),
        text,
        f"{text}.",
        f".{signature}",
        "",
        f"{other.rpartition('.')[0]}.{signature}",
        f"{text[:-4]}AAAA.{signature}",
        "x" * 100_000,
    ]
    for one in forged:
        with pytest.raises(BadEnvelope):
            world.open(one)
    assert world.open(good).sender == "sender"


def test_a_repeated_one_is_refused() -> None:
    """At once, later, out of order, and beyond the window; requests may overtake each other."""
    world = World()
    sealed = {number: seal(envelope(number), NEW) for number in (1, 2, 3, WINDOW + 3)}
    for number in (3, 1):
        world.open(sealed[number])
        with pytest.raises(BadEnvelope, match="used before"):
            world.open(sealed[number])
    world.open(sealed[WINDOW + 3])
    for number in (1, 2, 3, WINDOW + 3):  # the second was never used, and is too old to know
        with pytest.raises(BadEnvelope, match="used before"):
            world.open(sealed[number])


def test_numbers_are_of_each_sender() -> None:
    """The same number of another node is another one; a refused request uses none."""
    world = World()
    with pytest.raises(BadEnvelope):
        world.open(seal(envelope(7), NEW), target="/mcp")
    for sender in ("sender", "other"):
        assert world.open(seal(envelope(7, sender=sender), NEW)).sender == sender


def test_many_senders_do_not_open_the_window_again() -> None:
    """Numbers of a sender are forgotten only when its envelopes are no longer fresh."""
    world = World()
    first = seal(envelope(1), NEW)
    world.open(first)
    for n in range(3000):
        world.open(seal(envelope(1, sender=f"s{n}"), NEW))
    with pytest.raises(BadEnvelope, match="used before"):
        world.open(first)


def test_the_body_is_signed() -> None:
    """Another body is refused; a streamed one is not checked here."""
    check_body(envelope(), b"{}")
    for body in (b"", b"{ }"):
        with pytest.raises(BadEnvelope):
            check_body(envelope(), body)
    with pytest.raises(BadEnvelope):
        check_body(envelope(body=STREAM), b"{}")

"""Ids of live objects, which name the node that made them: `<incarnation><random><MAC>`, each of a fixed length."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.crypto import SigningKeys, base64url, equals_secret

INCARNATION: Final = 12
"""Characters of an incarnation: 72 random bits."""

RANDOM: Final = 22
"""Characters of the random part: 128 bits."""

_MAC_BYTES: Final = 12
LENGTH: Final = INCARNATION + RANDOM + _MAC_BYTES * 4 // 3
"""Characters of an id: 50. Dots separate the fields of proofs and frames that contain ids, so an id has none."""

_FORM: Final = re.compile(rf"[A-Za-z0-9_-]{{{LENGTH}}}", re.ASCII)


class ObjectKind(StrEnum):
    """The kind of a live object; an id of one kind is no id of another."""

    VIEW = "view"
    STREAM = "stream"
    CALL = "call"
    APPROVAL = "approval"
    BODY = "body"
    DOCUMENT = "document"
    STATE = "request-state"


def incarnation(random: Callable[[int], bytes]) -> str:
    """Return the id of a new incarnation."""
    return base64url(random(INCARNATION * 3 // 4))


@dataclass(frozen=True, slots=True)
class ObjectIds:
    """Makes the ids of live objects of this node, and reads those of all nodes.

    `incarnation` returns that of this node, `random` random bytes.
    """

    keys: SigningKeys
    incarnation: Callable[[], str]
    random: Callable[[int], bytes]

    def new(self, kind: ObjectKind) -> str:
        """Return the id of a new object of this node."""
        text = self.incarnation() + base64url(self.random(16))
        return text + self._macs(kind, text)[0]

    def incarnation_of(self, kind: ObjectKind, id: str) -> str | None:
        """Return the incarnation that made the object `id`; None unless a node with these keys made the id."""
        if not _FORM.fullmatch(id):
            return None
        text, mac = id[: INCARNATION + RANDOM], id[INCARNATION + RANDOM :]
        if not any(equals_secret(mac, known) for known in self._macs(kind, text)):
            return None
        return id[:INCARNATION]

    def _macs(self, kind: ObjectKind, text: str) -> list[str]:
        return [base64url(mac[:_MAC_BYTES]) for mac in self.keys.secrets("object", kind, text)]

"""Heads: signed lines of the journal that prove every line before them, and the key that signs them."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.documents.reader import read_bytes
from gateway.errors import StartError
from gateway.jsontext.writing import signed_json
from gateway.model import Json
from gateway.stores.lines import ChainLink, fields_of
from gateway.stores.sealing import write_private

SIGNATURE: Final = "signature"
KEY_BYTES: Final = 32
EVERY: Final = 10.0
"""Seconds between two heads, while lines are written."""

MAX_KEYS: Final = 1024 * 1024
"""Bytes of a file of public keys."""


@dataclass(frozen=True, slots=True)
class JournalKey:
    """The private key of a journal (Ed25519, RFC 8032), made of 32 secret bytes; `repr` hides it."""

    _private: Ed25519PrivateKey

    @property
    def public(self) -> str:
        """The public key, as heads contain it and `audit verify` takes it: 32 bytes in base64."""
        raw = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return base64.b64encode(raw).decode()

    def sign(self, writer: str, seq: int, prev: str, time: float, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Return the fields of a head, with its key and signature."""
        signed: dict[str, Json] = {**fields, "key": self.public}
        signature = self._private.sign(_message(writer, seq, prev, time, signed))
        return {**signed, SIGNATURE: base64.b64encode(signature).decode()}

    def __repr__(self) -> str:
        return "Key(…)"


def key_of(text: str) -> JournalKey:
    """Return the key in `text`: 32 bytes in base64. Raises ValueError."""
    try:
        raw = base64.b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise ValueError("is not base64") from error
    if len(raw) != KEY_BYTES:
        raise ValueError(f"has {len(raw)} bytes, not {KEY_BYTES}")
    return JournalKey(Ed25519PrivateKey.from_private_bytes(raw))


def new_key() -> JournalKey:
    """Return a new key that is stored nowhere."""
    return JournalKey(Ed25519PrivateKey.generate())


def key_in(path: Path) -> JournalKey:
    """Return the key in the file `path`, which is created, for its owner alone, if missing. Raises StartError."""
    try:
        if not path.exists():
            with suppress(FileExistsError):  # another process was faster
                write_private(path, base64.b64encode(os.urandom(KEY_BYTES)).decode(), replace=False)
        if path.stat().st_mode & 0o077:
            raise StartError(f"the key of the record, {path}, can be read by others: chmod 600 {path}")
        return key_of(path.read_text("ascii"))
    except OSError as error:
        raise StartError(f"the key of the record, {path}, cannot be used: {error.strerror}") from error
    except ValueError as error:
        raise StartError(f"the key of the record, {path}, {error}; give 32 bytes in base64") from error


def keys_beside(journal: Path) -> Path:
    """Return the file of a journal's public keys: the current one and its predecessors."""
    return journal.with_name(f"{journal.name}.keys")


def known_keys(path: Path) -> list[str]:
    """Return the public keys in such a file, oldest first; none if it is missing. Raises OSError."""
    try:
        lines = read_bytes(path, MAX_KEYS).decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def remember(path: Path, public: str) -> None:
    """Append the current public key to the file, unless it is the last one. Raises StartError."""
    try:
        known = known_keys(path)
        if known[-1:] == [public]:
            return
        about = "" if known else "# Public keys that have signed the record, oldest first: for `audit verify`.\n"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{about}{public}\n")
    except OSError as error:
        raise StartError(f"the public keys of the record, {path}, cannot be kept: {error.strerror}") from error


def is_head(link: ChainLink) -> bool:
    """Return whether a line contains a signature."""
    return link.phase == "note" and link.values is not None and b'"signature":' in link.values


def copies_of(head: Mapping[str, Json]) -> dict[str, str]:
    """Return, by sink, the hash of the last line that it had when a head was written."""
    copied_heads = head.get("copied")
    if not isinstance(copied_heads, dict):
        return {}
    return {sink: last for sink, last in copied_heads.items() if isinstance(last, str)}


def head_problem(link: ChainLink, trusted_keys: Sequence[str] | None) -> str | None:
    """Return the problem of a signed line: its key is not `trusted_keys` (None: any), or its signature is invalid."""
    fields = dict(fields_of(link))
    signature, key = fields.pop(SIGNATURE, None), fields.get("key")
    if not isinstance(signature, str) or not isinstance(key, str):
        return "is a head without signature"
    if trusted_keys is not None and key not in trusted_keys:
        return f"is signed with the key {key[:64]}, which is not one that you trust"
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key, validate=True))
        message = _message(link.writer, link.seq, link.prev, link.time, fields)
        public.verify(base64.b64decode(signature, validate=True), message)
    except (InvalidSignature, ValueError):
        return "is a head with an invalid signature: it was forged, or the lines before it were altered"
    return None


def _message(writer: str, seq: int, prev: str, time: float, fields: Mapping[str, Json]) -> bytes:
    """Return the signed bytes: the place in the chain, the hash of the previous line, and all fields of the head."""
    signed = signed_json([writer, seq, prev, float(time), dict(fields)])
    return b"webmcp-gateway head 1\n" + signed.encode("ascii")

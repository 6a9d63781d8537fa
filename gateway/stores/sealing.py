"""Encryption at rest: AES-256-GCM with keys of the environment, a file, or the system's keyring."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from gateway.config import ClusterSettings
from gateway.crypto import SigningKeys
from gateway.errors import StartError
from gateway.model import Secret

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_SERVICE: Final = "webmcp-gateway"
REMEDY: Final = "a key is 32 random bytes in base64: `webmcp-gateway credential rotate-key --print` makes one"


class SealBroken(Exception):
    """The stored value was sealed with a missing key, or was altered."""


class KeySource(Protocol):
    """The storage of keys: the newest first, in one text. Methods raise StartError if it is unavailable."""

    def read(self) -> str:
        """Return all keys, separated by white space; create one if there is none and the storage permits it."""
        ...

    def write(self, keys: str) -> None:
        """Replace the keys. Raises StartError if the storage is read-only."""
        ...

    def stamp(self) -> object:
        """Return a value that differs when the keys may have changed."""
        ...


@dataclass(frozen=True, slots=True)
class GivenKeys:
    """Keys of the environment; `name` is the variable's."""

    name: str
    keys: Secret

    def read(self) -> str:
        """Return the keys of the variable."""
        return self.keys.reveal()

    def write(self, keys: str) -> None:
        """Raise StartError: the environment is read-only."""
        raise StartError(f"{self.name} is a variable: put the new key in front of the old ones there, and start again")

    def stamp(self) -> object:
        """Return None: the keys do not change."""
        return None


def write_private(path: Path, line: str, *, replace: bool) -> None:
    """Write a file of one line for its owner alone, whole or not at all, also if this process is killed.

    Raises OSError; FileExistsError if it exists and must not be replaced.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        fresh.replace(path) if replace else os.link(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A file that its owner alone can read; it is created if missing."""

    path: Path

    def read(self) -> str:
        """Return the keys; raises StartError for a file that others can read."""
        try:
            mode = self.path.stat().st_mode
            if stat.S_IMODE(mode) & 0o077:
                raise StartError(f"others can read the key file {self.path}: chmod 600 {self.path}")
            return self.path.read_text("ascii")
        except FileNotFoundError:
            return self._make()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise StartError(f"the key file {self.path} cannot be read: {reason}") from error

    def write(self, keys: str) -> None:
        """Replace the file atomically: readers see the old one or the new one."""
        self._place(keys, replace=True)

    def stamp(self) -> object:
        """Return inode and modification time."""
        try:
            stat = self.path.stat()
        except OSError:
            return None
        return (stat.st_ino, stat.st_mtime_ns)

    def _make(self) -> str:
        with suppress(FileExistsError):  # another process was faster
            self._place(new_key(), replace=False)
        return self.path.read_text("ascii")

    def _place(self, keys: str, *, replace: bool) -> None:
        try:
            write_private(self.path, keys, replace=replace)
        except FileExistsError:
            raise
        except OSError as error:
            raise StartError(f"the key file {self.path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class SystemKeyring:
    """The keyring of the system, through the package `keyring`; `account` names the gateway in it."""

    account: str

    def read(self) -> str:
        """Return the keys; create one if there is none."""
        password = self._call("get_password", _SERVICE, self.account)
        if password is None:
            self.write(new_key())
            password = self._call("get_password", _SERVICE, self.account)
        if not isinstance(password, str):
            raise StartError("the system's keyring does not store values")
        return password

    def write(self, keys: str) -> None:
        """Replace the keys."""
        self._call("set_password", _SERVICE, self.account, keys)

    def stamp(self) -> object:
        """Return None: the keyring is read once, since it may ask the person."""
        return None

    def _call(self, name: str, *arguments: str) -> object:
        try:
            keyring: ModuleType = importlib.import_module("keyring")
        except ImportError as error:
            raise StartError("stores.encryption_key: keyring needs the package: pip install keyring") from error
        try:
            result: object = getattr(keyring, name)(*arguments)
        except Exception as error:  # noqa: BLE001  a keyring is foreign code with its own errors; texts may be secret
            raise StartError(f"the system's keyring cannot be used: {type(error).__name__}") from None
        return result


class KeyRing:
    """The keys of a gateway: the first one seals, all of them open. They are read at the first use."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._stamp: object = None
        self._keys: dict[str, bytes] = {}

    def seal(self, text: str, place: str) -> tuple[str, bytes]:
        """Return the key's id and `text` sealed for `place`, with which alone it opens. Raises StartError."""
        self.load()
        id, key = next(iter(self._keys.items()))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return id, nonce + AESGCM(key).encrypt(nonce, text.encode(), _associated_data(id, place))

    def open(self, id: str, ciphertext: bytes, place: str) -> str:
        """Return the text. Raises `SealBroken`; StartError if the keys are unavailable."""
        self.load()
        if id not in self._keys:  # another process has rotated the key
            self._read()
        key = self._keys.get(id)
        if key is None:
            raise SealBroken(f"it is sealed with the key {id}, which is not there")
        try:
            return (
                AESGCM(key)
                .decrypt(ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:], _associated_data(id, place))
                .decode()
            )
        except (InvalidTag, ValueError) as error:
            raise SealBroken("it was altered, or belongs to another place") from error

    def load(self) -> None:
        """Read the keys if that was not done, or they may have changed. Raises StartError."""
        if not self._keys or self._source.stamp() != self._stamp:
            self._read()

    def derive(self, purpose: str) -> SigningKeys:
        """Return the signing keys for `purpose`, the same in every process with these keys. Raises StartError."""
        self.load()
        info = f"webmcp-gateway {purpose}".encode()
        return SigningKeys(tuple(HKDF(SHA256(), KEY_BYTES, None, info).derive(key) for key in self._keys.values()))

    def rotate(self) -> tuple[str, ...]:
        """Prepend a new key, keep the previous one, which other processes may use; return all ids.

        Raises StartError.
        """
        ids = self._source.read().split()[:1]
        self._source.write(" ".join((new_key(), *ids)))
        self._read()
        return tuple(self._keys)

    def _read(self) -> None:
        self._keys = parse_keys(self._source.read())
        self._stamp = self._source.stamp()

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the keys, newest first."""
        self.load()
        return tuple(self._keys)


def cluster_ring(settings: ClusterSettings | None) -> KeyRing | None:
    """Return the keys that the processes of a gateway share; None for a single process."""
    return KeyRing(GivenKeys("cluster.keys", settings.keys)) if settings is not None else None


def login_keys(settings: ClusterSettings | None) -> SigningKeys | None:
    """Return the keys that sign logins and tokens of several processes; None for a single one. Raises StartError."""
    ring = cluster_ring(settings)
    return ring.derive("logins") if ring is not None else None


def new_key() -> str:
    """Return a new key as text."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def parse_keys(text: str) -> dict[str, bytes]:
    """Return keys by their ids, in order. Raises StartError, without quoting the text."""
    keys: dict[str, bytes] = {}
    for word in text.replace(",", " ").split():
        try:
            key = base64.b64decode(word.replace("-", "+").replace("_", "/") + "=" * (-len(word) % 4), validate=True)
        except (ValueError, binascii.Error):
            key = b""
        if len(key) != KEY_BYTES:
            raise StartError(f"stores.encryption_key: {REMEDY}")
        keys[hashlib.sha256(b"webmcp-gateway key id\n" + key).hexdigest()[:12]] = key
    if not keys:
        raise StartError(f"stores.encryption_key: there is no key; {REMEDY}")
    return keys


def _associated_data(id: str, place: str) -> bytes:
    return f"{id}\n{place}".encode()

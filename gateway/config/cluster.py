"""Reads `cluster`: how this process takes part in a gateway of several processes, its nodes."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config import locations
from gateway.config.secrets import UNSET, listed_secrets
from gateway.documents import Node, Section
from gateway.model import Secret

KEY_BYTES: Final = 32
"""Bytes of a key, in base64."""

LONGEST_PATH: Final = 100
"""Characters of the longest path of a Unix socket: the system's limit is 107 bytes with the final zero (unix(7))."""

REMEDY: Final = "a key is 32 random bytes in base64: `webmcp-gateway credential rotate-key --print` makes one"

DEFAULT_LISTEN: Final = "127.0.0.1:7946"
"""Stands in for an address that cannot be read; there is no default."""

NAME: Final = "{name}"
"""Stands for `cluster.name` in `cluster.address`: so that all nodes have the same gateway.yaml."""

_UNIX: Final = "unix:"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The address at which a node listens for others: the path of a Unix socket, or host and port."""

    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        """Return the address as it is written in gateway.yaml."""
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeTls:
    """The PEM files with which nodes authenticate to each other: each has a certificate of the same authority."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A node's name, the address at which it listens, the one at which others reach it, and the keys of all nodes.

    `keys` are the newest first, separated by spaces. `tls` is None on a Unix socket. The addresses are None for workers
    of one machine, whose supervisor gives each its own, and the folder `metrics`, in which they share theirs.
    """

    name: str
    keys: Secret
    listen: NodeAddress | None = None
    address: NodeAddress | None = None
    tls: NodeTls | None = None
    metrics: Path | None = None


def read_cluster(root: Section, folder: Path, state: Path, environ: Mapping[str, str]) -> ClusterSettings | None:
    """Read the section `cluster`; None without one. A Unix socket is relative to `state`, other paths to `folder`."""
    if root.get("cluster") is None:
        return None
    section = root.section("cluster")
    section.require("keys")
    if section.get("listen") is None:
        for key in ("address", "tls"):
            if section.get(key) is not None:
                section.problem("goes with listen, which is missing", key)
        _tls(section, NodeAddress(), folder)
        return ClusterSettings(_name(section), keys=_keys(section, folder, environ))
    name = _name(section)
    listen = _address(section, "listen", state)
    address = _address(section, "address", state, name) if section.get("address") is not None else listen
    if address.host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not listened at
        section.problem("is every address of this machine: write the one at which other nodes reach it", "address")
    if (address.path is None) != (listen.path is None):
        section.problem("must be a Unix socket if listen is one, and only then", "address")
    return ClusterSettings(
        name=name,
        keys=_keys(section, folder, environ),
        listen=listen,
        address=address,
        tls=_tls(section, listen, folder),
    )


def secret_nodes(root: Section) -> list[Node]:
    """Return the list of keys, whose items are secrets."""
    node = root.node.value.get("cluster") if isinstance(root.node.value, Mapping) else None
    keys = node.value.get("keys") if node is not None and isinstance(node.value, Mapping) else None
    return [keys] if keys is not None else []


def _name(section: Section) -> str:
    name = section.text("name", os.uname().nodename or "gateway")
    if not _NAME.fullmatch(name):
        section.problem(f"the name {name!r} must be 1 to 63 letters, digits, '.', '_' and '-'", "name")
    return name


def _address(section: Section, key: str, state: Path, name: str = NAME) -> NodeAddress:
    """Read an address, in which `NAME` stands for `name`; without a name, it must not be there."""
    text = section.text(key).replace(NAME, name)
    if not text:
        return NodeAddress()
    if text.startswith(_UNIX):
        path = state / text.removeprefix(_UNIX)
        if len(str(path)) > LONGEST_PATH:
            section.problem(f"the path {path} is too long for a Unix socket: {LONGEST_PATH} characters at most", key)
        return NodeAddress(path=path)
    return NodeAddress(None, *locations.read_listen(section, key, DEFAULT_LISTEN, text))


def _keys(section: Section, folder: Path, environ: Mapping[str, str]) -> Secret:
    keys = [one.reveal() for one in listed_secrets(section, "keys", folder, environ)]
    if section.get("keys") is not None and not keys and not section.nodes("keys"):
        section.problem(f"name at least one key; {REMEDY}", "keys")
    for key in keys:
        if key not in (UNSET, "") and not _is_key(key):
            section.problem(REMEDY, "keys")
            break
    return Secret(" ".join(keys))


def _is_key(text: str) -> bool:
    try:
        raw = base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return False
    return len(raw) == KEY_BYTES


def _tls(section: Section, listen: NodeAddress, folder: Path) -> NodeTls | None:
    if section.get("tls") is None:
        if listen.path is None and section.get("listen") is not None:
            section.problem(
                "connections between machines need mutual TLS: write tls with certificate, key and authority, or "
                "listen on a Unix socket (unix:node.sock) if all nodes are on this machine",
                "listen",
            )
        return None
    tls = section.section("tls")
    tls.require("certificate", "key", "authority")
    if listen.path is not None:
        section.problem("is for an address and a port; a Unix socket has none", "tls")
    names = {}
    for key in ("certificate", "key", "authority"):
        names[key] = folder / tls.text(key)
        if tls.get(key) is not None and not names[key].is_file():
            tls.problem(f"there is no file {names[key]}", key)
    return NodeTls(**names) if listen.path is None else None

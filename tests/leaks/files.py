"""Scans every file that the gateways of a run have left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.leaks.watch import Watch

INPUTS: Final = re.compile(
    r"gateway.*\.ya?ml|.*\.(key|pem|keys|tar)|shop\.(db|log|yaml).*|key|.*secret.*|issuer.*|html"
)
"""Files that the tests and their other servers write, or that contain a key and nothing else; backups have the keys."""

SECRETS: Final = "secrets"
"""A folder of files that the tests write for `${file:…}`: each contains a secret and nothing else."""

BLOCK: Final = 8 * 1024 * 1024
OVERLAP: Final = 128

_WORD: Final = re.compile(rb"[A-Za-z0-9_-]{20,}")
_ISSUED: Final = re.compile(rb"wmg_[A-Za-z0-9]{12}_[A-Za-z0-9_-]{43}")


def look_through(root: Path, watch: Watch, cookies: set[str]) -> None:
    """Scan journals, databases, logs and others for marked secrets, gateway tokens, keys and cookies."""
    sessions = {cookie.encode() for cookie in cookies}
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())):
        if folder.name == SECRETS:
            continue
        files = [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()]
        keys = [key for path in files if path.suffix == ".key" for key in path.read_bytes().split() if len(key) > 30]
        for path in files:
            if not INPUTS.fullmatch(path.name):
                _look(path, watch, keys, sessions)


def _look(path: Path, watch: Watch, keys: list[bytes], sessions: set[bytes]) -> None:
    for data in _blocks(path):
        watch.look("files", data, str(path))
        found = [word for word in (*keys, *_ISSUED.findall(data)) if word in data]
        if sessions:
            found += sessions.intersection(_WORD.findall(data))
        for word in found:
            watch.find(f"files {path}: {word!r}")


def _blocks(path: Path) -> Iterator[bytes]:
    end = b""
    with path.open("rb") as file:
        while data := file.read(BLOCK):
            yield end + data
            end = data[-OVERLAP:]

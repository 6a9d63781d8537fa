"""Reads `stores.encryption_key`: the source of the key that encrypts stored tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from gateway.config.nouns import EncryptionKey
from gateway.config.secrets import UNSET, Unneeded
from gateway.config.settings import DEFAULTS
from gateway.documents import Section
from gateway.model import Secret

_PLACE = re.compile(r"\$\{(env|file):([^{}]+)\}|keyring")


def encryption_key(section: Section, folder: Path, environ: Mapping[str, str]) -> EncryptionKey:
    """Return the source of the key; it is read, or created, when the first token is stored."""
    text = section.text("encryption_key", DEFAULTS["stores.encryption_key"])
    match = _PLACE.fullmatch(text)
    if match is None:
        section.problem(
            "write ${env:NAME}, ${file:path} or keyring: the key itself never stands here", "encryption_key"
        )
        return EncryptionKey()
    if match[1] == "env":
        value = environ.get(match[2]) or (UNSET if isinstance(environ, Unneeded) else None)
        if not value:
            section.problem(
                f"the environment variable {match[2]} is not set: export it before you start", "encryption_key"
            )
        return EncryptionKey(variable=(match[2], Secret(value or "")))
    if match[1] == "file":
        path = folder / match[2]
        if not path.parent.is_dir():
            section.problem(f"there is no folder {path.parent}", "encryption_key")
        return EncryptionKey(file=path)
    return EncryptionKey(keyring=str(folder))

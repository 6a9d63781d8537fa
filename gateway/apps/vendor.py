"""Files of other sites that were taken into an app once: a folder beside it, and a lock with their SHA-256."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.apps.files import MEDIA_TYPES, VendorFiles
from gateway.documents.reader import read_bytes
from gateway.errors import Problem
from gateway.jsontext.writing import plain_json

LOCK: Final = "lock.json"

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of one file, and of the lock."""

MOST: Final = 500
"""Files of one app."""

AGAIN: Final = "remove it, and run `webmcp-gateway pack --vendor` again"

_SUFFIXES: Final = {
    **{media_type: suffix for suffix, media_type in reversed(MEDIA_TYPES.items())},
    "text/css": ".css",
    **dict.fromkeys(("text/javascript", "application/javascript", "application/x-javascript"), ".js"),
    **dict.fromkeys(("font/sfnt", "application/font-woff", "application/x-font-woff"), ".woff"),
    **dict.fromkeys(("application/font-woff2", "application/x-font-woff2"), ".woff2"),
    "application/x-font-ttf": ".ttf",
}


class _VendoredFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    file: str = Field(pattern=r"^[0-9a-f]{32}\.[a-z0-9]{1,8}$")
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _Lock(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    files: dict[str, _VendoredFile] = Field(max_length=MOST)


def vendor_folder(source: Path) -> Path:
    """Return the folder of these files: beside the app, since builds empty their own folder."""
    real = source.resolve()
    return real.with_name(f"{real.name}.vendor")


def read_vendored(source: Path, warn: Callable[[Problem], None] = lambda _: None) -> VendorFiles:
    """Return the files that were taken into the app; `warn` receives those that are refused."""
    folder = vendor_folder(source)
    lock = folder / LOCK
    if not lock.is_file():
        return VendorFiles(folder, {})
    try:
        named = _Lock.model_validate_json(read_bytes(lock, LARGEST)).files
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        warn(Problem(str(lock), 1, 1, f"is no lock of `pack --vendor` ({why}): {AGAIN}"))
        return VendorFiles(folder, {})
    files: dict[str, Path] = {}
    for url, one in named.items():
        path = folder / one.file
        try:
            digest = hashlib.sha256(read_bytes(path, LARGEST)).hexdigest()
        except OSError as error:
            warn(Problem(str(path), 1, 1, f"{url} cannot be read: {error.strerror}; {AGAIN}"))
            continue
        if digest != one.sha256:
            warn(Problem(str(path), 1, 1, f"has other bytes than {LOCK} names for {url}, and is left out: {AGAIN}"))
            continue
        files[url] = path
    return VendorFiles(folder, files, {path: url for url, path in files.items()})


def keep(source: Path, downloads: Mapping[str, tuple[bytes, str]]) -> None:
    """Write the files, by URL with their bytes and media types, and the lock with those from before. Raises
    `OSError`."""
    before = read_vendored(source)
    folder = before.folder
    folder.mkdir(mode=0o755, exist_ok=True)
    files = {url: _pin(path.read_bytes(), path.suffix) for url, path in before.files.items()}
    for url, (body, media_type) in downloads.items():
        one = files[url] = _pin(body, _suffix(url, media_type))
        _replace(folder / one["file"], body)
    lines = ",\n".join(f"{plain_json(url)}: {plain_json(one)}" for url, one in sorted(files.items()))
    _replace(folder / LOCK, f'{{"version": 1, "files": {{\n{lines}\n}}}}\n'.encode())


def _pin(body: bytes, suffix: str) -> dict[str, str]:
    digest = hashlib.sha256(body).hexdigest()
    return {"file": f"{digest[:32]}{suffix}", "sha256": digest}


def _suffix(url: str, media_type: str) -> str:
    """Return the suffix that stands for a media type; that of the URL if the server declares none that is known."""
    suffix = Path(url.partition("?")[0].partition("#")[0]).suffix.lower()
    known = suffix if suffix in MEDIA_TYPES or suffix in (".css", ".js", ".mjs") else ".bin"
    return _SUFFIXES.get(media_type.partition(";")[0].strip().lower(), known)


def _replace(path: Path, body: bytes) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(body)
    os.replace(new, path)

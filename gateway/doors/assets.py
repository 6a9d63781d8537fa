"""The browser files of the build: those that the gateway packs into pages, and those that it serves from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path

from aiohttp import web

from gateway.apps import FRAME_WORDS, PAGED, PARTS, SHELL, STORAGE_PART, UNGUESSED, media_type, with_parts
from gateway.doors.responses import refusal_response
from gateway.errors import StartError

RUNTIME = "view/runtime.js"

DEDICATED_PART = "dedicated/dedicated.js"
"""The script that runs first in a document on an origin of its own."""


@dataclass(frozen=True, slots=True)
class BuildFiles:
    """Their folder, and the scripts packed into pages: the view runtime, its parts by name, its storage.

    `shell` and `paged` show pages of backends; `dedicated` is for pages on an origin of their own.
    """

    folder: Path
    runtime: str
    parts: Mapping[str, Collection[str]]
    storage: str
    shell: str = ""
    paged: str = ""
    dedicated: str = ""

    @property
    def everything(self) -> str:
        """The runtime with its parts, for pages whose source is not scanned, and that have no backend of their own."""
        left = UNGUESSED.union(FRAME_WORDS)
        parts = [part for word, several in self.parts.items() if word not in left for part in several]
        return with_parts(self.runtime, parts, self.parts)


def read_built() -> BuildFiles:
    """Read the browser files. Raises `StartError` if they are not built."""
    folder = Path(str(files("gateway"))) / "static"
    scripts = (RUNTIME, STORAGE_PART, SHELL, PAGED, DEDICATED_PART, *chain(*PARTS.values()))
    if not all((folder / name).is_file() for name in scripts):
        raise StartError("The browser files are not built: install with `pip install .`, which builds them.")
    return BuildFiles(
        folder,
        (folder / RUNTIME).read_text("utf-8"),
        {word: [(folder / name).read_text("utf-8") for name in names] for word, names in PARTS.items()},
        (folder / STORAGE_PART).read_text("utf-8"),
        (folder / SHELL).read_text("utf-8"),
        (folder / PAGED).read_text("utf-8"),
        (folder / DEDICATED_PART).read_text("utf-8"),
    )


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its bytes, its entity tag, its media type."""

    body: bytes
    tag: str
    type: str


def asset(file: Path) -> Asset:
    """Return the file as it is now."""
    body = file.read_bytes()
    return Asset(body, hashlib.sha256(body).hexdigest()[:32], media_type(file))


def assets(folder: Path) -> Mapping[str, Asset]:
    """Return the files of `folder` by their names."""
    return {file.name: asset(file) for file in folder.iterdir()}


def file_response(request: web.Request, one: Asset | None, headers: Mapping[str, str]) -> web.Response:
    """Return the file, or 304 if the browser has it (RFC 9110, 13.1.2)."""
    if one is None:
        return refusal_response(404, "not-found", "There is no such file here.")
    known = request.if_none_match or ()
    if any(tag.value in (one.tag, "*") for tag in known):
        answer = web.Response(status=304, headers=headers)
    else:
        answer = web.Response(body=one.body, content_type=one.type, headers=headers)
    answer.etag = one.tag
    return answer

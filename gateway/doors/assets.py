"""The gateway's own browser files, loaded at startup and served from memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from gateway.apps import media_type
from gateway.doors.responses import refusal_response


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

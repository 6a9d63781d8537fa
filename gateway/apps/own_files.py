"""The files of an app's folder by their URLs: a view can load them as on the app's own site."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gateway.documents.files import read_bytes
from gateway.model import Response

MAX_FILES: Final = 20_000
"""Files of one app; a folder with more is not a bundler's output."""

INDEX: Final = "index.html"
"""The page of a folder, which is also served at the folder's own address."""

_SAFE: Final = "/-._~!$&'()*+,=:@"


def own_files(source: Path) -> Mapping[str, Path]:
    """Return the files by their canonical paths, without hidden ones and links out of it; none for a one-file app."""
    if not source.is_dir():
        return {}
    root = source.resolve()
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            path = Path(os.path.realpath(Path(folder) / name))
            if not name.startswith(".") and path.is_relative_to(root) and path.is_file() and len(found) < MAX_FILES:
                url = "/" + quote((Path(folder) / name).relative_to(root).as_posix(), safe=_SAFE)
                found[url] = path
                if name == INDEX:
                    found[url.removesuffix(INDEX)] = path
    return found


def media_type(path: Path) -> str:
    """Return the media type of a file's response."""
    return mimetypes.guess_type(path.name)[0] or "application/octet-stream"


def own_file(path: Path, method: str, url: str, limit: int) -> Response | None:
    """Return the file as a response; None if it is missing, larger than `limit` bytes, or has become a link."""
    try:
        if os.path.realpath(path) != str(path):
            return None
        body = read_bytes(path, limit + 1)
    except OSError:
        return None
    if len(body) > limit:
        return None
    headers = (("content-type", media_type(path)), ("cache-control", "no-cache"))
    if method == "HEAD":
        return Response(200, headers, b"", url, reason_phrase="OK", length=len(body))
    return Response(200, headers, body, url, reason_phrase="OK")

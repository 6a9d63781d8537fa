"""Resolves a backend's URL reference, such as a `Location`, as browsers do (URL Standard, 4.4), except hosts.

A host in an unusual form is left unchanged: it matches no backend of a policy.
"""

from __future__ import annotations

import re
from typing import Final

_BASE: Final = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?", re.ASCII)
_AUTHORITY: Final = re.compile(r"[\x21-\x7e]+")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):", re.ASCII)
_PARTS: Final = re.compile(r"([^?#]*)(\?[^#]*)?", re.DOTALL)
_NO_VALUE: Final = re.compile(r"[\r\n\0]|[^\0-\xff]")
"""Characters that a header's value cannot have (RFC 9110 5.5)."""

_REMOVED: Final = str.maketrans("", "", "\t")
_EDGES: Final = "".join(map(chr, range(0x21)))
"""C0 controls and space, which are stripped at both ends."""

_NOT_IN_QUERY: Final = re.compile(r"[^\x21\x23-\x26\x28-\x3b\x3d\x3f-\x7e]")
_NOT_IN_PATH: Final = re.compile(r"[^\x21\x23-\x3b\x3d\x40-\x5d\x5f\x61-\x7a\x7e]")


def resolved(base: str, reference: str) -> str | None:
    """Resolve `reference` against `base` to an absolute URL in ASCII without fragment; None if it is no HTTP URL.

    `reference` is a header's value, one character per byte.
    """
    at = _BASE.fullmatch(base)
    if at is None or not reference or _NO_VALUE.search(reference):
        return None
    text = reference.strip(_EDGES).translate(_REMOVED)
    scheme = at[1]
    named = _SCHEME.match(text)
    if named is not None:
        scheme = named[1].lower()
        if scheme not in ("http", "https"):
            return None
        text = text[named.end() :]
    parts = _PARTS.match(text)
    path, query = (parts[1].replace("\\", "/"), parts[2]) if parts is not None else ("", None)
    if path.startswith("//") or scheme != at[1]:
        authority, slash, path = path.lstrip("/").partition("/")
        return _written(scheme, authority, slash + path or "/", query)
    if not path:
        return _written(scheme, at[2], at[3] or "/", at[4] if query is None else query)
    if not path.startswith("/"):
        path = f"{at[3].rpartition('/')[0]}/{path}"
    return _written(scheme, at[2], path, query)


def _written(scheme: str, authority: str, path: str, query: str | None) -> str | None:
    if not _AUTHORITY.fullmatch(authority):
        return None
    return f"{scheme}://{authority}{_NOT_IN_PATH.sub(_encoded, path)}{_NOT_IN_QUERY.sub(_encoded, query or '')}"


def _encoded(match: re.Match[str]) -> str:
    return f"%{ord(match[0]):02X}"

"""What a page asks of the browser that a person must allow: found in its scripts, granted where its host says so."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from gateway.apps.words import match_of
from gateway.model import Json

PERMISSIONS: Final = {
    "camera": ("camera", "getUserMedia", re.compile(r"\bgetUserMedia\b")),
    "microphone": ("microphone", "getUserMedia", re.compile(r"\bgetUserMedia\b")),
    "geolocation": (
        "geolocation",
        "geolocation",
        re.compile(r"\bgeolocation\s*\.\s*(getCurrentPosition|watchPosition)\b"),
    ),
    "clipboard-write": ("clipboardWrite", "clipboard", re.compile(r"\bclipboard\s*\??\.\s*write(Text)?\b")),
}
"""
By the name of the permissions policy: what MCP Apps call it (2026-01-26, `_meta.ui.permissions`), and its use with the
word with which that begins.
"""


def granted(page: str, allowed: Collection[str]) -> dict[str, Json]:
    """Those that the page uses and `allowed` names, as `_meta.ui.permissions`."""
    return {PERMISSIONS[name][0]: {} for name in _used(page) if name in allowed}


def notes(page: str, allowed: Collection[str]) -> list[str]:
    """What the page uses and may not."""
    missing = [name for name in _used(page) if name not in allowed]
    return [f"it asks for {', '.join(missing)}, which the app's `permissions` do not name"] if missing else []


def _used(page: str) -> list[str]:
    return [name for name, (_, word, use) in PERMISSIONS.items() if match_of(page, use, word)]

"""Browser permissions that a page uses: found in its scripts, granted as its host permits."""

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
"""By name in the permissions policy: the name in MCP Apps, the first word of the use, and its pattern.

The names are those of `_meta.ui.permissions` (MCP Apps 2026-01-26).
"""


def granted(page: str, allowed: Collection[str]) -> dict[str, Json]:
    """Return the permissions that the page uses and `allowed` contains, as `_meta.ui.permissions`."""
    return {PERMISSIONS[name][0]: {} for name in _used(page) if name in allowed}


def notes(page: str, allowed: Collection[str]) -> list[str]:
    """Return a note about permissions that the page uses without being allowed to."""
    missing = [name for name in _used(page) if name not in allowed]
    return [f"it asks for {', '.join(missing)}, which the app's `permissions` do not name"] if missing else []


def _used(page: str) -> list[str]:
    return [name for name, (_, word, use) in PERMISSIONS.items() if match_of(page, use, word)]

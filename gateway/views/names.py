"""The model's names for the tools of pages: `<app>_<tool>`, safe for every client, stable over time."""

from __future__ import annotations

import hashlib
import re

LONGEST = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def model_name(app: str, page_name: str) -> str:
    """Return the model's name of a page's tool; a changed or cut one ends in six hex digits of the original's hash."""
    plain = f"{app}_{page_name}"
    return plain if len(plain) <= LONGEST and not _UNSAFE.search(plain) else marked_name(plain, page_name)


def marked_name(plain: str, original: str) -> str:
    """Return a safe name in place of `plain`, marked with a hash of `original`."""
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{_UNSAFE.sub('_', plain)[: LONGEST - 7]}_{mark}"

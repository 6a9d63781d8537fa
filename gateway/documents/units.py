"""Durations and sizes with units."""

from __future__ import annotations

import re

_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,12})(B|kB|KB|MB|GB|KiB|MiB|GiB)", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def quote(text: str) -> str:
    """Quote a text for a message, shortened if it is long."""
    return f'"{text[:80]}…"' if len(text) > 80 else f'"{text}"'


def parse_duration(text: str) -> float:
    """Parse `10s`, `2m`, `500ms`, `24h`, `90d` to seconds. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        example = "500ms, 10s, 2m, 24h or 90d"
        raise ValueError(f"{quote(text)} is not a duration: write a positive number with a unit, such as {example}")
    return seconds


def parse_size(text: str) -> int:
    """Parse `64KiB`, `1MiB`, `10MB`, `0B` to bytes. Raises ValueError."""
    match = _SIZE.fullmatch(text)
    if not match:
        example = "512B, 64KiB, 1MiB or 10MB"
        raise ValueError(f"{quote(text)} is not a size: write a whole number with a unit, such as {example}")
    return int(match[1]) * _BYTES[match[2]]

"""The names of bytes that are sent beside a message on the bridge."""

from __future__ import annotations

from gateway.mcp import results
from gateway.model import Json

BYTES = "$bytes"
"""The member of `params` that names the bytes of its `body`; written by host pages only, never by apps."""


def names_bytes(message: dict[str, Json]) -> bool:
    """Whether an upstream's answer appears to have bytes beside it; as an uploaded body it cannot name any."""
    result = message.get("result")
    meta = result.get("_meta") if isinstance(result, dict) else None
    return isinstance(meta, dict) and results.BYTES in meta

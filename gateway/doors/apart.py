"""How bytes that go beside a message are named on the bridge."""

from __future__ import annotations

from gateway.mcp import results
from gateway.model import Json

BYTES = "$bytes"
"""The member of `params` that names the bytes of the `body` in it; only host pages write it, not apps."""


def names_bytes(message: dict[str, Json]) -> bool:
    """Whether another's answer looks as if bytes went beside it; taken as a body of its own, it names none."""
    result = message.get("result")
    meta = result.get("_meta") if isinstance(result, dict) else None
    return isinstance(meta, dict) and results.BYTES in meta

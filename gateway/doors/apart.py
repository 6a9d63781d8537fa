"""The bytes of a large body, taken out of the answer that holds them: they go beside it, on the bridge."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from gateway.model import Json

BYTES = "$bytes"
"""The member of `params` or `result` that names the bytes of the `body` in it; only host pages write it, not apps."""

APART = 64 * 1024
"""Characters of base64 above which the body of an answer goes as bytes."""


@dataclass(frozen=True, slots=True)
class Apart:
    """The answer to an HTTP request, and its body's bytes, which go beside it."""

    message: dict[str, Json]
    result: dict[str, Json]
    content: dict[str, Json]
    data: bytes

    def named(self, id: str) -> dict[str, Json]:
        """The answer that names its bytes `id`."""
        content = {name: value for name, value in self.content.items() if name != "body"}
        return {**self.message, "result": {**self.result, "structuredContent": content, BYTES: id}}


def bytes_apart(message: dict[str, Json]) -> Apart | None:
    """A large body in base64, taken out of the answer that holds it."""
    result = message.get("result")
    content = result.get("structuredContent") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(content, dict) or content.get("bodyType") != "base64":
        return None
    body = content.get("body")
    if not isinstance(body, str) or len(body) < APART or base64.b64encode(_decoded(body[-4:])).decode() != body[-4:]:
        return None
    data = _decoded(body)
    return Apart(message, result, content, data) if data else None


def names_bytes(message: dict[str, Json]) -> bool:
    """Whether another's answer looks as if bytes went beside it; taken as a body of its own, it names none."""
    result = message.get("result")
    return isinstance(result, dict) and BYTES in result


def _decoded(text: str) -> bytes:
    """The bytes, none where it only looks like base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""

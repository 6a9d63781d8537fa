"""JSON in and out of doors, and the answers that they give themselves, before anything is decided."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web

from gateway.model import Json

SECURE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""Header fields of every page and file that the gateway serves."""


def refused(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """A `problem+json` answer (RFC 9457) of a door; `code` is its machine-readable type."""
    body = {"type": f"urn:webmcp-gateway:{code}", "title": code.replace("-", " "), "status": status, "detail": detail}
    return web.Response(
        status=status,
        body=json.dumps(body).encode(),
        content_type="application/problem+json",
        headers={**SECURE, "cache-control": "no-store", **(headers or {})},
    )


def fresh(value: Json) -> web.Response:
    """JSON that no cache keeps."""
    return web.json_response(value, headers={"cache-control": "no-store"})


async def object_of(request: web.Request) -> dict[str, Json]:
    """The JSON object that a request holds. Raises ValueError, RecursionError."""
    body = json.loads(await request.read())
    if not isinstance(body, dict):
        raise ValueError("no object")
    return body

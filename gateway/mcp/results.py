"""Responses, values and refusals as the results of tool calls."""

from __future__ import annotations

import json
from collections.abc import Mapping

import mcp_types as types

from gateway.contract import result
from gateway.errors import Reason, Refusal
from gateway.model import Json, Response

TEXT_LIMIT = 64 * 1024
"""Bytes of JSON above which the text block only names the size, to views that are known to get structured content."""

FAILURES = frozenset({Reason.INTERNAL, Reason.CANCELLED, Reason.NOT_AN_APP})
"""The reasons that reject an app's `fetch()`; every other refusal is an ordinary answer."""


def of_response(response: Response, *, structured_arrives: bool) -> types.CallToolResult:
    """An HTTP answer; the text block repeats it for hosts that drop structured content."""
    values = result(response)
    text = _json(values)
    if structured_arrives and len(text) > TEXT_LIMIT:
        text = f"The answer is {len(text)} bytes of JSON; it is in structuredContent."
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=values,
        is_error=response.header("gateway-reason") in FAILURES,
    )


def of_values(
    values: dict[str, Json], text: str | None = None, meta: dict[str, Json] | None = None
) -> types.CallToolResult:
    """An answer of the gateway itself, with the same as JSON where there are no better words."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text or _json(values))],
        structured_content=values,
        _meta=meta,
    )


def of_refusal(refusal: Refusal) -> types.CallToolResult:
    """A call that was refused, with the reason in words and as a code."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{refusal.reason}: {refusal.detail}")],
        structured_content={"reason": refusal.reason.value, "detail": refusal.detail},
        is_error=True,
    )


def _json(values: Mapping[str, Json]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))

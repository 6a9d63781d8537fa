"""Responses, values and refusals as the results of tool calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mcp_types as types

from gateway.contract import in_base64, problem, result, text_block
from gateway.errors import Reason, Refusal
from gateway.jsontext.writing import encodable, plain_json_utf8
from gateway.model import Json, Response

FAILURES = frozenset({Reason.INTERNAL, Reason.CANCELLED, Reason.NOT_AN_APP})
"""The reasons that reject an app's `fetch()`; every other refusal is an ordinary answer."""


BYTES = "webmcp-gateway/bytes"
"""The `_meta` key that names the bytes of a `body` that came beside the answer."""

APART = 48 * 1024
"""Bytes above which a body comes beside its answer, if allowed."""

LONG = 256 * 1024
"""Size of a body in bytes from which its result is built in a thread."""

Aside = Callable[[bytes], str | None]
"""Stores bytes beside an answer; returns their name, or None if there is no room."""


def of_response(response: Response, *, structured_arrives: bool, aside: Aside | None = None) -> types.CallToolResult:
    """Return an HTTP answer as a result; the text block repeats it for hosts that drop structured content."""
    beside = _Beside(aside)
    values, text, is_error = values_of(response, structured_arrives=structured_arrives, written=beside.written)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=values,
        is_error=is_error,
        _meta=None if beside.name is None else {BYTES: beside.name},
    )


@dataclass(slots=True)
class _Beside:
    """Large bytes beside the answer, under `name`."""

    aside: Aside | None
    name: str | None = None

    def written(self, body: bytes) -> Json:
        if self.aside is not None and len(body) > APART:
            self.name = self.aside(body)
        return in_base64(body) if self.name is None else None


def values_of(
    response: Response, *, structured_arrives: bool, written: Callable[[bytes], Json] = in_base64
) -> tuple[dict[str, Json], str, bool]:
    """Return the structured content, the text block, and whether it is an error; `written` encodes the bytes."""
    values, is_error = content_of(response, written)
    return values, text_block(values, structured_arrives), is_error


def content_of(response: Response, written: Callable[[bytes], Json] = in_base64) -> tuple[dict[str, Json], bool]:
    """Return the structured content, and whether it is an error."""
    try:
        values = result(response, written)
    except Refusal as refusal:
        response = problem(refusal, "", response.url)
        values = result(response)
    return values, is_failure(response)


def is_failure(response: Response) -> bool:
    """Whether a refusal fails the call itself, not just its answer."""
    return response.header("gateway-reason") in FAILURES


def of_page(answer: types.CallToolResult) -> types.CallToolResult:
    """Return a page's answer in a form that reaches the model whatever the page put into it."""
    values = answer.model_dump(by_alias=True)
    written = encodable(values)
    return answer if written is values else types.CallToolResult.model_validate(written, by_name=False)


def text_of(values: dict[str, Json]) -> str:
    """Return the values as JSON, for answers without a better text."""
    return plain_json_utf8(values)


def of_values(
    values: dict[str, Json], text: str | None = None, meta: dict[str, Json] | None = None
) -> types.CallToolResult:
    """Return an answer of the gateway itself; the text defaults to the values as JSON."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text or text_of(values))],
        structured_content=values,
        _meta=meta,
    )


def _connecting(refusal: Refusal) -> dict[str, Json]:
    return {"connect_url": refusal.connect_url} if refusal.connect_url is not None else {}


def of_refusal(refusal: Refusal) -> types.CallToolResult:
    """Return the result of a refused call, with the reason in words and as a code."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{refusal.reason}: {refusal.detail}")],
        structured_content={"reason": refusal.reason.value, "detail": refusal.detail, **_connecting(refusal)},
        is_error=True,
    )

"""Results of MCP requests: of tool calls, of a client's first request in both eras, and of features that apps lack."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from gateway import __version__
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

More = Callable[[], Awaitable[bytes]]
"""Returns the bytes that follow, if they are there at once; nothing at the end."""


class Aside(Protocol):
    """Stores bytes beside an answer."""

    def __call__(self, body: bytes, more: More | None, /) -> str | None:
        """Return the name of the bytes, and of those that `more` adds while they are read; None if there is no room."""
        ...


def of_response(
    response: Response, *, structured_arrives: bool, aside: Aside | None = None, more: More | None = None
) -> types.CallToolResult:
    """Return an HTTP answer as a result; the text block repeats it for hosts that drop structured content."""
    beside = _Beside(aside, more)
    values, text, is_error = values_of(response, structured_arrives=structured_arrives, encode=beside.encode)
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
    more: More | None = None
    name: str | None = None

    def encode(self, body: bytes) -> Json:
        if self.aside is not None and len(body) > APART:
            self.name = self.aside(body, self.more)
        return in_base64(body) if self.name is None else None


def values_of(
    response: Response, *, structured_arrives: bool, encode: Callable[[bytes], Json] = in_base64
) -> tuple[dict[str, Json], str, bool]:
    """Return the structured content, the text block, and whether it is an error; `encode` encodes the bytes."""
    values, is_error = content_of(response, encode)
    return values, text_block(values, structured_arrives), is_error


def content_of(response: Response, encode: Callable[[bytes], Json] = in_base64) -> tuple[dict[str, Json], bool]:
    """Return the structured content, and whether it is an error."""
    try:
        values = result(response, encode)
    except Refusal as refusal:
        response = problem(refusal, "", response.url)
        values = result(response)
    return values, is_failure(response)


def is_failure(response: Response) -> bool:
    """Return whether a refusal fails the call itself, not just its answer."""
    return response.header("gateway-reason") in FAILURES


def of_page(answer: types.CallToolResult) -> types.CallToolResult:
    """Return a page's answer in a form that reaches the model whatever the page put into it."""
    values = answer.model_dump(by_alias=True)
    encodable_values = encodable(values)
    return (
        answer if encodable_values is values else types.CallToolResult.model_validate(encodable_values, by_name=False)
    )


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


def _connect_member(refusal: Refusal) -> dict[str, Json]:
    return {"connect_url": refusal.connect_url} if refusal.connect_url is not None else {}


def of_refusal(refusal: Refusal) -> types.CallToolResult:
    """Return the result of a refused call, with the reason in words and as a code."""
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"{refusal.reason}: {refusal.detail}")],
        structured_content={"reason": refusal.reason.value, "detail": refusal.detail, **_connect_member(refusal)},
        is_error=True,
    )


NAME: Final = "webmcp-gateway"

GREETINGS: Final = ("initialize", "server/discover")


def version_of(params: Mapping[str, Any]) -> str:
    """Return the protocol version of the answer: the modern one if the request's `_meta` declares it."""
    meta = params.get("_meta")
    version = meta.get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    return LATEST_MODERN_VERSION if version == LATEST_MODERN_VERSION else LATEST_HANDSHAKE_VERSION


def greet(
    method: str, params: Mapping[str, Any], capabilities: types.ServerCapabilities, instructions: str | None = None
) -> types.InitializeResult | types.DiscoverResult:
    """Return the answer to one of `GREETINGS`."""
    if method == "server/discover":
        return types.DiscoverResult(
            supported_versions=[LATEST_MODERN_VERSION, *reversed(HANDSHAKE_PROTOCOL_VERSIONS)],
            capabilities=capabilities,
            instructions=instructions,
        )
    version = params.get("protocolVersion")
    return types.InitializeResult(
        protocol_version=version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        capabilities=capabilities,
        server_info=types.Implementation(name=NAME, version=__version__),
        instructions=instructions,
    )


def templates() -> types.ListResourceTemplatesResult:
    """Return an empty list."""
    return types.ListResourceTemplatesResult(resource_templates=[])


def prompts() -> types.ListPromptsResult:
    """Return an empty list."""
    return types.ListPromptsResult(prompts=[])


def no_further_page(cursor: object) -> None:
    """Raise `MCPError` for a cursor: the gateway's own lists have one page, so it never issues one."""
    if cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "Unknown cursor: this list has one page.")


def no_prompt(name: object) -> MCPError:
    """Return the error for a request of a prompt."""
    return MCPError(types.INVALID_PARAMS, f"Unknown prompt: {str(name)[:128]}")


def nothing_to_complete(ref: Mapping[str, Any]) -> MCPError:
    """Return the error for a completion of a prompt or template, of which none exists."""
    name = ref.get("name", ref.get("uri"))
    return MCPError(types.INVALID_PARAMS, f"There is no prompt and no resource template {str(name)[:128]!r}.")

"""The fixed answers of MCP servers: to a client's first request in both eras, and for features that apps lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from gateway import __version__

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
    wanted = params.get("protocolVersion")
    return types.InitializeResult(
        protocol_version=wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
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
    named = ref.get("name", ref.get("uri"))
    return MCPError(types.INVALID_PARAMS, f"There is no prompt and no resource template {str(named)[:128]!r}.")

"""The answers to an MCP client's first request in both eras: server, versions and capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from gateway import __version__

NAME: Final = "webmcp-gateway"

GREETINGS: Final = ("initialize", "server/discover")


def version_of(params: Mapping[str, Any]) -> str:
    """Return the protocol version of the answer: the modern one if the request's `_meta` declares it."""
    meta = params.get("_meta")
    said = meta.get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    return LATEST_MODERN_VERSION if said == LATEST_MODERN_VERSION else LATEST_HANDSHAKE_VERSION


def greeted(
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

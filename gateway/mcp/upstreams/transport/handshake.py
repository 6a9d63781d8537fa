"""The agreement between gateway and upstream: era, version and capabilities, and the header fields of requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from gateway import __version__
from gateway.mcp.upstreams.transport.conversation import Message, UpstreamConversation, UpstreamLost

CACHED_TOOLS = 5000
"""Tools whose fields are cached; beyond, the cache is cleared."""

Mirrored = Mapping[tuple[str, ...], str]
"""Header field names by the paths of the arguments that they mirror."""


class Mirrors:
    """The mirrored arguments of the tools of one upstream."""

    def __init__(self) -> None:
        self._by_tool: dict[str, tuple[Mapping[str, Any], Mirrored | None]] = {}

    def of(self, name: str, tool: Mapping[str, Any]) -> Mirrored | None:
        """Return the fields of `tool` as it is listed now; None if its schema declares them wrongly."""
        known = self._by_tool.get(name)
        if known is None or known[0] is not tool:
            schema = tool.get("inputSchema")
            headers = x_mcp_header_map(schema) if find_invalid_x_mcp_header(schema) is None else None
            if len(self._by_tool) >= CACHED_TOOLS:
                self._by_tool.clear()
            known = self._by_tool[name] = (tool, headers)
        return known[1]


log = logging.getLogger(__name__)

PROBE = 10.0
"""Seconds without an answer to `server/discover` after which the handshake is tried, too."""

INFO: Mapping[str, Any] = {"name": "webmcp-gateway", "version": __version__}

VERSION_KEY = types.PROTOCOL_VERSION_META_KEY
INFO_KEY = types.CLIENT_INFO_META_KEY
CAPABILITIES_KEY = types.CLIENT_CAPABILITIES_META_KEY


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """The agreed terms. `capabilities`, `info` and `instructions` are the upstream's own values."""

    version: str
    capabilities: Mapping[str, Any]
    info: Mapping[str, Any] | None = None
    instructions: str | None = None

    @property
    def modern(self) -> bool:
        """True if the upstream speaks protocol 2026-07-28 or later."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    def can(self, capability: str) -> bool:
        """Return whether the upstream declared `capability`, such as `tools`."""
        return isinstance(self.capabilities.get(capability), Mapping)


async def negotiate(
    conversation: UpstreamConversation, capabilities: Mapping[str, Any], *, modern: bool, timeout: float
) -> HandshakeResult:
    """Try one era, the `modern` or that of the handshake, and fall back to the other.
    A server that supports both has features of each that the other lacks. `timeout` is in seconds, for each answer.
    Raises `MCPError`, `UpstreamLost`, TimeoutError.
    """
    if not modern:
        try:
            return await _initialize(conversation, capabilities, timeout)
        except MCPError as refusal:
            log.debug("an upstream refused the handshake: %s", refusal)
    return await _modern_first(conversation, capabilities, timeout)


async def _modern_first(
    conversation: UpstreamConversation, capabilities: Mapping[str, Any], timeout: float
) -> HandshakeResult:
    version, versions = LATEST_MODERN_VERSION, list[str]()
    for _ in range(2):
        try:
            terms = await _try_discover(conversation, version, capabilities, timeout)
        except (MCPError, TimeoutError) as error:
            versions = named_versions(error)
            if mutual := [known for known in MODERN_PROTOCOL_VERSIONS if known in versions and known != version]:
                version = mutual[-1]
                continue
            if versions and set(versions).isdisjoint(HANDSHAKE_PROTOCOL_VERSIONS):
                raise _strange(versions) from error
            break
        if isinstance(terms, HandshakeResult):
            return terms
        versions = terms
        break
    return await _initialize(conversation, capabilities, timeout, versions)


async def _try_discover(
    conversation: UpstreamConversation, version: str, capabilities: Mapping[str, Any], timeout: float
) -> HandshakeResult | list[str]:
    """Return the result of `_discover`; a silent server may be a handshake one, or starting, so both eras are tried."""
    discovering = asyncio.ensure_future(_discover(conversation, version, capabilities, timeout))
    try:
        await asyncio.wait({discovering}, timeout=PROBE)
        if discovering.done():
            return await discovering
        try:
            return await _initialize(conversation, capabilities, timeout)
        except MCPError:
            return await discovering
    finally:
        discovering.cancel()
        await asyncio.wait({discovering})
        if not discovering.cancelled():
            discovering.exception()  # marks the exception as retrieved


def envelope(version: str, capabilities: Mapping[str, Any], info: Mapping[str, Any] | None = None) -> Message:
    """Return the `_meta` that each request of the modern era carries."""
    return {VERSION_KEY: version, INFO_KEY: dict(info or INFO), CAPABILITIES_KEY: dict(capabilities)}


def headers(
    terms: HandshakeResult, method: str, params: Mapping[str, Any], mirrored: Mirrored | None = None
) -> dict[str, str]:
    """Return the header fields of a request over HTTP; `mirrored` maps arguments of the called tool to fields."""
    fields = {MCP_PROTOCOL_VERSION_HEADER: terms.version}
    if not terms.modern:
        return fields
    fields[MCP_METHOD_HEADER] = method
    key = NAME_BEARING_METHODS.get(method)
    if key is not None and isinstance(name := params.get(key), str):
        fields[MCP_NAME_HEADER] = encode_header_value(name)
    if mirrored:
        arguments = params.get("arguments")
        fields.update(mcp_param_headers(mirrored, arguments if isinstance(arguments, dict) else {}))
    return fields


async def _discover(
    conversation: UpstreamConversation, version: str, capabilities: Mapping[str, Any], timeout: float
) -> HandshakeResult | list[str]:
    """Return the terms of a modern upstream, or its supported versions if no modern one is among them."""
    params = {"_meta": envelope(version, capabilities)}
    fields = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: "server/discover"}
    result = await conversation.request("server/discover", params, headers=fields, timeout=timeout)
    versions = _texts(result.get("supportedVersions"))
    mutual = [known for known in MODERN_PROTOCOL_VERSIONS if known in versions]
    if not mutual:
        return versions
    meta = result.get("_meta")
    info = meta.get(types.SERVER_INFO_META_KEY) if isinstance(meta, dict) else None
    return _terms(mutual[-1], result, info)


async def _initialize(
    conversation: UpstreamConversation, capabilities: Mapping[str, Any], timeout: float, versions: Sequence[str] = ()
) -> HandshakeResult:
    """Return the terms of a handshake upstream, in the newest version that it `versions`, or names in a refusal."""
    params = {"capabilities": dict(capabilities), "clientInfo": dict(INFO)}
    requested_version = _newest(versions) or LATEST_HANDSHAKE_VERSION
    try:
        result = await conversation.request(
            "initialize", {"protocolVersion": requested_version, **params}, timeout=timeout
        )
    except MCPError as error:
        other = _newest(named_versions(error))
        if other in (None, requested_version):
            raise
        result = await conversation.request("initialize", {"protocolVersion": other, **params}, timeout=timeout)
    version = result.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise UpstreamLost(f"the upstream speaks protocol {str(version)[:40]!r}, which the gateway does not know")
    await conversation.notify("notifications/initialized", {}, {MCP_PROTOCOL_VERSION_HEADER: str(version)})
    return _terms(str(version), result, result.get("serverInfo"))


def _terms(version: str, result: Mapping[str, Any], info: object) -> HandshakeResult:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return HandshakeResult(
        version,
        capabilities if isinstance(capabilities, dict) else {},
        info if isinstance(info, dict) else None,
        instructions if isinstance(instructions, str) else None,
    )


def speaks_another(error: MCPError, version: str) -> bool:
    """Return whether the upstream refused a request because it no longer supports `version`, but another known one."""
    versions = named_versions(error) if error.error.code == types.UNSUPPORTED_PROTOCOL_VERSION else []
    return version not in versions and not set(versions).isdisjoint(
        (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
    )


def named_versions(error: MCPError | TimeoutError) -> list[str]:
    """Return the versions that an upstream names when it refuses one."""
    data = error.error.data if isinstance(error, MCPError) else None
    return _texts(data.get("supported") if isinstance(data, dict) else None)


def _newest(versions: Sequence[str]) -> str | None:
    """Return the newest of these handshake versions that is known here."""
    return next((known for known in reversed(HANDSHAKE_PROTOCOL_VERSIONS) if known in versions), None)


def _strange(versions: Sequence[str]) -> UpstreamLost:
    return UpstreamLost(f"it speaks protocol {', '.join(versions)[:80]}, which the gateway does not know")


def _texts(result: object) -> list[str]:
    return [text for text in result if isinstance(text, str)] if isinstance(result, list) else []

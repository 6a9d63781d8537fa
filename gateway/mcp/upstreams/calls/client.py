"""The client of an upstream: one MCP client in its era, the channel back to it, and translation between the eras."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.methods import CACHEABLE_METHODS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from gateway.jsontext.writing import plain_json, sorted_json
from gateway.mcp.asgi import principal_of
from gateway.mcp.out_of_band import outline_params
from gateway.mcp.standing_streams import SessionChannel, channel_of
from gateway.mcp.tools import shows_apps
from gateway.mcp.upstreams.transport.conversation import Message
from gateway.model import Caller, Door, Initiator, Principal

Context = ServerRequestContext[Any, Any]

NEEDED = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""The possible requests of an upstream to a client, and the client capability that each needs."""

LONGEST_CAPABILITIES = 16 * 1024
_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class _Words(BaseModel):
    """A message with its original members."""

    method: str
    params: Message


class _WholeResult(BaseModel):
    """An answer with its original members."""

    model_config = ConfigDict(extra="allow")


@dataclass(slots=True, eq=False)
class ReplyPath:
    """The channel back to a client: the request on whose stream messages are sent, which a later one may replace."""

    session: ServerSession
    request_id: str | int | None
    request: Request | None


class UpstreamClient(Struct, frozen=True):
    """One client and its request.
    `who` is equal for all requests of one session, or of one modern client; it is "" for the gateway's own requests.
    `way` is the channel back, or None. `channel` is that of its session, for what belongs to no request. `caller` is
    the calling view or model of a tool call.
    """

    principal: Principal
    who: str
    version: str
    capabilities: Mapping[str, Any] = {}
    info: Mapping[str, Any] | None = None
    way: ReplyPath | None = None
    level: str | None = None
    is_app: bool = False
    caller: Caller | None = None
    channel: SessionChannel | None = None

    @property
    def modern(self) -> bool:
        """True if the client speaks protocol 2026-07-28 or later."""
        return self.version in MODERN_PROTOCOL_VERSIONS

    @property
    def owner(self) -> str:
        """The id of the principal."""
        return self.principal.id

    @property
    def key(self) -> str:
        """The capabilities as a text, equal for clients with the same ones."""
        return sorted_json(self.capabilities)

    def calls(self, upstream: str) -> Caller:
        """Return the caller of a tool of `upstream`."""
        if self.caller is not None:
            return self.caller
        return Caller(self.principal, upstream, Door.MCP, Initiator.MODEL, "model-call")

    def hears(self, level: object) -> bool:
        """Return whether a log message of `level` is for this client."""
        if self.level is None or level not in _LEVELS or self.level not in _LEVELS:
            return self.level is not None or not self.modern
        return _LEVELS.index(level) >= _LEVELS.index(self.level)

    def takes(self, method: str) -> bool:
        """Return whether the client declared support for such a request of an upstream."""
        return NEEDED.get(method) in self.capabilities

    def check_askable(self, method: str) -> None:
        """Raise `MCPError` for a request that the client did not declare support for."""
        if not self.takes(method):
            raise MCPError(types.METHOD_NOT_FOUND, f"This client does not support {method[:64]}.")

    async def ask(self, method: str, params: Message) -> Message:
        """Return the client's answer to a request of the upstream. Raises `MCPError`."""
        self.check_askable(method)
        if self.way is None:
            raise MCPError(types.INVALID_REQUEST, "This client cannot be asked.")
        if (light := await outline_params(_without_task(params), self.way.request)) is None:
            raise MCPError(types.INVALID_REQUEST, "The connection of this client is gone.")
        request = cast(types.ServerRequest, _Words(method=method, params=light))
        try:
            answer = await self.way.session.send_request(
                request, _WholeResult, metadata=ServerMessageMetadata(related_request_id=self.way.request_id)
            )
        except ValidationError as error:
            raise MCPError(types.INVALID_PARAMS, "The client's answer is not one to this request.") from error
        return answer.model_dump(by_alias=True, mode="json")

    async def tell(self, method: str, params: Message) -> None:
        """Send a notification on the stream of this request."""
        if method == "notifications/message" and not self.hears(params.get("level")):
            return
        if self.way is not None and (light := await outline_params(params, self.way.request)) is not None:
            words = cast(types.ServerNotification, _Words(method=method, params=light))
            await self.way.session.send_notification(words, related_request_id=self.way.request_id)

    def without_request(self) -> UpstreamClient:
        """Return the client for what outlives its request, whose objects in the SDK must not be held."""
        return replace(self, way=None)


def client_of(context: Context, levels: Mapping[str, str]) -> UpstreamClient:
    """Return the client of a request at a mount; `levels` are the log levels by session id."""
    principal = principal_of(context.request)
    session_id = context.request.headers.get(MCP_SESSION_ID_HEADER, "") if context.request is not None else ""
    modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    meta = context.meta if isinstance(context.meta, Mapping) else {}
    capabilities, info = _declaration(context, meta, modern=modern)
    return UpstreamClient(
        principal=principal,
        who=session_id or f"{principal.id}\n{sorted_json(info)}",
        version=context.protocol_version,
        capabilities=capabilities,
        info=info,
        way=ReplyPath(context.session, context.request_id, context.request),
        level=cast("str | None", meta.get(types.LOG_LEVEL_META_KEY)) if modern else levels.get(session_id),
        is_app=shows_apps(context.session.client_capabilities),
        channel=channel_of(context.request),
    )


def _declaration(
    context: Context, meta: Mapping[str, Any], *, modern: bool
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    if modern:
        client_meta = context.params.get("_meta") if context.params is not None else None
        raw = client_meta if isinstance(client_meta, Mapping) else meta
        capabilities, info = raw.get(types.CLIENT_CAPABILITIES_META_KEY), raw.get(types.CLIENT_INFO_META_KEY)
    else:
        params = context.session.client_params
        capabilities = _dump(params.capabilities) if params is not None else {}
        info = _dump(params.client_info) if params is not None else None
    if not isinstance(capabilities, Mapping) or len(plain_json(capabilities)) > LONGEST_CAPABILITIES:
        capabilities = {}
    return able(capabilities), info if isinstance(info, Mapping) else None


def able(capabilities: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the capabilities that the gateway carries: those without the tasks of 2025-11-25."""
    return {name: value for name, value in capabilities.items() if name != "tasks"}


def _without_task(params: Message) -> Message:
    """Return a request without its task, so that it is carried out at once."""
    return {name: value for name, value in params.items() if name != "task"}


def _dump(model: BaseModel) -> Mapping[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


ENVELOPE = frozenset(
    (
        types.PROTOCOL_VERSION_META_KEY,
        types.CLIENT_INFO_META_KEY,
        types.CLIENT_CAPABILITIES_META_KEY,
        types.LOG_LEVEL_META_KEY,
    )
)
"""The `_meta` keys of each modern request, which the handshake declares once."""

ASKING = frozenset(("tools/call", "resources/read", "prompts/get"))
"""The modern requests that may be answered with a request for input, which the client's next request brings."""

INPUT_REQUIRED = "input_required"
_ROUNDS = ("inputResponses", "requestState")


def modern_params(params: Mapping[str, Any], envelope: Mapping[str, Any]) -> Message:
    """Return a request in the form for a modern upstream."""
    return {**params, "_meta": {**_meta(params), **envelope}}


def legacy_params(params: Mapping[str, Any]) -> Message:
    """Return a request in the form for a handshake upstream."""
    plain = {key: value for key, value in params.items() if key not in (*_ROUNDS, "_meta")}
    meta = {key: value for key, value in _meta(params).items() if key not in ENVELOPE}
    return {**plain, "_meta": meta} if meta else plain


def legacy_request(params: Message) -> Message:
    """Return a modern upstream's request in the form for a handshake client, which needs an id for each page."""
    if params.get("mode") != "url" or "elicitationId" in params:
        return params
    return {**params, "elicitationId": secrets.token_urlsafe(16)}


def modern_result(method: str, result: Message) -> Message:
    """Return an answer of the handshake era in the form for a modern client."""
    answer: Message = {"resultType": "complete"}
    if method in CACHEABLE_METHODS:
        answer |= {"ttlMs": 0, "cacheScope": "private"}
    return {**result, **answer}


def cacheable(method: str, result: Message) -> Message:
    """Return a modern answer with its cache lifetime; without a valid one, it must not be cached."""
    if method not in CACHEABLE_METHODS or needs_input(result):
        return result
    answer = result if isinstance(result.get("resultType"), str) else {**result, "resultType": "complete"}
    lasts, scope = result.get("ttlMs"), result.get("cacheScope")
    valid = type(lasts) is int and lasts >= 0 and scope in ("private", "public")
    return answer if valid else {**answer, "ttlMs": 0, "cacheScope": "private"}


def legacy_tool(tool: Message) -> Message:
    """Return a tool in the form for a handshake client, which accepts only objects as structured output."""
    output = tool.get("outputSchema")
    if not isinstance(output, dict) or output.get("type") == "object":
        return tool
    return {key: value for key, value in tool.items() if key != "outputSchema"}


def legacy_result(result: Message) -> Message:
    """Return a modern answer in the form for a handshake client."""
    plain = {key: value for key, value in result.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    if not isinstance(plain.get("structuredContent"), dict):
        plain.pop("structuredContent", None)
    meta = plain.get("_meta")
    if isinstance(meta, dict) and types.SERVER_INFO_META_KEY in meta:
        meta = {key: value for key, value in meta.items() if key != types.SERVER_INFO_META_KEY}
        plain = {**plain, "_meta": meta} if meta else {key: value for key, value in plain.items() if key != "_meta"}
    return plain


def needs_input(result: Mapping[str, Any]) -> bool:
    """Return whether a modern upstream requires input before it continues."""
    return result.get("resultType") == INPUT_REQUIRED


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}

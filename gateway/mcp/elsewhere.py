"""Calls for live objects of other nodes: sent to their owner, and run there in its catalog."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
import mcp_types as types
from aiohttp import web
from mcp.server.request_state import RequestStateCodec
from mcp.shared.exceptions import MCPError
from multidict import CIMultiDict

from gateway.cluster.envelope import FIELDS
from gateway.cluster.forwards import ForwardedRequest, Forwards
from gateway.cluster.ids import ObjectIds, ObjectKind
from gateway.cluster.messages import (
    CALLS,
    NOT_OWNER,
    OWNER,
    Answered,
    Broken,
    Failed,
    Message,
    Refused,
    RemoteCall,
    Values,
    Visiting,
    encode_call,
    messages,
)
from gateway.cluster.node import LOOK_AGAIN
from gateway.contract import UploadedBody
from gateway.errors import OwnerGone, Reason, Refusal, ViewMoves
from gateway.exchange.drain import RunningCalls
from gateway.exchange.streams import PREFIX, SOCKET
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.mcp.asgi import Ending
from gateway.mcp.mount_interfaces import MountClient
from gateway.mcp.own_tools import POLL, RESULT
from gateway.mcp.tools import CALL_VIEW_TOOL
from gateway.model import Door, Json, Principal, Response, Tell
from gateway.ports.nodes import NodeAnswer, NodeRow
from gateway.ports.sessions import McpSessions
from gateway.ports.views import MOVES_WITHIN, LiveView
from gateway.traces import CLIENT, current
from gateway.views.view import split

log = logging.getLogger(__name__)

HTTP_REQUEST: Final = "http_request"

Arguments = Mapping[str, Json]


def named_object(name: str, arguments: Arguments) -> tuple[ObjectKind, str] | None:
    """Return the live object without which a call of the tool `name` cannot run; None if its arguments name none."""
    proof = arguments.get("_view")
    if isinstance(proof, str):
        parts = split(proof)
        return (ObjectKind.VIEW, parts[0]) if parts is not None else None
    if name == CALL_VIEW_TOOL:
        for key, kind in (("call", ObjectKind.CALL), ("view", ObjectKind.VIEW)):
            if isinstance(id := arguments.get(key), str):
                return kind, id
    if name in ("http_stream", "webmcp_send") and isinstance(id := arguments.get("id"), str):
        return ObjectKind.STREAM, id.removeprefix(PREFIX).removeprefix(SOCKET)
    return None


_STATE: Final = b"requestState"


def _state_id(body: bytes) -> str | None:
    """Return the id in the state of a message that repeats a call; None for any other message."""
    if _STATE not in body or len(body) > LARGEST_REPEATED:
        return None
    try:
        message = parse_json(body)
    except ValueError:
        return None
    params = message.get("params") if isinstance(message, dict) else None
    state = params.get("requestState") if isinstance(params, dict) else None
    return state.partition(".")[0] if isinstance(state, str) else None


@dataclass(frozen=True, slots=True)
class NodeStates:
    """Names the node that has asked a client in the state with which the client comes back."""

    ids: ObjectIds

    def name(self, state: str) -> str:
        """Return a state behind an id of this node."""
        return f"{self.ids.new(ObjectKind.STATE)}.{state}"

    def plain(self, state: str) -> str:
        """Return a state without the id of any node, and any other text as it is."""
        id, _, rest = state.partition(".")
        return rest if self.ids.incarnation_of(ObjectKind.STATE, id) is not None else state


@dataclass(frozen=True, slots=True)
class NodeStateCodec:
    """Seals states as `sealed` does, behind an id of the node that has the call: no other one can open them."""

    sealed: RequestStateCodec
    states: NodeStates

    def seal(self, payload: bytes) -> str:
        """Return the sealed state."""
        return self.states.name(self.sealed.seal(payload))

    def unseal(self, token: str) -> bytes:
        """Return the payload. Raises `InvalidRequestState`."""
        return self.sealed.unseal(self.states.plain(token))


class LocalViews(Protocol):
    """The views of this node."""

    def has(self, view: str) -> bool: ...


LARGEST_REPEATED: Final = 16 * 1024 * 1024
"""Bytes of the largest repeated call that is parsed to find the node that has it."""

KNOWN_SESSIONS: Final = 16_384
"""Sessions of other nodes whose owner is remembered; the least recently used is evicted."""

_NOT_RETURNED: Final = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})


@dataclass(frozen=True, slots=True)
class OtherNodes:
    """The other nodes, as mounts see them."""

    forwards: Forwards
    views: LocalViews
    sessions: McpSessions
    states: NodeStates
    running: RunningCalls
    _known: OrderedDict[tuple[str, str, str], str] = field(default_factory=OrderedDict)

    async def session_owner(self, id: str, principal: Principal, mount: str) -> NodeRow | None:
        """Return the other node that runs a session of this caller at this mount; None if it can be adopted.

        Raises LookupError for an unknown one; `Refusal` (`state-unavailable`).
        """
        key = id, principal.id, mount
        process = self._known.get(key)
        if process is None:
            try:
                process = await self.sessions.process_of(id, principal, mount)
            except OSError as error:
                raise Refusal(Reason.STATE_UNAVAILABLE, "Sessions cannot be looked up now. Try again.") from error
            if process is None:
                raise LookupError
        if (row := await self.forwards.living(process)) is None:
            self._known.pop(key, None)
            return None
        self._known[key] = process
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_SESSIONS:
            self._known.popitem(last=False)
        return row

    def state_codec(self, sealed: RequestStateCodec) -> NodeStateCodec:
        """Return a codec of the states that clients send back, which names this node."""
        return NodeStateCodec(sealed, self.states)

    async def asking(self, body: bytes) -> NodeRow | None:
        """Return the other node that has asked the client of a repeated call; None if none has.

        Raises `Refusal` (`state-unavailable`).
        """
        id = _state_id(body)
        return await self.forwards.owner_of(ObjectKind.STATE, id) if id is not None else None

    def asked_here(self, body: bytes) -> bool:
        """Return whether a message repeats a call about which this node has asked its client."""
        id = _state_id(body)
        return id is not None and self.forwards.is_own(ObjectKind.STATE, id)

    @asynccontextmanager
    async def send_session(
        self, row: NodeRow, request: web.Request, principal: Principal, mount: str, body: bytes
    ) -> AsyncIterator[NodeAnswer | None]:
        """Yield the answer of the node that runs the session of a request; None if it does not run it any more.

        Raises `Refusal` (`connection-lost`).
        """
        headers = {name: value for name in FIELDS if (value := request.headers.get(name)) is not None}
        forwarded = ForwardedRequest(
            principal, mount, request.method, request.path_qs, body, headers, client=CLIENT.get() or ""
        )
        async with self.forwards.send_once(row, forwarded) as answer:
            if answer.status != NOT_OWNER or not answer.has(OWNER):
                yield answer
                return
        self.forget_session(request.headers.get("mcp-session-id", ""), principal, mount)
        await self.forwards.read_again(row)
        yield None

    def forget_session(self, id: str, principal: Principal, mount: str) -> None:
        """Forget which node runs a session."""
        self._known.pop((id, principal.id, mount), None)

    async def find(self, name: str, arguments: Arguments, client: MountClient) -> Elsewhere | None:
        """Return the owner of what a call names, if it is another node.

        Raises `Refusal` (`state-unavailable`); `ViewMoves` for a model's call whose view has just lost its node.
        """
        if client.forwarded or client.caller is not None:
            return None
        named = named_object(name, arguments)
        if named is None:
            return None
        kind, id = named
        if kind is ObjectKind.VIEW:
            there = await self.having_view(id)
            if there is None and name == CALL_VIEW_TOOL and not self.views.has(id):
                await self.forwards.check_stays(id)
            return there
        row = await self.forwards.owner_of(kind, id)
        return Elsewhere(self.forwards, row, None) if row is not None else None

    async def run(
        self,
        find: Callable[[], Awaitable[Elsewhere | None]],
        here: Callable[[], Awaitable[types.CallToolResult]],
        mount: str | None,
        name: str,
        arguments: Arguments,
        client: MountClient,
    ) -> types.CallToolResult:
        """Return the result of a model's call at the node that `find` returns, or `here`.

        If its view moves, a call that has not run is sent after it, for `MOVES_WITHIN` seconds. Raises `Refusal`.
        """
        end = time.monotonic() + MOVES_WITHIN
        with self.running.call(), self.running.refusing_cuts:
            while True:
                try:
                    there = await find()
                    return await (here() if there is None else there.result(mount, name, arguments, client))
                except (OwnerGone, ViewMoves):
                    if time.monotonic() >= end:
                        raise
                await asyncio.sleep(LOOK_AGAIN)

    async def check_stay(self, vanished: Sequence[LiveView], live: Sequence[LiveView]) -> None:
        """Raise `ViewMoves` if a view that has just vanished moves, rather than was closed."""
        owners = {view.id: view.owner for view in live}
        for view in vanished:
            moved = owners.get(view.id, view.owner) != view.owner
            if moved or not view.owner or await self.forwards.is_leaving(view.owner):
                raise ViewMoves

    def has(self, view: LiveView) -> bool:
        """Return whether a view is at this node."""
        return self.views.has(view.id)

    async def having_view(self, view: str) -> Elsewhere | None:
        """Return the other node that has a view. Raises `Refusal` (`state-unavailable`)."""
        if self.views.has(view):
            return None
        row = await self.forwards.owner_of_view(view)
        return Elsewhere(self.forwards, row, view) if row is not None else None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another node that runs calls; `view` is the view for which it was found."""

    forwards: Forwards
    row: NodeRow
    view: str | None

    async def response(self, mount: str | None, arguments: Arguments, client: MountClient) -> Response:
        """Return the answer of `http_request`. Raises `Refusal`."""
        answer = await self._call(mount, HTTP_REQUEST, arguments, client)
        if isinstance(answer, Answered):
            return answer.response
        raise _unexpected()

    async def values(self, mount: str | None, name: str, arguments: Arguments, client: MountClient) -> dict[str, Json]:
        """Return the values of a tool of the relay. Raises `Refusal`."""
        answer = await self._call(mount, name, arguments, client)
        if isinstance(answer, Values):
            values: dict[str, Json] = _parsed(answer.json)
            return values
        raise _unexpected()

    async def result(
        self, mount: str | None, name: str, arguments: Arguments, client: MountClient
    ) -> types.CallToolResult:
        """Return the result of any other tool. Raises `Refusal`, `MCPError`."""
        answer = await self._call(mount, name, arguments, client)
        if isinstance(answer, Values):
            return types.CallToolResult.model_validate(_parsed(answer.json), by_name=False)
        raise _unexpected()

    async def _call(self, mount: str | None, name: str, arguments: Arguments, client: MountClient) -> Message:
        upload, trace = client.upload, current()
        call = RemoteCall(
            name,
            _written(dict(arguments)),
            client.is_app,
            client.tell is not None,
            upload is not None,
            upload.data if upload is not None else None,
            upload.content_type if upload is not None else None,
        )
        request = ForwardedRequest(
            client.principal,
            mount or "",
            "POST",
            CALLS,
            encode_call(call),
            {"content-type": "application/msgpack", "host": "node"},
            capabilities=tuple(word for word, there in (("app", call.is_app), ("visits", call.asks)) if there),
            client=CLIENT.get() or "",
            trace=dict(trace.headers()) if trace is not None else None,
        )
        try:
            async with self.forwards.send(self.row, request, self.view) as answer:
                if answer.status != 200:
                    detail = "Another process of the gateway did not take this request; its log says why."
                    raise Refusal(Reason.CONNECTION_LOST, detail)
                async for message in messages(answer.chunks):
                    match message:
                        case Visiting(visit):
                            if client.tell is not None:
                                client.tell(visit)
                        case Refused():
                            raise _refusal(message)
                        case Failed():
                            raise MCPError(message.code, message.message, _parsed(message.data))
                        case _:
                            return message
        except Broken as error:
            raise _unexpected() from error
        raise _unexpected()


async def return_answer(request: web.Request, answer: NodeAnswer, ending: Ending) -> web.StreamResponse:
    """Stream another node's answer to the client, as fast as the client reads it, until `ending`."""
    fields = CIMultiDict((name, value) for name, value in answer.headers if name.lower() not in _NOT_RETURNED)
    response = web.StreamResponse(status=answer.status, headers=fields)
    await response.prepare(request)
    try:
        with anyio.CancelScope() as scope, ending.calling(scope.cancel):
            async for chunk in answer.chunks:
                await response.write(chunk)
        await response.write_eof()
    except OSError as error:
        if request.transport is not None:
            request.transport.abort()  # the client must not take what arrived for the whole answer
        log.warning("an answer of another node ended early: %s", error)
    return response


class LocalCatalog(Protocol):
    """The part of a catalog that runs calls."""

    async def http_request(self, arguments: Arguments, client: MountClient) -> Response: ...

    async def run_relay_tool(self, name: str, arguments: Arguments, client: MountClient) -> dict[str, Json]: ...

    async def call_tool(self, name: str, arguments: Any, client: MountClient) -> types.CallToolResult: ...


async def run_here(catalog: LocalCatalog, call: RemoteCall, principal: Principal, tell: Tell) -> Message:
    """Run a call of another node, and return the message that answers it; `tell` sends its person to a page."""
    upload = UploadedBody(call.body, call.body_type) if call.has_body else None
    client = MountClient(
        principal,
        door=Door.MCP,
        is_app=call.is_app,
        tell=tell if call.asks else None,
        upload=upload,
        forwarded=True,
    )
    arguments: dict[str, Json] = _parsed(call.arguments)
    try:
        if call.name == HTTP_REQUEST:
            return Answered(await catalog.http_request(arguments, client))
        if call.name in (POLL, RESULT):
            return Values(_written(await catalog.run_relay_tool(call.name, arguments, client)))
        result = await catalog.call_tool(call.name, arguments, client)
        return Values(_written(result.model_dump(by_alias=True, mode="json", exclude_none=True)))
    except Refusal as refusal:
        return Refused(
            refusal.reason.value,
            refusal.detail,
            tuple(refusal.headers),
            refusal.status,
            refusal.connect_url,
            refusal.words,
            isinstance(refusal, ViewMoves),
        )
    except MCPError as error:
        return Failed(error.error.code, error.error.message, _written(error.error.data))


def _refusal(message: Refused) -> Refusal:
    if message.moves:
        return ViewMoves()
    return Refusal(
        Reason(message.reason),
        message.detail,
        headers=message.headers,
        status=message.status,
        connect_url=message.connect_url,
        words=message.words,
    )


def _unexpected() -> Refusal:
    return Refusal(
        Reason.CONNECTION_LOST,
        "The process of the gateway that has this view ended before it answered. The call may have taken effect.",
    )


def _written(value: object) -> bytes:
    return plain_json(value).encode("utf-8", "surrogatepass")


def _parsed(text: bytes) -> Any:
    return parse_json(text.decode("utf-8", "surrogatepass"))

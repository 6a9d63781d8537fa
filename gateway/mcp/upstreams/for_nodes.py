"""Serves a shared command, which runs here, to another node: its links there speak with the link here."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION

from gateway.errors import Refusal
from gateway.eventloop.fair_share import RoundRobin
from gateway.mcp.upstreams.calls.client import UpstreamClient
from gateway.mcp.upstreams.changes.feed import ACKNOWLEDGED, UPDATED, ChangeListener
from gateway.mcp.upstreams.changes.following import uris_of
from gateway.mcp.upstreams.mount import Proxy
from gateway.mcp.upstreams.transport.conversation import Message, UpstreamLost
from gateway.mcp.upstreams.transport.handshake import CAPABILITIES_KEY, HandshakeResult
from gateway.mcp.upstreams.transport.link import LinkSession, LinkState
from gateway.mcp.upstreams.transport.shared import frame, frames
from gateway.mcp.upstreams.upstream import JoinedLink
from gateway.model import Principal

NODE = Principal(issuer="gateway", client="gateway", subject="node")
"""The principal of what another node asks for by itself; the callers of its calls were authorized there."""

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest message of another node, whose doors have lower limits."""

PATIENCE = 24 * 3600.0
"""Seconds without a sign of life of a call: the other node limits it, and cancels it here."""

log = logging.getLogger(__name__)

Write = Callable[[bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _DistantAsker:
    """The client behind a call of the other node; `id` is the call there."""

    service: NodeService
    id: int
    who: str
    owner: str
    methods: Sequence[str]

    def takes(self, method: str) -> bool:
        return method in self.methods

    async def ask(self, method: str, params: Message) -> Message:
        return await self.service.ask(self.id, method, params)

    async def tell(self, method: str, params: Message) -> None:
        await self.service.tell(method, params, self.id)


class NodeService:
    """One connection of another node to the upstream of `proxy`; `write` sends bytes to that node."""

    def __init__(self, proxy: Proxy, write: Write, in_turn: RoundRobin) -> None:
        self._proxy = proxy
        self._upstream = proxy.upstream
        self._write = write
        self._writing = asyncio.Lock()
        self._in_turn = in_turn
        self._who = f"node {secrets.token_urlsafe(8)}"
        self._joined: JoinedLink | None = None
        self._session: LinkSession | None = None
        self._client = UpstreamClient(NODE, self._who, LATEST_MODERN_VERSION)
        self._follower = ChangeListener(self._hear, self._who)
        self._resources: dict[str, ChangeListener] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._questions: dict[str, asyncio.Future[Message]] = {}
        self._number = 0
        self._tasks = asyncio.TaskGroup()
        self._over: asyncio.Task[None] | None = None

    async def run(self, chunks: AsyncIterator[bytes]) -> None:
        """Serve until the other node closes the connection."""
        async with AsyncExitStack() as stack:
            stack.callback(self._leave)
            await stack.enter_async_context(self._tasks)
            stack.callback(self._end)
            reading = self._tasks.create_task(self._read(chunks))
            await asyncio.wait({reading})

    def _end(self) -> None:
        for task in (*self._calls.values(), self._over):
            if task is not None:
                task.cancel()

    def _leave(self) -> None:
        joined = self._joined
        if joined is not None:
            for listener in (self._follower, *self._resources.values()):
                self._upstream.spawn(joined.feed.remove(joined.link, listener))
        self._proxy.forget_session(self._who)

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        try:
            async for head, message, _ in frames(chunks, self._in_turn, LARGEST):
                if isinstance(message, dict):
                    await self._take(head, message)
        except ValueError as error:
            log.warning("a message of another node to the upstream %s: %s", self._upstream.spec.name, error)
        except (UpstreamLost, Refusal) as error:
            await self._send({"lost": error.detail if isinstance(error, Refusal) else str(error)}, None)

    async def _take(self, head: Message, message: Message) -> None:
        method, id, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            self._take_answer(message)
        elif method in ("initialize", "server/discover"):
            await self._send({}, await self._introduce(int(id or 0), str(method), params))
        elif isinstance(id, int):
            task = self._calls[id] = self._tasks.create_task(self._answer(id, str(method), params, head))
            task.add_done_callback(lambda _: self._calls.pop(id, None))
        elif method == "notifications/cancelled":
            running = self._calls.get(int(params.get("requestId", 0)))
            if running is not None:
                running.cancel()
        elif method == "notifications/roots/list_changed" and self._session is not None:
            await self._session.conversation.notify(method, {})

    async def _introduce(self, id: int, method: str, params: Message) -> Message:
        """Return the answer to a handshake, in the era that the upstream speaks; its link may have to start first."""
        modern = method == "server/discover"
        declared = (params.get("_meta") or {}).get(CAPABILITIES_KEY) if modern else params.get("capabilities")
        version = LATEST_MODERN_VERSION if modern else LATEST_HANDSHAKE_VERSION
        self._client = UpstreamClient(NODE, self._who, version, declared if isinstance(declared, dict) else {})
        joined, session = await self._connect()
        if session.terms.modern is not modern:
            return _error(id, types.METHOD_NOT_FOUND, "The upstream does not speak this era of the protocol.")
        self._follow(joined, session)
        return {"jsonrpc": "2.0", "id": id, "result": _introduction(session.terms)}

    async def _connect(self) -> tuple[JoinedLink, LinkSession]:
        """Return the upstream's connection, which may take its time to begin. Raises `Refusal`."""
        while True:
            try:
                return await self._upstream.session(self._client)
            except Refusal:
                joined = self._upstream.find_link(self._client)
                if joined is None or joined.link.state is not LinkState.CONNECTING:
                    raise

    def _follow(self, joined: JoinedLink, session: LinkSession) -> None:
        self._joined, self._session = joined, session
        joined.feed.add(self._follower)
        if self._over is not None:
            self._over.cancel()
        self._over = self._tasks.create_task(self._announce_end(session))

    async def _announce_end(self, session: LinkSession) -> None:
        """Announce that the upstream's connection takes no more requests, and close this one once it has ended."""
        why = await asyncio.shield(session.conversation.over)
        if session.conversation.superseded:
            await self._send({"over": why}, None)
            while self._calls:
                await asyncio.wait(set(self._calls.values()))
        await self._send({"lost": why}, None)

    async def _answer(self, id: int, method: str, params: Message, head: Message) -> None:
        try:
            result = await self._request(id, method, params, head)
        except MCPError as error:
            await self._send({"for": id}, _error(id, error.error.code, error.error.message, error.error.data))
        except Refusal as refusal:
            await self._send({"for": id}, _error(id, types.INTERNAL_ERROR, refusal.detail))
        except UpstreamLost as lost:
            await self._send({"for": id, "over" if lost.unsent else "lost": str(lost)}, None)
        else:
            await self._send({"for": id}, {"jsonrpc": "2.0", "id": id, "result": result})

    async def _request(self, id: int, method: str, params: Message, head: Message) -> Message:
        session, joined = self._session, self._joined
        if session is None or joined is None:
            raise MCPError(types.INVALID_REQUEST, "The handshake comes first.")
        match method:
            case "subscriptions/listen":
                return await self._listen(id, params, joined, session)
            case "resources/subscribe" if not session.terms.modern:
                await self._subscribe(joined, str(params.get("uri")))
                return {}
            case "resources/unsubscribe" if not session.terms.modern:
                await self._unsubscribe(joined, str(params.get("uri")))
                return {}
            case "logging/setLevel":
                return await self._proxy.set_level(self._client, params)
            case _:
                return await self._call(session, id, method, params, head)

    async def _call(self, session: LinkSession, id: int, method: str, params: Message, head: Message) -> Message:
        who, owner, methods = head.get("who"), head.get("owner"), head.get("takes")
        if not isinstance(who, str) or not isinstance(owner, str) or not isinstance(methods, list):
            return await session.conversation.request(method, params, timeout=PATIENCE)
        asker = _DistantAsker(self, id, who, owner, [str(one) for one in methods])
        with self._upstream.turn(owner):
            return await session.conversation.request(method, params, asker=asker, timeout=PATIENCE)

    async def _listen(self, id: int, params: Message, joined: JoinedLink, session: LinkSession) -> Message:
        """Serve the other node's stream of changes, until it is cancelled."""
        followed: list[str] = []
        await joined.feed.listen(session)
        try:
            for uri in uris_of(params):
                try:
                    await self._subscribe(joined, uri)
                except MCPError as error:
                    log.debug("a resource is not followed: %s", error)
                else:
                    followed.append(uri)
            notifications = {**(params.get("notifications") or {}), "resourceSubscriptions": followed}
            meta = {SUBSCRIPTION_ID_META_KEY: id}
            await self.tell(ACKNOWLEDGED, {"notifications": notifications, "_meta": meta}, id)
            await asyncio.shield(session.conversation.over)
            return {}
        finally:
            for uri in followed:
                self._upstream.spawn(self._unsubscribe(joined, uri))

    async def _subscribe(self, joined: JoinedLink, uri: str) -> None:
        """Follow a resource: the other node counts those of each person."""
        listener = self._resources.setdefault(uri, ChangeListener(self._hear_resource, f"{self._who} {uri}"))
        joined.feed.add(listener)
        await joined.feed.subscribe(joined.link, listener, uri)

    async def _unsubscribe(self, joined: JoinedLink, uri: str) -> None:
        if (listener := self._resources.pop(uri, None)) is not None:
            await joined.feed.remove(joined.link, listener)

    def _hear(self, method: str, params: Message) -> None:
        self._upstream.spawn(self.tell(method, params))

    def _hear_resource(self, method: str, params: Message) -> None:
        if method == UPDATED:
            self._hear(method, params)

    async def ask(self, id: int, method: str, params: Message) -> Message:
        """Return the answer of the client behind a call of the other node. Raises `MCPError`."""
        self._number += 1
        key = f"ask-{self._number}"
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._questions[key] = answer
        try:
            await self._send({"for": id}, {"jsonrpc": "2.0", "id": key, "method": method, "params": params})
            return await answer
        finally:
            del self._questions[key]

    async def tell(self, method: str, params: Message, id: int | None = None) -> None:
        """Send a notification to the other node, for a call of it, or for all."""
        head = {"for": id} if id is not None else {}
        await self._send(head, {"jsonrpc": "2.0", "method": method, "params": params})

    def _take_answer(self, message: Message) -> None:
        answer = self._questions.get(str(message.get("id")))
        if answer is None or answer.done():
            return
        result, error = message.get("result"), message.get("error")
        if isinstance(result, dict):
            answer.set_result(result)
        else:
            fault: Mapping[str, Any] = error if isinstance(error, dict) else {}
            code, text = fault.get("code"), fault.get("message")
            code_known = code if isinstance(code, int) else types.INTERNAL_ERROR
            answer.set_exception(MCPError(code_known, str(text), fault.get("data")))

    async def _send(self, head: Mapping[str, object], message: object) -> None:
        data = await frame(head, message)
        with suppress(OSError):  # the other node is gone, which ends this
            async with self._writing:
                await self._write(data)


def _introduction(terms: HandshakeResult) -> Message:
    """Return the result of a handshake with these terms."""
    result: Message = {"capabilities": dict(terms.capabilities)}
    if terms.instructions is not None:
        result["instructions"] = terms.instructions
    info = dict(terms.info) if terms.info is not None else None
    if not terms.modern:
        return {**result, "protocolVersion": terms.version, **({"serverInfo": info} if info is not None else {})}
    meta = {types.SERVER_INFO_META_KEY: info} if info is not None else {}
    return {**result, "supportedVersions": [terms.version], "_meta": meta}


def _error(id: int, code: int, text: str, data: Any = None) -> Message:
    error = {"code": code, "message": text, **({"data": data} if data is not None else {})}
    return {"jsonrpc": "2.0", "id": id, "error": error}

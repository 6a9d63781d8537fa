"""The listener for other nodes of the gateway: it accepts signed requests for the live objects of this one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.cluster.envelope import HEADER, BadEnvelope, Envelope, Receiver, check_body, check_streamed
from gateway.cluster.forwards import Forwards
from gateway.cluster.ids import ObjectKind
from gateway.cluster.messages import (
    BODIES,
    CALLS,
    CLOSED,
    DOCUMENTS,
    FORMER,
    LARGEST,
    MOVED,
    NOT_OWNER,
    OFFERS,
    OWNER,
    PING,
    TAINTS,
    UPSTREAMS,
    VIEWS,
    Broken,
    Pong,
    RemoteCall,
    Visiting,
    decode_call,
    decode_texts,
    encode,
    encode_texts,
    read_about,
    write_taint,
)
from gateway.cluster.node import ClusterNode
from gateway.cluster.taints import ClusterTaints
from gateway.doors.revocation import Revocations
from gateway.errors import Refusal
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.mcp.elsewhere import LocalCatalog, named_object, run_here
from gateway.model import Principal, Visit
from gateway.ports.views import StoredTaint
from gateway.traces import CLIENT, continue_trace
from gateway.views.view import SharedTaints

log = logging.getLogger(__name__)


class Mount(Protocol):
    """A mount of the MCP server."""

    @property
    def catalog(self) -> LocalCatalog: ...

    async def serve_forwarded(
        self, request: web.Request, principal: Principal, body: bytes
    ) -> web.StreamResponse | None: ...


Begin = Callable[[], Awaitable[Callable[[bytes], Awaitable[None]]]]
"""Begins an answer, and returns the function that writes it."""

ServeUpstream = Callable[[str, AsyncIterator[bytes], Begin], Awaitable[int | None]]
"""Serves the process of an upstream by its name to the node that sends the chunks; returns the status of a refusal."""


@dataclass(frozen=True, slots=True)
class NodeDoor:
    """The handlers of requests of other nodes.

    `mounts` returns a mount by its name, which is empty for that of all apps; `has_view` whether a view is here. `lose`
    ends one and returns its taint; `end_former` ends the one that a proof names, of a caller and app. `admits` returns
    whether a caller may use the app or upstream of that name. `known_taints` are those that other nodes are told.
    `send_body` sends a body that waits for a caller, `take_document` returns a page by its secret and its host.
    `redis` returns why Redis cannot be used. `serve_upstream` serves the process of a shared upstream.
    `list_views` returns the views here that a person may see, `close_view` closes one of these.
    `offers` answer a person's requests about links and downloads of a view here, by their kind.
    """

    node: ClusterNode
    receiver: Receiver
    forwards: Forwards
    revocations: Revocations
    mounts: Callable[[str], Mount | None]
    has_view: Callable[[str], bool]
    lose: Callable[[str], StoredTaint | None]
    end_former: Callable[[Principal, str, str], bool]
    taints: SharedTaints
    known_taints: ClusterTaints
    admits: Callable[[Principal, str], bool]
    redis: Callable[[], str | None]
    send_body: Callable[[web.Request, str, Principal], Awaitable[web.StreamResponse | None]]
    take_document: Callable[[str, str], tuple[str, str] | None]
    serve_upstream: ServeUpstream
    list_views: Callable[[Principal], list[dict[str, Any]]]
    close_view: Callable[[Principal, str], bool]
    offers: Mapping[str, Callable[[object, Principal], Awaitable[web.Response]]]
    running: set[asyncio.Task[object]] = field(default_factory=set)
    """The tasks of requests that are not answered yet, but for streams without an end."""

    def application(self) -> web.Application:
        """Return the application of the listener."""
        app = web.Application(client_max_size=LARGEST, middlewares=[self._count])
        app.router.add_post(CALLS, self._calls)
        app.router.add_post(MOVED, self._moved)
        app.router.add_post(PING, self._ping)
        app.router.add_post(FORMER, self._former)
        app.router.add_post(TAINTS, self._taints)
        app.router.add_post(BODIES, self._body)
        app.router.add_post(DOCUMENTS, self._document)
        app.router.add_post(UPSTREAMS, self._upstream)
        app.router.add_post(VIEWS, self._list_views)
        app.router.add_post(CLOSED, self._close_view)
        app.router.add_post(f"{OFFERS}{{kind}}", self._offer)
        for path in ("/mcp", "/mcp/{name}"):
            app.router.add_route("*", path, self._session)
        return app

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keep the task of a request in `running`."""
        task = asyncio.current_task()
        if request.method == "GET" or request.path == UPSTREAMS or task is None:
            return await handler(request)
        self.running.add(task)
        try:
            return await handler(request)
        finally:
            self.running.discard(task)

    async def _calls(self, request: web.Request) -> web.StreamResponse:
        """Run a tool call, and stream the messages that answer it; a disconnected node cancels it."""
        body = await request.read()
        opened = self._open(request, body)
        if isinstance(opened, web.Response):
            return opened
        envelope, principal, mount = opened
        try:
            call = decode_call(body)
            arguments = parse_json(call.arguments.decode("utf-8", "surrogatepass"))
        except (Broken, ValueError) as error:
            log.warning("a call of another node is refused: %s", error)
            return web.Response(status=403)
        if (elsewhere := await self._not_owner(call, arguments)) is not None:
            return elsewhere
        CLIENT.set(envelope.client or None)
        with (
            self.revocations.hold(principal, partial(_cut_off, request), envelope.mount, "mcp"),
            continue_trace(envelope.trace),
        ):
            return await self._run(request, mount.catalog, call, principal, envelope.deadline - self.node.now())

    async def _moved(self, request: web.Request) -> web.Response:
        """End a view whose page is at another node now, as its row says."""
        body = await request.read()
        envelope = self._read(request, body)
        if envelope is None:
            return web.Response(status=403)
        view = body.decode("utf-8", "replace")
        self.forwards.forget(view)
        try:
            if await self.forwards.read_owner(view) != envelope.sender:
                return web.Response(status=409)
        except Refusal:
            return web.Response(status=503)
        return web.Response(body=write_taint(self.lose(view)), content_type="application/msgpack")

    async def _former(self, request: web.Request) -> web.Response:
        """End a view whose page has attached as another view at the other node, as a proof of it shows."""
        body = await request.read()
        opened = self._open(request, body)
        if isinstance(opened, web.Response):
            return opened
        envelope, principal, _ = opened
        self.end_former(principal, envelope.mount, body.decode("utf-8", "replace"))
        return web.Response(status=204)

    async def _ping(self, request: web.Request) -> web.Response:
        """Answer that this node can be reached."""
        if self._read(request, await request.read()) is None:
            return web.Response(status=403)
        return web.Response(body=msgspec.msgpack.encode(Pong(time.time(), self.redis())))

    async def _taints(self, request: web.Request) -> web.Response:
        """Take note of the taint of views at the other node, or of its end."""
        body = await request.read()
        if self._read(request, body) is None:
            return web.Response(status=403)
        try:
            about = read_about(body)
        except Broken as error:
            log.warning("a message of another node is refused: %s", error)
            return web.Response(status=403)
        if about.taint is not None:
            self.taints.hear(about.key, about.group, StoredTaint(*about.taint))
        else:
            self.known_taints.note_ended(about.key)
            self.taints.taints.store_again(about.key)
        return web.Response(status=204)

    async def _body(self, request: web.Request) -> web.StreamResponse:
        """Send a body that waits here for the caller."""
        body = await request.read()
        envelope = self._read(request, body)
        if envelope is None:
            return web.Response(status=403)
        principal = envelope.caller.principal()
        if not principal.may("bridge") or not self.revocations.accepts(principal):
            return web.Response(status=403)
        with self.revocations.hold(principal, partial(_cut_off, request), needs="bridge"):
            answer = await self.send_body(request, body.decode("utf-8", "replace"), principal)
        return answer if answer is not None else web.Response(status=404)

    async def _document(self, request: web.Request) -> web.Response:
        """Return a page that waits here for its frame, once."""
        body = await request.read()
        if self._read(request, body) is None:
            return web.Response(status=403)
        try:
            page = self.take_document(*decode_texts(body))
        except Broken:
            return web.Response(status=403)
        if page is None:
            return web.Response(status=404)
        return web.Response(body=encode_texts(*page), content_type="application/msgpack")

    async def _upstream(self, request: web.Request) -> web.StreamResponse:
        """Carry messages between the other node and the process of a shared upstream that runs here."""
        envelope = self._read(request, None)
        if envelope is None:
            return web.Response(status=403)
        if self.node.left or not self.node.lease.holds:
            return web.Response(status=NOT_OWNER, headers={OWNER: ""})
        answer = web.StreamResponse(headers={"content-type": "application/x-ndjson"})

        async def begin() -> Callable[[bytes], Awaitable[None]]:
            await answer.prepare(request)
            return answer.write

        status = await self.serve_upstream(envelope.mount, request.content.iter_any(), begin)
        return web.Response(status=status) if status is not None else answer

    async def _list_views(self, request: web.Request) -> web.Response:
        """Return the views here that a person may see."""
        envelope = self._read(request, await request.read())
        if envelope is None or not self.revocations.accepts(principal := envelope.caller.principal()):
            return web.Response(status=403)
        return web.Response(text=plain_json(self.list_views(principal)), content_type="application/json")

    async def _close_view(self, request: web.Request) -> web.Response:
        """Close a view that a person may see."""
        body = await request.read()
        envelope = self._read(request, body)
        if envelope is None or not self.revocations.accepts(principal := envelope.caller.principal()):
            return web.Response(status=403)
        return web.Response(status=204 if self.close_view(principal, body.decode("utf-8", "replace")) else 404)

    async def _offer(self, request: web.Request) -> web.Response:
        """Answer a person's request about a link or a download of a view here."""
        body = await request.read()
        envelope, answer = self._read(request, body), self.offers.get(request.match_info["kind"])
        if envelope is None or answer is None:
            return web.Response(status=403)
        principal = envelope.caller.principal()
        if not principal.may("bridge") or not self.revocations.accepts(principal):
            return web.Response(status=403)
        try:
            return await answer(parse_json(body.decode("utf-8", "surrogatepass")), principal)
        except ValueError:
            return web.Response(status=403)

    async def _session(self, request: web.Request) -> web.StreamResponse:
        """Answer a request for a session of a client that this node runs."""
        body = await request.read()
        opened = self._open(request, body)
        if isinstance(opened, web.Response):
            return opened
        envelope, principal, mount = opened
        if request.match_info.get("name", "") != envelope.mount:
            return web.Response(status=403)
        CLIENT.set(envelope.client or None)
        with self.revocations.hold(principal, partial(_cut_off, request), envelope.mount, "mcp"):
            answer = await mount.serve_forwarded(request, principal, body)
        return answer if answer is not None else web.Response(status=NOT_OWNER, headers={OWNER: ""})

    def _open(self, request: web.Request, body: bytes) -> tuple[Envelope, Principal, Mount] | web.Response:
        """Return the envelope of a request with its caller and mount, or the refusal."""
        envelope = self._read(request, body)
        if envelope is None:
            return web.Response(status=403)
        if self.node.left or not self.node.lease.holds:
            return web.Response(status=NOT_OWNER, headers={OWNER: ""})  # it has nothing any more
        principal, mount = envelope.caller.principal(), self.mounts(envelope.mount)
        if mount is None or not self._may(principal, envelope.mount):
            return web.Response(status=403)
        return envelope, principal, mount

    def _read(self, request: web.Request, body: bytes | None) -> Envelope | None:
        """Return the envelope of a request; None if it is refused. `body` is None for a streamed one."""
        try:
            envelope = self.receiver.open(
                request.headers.get(HEADER, ""), request.method, request.path_qs, request.headers
            )
            if body is None:
                check_streamed(envelope)
            else:
                check_body(envelope, body)
        except BadEnvelope as error:
            log.warning("a request of another node is refused: %s", error)
            return None
        return envelope

    def _may(self, principal: Principal, mount: str) -> bool:
        """Return whether the caller may use the mount, as at the door of MCP clients."""
        admitted = not mount or self.admits(principal, mount)
        return admitted and principal.may("mcp") and self.revocations.accepts(principal)

    async def _not_owner(self, call: RemoteCall, arguments: Mapping[str, object]) -> web.Response | None:
        """Return the answer to a call for a view that is not here, with its owner; it is not forwarded again."""
        named = named_object(call.name, arguments)  # type: ignore[arg-type]  # parsed JSON
        if named is None or named[0] is not ObjectKind.VIEW or self.has_view(named[1]):
            return None
        try:
            owner = await self.forwards.read_owner(named[1])
        except Refusal:
            return web.Response(status=503)
        if owner == self.node.incarnation:
            return None  # it was here, and is closed: the catalog says so
        return web.Response(status=NOT_OWNER, headers={OWNER: owner or ""})

    async def _run(
        self, request: web.Request, catalog: LocalCatalog, call: RemoteCall, principal: Principal, seconds: float
    ) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "application/octet-stream"})
        visits: asyncio.Queue[Visit] = asyncio.Queue()
        async with asyncio.timeout(seconds):
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(run_here(catalog, call, principal, visits.put_nowait))
                if call.asks:
                    await answer.prepare(request)
                    telling = tasks.create_task(_tell(answer, visits))
                    running.add_done_callback(lambda _: telling.cancel())
            message = encode(running.result())
            if not answer.prepared:
                return web.Response(body=message, headers=answer.headers)
            await answer.write(message)
            await answer.write_eof()
        return answer


async def _tell(answer: web.StreamResponse, visits: asyncio.Queue[Visit]) -> None:
    while True:
        await answer.write(encode(Visiting(await visits.get())))


def _cut_off(request: web.Request) -> None:
    """Abort the connection, which cancels the call."""
    if request.transport is not None:
        request.transport.abort()

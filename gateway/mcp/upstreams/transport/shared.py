"""A command that one node runs for all: it is here, or its messages travel to the node that has it.

A frame is two lines of JSON: a head, then a message, which is `null` if the head says all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Final, Protocol

from gateway.errors import Refusal
from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.jsontext.messages import decode, encode, encode_in_thread, read
from gateway.mcp.upstreams.catalog.listing import LISTS
from gateway.mcp.upstreams.transport.conversation import (
    Message,
    Receive,
    SessionEnded,
    Unreadable,
    UpstreamConversation,
    UpstreamLost,
)
from gateway.mcp.upstreams.transport.process import Process
from gateway.ports.nodes import NodeAnswer, NodeRow

ASKABLE: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
"""The possible requests of an upstream to a client."""

AGAIN: Final = 0.2
"""Seconds after which a node that hands the upstream over is asked again."""

WAITING: Final = 16
"""Frames that wait for the connection to the other node."""

HEAD: Final = 16 * 1024
"""Bytes of the longest head."""

BUSY: Final = frozenset({421, 503})
"""Answers of a node that has the upstream no more, or hands it over."""

log = logging.getLogger(__name__)


class UpstreamPlacement(Protocol):
    """Decides which node runs a shared upstream: `gateway.cluster.places`."""

    async def owner(self, upstream: str) -> NodeRow | None:
        """Return the other node that runs it; None if it is this one. Raises `Refusal`."""
        ...

    def holding(self, upstream: str, kill: Callable[[], None], *, here: bool) -> AbstractContextManager[None]:
        """Call `kill` if the lease of this node ends within the block. `here`: the upstream runs here meanwhile."""
        ...

    def open(
        self, row: NodeRow, upstream: str, frames: AsyncIterator[bytes]
    ) -> AbstractAsyncContextManager[NodeAnswer]:
        """Yield the answer of a node that runs the upstream, whose body are its frames. Raises OSError, `Refusal`."""
        ...


async def frame(head: Mapping[str, object], message: object) -> bytes:
    """Return a frame."""
    return encode(head) + b"\n" + await encode_in_thread(message) + b"\n"


async def frames(
    chunks: AsyncIterator[bytes], in_turn: RoundRobin, limit: int
) -> AsyncIterator[tuple[Message, object, int]]:
    """Yield head, message and the message's size of each frame. Raises ValueError; messages may be `Unreadable`."""
    buffer, moments = bytearray(), TimeSlices(in_turn)
    head: Message | None = None
    async for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        if lines:
            buffer += lines[0]
            lines[0], buffer = bytes(buffer), bytearray()
        buffer += rest
        if len(buffer) > limit:
            raise ValueError(f"a message of more than {limit} bytes")
        for line in lines:
            if head is None:
                read_head = decode(line) if len(line) <= HEAD else None
                if not isinstance(read_head, dict):
                    raise ValueError("a frame has no head")
                head = read_head
                continue
            try:
                message = await read(line, moments, LISTS)
            except ValueError as error:
                message = Unreadable.of(line, error)
            yield head, message, len(line)
            head = None


class SharedProcess:
    """The carrier of a shared command: `make` starts it if this node is the one that runs it, as `places` decide.

    `limit` is the bytes of one message.
    """

    def __init__(
        self, name: str, places: UpstreamPlacement, make: Callable[[], Process], *, in_turn: RoundRobin, limit: int
    ) -> None:
        self._name = name
        self._places = places
        self._make = make
        self._in_turn = in_turn
        self._limit = limit
        self._conversation: UpstreamConversation | None = None
        self._carrier: asyncio.Future[Process | _Distant] = asyncio.get_running_loop().create_future()

    def attach(self, conversation: UpstreamConversation) -> None:
        self._conversation = conversation

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        carrier = await asyncio.shield(self._carrier)
        await carrier.send(message, headers)

    async def abandon(self, id: int) -> bool:
        return False

    async def run(self, receive: Receive) -> None:
        try:
            while (row := await self._places.owner(self._name)) is not None:
                distant = _Distant(self._name, self._conversation, self._in_turn, self._limit)
                if await self._run_there(row, distant, receive):
                    return
                await asyncio.sleep(AGAIN)
            process = self._make()
            with self._places.holding(self._name, process.kill, here=True):
                self._carrier.set_result(process)
                await process.run(receive)
        except Refusal as refusal:
            raise self._fail(UpstreamLost.of_refusal(refusal)) from refusal
        except OSError as error:
            raise self._fail(UpstreamLost("the process of the gateway that runs it cannot be reached")) from error
        except UpstreamLost as lost:
            raise self._fail(lost) from lost.__cause__

    async def _run_there(self, row: NodeRow, distant: _Distant, receive: Receive) -> bool:
        """Carry messages to the node that runs it; return False if that has it no more."""
        async with self._places.open(row, self._name, distant.sent()) as answer:
            if answer.status in BUSY:
                return False
            if answer.status != 200:
                raise UpstreamLost("another process of the gateway does not run it; its log says why", unsent=True)
            if not self._carrier.done():
                self._carrier.set_result(distant)
            with self._places.holding(self._name, distant.stop, here=False):
                await distant.run(answer, receive)
        return True

    def _fail(self, lost: UpstreamLost) -> UpstreamLost:
        if not self._carrier.done():
            self._carrier.set_exception(UpstreamLost(str(lost), unsent=True, refusal=lost.refusal))
            self._carrier.exception()  # marks the exception as retrieved
        return lost


class _Distant:
    """The carrier to the node that runs the upstream."""

    def __init__(self, name: str, conversation: UpstreamConversation | None, in_turn: RoundRobin, limit: int) -> None:
        self._name = name
        self._conversation = conversation
        self._in_turn = in_turn
        self._limit = limit
        self._out = asyncio.Queue[bytes](WAITING)
        self._over: str | None = None
        self._stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def sent(self) -> AsyncIterator[bytes]:
        """Yield the frames for the other node."""
        yield await frame({"hello": self._name}, None)
        while True:
            yield await self._out.get()

    def stop(self) -> None:
        """End the connection: the lease of this node has ended."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        head: Message = {}
        if "method" in message and (id := message.get("id")) is not None:
            if self._over is not None:
                raise SessionEnded(self._over)
            asker = self._conversation.asker(id) if self._conversation is not None else None
            if asker is not None:
                takes = [method for method in ASKABLE if asker.takes(method)]
                head = {"who": asker.who, "owner": asker.owner, "takes": takes}
        await self._out.put(await frame(head, message))

    async def abandon(self, id: int) -> bool:
        return False

    async def run(self, answer: NodeAnswer, receive: Receive) -> None:
        reading = asyncio.ensure_future(self._read(answer, receive))
        try:
            await asyncio.wait({reading, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise UpstreamLost("the lease of this process of the gateway has ended")
            reading.result()
        finally:
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # marks the exception as retrieved

    async def _read(self, answer: NodeAnswer, receive: Receive) -> None:
        try:
            async for head, message, size in frames(answer.chunks, self._in_turn, self._limit):
                await self._take(head, message, size, receive)
        except (OSError, ValueError) as error:
            raise UpstreamLost("the process of the gateway that runs it has ended, or cannot be reached") from error
        raise UpstreamLost("the process of the gateway that runs it closed the connection")

    async def _take(self, head: Message, message: object, size: int, receive: Receive) -> None:
        id, conversation = head.get("for"), self._conversation
        call = id if isinstance(id, int) else None
        if conversation is None:
            return
        if "over" in head:
            self._over = str(head["over"])
            if call is not None:
                conversation.fail(call, SessionEnded(self._over))
            conversation.hand_over(self._over)
        elif "lost" in head and call is not None:
            conversation.fail(call, UpstreamLost(str(head["lost"])))
        elif "lost" in head:
            if self._over is not None:  # the other node has answered all that it has got
                conversation.hand_over(self._over, unsent=True)
            raise UpstreamLost(str(head["lost"]))
        else:
            receive(message, call, size)

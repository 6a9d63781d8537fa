"""One JSON-RPC conversation with an upstream, over any carrier: requests both ways, notifications, cancellation."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, Self, cast, runtime_checkable

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from gateway.bounds import Area, Bound
from gateway.errors import Refusal
from gateway.mcp.upstreams.transport.notifications import ASKED, CHANGES, LARGEST_CHANGE, CallNotifier, Flood

_END: Final = 200
"""Characters at either end in which the id is searched."""

_S = r"\s*"
_VERSION = rf'"jsonrpc"{_S}:{_S}"2\.0"'
_ID = rf'"id"{_S}:{_S}([0-9]{{1,15}})'
_OUTCOME = rf'"(?:result|error)"{_S}:'
_FIRST: Final = re.compile(rf"{_S}\{{{_S}(?:{_VERSION}{_S},{_S})?{_ID}{_S},{_S}(?:{_VERSION}{_S},{_S})?{_OUTCOME}")
_LAST: Final = re.compile(rf",{_S}(?:{_VERSION}{_S},{_S})?{_ID}{_S}(?:,{_S}{_VERSION}{_S})?\}}{_S}$")
_BEGUN: Final = re.compile(rf"{_S}\{{{_S}(?:{_VERSION}{_S},{_S})?{_OUTCOME}")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """`id` is that of the request that it seems to answer, `why` the fault."""

    id: int | None
    why: str

    @classmethod
    def of(cls, text: str | bytes | bytearray, error: ValueError) -> Self:
        """Return `text` as an unreadable message with `error` as its fault."""
        first, last = (
            end if isinstance(end, str) else end.decode("utf-8", "replace") for end in (text[:_END], text[-_END:])
        )
        match = _FIRST.match(first) or (_LAST.search(last) if _BEGUN.match(first) else None)
        return cls(int(match[1]) if match is not None else None, str(error))


log = logging.getLogger(__name__)

MAX_ASKED = 16
"""Requests of one upstream that wait for the gateway's answer."""

MAX_REPLIES = 64
"""Answers, refusals included, that an upstream has not accepted yet; further requests of it are not answered."""

BOUNDS: Final = (
    Bound(
        Area.UPSTREAMS,
        "requests of an upstream to its clients",
        f"{MAX_ASKED} at a time, {MAX_REPLIES} unread answers",
        "further ones are refused; beyond the unread answers, ignored",
    ),
)

(_ASKED,) = BOUNDS

Message = dict[str, Any]


class UpstreamLost(Exception):
    """The conversation ended, with a reason for waiting callers; `unsent` means that the upstream never saw the
    request.
    `refusal` is set if the gateway itself sent nothing: a credential is missing, or the address is not allowed.
    """

    def __init__(self, why: str, *, unsent: bool = False, refusal: Refusal | None = None) -> None:
        super().__init__(why)
        self.unsent = unsent
        self.refusal = refusal

    @classmethod
    def of_refusal(cls, refusal: Refusal) -> Self:
        """Return the error for a request that was not sent because of `refusal`."""
        return cls(refusal.detail, unsent=True, refusal=refusal)


class SessionEnded(UpstreamLost):
    """The upstream no longer knows the session, and executed nothing: the request may be sent in a new one."""

    def __init__(self, why: str = "the upstream ended the session") -> None:
        super().__init__(why, unsent=True)


class UpstreamFlood(UpstreamLost):
    """The upstream flooded the gateway; a connection that ends so counts as failed."""


class Asker(Protocol):
    """The client behind a request to an upstream: it receives the upstream's requests and notifications."""

    @property
    def who(self) -> str:
        """An id shared by all requests of one client; "" without a client."""
        ...

    @property
    def owner(self) -> str:
        """The id of its principal, with which its requests are counted."""
        ...

    def takes(self, method: str) -> bool:
        """Return whether the client can answer a request of this kind."""
        ...

    async def ask(self, method: str, params: Message) -> Message:
        """Return the client's answer to a request of the upstream. Raises `MCPError`."""
        ...

    async def tell(self, method: str, params: Message) -> None:
        """Send a notification to the client."""
        ...


class Carrier(Protocol):
    """Carries messages to an upstream, and passes its messages to the conversation."""

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        """Send one message; may return only when a request is answered. Raises `UpstreamLost`.
        After `SessionEnded`, messages sent before are still carried.
        """
        ...

    async def abandon(self, id: int) -> bool:
        """Cancel a request; return True if the cancelled `send` already notified the upstream."""
        ...

    async def run(self, receive: Receive) -> None:
        """Receive until the upstream ends. Raises only `UpstreamLost`, if it ends with an error."""
        ...


@runtime_checkable
class Attached(Protocol):
    """A carrier to another node, where the requests of several conversations meet at one upstream."""

    def attach(self, conversation: UpstreamConversation) -> None:
        """Note the conversation that it carries, which knows who is behind each request."""
        ...


Receive = Callable[[object, int | None, int], bool]
"""Receives one decoded message or `Unreadable`, the request that it belongs to, if known, and its size.
Returns whether it is an awaited answer: any other message takes time from others.
"""


class PendingCall:
    """One request in flight."""

    def __init__(self, id: int, asker: Asker | None, token: str | int | None, timeout: float | None) -> None:
        self.id = id
        self.timeout = timeout
        self.asker = asker
        self.hear: Callable[[str, Message], None] | None = None
        self.token = token
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.telling: CallNotifier | None = None
        self.deadline: asyncio.Timeout | None = None
        self.requests = 0

    def touch(self) -> None:
        """Restart the timeout after a sign of life; it is paused while the upstream waits for the client."""
        if self.deadline is not None and self.timeout is not None and not self.answer.done():
            loop = asyncio.get_running_loop()
            self.deadline.reschedule(None if self.requests else loop.time() + self.timeout)


class UpstreamConversation:
    """The gateway's end. `on_notification` receives notifications that belong to no call.
    `timeout` is in seconds of silence.
    `most` limits the requests in flight. An async context manager: leaving it ends the requests in flight. `over`
    resolves to the reason when no more requests are accepted, `end` when those in flight get no answer either.
    `answers` counts the answers received.
    """

    def __init__(
        self, carrier: Carrier, *, timeout: float, most: int, on_notification: Callable[[str, Message], None]
    ) -> None:
        self._carrier = carrier
        self._most = most
        self._timeout = timeout
        self._on_notification = on_notification
        self._calls: dict[int, PendingCall] = {}
        self._next = 0
        self._flood = Flood()
        self._request_tasks: set[asyncio.Task[None]] = set()
        self._tasks = asyncio.TaskGroup()
        self._running: asyncio.Task[None] | None = None
        self.flooded = False
        self.answers = 0
        self.at_once = False
        """True if another node has the upstream now: a new conversation may begin at once."""
        self.superseded = False
        """True once it accepts no more requests, though it had not ended."""
        self.refusal: Refusal | None = None
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if isinstance(carrier, Attached):
            carrier.attach(self)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._running = self._tasks.create_task(self._run())
        return self

    async def __aexit__(self, *exc: Any) -> None:
        if self._running is not None:
            self._running.cancel()
        for task in list(self._request_tasks):
            task.cancel()
        self._end("the connection was closed")
        await self._tasks.__aexit__(None, None, None)  # raises the causing error itself, not in a group

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer."""
        return len(self._calls)

    def asker(self, id: int) -> Asker | None:
        """Return the client behind a request in flight."""
        call = self._calls.get(id)
        return call.asker if call is not None else None

    def fail(self, id: int, error: UpstreamLost) -> None:
        """Fail a request in flight."""
        call = self._calls.get(id)
        if call is not None and not call.answer.done():
            call.answer.set_exception(error)

    def hand_over(self, why: str, *, unsent: bool = False) -> None:
        """Accept no more requests: a new conversation begins at once, in which those in flight go on if `unsent`."""
        self.at_once = True
        for id in list(self._calls) if unsent else ():
            self.fail(id, SessionEnded(why))
        self.supersede(why)

    async def request(
        self,
        method: str,
        params: Message,
        *,
        asker: Asker | None = None,
        hear: Callable[[str, Message], None] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Message:
        """Return the upstream's answer.
        `timeout` may be infinite, for requests that are answered when their stream ends; `hear` receives every message
        of such a stream at once. Raises `MCPError`, `UpstreamLost`, and TimeoutError after `timeout` of silence.
        """
        if self.over.done():
            raise UpstreamLost(self.over.result(), unsent=True)
        if len(self._calls) >= self._most:
            raise MCPError(types.INTERNAL_ERROR, "Too many calls of this upstream are in flight.")
        self._next += 1
        wait = self._timeout if timeout is None else timeout
        limit = wait if math.isfinite(wait) else None
        call = PendingCall(self._next, asker, _token(params), limit)
        call.hear = hear
        self._calls[call.id] = call
        if call.token is not None:
            params = {**params, "_meta": {**params["_meta"], "progressToken": call.id}}
        try:
            async with asyncio.timeout(limit) as call.deadline:
                await self._send({"jsonrpc": "2.0", "id": call.id, "method": method, "params": params}, headers or {})
                answer = await call.answer
            if call.telling is not None:
                await call.telling.drain()
            return answer
        except (asyncio.CancelledError, TimeoutError):
            await self._give_up(call, method)
            raise
        finally:
            del self._calls[call.id]
            call.answer.cancel()
            if call.telling is not None:
                call.telling.close()

    async def notify(self, method: str, params: Message, headers: Mapping[str, str] | None = None) -> None:
        """Send a notification to the upstream; failures are ignored."""
        with suppress(UpstreamLost, MCPError):
            await self._send({"jsonrpc": "2.0", "method": method, "params": params}, headers or {})

    def supersede(self, why: str) -> None:
        """Accept no more requests, since another conversation has to begin. Those in flight may still be answered."""
        if not self.over.done():
            self.superseded = True
            self.over.set_result(why)
        for call in self._calls.values():
            if call.timeout is None and not call.answer.done():  # a request without a timeout would never end
                call.answer.set_exception(UpstreamLost(why))

    async def drain(self) -> None:
        """Wait until no request is in flight."""
        while self._calls:
            await asyncio.wait({call.answer for call in self._calls.values()})

    def receive(self, message: object, request_id: int | None = None, size: int = 0) -> bool:
        """Process one message of the upstream; return whether it is an awaited answer.
        Invalid messages never raise, except `UpstreamLost` for a flood.
        """
        self._flood.count_message(size)
        if not isinstance(message, dict):
            self._strange(message)
            return False
        method, id, params = message.get("method"), message.get("id"), message.get("params", {})
        if method is None:
            return self._take_answer(id, message)
        if not isinstance(method, str) or not isinstance(params, dict | None):
            self._count_unwanted()
        elif "id" in message:
            self._asks(id, method, params or {}, request_id)
        else:
            self._take_notification(method, params or {}, request_id, size)
        return False

    async def _run(self) -> None:
        try:
            await self._carrier.run(self.receive)
            self._end("the upstream closed the connection")
        except SessionEnded as over:
            self.supersede(str(over))
        except UpstreamLost as lost:
            self.flooded = self.flooded or isinstance(lost, UpstreamFlood)
            self._end(str(lost), lost.refusal)
        except Exception:  # an upstream's errors must end only its own conversation
            log.exception("a conversation with an upstream failed")
            self._end("the connection failed; the gateway's log says why")

    def _end(self, why: str, refusal: Refusal | None = None) -> None:
        if not self.over.done():
            self.over.set_result(why)
        if not self.end.done():
            self.refusal = refusal
            self.end.set_result(why)
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(UpstreamLost(why, refusal=refusal))
                call.answer.exception()  # marks the exception as retrieved, as the call may have been cancelled

    async def _give_up(self, call: PendingCall, method: str) -> None:
        is_notified = await self._carrier.abandon(call.id)
        if not is_notified and method not in ("initialize", "server/discover") and not self.end.done():
            params: Message = {"requestId": call.id, "reason": "The client gave the request up."}
            self._spawn(partial(self.notify, "notifications/cancelled", params))

    def _take_answer(self, id: object, message: Message) -> bool:
        call = self._calls.get(_number(id))
        if call is None or call.answer.done():
            self._count_unwanted()
            return False
        self._flood.ebb()
        self.answers += 1
        result, error = message.get("result"), message.get("error")
        if isinstance(result, dict):
            call.answer.set_result(result)
        else:
            call.answer.set_exception(_error(error))
        return True

    def _strange(self, message: object) -> None:
        """Count an invalid message, and fail the call that it seems to answer."""
        self._count_unwanted()
        if not isinstance(message, Unreadable) or message.id is None:
            return
        call = self._calls.get(message.id)
        if call is not None and not call.answer.done():
            call.answer.set_exception(UpstreamLost(f"its response is invalid: {message.why}"))

    def _asks(self, id: object, method: str, params: Message, request_id: int | None) -> None:
        self._count_unwanted(ASKED)
        if len(self._request_tasks) >= MAX_REPLIES:
            _ASKED.report()
            return
        if method == "ping":
            self._spawn(partial(self._reply, id, {}))
            return
        call = self._calls.get(request_id) if request_id is not None else self._only(method)
        if call is None or call.asker is None:
            self._spawn(partial(self._refuse, id, types.INVALID_REQUEST, "No client is known for this request."))
        elif len(self._request_tasks) >= MAX_ASKED:
            _ASKED.report()
            self._spawn(partial(self._refuse, id, types.INTERNAL_ERROR, "Too many requests of yours wait already."))
        else:
            self._spawn(partial(self._ask, call, call.asker, id, method, params))

    async def _ask(self, call: PendingCall, asker: Asker, id: object, method: str, params: Message) -> None:
        call.requests += 1
        call.touch()
        try:
            if call.telling is not None:
                await call.telling.drain()  # a client of 2026-07-28 receives nothing more after the question
            answer = await asker.ask(method, params)
        except MCPError as error:
            await self._refuse(id, error.error.code, error.error.message)
        else:
            await self._reply(id, answer)
        finally:
            call.requests -= 1
            call.touch()

    def _take_notification(self, method: str, params: Message, request_id: int | None, size: int) -> None:
        self._count_unwanted()
        if method == "notifications/cancelled":
            return  # the upstream's request is answered anyway, and it ignores the answer
        call = None
        if method == "notifications/progress":
            call = self._calls.get(_number(params.get("progressToken")))
            if call is None:
                return
            params = {**params, "progressToken": call.token}
        elif subscription := _subscription(params):
            call = self._calls.get(subscription)
        elif request_id is not None:
            call = self._calls.get(request_id)
        elif method == "notifications/message":
            call = self._only()
        if size > LARGEST_CHANGE and method.endswith(CHANGES):
            params = {"uri": params["uri"]} if "uri" in params else {}
        if call is not None and call.hear is not None:
            call.hear(method, params)
            return
        if call is not None:
            call.touch()
        if call is None or call.asker is None or method.endswith(CHANGES):
            self._on_notification(method, params)
            return
        if call.telling is None:  # most calls send no notifications
            call.telling = CallNotifier(self._tasks, call.asker.tell)
        call.telling.add(method, params, size)

    def _only(self, request_id: str | None = None) -> PendingCall | None:
        """Return the newest call if all in flight are of one client, preferably one that can answer `request_id`."""
        calls = {call: call.asker for call in self._calls.values() if call.asker is not None and call.asker.who}
        if len({asker.who for asker in calls.values()}) != 1:
            return None
        return max(calls, key=lambda call: (request_id is None or calls[call].takes(request_id), call.id))

    def _count_unwanted(self, counts: float = 1.0) -> None:
        if (why := self._flood.over(counts)) is not None:
            self.flooded = True
            raise UpstreamFlood(why)

    async def _reply(self, id: object, result: Message) -> None:
        await self._send_quietly({"jsonrpc": "2.0", "id": id, "result": result})

    async def _refuse(self, id: object, code: int, text: str) -> None:
        await self._send_quietly({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def _send_quietly(self, message: Message) -> None:
        with suppress(UpstreamLost, MCPError):
            await self._send(message, {})

    async def _send(self, message: Message, headers: Mapping[str, str]) -> None:
        try:
            await self._carrier.send(message, headers)
        except SessionEnded as over:
            self.supersede(str(over))
            raise

    def _spawn(self, job: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            try:
                await job()
            except Exception:  # a client may fail in any way at an upstream's request
                log.exception("a request of an upstream failed")

        task = self._tasks.create_task(run())
        self._request_tasks.add(task)
        task.add_done_callback(self._request_tasks.discard)


def is_answer(message: Mapping[str, Any], id: int | None) -> bool:
    """Return whether `message` has the id of the request `id`."""
    return _number(message.get("id")) == id


def _number(id: object) -> int:
    """Return an upstream's value as a request id: `7.0` is 7, `true` is not 1; 0 for anything else."""
    return cast(int, id) if type(id) in (int, float) else 0


def timeout_notes(error: TimeoutError) -> str:
    """Return a carrier's notes on a timeout, as the end of a sentence."""
    return "".join(f": {note}" for note in getattr(error.__cause__, "__notes__", ()))


def _subscription(params: Message) -> int:
    """Return the request that opened the stream of a notification (protocol 2026-07-28); 0 if there is none."""
    meta = params.get("_meta")
    return _number(meta.get(SUBSCRIPTION_ID_META_KEY)) if isinstance(meta, dict) else 0


def _token(params: Message) -> str | int | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return token if isinstance(token, str | int) else None


def _error(error: object) -> MCPError:
    """Return the error of an answer, with the upstream's code and message."""
    if not isinstance(error, dict):
        return MCPError(types.INTERNAL_ERROR, "The upstream answered with something that is not a JSON-RPC response.")
    code, message = error.get("code"), error.get("message")
    known = code if isinstance(code, int) and not isinstance(code, bool) else types.INTERNAL_ERROR
    return MCPError(known, message if isinstance(message, str) else "The upstream gave no reason.", error.get("data"))

"""Open WebSockets of apps: carried as streams, within the rules of their route, until their caller or it ends."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.bounds import Area, Bound, size
from gateway.errors import Reason, Refusal
from gateway.exchange.decided_request import BackendAnswer, DecidedRequest
from gateway.exchange.drain import RunningCalls
from gateway.exchange.filter import SecretRedactor, report_echo
from gateway.exchange.limit import Limiter
from gateway.exchange.record import Record
from gateway.exchange.streams import Stream
from gateway.jsontext.writing import compact_json
from gateway.model import BackendSocket, Caller, Effect, Initiator, Json, Principal, Response, SocketEnd
from gateway.policy import Policy, SocketRule, decide
from gateway.policy.obligations import LARGEST_MESSAGE, SOCKET_MESSAGE
from gateway.telemetry import Metrics

IDLE: Final = 3600.0
"""Seconds without a message in either direction after which a WebSocket is closed."""

TOGETHER: Final = 256
"""Messages that a page may send in one call."""

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
VIOLATION: Final = 1008
NO_STATUS: Final = 1005
TOO_BIG: Final = 1009
"""Codes of close frames (RFC 6455, 7.4.1)."""

REASON: Final = 123
"""Bytes of the reason in a close frame (RFC 6455, 5.5)."""

OPENED: Final = 101
"""The status of an opened WebSocket in the record (RFC 9110, 15.2.2)."""

BOUNDS: Final = (
    Bound(
        Area.EXCHANGE,
        "messages of WebSockets",
        f"`websocket.message` of the route ({size(SOCKET_MESSAGE)}), at most {size(LARGEST_MESSAGE)}; one is held in "
        "each direction",
        "the WebSocket is closed with 1009",
    ),
    Bound(
        Area.EXCHANGE,
        "idle WebSockets",
        f"{IDLE:g} s without a message; their number is bounded with that of streamed responses",
        "closed with 1001",
    ),
    Bound(
        Area.EXCHANGE,
        "messages of a WebSocket in one call",
        f"{TOGETHER}",
        "`bad-request`",
    ),
)

_MESSAGES, _IDLE, _TOGETHER = BOUNDS

_EVENTS: Final = (("content-type", "application/x-ndjson"), ("cache-control", "no-store"))
"""The header fields of a WebSocket as a stream: one event in each line."""

MODEL: Final = "The page acts for the model, and `websocket.model` of the route denies messages then."
CLOSED: Final = "The policy does not allow this WebSocket any more."


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """The page closes its WebSocket; without `code` the close frame is empty."""

    code: int | None = None
    reason: str = ""


Message: TypeAlias = str | bytes | CloseRequest


Hold: TypeAlias = Callable[[Principal, Callable[[], None], str], AbstractContextManager[None]]
"""Calls the function when the credential of a caller, or its access to an app, ends within the block."""


def hold_never(_: Principal, __: Callable[[], None], ___: str) -> AbstractContextManager[None]:
    """End nothing."""
    return nullcontext()


class OpenSocket(Stream):
    """An open WebSocket. A view reads it as a stream of lines, the site's door by `receive`; both close it."""

    is_socket = True

    def __init__(
        self,
        socket: BackendSocket,
        policy: Policy,
        decided_request: DecidedRequest,
        caller: Caller,
        answer: BackendAnswer,
        record: Record,
        stack: AsyncExitStack,
        running: RunningCalls,
        limiter: Limiter,
        metrics: Metrics,
    ) -> None:
        super().__init__(Response(200, _EVENTS, url=decided_request.canonical.url), _NoParts(), record, stack, running)
        self.protocol = socket.protocol
        self.policy = policy
        self.decided_request = decided_request
        self.caller = caller
        self.rule = decided_request.obligations.socket or SocketRule()
        self._socket = socket
        self._answer = answer
        self._secrets = SecretRedactor(answer.secrets, answer.later)
        self._limiter = limiter
        self._metrics = metrics
        self._over: SocketEnd | None = None
        self._cut: tuple[SocketEnd, Refusal] | None = None
        self._receiver: asyncio.Task[object] | None = None
        self._loop = asyncio.get_running_loop()
        self._active_at = self._loop.time()
        self._timer = self._loop.call_later(IDLE, self._look)
        self._counts = {"sent": 0, "sent_bytes": 0, "received": 0, "received_bytes": 0}
        self._sending = asyncio.Lock()
        self._next = 0
        self._told = self._closed = False

    async def __anext__(self) -> bytes:
        """Return the next event as a line of JSON: `open`, `text`, `bytes` in base64, at last `close`."""
        if not self._told:
            self._told = True
            return _line({"open": self.protocol, "id": self.name})
        if self._closed:
            raise StopAsyncIteration
        event = await self.receive()
        if isinstance(event, str):
            return _line({"text": event})
        if isinstance(event, bytes):
            return _line({"bytes": base64.b64encode(event).decode()})
        self._closed = True
        return _line({"close": [event.code, event.reason, event.clean]})

    async def receive(self) -> str | bytes | SocketEnd:
        """Return the next message of the backend; after the last one, each call returns the end."""
        while self._over is None:
            if self._cut is not None:
                return await self._finish(*self._cut)
            try:
                message = await self._receive()
            except Refusal as stopping:
                return await self._finish(SocketEnd(GOING_AWAY, "the gateway stops"), stopping)
            except asyncio.CancelledError:
                await self.aclose()
                raise
            if isinstance(message, SocketEnd):
                return await self._finish(message)
            if message is not None:
                self._count("received", message)
                return self._redact(message)
        return self._over

    async def send(self, message: str | bytes, caller: Caller) -> None:
        """Send a message of the page; one that breaks a rule closes the WebSocket. Raises ConnectionError."""
        if caller.initiator is Initiator.MODEL and not self.rule.model:
            self.cut(SocketEnd(VIOLATION, "policy-denied"), Refusal(Reason.POLICY_DENIED, MODEL))
            return
        length = len(message if isinstance(message, bytes) else message.encode())
        if length > self.rule.message:
            self.too_large()
            return
        await self._limiter.pace(self.rule.limits, caller)
        if self._over is None and self._cut is None:
            await self._socket.send(message)
            self._count("sent", message)

    async def send_numbered(self, number: int, messages: Sequence[Message], caller: Caller) -> None:
        """Send messages that a view numbers from 0 on, each once, in order. Raises `Refusal` and ConnectionError."""
        if len(messages) > TOGETHER:
            _TOGETHER.report(caller.principal.id)
            raise Refusal(Reason.BAD_REQUEST, f"messages: at most {TOGETHER} in one call.")
        async with self._sending:
            if number > self._next:
                raise Refusal(Reason.BAD_REQUEST, f"number: message {self._next} is missing.")
            for message in messages[self._next - number :]:  # the others were sent by an earlier call
                self._next += 1
                if isinstance(message, CloseRequest):
                    await self.close(message)
                else:
                    await self.send(message, caller)

    async def close(self, request: CloseRequest) -> None:
        """Begin the closing handshake."""
        await self._socket.close(request.code, request.reason)

    def too_large(self) -> None:
        """Close the WebSocket because of a message that is too large."""
        _MESSAGES.report(self.caller.principal.id)
        detail = f"A message may have {self.rule.message} bytes here (`websocket.message` of the route)."
        end = SocketEnd(TOO_BIG, "a message is larger than `websocket.message` allows")
        self.cut(end, Refusal(Reason.REQUEST_TOO_LARGE, detail))

    def cut(self, end: SocketEnd, refusal: Refusal) -> None:
        """End the WebSocket now, for the page with `end`."""
        if self._cut is not None or self._over is not None:
            return
        self._cut = (end, refusal)
        if self._receiver is not None:
            self._receiver.cancel()
        else:
            self._socket.abort()

    async def aclose(self) -> None:
        """End the WebSocket now, if it has not ended: its page is gone."""
        if self._over is None:
            await self._finish(SocketEnd(GOING_AWAY), self._cut[1] if self._cut is not None else None)

    async def _receive(self) -> str | bytes | SocketEnd | None:
        """Return the next message; None if `cut` ended the wait. Raises `Refusal` if the gateway stops."""
        task = asyncio.current_task()
        with self._running.stream(endless=True), self._running.refusing_cuts:
            self._receiver = task
            try:
                return await self._socket.receive()
            except asyncio.CancelledError:
                if self._cut is None or task is None or task.uncancel():
                    raise
                return None
            finally:
                self._receiver = None

    def _redact(self, message: str | bytes) -> str | bytes:
        visible = self._secrets.text(message) if isinstance(message, str) else self._secrets.whole(message)
        report_echo(self._secrets, self._answer, self.decided_request, self._record)
        return visible

    def _count(self, direction: str, message: str | bytes) -> None:
        length = len(message)
        self._active_at = self._loop.time()
        self._counts[direction] += 1
        self._counts[f"{direction}_bytes"] += length
        self._metrics.socket_messages.add(self.caller.app, direction)

    def _look(self) -> None:
        left = self._active_at + IDLE - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
            return
        _IDLE.report(self.caller.principal.id)
        detail = f"The WebSocket carried no message for {IDLE:g} s."
        self.cut(SocketEnd(GOING_AWAY, "idle"), Refusal(Reason.CONNECTION_LOST, detail))

    async def _finish(self, end: SocketEnd, refusal: Refusal | None = None) -> SocketEnd:
        if self._over is None:
            self._over = end
            self._timer.cancel()
            counts: dict[str, Json] = {**self._counts}
            self._record.note(websocket={"protocol": self.protocol, "code": int(end.code), **counts})
            if refusal is None:
                await self._end(OPENED)
            else:
                await self._end(refusal.status, refusal.reason, refusal.detail)
        return self._over


class _NoParts:
    """The parts of a stream that overrides how it is read."""

    def __aiter__(self) -> _NoParts:
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration


def _line(event: Mapping[str, Json]) -> bytes:
    return compact_json(dict(event)).encode() + b"\n"


def read_messages(value: object) -> list[Message]:
    """Read the `messages` of a page: each has `text`, `bytes` in base64, or `close`. Raises `Refusal`."""
    if not isinstance(value, list):
        raise Refusal(Reason.BAD_REQUEST, "messages: must be a list.")
    return [_read_message(one) for one in value]


def _read_message(one: object) -> Message:
    if not isinstance(one, dict) or len(one) != 1:
        raise _wrong("each is an object with one of `text`, `bytes` and `close`")
    ((kind, value),) = one.items()
    if kind == "text" and isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # WebIDL, USVString
    if kind == "bytes" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error) as error:
            raise _wrong("`bytes` is base64") from error
    if kind == "close" and isinstance(value, dict):
        return _read_close(value)
    raise _wrong("each is an object with one of `text`, `bytes` and `close`")


def _read_close(close: Mapping[str, object]) -> CloseRequest:
    """Read the code and reason of a close by the page (WHATWG WebSockets, `close()`)."""
    code, reason = close.get("code"), close.get("reason", "")
    if code is not None and not (type(code) is int and (code == NORMAL or 3000 <= code <= 4999)):
        raise _wrong("`close.code` is 1000, or from 3000 to 4999")
    if not isinstance(reason, str) or len(reason.encode("utf-8", "replace")) > REASON:
        raise _wrong(f"`close.reason` has at most {REASON} bytes")
    return CloseRequest(code, reason) if code is not None else CloseRequest()


def _wrong(what: str) -> Refusal:
    return Refusal(Reason.BAD_REQUEST, f"messages: {what}.")


class Sockets:
    """The open WebSockets of a gateway. `hold` ends those of callers whose credential or access ends."""

    def __init__(self, limiter: Limiter, metrics: Metrics, running: RunningCalls, hold: Hold = hold_never) -> None:
        self._limiter = limiter
        self._metrics = metrics
        self._running = running
        self._hold = hold
        self._open: set[OpenSocket] = set()

    @property
    def count(self) -> int:
        """The number of open WebSockets."""
        return len(self._open)

    def open(
        self,
        policy: Policy,
        decided_request: DecidedRequest,
        answer: BackendAnswer,
        socket: BackendSocket,
        caller: Caller,
        record: Record,
        stack: AsyncExitStack,
    ) -> OpenSocket:
        """Return the open WebSocket; `stack` releases its resources."""
        opened = OpenSocket(
            socket,
            policy,
            decided_request,
            caller,
            answer,
            record,
            stack,
            self._running,
            self._limiter,
            self._metrics,
        )
        self._open.add(opened)
        stack.callback(self._open.discard, opened)
        refusal = Refusal(Reason.CONNECTION_LOST, "The caller's credential, or its access to the app, has ended.")
        end = SocketEnd(VIOLATION, "access has ended")
        stack.enter_context(self._hold(caller.principal, lambda: opened.cut(end, refusal), caller.app))
        return opened

    def recheck(self, policies: Callable[[str], Policy | None], now: float) -> None:
        """End the WebSockets that the current policies do not allow; the others get their current rules."""
        for socket in list(self._open):
            policy = policies(socket.caller.app)
            if policy is socket.policy:
                continue
            why = _objection(socket, policy, now)
            if why is not None:
                socket.cut(SocketEnd(VIOLATION, "policy-denied"), why)


def _objection(socket: OpenSocket, policy: Policy | None, now: float) -> Refusal | None:
    """Return why a policy does not allow an open WebSocket; None if it does, and the WebSocket then takes its rule."""
    canonical = socket.decided_request.canonical
    backend = canonical.backend
    if policy is None or policy.backends.get(backend) != socket.policy.backends.get(backend):
        return Refusal(Reason.POLICY_DENIED, CLOSED)
    decision = decide(policy, canonical, socket.caller, now)
    if decision.effect is Effect.DENY or decision.obligations.socket is None:
        return Refusal(Reason.POLICY_DENIED, CLOSED)
    socket.policy, socket.rule = policy, decision.obligations.socket
    return None

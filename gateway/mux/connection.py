"""One end of the bridge: text in, events out; frames in, text out.

A `Conversation` is one channel of one view: it tracks calls in flight and decides which messages may pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.errors import MuxError
from gateway.jsontext.sizes import nests_deeper
from gateway.model import Channel, Json
from gateway.mux import jsonrpc
from gateway.mux.frames import Close, ErrorFrame, Frame, Message, decode, encode
from gateway.mux.jsonrpc import Answer, Call, Id, Notification
from gateway.mux.transitions import IN_FLIGHT_LIMIT, METHODS, Progress, Role


@dataclass(frozen=True, slots=True)
class Pass:
    """The message passes."""


@dataclass(frozen=True, slots=True)
class Drop:
    """The message is discarded without a reply."""


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """The call is answered here with an error for its sender."""

    message: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Rejection:
    """The message is refused; the channel has no answer that could tell its sender why."""

    code: str
    detail: str


Verdict: TypeAlias = Pass | Drop | ErrorReply | Rejection


class Conversation:
    """The calls in flight between the two ends of one channel of one view."""

    __slots__ = ("_calls", "_channel")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._calls: dict[Role, dict[Id, None]] = {Role.HOST: {}, Role.GATEWAY: {}}

    def judge(self, speaker: Role, message: dict[str, Json]) -> Verdict:
        """Decide on a message of `speaker`. Raises MuxError `bad-message`."""
        match jsonrpc.message_kind(message):
            case Call() as call:
                return self._call(speaker, call)
            case Notification() as notice:
                return self._notice(speaker, notice)
            case Answer() as answer:
                return self._answer(speaker, answer)

    def waiting(self, role: Role) -> Sequence[Id]:
        """Return the pending calls of `role`, oldest first."""
        return tuple(self._calls[role])

    def give_up(self, role: Role, call: Id) -> None:
        """Forget a call of `role`, which will not be answered."""
        self._calls[role].pop(call, None)

    def _call(self, speaker: Role, call: Call) -> Verdict:
        calls = self._calls[speaker]
        if call.id in calls:  # its answer would be taken for the first call's
            return Rejection("duplicate-id", "a call with this id is in flight")
        if call.method not in METHODS[self._channel, speaker].calls:
            text = f"{call.method[:100]} is no method of the {self._channel} channel in this direction"
            return ErrorReply(jsonrpc.failure(call.id, jsonrpc.NO_METHOD, text))
        if len(calls) >= IN_FLIGHT_LIMIT:
            return ErrorReply(jsonrpc.failure(call.id, jsonrpc.BUSY, "busy"))
        calls[call.id] = None
        return Pass()

    def _notice(self, speaker: Role, notice: Notification) -> Verdict:
        if notice.method not in METHODS[self._channel, speaker].notices:
            return Drop()
        if notice.method != "notifications/cancelled":
            return Pass()
        # MCP: the canceller accepts no answer, so the call is no longer in flight.
        if notice.cancels is None or notice.cancels not in self._calls[speaker]:
            return Drop()
        self.give_up(speaker, notice.cancels)
        return Pass()

    def _answer(self, speaker: Role, answer: Answer) -> Verdict:
        calls = self._calls[speaker.other]
        if answer.id is None or answer.id not in calls:
            return Drop()
        self.give_up(speaker.other, answer.id)
        return Pass()


class Connection:
    """The state of one end of a connection; the same rules apply to received and sent frames.

    `dropped` counts frames discarded here: late, refused, or an answer to no call.
    """

    def __init__(self, role: Role) -> None:
        self._role = role
        self._progress = Progress()
        self._conversations: dict[tuple[str, Channel], Conversation] = {}
        self._output: list[str] = []
        self.dropped = 0

    @property
    def ended(self) -> bool:
        """True if this connection has ended."""
        return self._progress.ended

    @property
    def views(self) -> tuple[str, ...]:
        """The views that are open on this connection, or were when it was lost."""
        return self._progress.open_views

    def receive_data(self, text: str) -> tuple[Frame, ...]:
        """Return the events of a received frame. Raises MuxError: write the pending output, then disconnect."""
        if self.ended:
            raise MuxError("ended", "this connection is over")
        try:
            return self._receive(decode(text))
        except MuxError as error:
            self._progress.ended = True
            if self._role is Role.GATEWAY:
                self._write(ErrorFrame(error.code, error.detail[:1024]))
            raise

    def send(self, frame: Frame) -> tuple[Frame, ...]:
        """Add a frame to the pending output; return the core's own answers to this end, such as `busy`.

        Raises MuxError for a frame out of sequence, without harm to the connection.
        """
        if isinstance(frame, Message):
            return self._send_message(frame)
        if self.ended or not self._progress.advance(self._role, frame):
            self.dropped += 1
            return ()
        self._write(frame)
        return self._forget(frame.view) if isinstance(frame, Close) else ()

    def pending_output(self) -> list[str]:
        """Return the texts to write, in order, each once."""
        output, self._output = self._output, []
        return output

    def connection_lost(self) -> tuple[Frame, ...]:
        """End the connection: return a `connection-lost` answer for every pending call of this end."""
        self._progress.ended = True
        return tuple(answer for view in self.views for answer in self._forget(view))

    def _receive(self, frame: Frame) -> tuple[Frame, ...]:
        if not self._progress.advance(self._role.other, frame):
            self.dropped += 1
            return ()
        if isinstance(frame, Message):
            return self._receive_message(frame)
        return (*self._forget(frame.view), frame) if isinstance(frame, Close) else (frame,)

    def _receive_message(self, frame: Message) -> tuple[Frame, ...]:
        verdict = self._conversation(frame).judge(self._role.other, frame.message)
        for reply in self._replies(frame, verdict):
            if isinstance(reply, Message) or self._role is Role.GATEWAY:
                self._write(reply)
        return (frame,) if isinstance(verdict, Pass) else ()

    def _send_message(self, frame: Message) -> tuple[Frame, ...]:
        if self.ended or not self._progress.is_open(frame.view):
            return self._not_sent(frame, jsonrpc.BUSY, "connection-lost")
        try:
            text = _encode(frame)
            verdict = self._conversation(frame).judge(self._role, frame.message)
        except MuxError as error:
            self._fail_answered(frame, error.code)
            return self._not_sent(frame, jsonrpc.BAD_MESSAGE, f"cannot be sent: {error.detail}")
        if isinstance(verdict, Pass):
            self._output.append(text)
        return self._replies(frame, verdict)

    def _fail_answered(self, frame: Message, code: str) -> None:
        """If `frame` is an answer that cannot be sent, send a failure, so that its call does not wait forever."""
        call = jsonrpc.id_of(frame.message)
        if call is None or "method" in frame.message:
            return
        failure = jsonrpc.failure(call, jsonrpc.INTERNAL, f"the answer cannot be sent: {code}")
        if isinstance(self._conversation(frame).judge(self._role, failure), Pass):
            self._write(Message(frame.view, frame.channel, failure))

    def _not_sent(self, frame: Message, code: int, text: str) -> tuple[Frame, ...]:
        self.dropped += 1
        call = jsonrpc.id_of(frame.message)
        if call is None or "method" not in frame.message:
            return ()
        return (Message(frame.view, frame.channel, jsonrpc.failure(call, code, text)),)

    def _replies(self, frame: Message, verdict: Verdict) -> tuple[Frame, ...]:
        """Return the replies to the sender of `frame`."""
        match verdict:
            case Pass():
                return ()
            case ErrorReply(message):
                return (Message(frame.view, frame.channel, message),)
            case Drop():
                self.dropped += 1
                return ()
            case Rejection(code, detail):
                self.dropped += 1
                return (ErrorFrame(code, detail, view=frame.view),)

    def _conversation(self, frame: Message) -> Conversation:
        return self._conversations.setdefault((frame.view, frame.channel), Conversation(frame.channel))

    def _forget(self, view: str) -> tuple[Frame, ...]:
        """Drop the state of a view; return an error answer for each pending call of this end in it."""
        answers: list[Frame] = []
        for channel in Channel:
            conversation = self._conversations.pop((view, channel), None)
            for call in conversation.waiting(self._role) if conversation else ():
                answers.append(Message(view, channel, jsonrpc.failure(call, jsonrpc.BUSY, "connection-lost")))
        return tuple(answers)

    def _write(self, frame: Frame) -> None:
        self._output.append(encode(frame))


class ServerConnection(Connection):
    """The gateway's end."""

    def __init__(self) -> None:
        super().__init__(Role.GATEWAY)


class ClientConnection(Connection):
    """The host page's end."""

    def __init__(self) -> None:
        super().__init__(Role.HOST)


def _encode(frame: Message) -> str:
    """Encode a message. Raises MuxError `bad-message` or `too-large`."""
    if nests_deeper({"frame": frame.message}):
        raise MuxError("bad-message", "nested deeper than 64 levels")
    try:
        return encode(frame)
    except ValueError as error:
        raise MuxError("bad-message", str(error)) from error

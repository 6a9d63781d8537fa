"""One channel of one view: tracks calls in flight and decides which messages may pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.model import Channel, Json
from gateway.mux import jsonrpc
from gateway.mux.jsonrpc import Answer, Call, Id, Notification
from gateway.mux.transitions import IN_FLIGHT_LIMIT, METHODS, Role


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

"""One JSON-RPC object, strictly validated: a request, a notification or a response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gateway.errors import MuxError
from gateway.model import Json

BUSY = -32000
BAD_MESSAGE = -32600
NO_METHOD = -32601
INTERNAL = -32603

Id: TypeAlias = str | int
"""The id of a request; the string `"1"` and the number `1` are different ids."""

_LARGEST = 2**53 - 1
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Call:
    """A request."""

    id: Id
    method: str


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification; `cancels` is the id that a `notifications/cancelled` names."""

    method: str
    cancels: Id | None


@dataclass(frozen=True, slots=True)
class Answer:
    """A result or an error; `id` is None for an error that belongs to no request."""

    id: Id | None


def message_kind(message: Json) -> Call | Notification | Answer:
    """Return the kind of a message. Raises MuxError `bad-message`, also for a batch."""
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise _bad("not one JSON-RPC 2.0 object")
    if "method" in message:
        return _read_method(message)
    return _read_answer(message)


def id_of(message: dict[str, Json]) -> Id | None:
    """Return the id of `message`, None without a valid one."""
    try:
        return _id(message.get("id"))
    except MuxError:
        return None


def failure(call: Id, code: int, text: str) -> dict[str, Json]:
    """Return an error response to `call`."""
    return {"jsonrpc": "2.0", "id": call, "error": {"code": code, "message": text}}


def _read_method(message: dict[str, Json]) -> Call | Notification:
    _only(message, {"jsonrpc", "id", "method", "params"})
    method, params = message["method"], message.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        raise _bad("method must be a string, params an object")
    if "id" in message:
        return Call(_id(message["id"]), method)
    return Notification(method, _read_cancelled(params) if method == "notifications/cancelled" else None)


def _read_answer(message: dict[str, Json]) -> Answer:
    if "result" in message:
        _only(message, {"jsonrpc", "id", "result"})
        if not isinstance(message["result"], dict):
            raise _bad("result must be an object")
        return Answer(_id(message.get("id")))
    _only(message, {"jsonrpc", "id", "error"})
    error = message.get("error")
    if not isinstance(error, dict) or not {"code", "message"} <= error.keys() <= {"code", "message", "data"}:
        raise _bad("neither method, result nor error")
    if whole(error["code"]) is None or not isinstance(error["message"], str):
        raise _bad("error.code must be an integer, error.message a string")
    return Answer(None if message.get("id") is None else _id(message["id"]))


def _read_cancelled(params: dict[str, Json]) -> Id | None:
    return None if params.get("requestId") is None else _id(params["requestId"])


def _id(value: Json) -> Id:
    if isinstance(value, str) and len(value) <= _LONGEST:
        return value
    number = whole(value)
    if number is None:
        raise _bad(f"id must be a string of at most {_LONGEST} characters or a safe integer")
    return number


def whole(value: Json) -> int | None:
    """Return the integer value, where `1.0` is 1, as in a browser; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        return None
    return int(value) if value == int(value) else None


def _only(message: dict[str, Json], names: set[str]) -> None:
    if not message.keys() <= names:
        raise _bad(f"only {', '.join(sorted(names))} may stand in this message")


def _bad(detail: str) -> MuxError:
    return MuxError("bad-message", detail)

"""The frames of the bridge, with their encoding and decoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Final, TypeAlias, cast

from gateway.bounds import Area, Bound, size
from gateway.errors import MuxError
from gateway.jsontext.reading import parse_portable
from gateway.jsontext.writing import compact_portable
from gateway.model import Channel, Json
from gateway.mux.jsonrpc import whole

FRAME_LIMIT = 1024 * 1024
"""The largest frame, in bytes of UTF-8."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "bridge frames",
        size(FRAME_LIMIT),
        "`too-large`, and the connection is closed; a larger message of the gateway is an error for its requester",
    ),
)

(FRAMES,) = BOUNDS


@dataclass(frozen=True, slots=True)
class Hello:
    """Host: the first frame; `ticket` is single-use."""

    ticket: str


@dataclass(frozen=True, slots=True)
class Open:
    """Host: a new view of `app`, or of the app at `resource` of an `upstream`; `ref` names it until there is an id.

    `sha256` is the digest, in hex, of the HTML that the host has already: the gateway compares it with its own.
    """

    ref: str
    app: str | None = None
    upstream: str | None = None
    resource: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """Gateway: the view is open; `resume` is the token that resumes it on another connection."""

    ref: str
    view: str
    resource: str
    links: tuple[str, ...]
    resume: str


@dataclass(frozen=True, slots=True)
class Message:
    """Either: one JSON-RPC object on one channel of one view."""

    view: str
    channel: Channel
    message: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Gesture:
    """Host: a person acted in the view at most `age` milliseconds ago."""

    view: str
    age: int


@dataclass(frozen=True, slots=True)
class Focus:
    """Host: the person looks at this view."""

    view: str


@dataclass(frozen=True, slots=True)
class Close:
    """Either: the view is closed."""

    view: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Host: resume `view` with its token. Gateway: it is resumed, and `token` is the next one."""

    view: str
    token: str


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """Gateway: the request of `ref` or `view` is refused; with neither, the connection ends."""

    code: str
    detail: str
    ref: str | None = None
    view: str | None = None


Frame: TypeAlias = Hello | Open | Opened | Message | Gesture | Focus | Close | Resume | ErrorFrame

_KINDS: dict[str, type[Frame]] = {
    "hello": Hello,
    "open": Open,
    "opened": Opened,
    "gesture": Gesture,
    "focus": Focus,
    "close": Close,
    "resume": Resume,
    "error": ErrorFrame,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_FORMS: Mapping[str, tuple[frozenset[str], ...]] = {
    "error": (frozenset(), frozenset({"ref"}), frozenset({"view"})),
    "open": (frozenset({"app"}), frozenset({"upstream", "resource"})),
}
"""The members of a frame of several forms, beside those that each form has."""

_OPTIONAL: Mapping[str, frozenset[str]] = {"open": frozenset({"sha256"})}


def kind_of(frame: Frame) -> str:
    """Return the name of this frame's kind in its JSON."""
    return "message" if isinstance(frame, Message) else _NAMES[type(frame)]


def encode(frame: Frame) -> str:
    """Encode a frame. Raises MuxError `too-large`."""
    text = compact_portable(to_json(frame))
    if len(text) > FRAME_LIMIT // 3 and len(text.encode()) > FRAME_LIMIT:
        raise MuxError("too-large", f"a frame holds at most {FRAME_LIMIT} bytes")
    return text


def to_json(frame: Frame) -> dict[str, Json]:
    """Return the JSON object of a frame."""
    if isinstance(frame, Message):
        return {"view": frame.view, "channel": frame.channel.value, "message": frame.message}
    members = {field.name: getattr(frame, field.name) for field in fields(frame)}
    content = {name: list(value) if isinstance(value, tuple) else value for name, value in members.items()}
    return {_NAMES[type(frame)]: {name: value for name, value in content.items() if value is not None}}


def decode(text: str) -> Frame:
    """Decode a frame. Raises MuxError `too-large`, `bad-json` or `bad-frame`; the message is not checked."""
    if len(text) > FRAME_LIMIT or (len(text) > FRAME_LIMIT // 3 and len(text.encode(errors="replace")) > FRAME_LIMIT):
        raise MuxError("too-large", f"a frame holds at most {FRAME_LIMIT} bytes")
    return from_json(parse_json(text))


def parse_json(text: str) -> Json:
    """Parse JSON as a browser does. Raises MuxError `bad-json`."""
    try:
        value: Json = parse_portable(text)
    except ValueError as error:
        raise MuxError("bad-json", f"this is no JSON that the bridge takes: {str(error)[:200]}") from error
    return value


def from_json(value: Json) -> Frame:
    """Return the frame of a JSON value. Raises MuxError `bad-frame`."""
    if not isinstance(value, dict):
        raise MuxError("bad-frame", "a frame is a JSON object")
    if value.keys() == {"view", "channel", "message"}:
        return _message(value)
    name = next(iter(value), "")
    if len(value) != 1 or name not in _KINDS:
        raise MuxError("bad-frame", f"a frame is a message, or has one member of {', '.join(_KINDS)}")
    return _content(name, value[name])


def _message(value: dict[str, Json]) -> Message:
    channel, message = value["channel"], value["message"]
    if channel not in ("ui", "webmcp"):
        raise MuxError("bad-frame", "channel: ui or webmcp")
    if not isinstance(message, dict):
        raise MuxError("bad-message", "not one JSON-RPC 2.0 object")
    return Message(cast(str, _CHECKS["view"]("view", value["view"])), Channel(channel), message)


def _content(name: str, content: Json) -> Frame:
    kind, forms, optional = _KINDS[name], _FORMS.get(name, (frozenset(),)), _OPTIONAL.get(name, frozenset())
    names = {field.name for field in fields(kind)}
    always = names.difference(optional, *forms)
    if not isinstance(content, dict) or not always <= content.keys() <= names:
        raise MuxError("bad-frame", f"{name}: an object of {', '.join(sorted(names))}")
    if content.keys() - always - optional not in forms:
        either = " or ".join(" and ".join(sorted(form)) or "none" for form in forms)
        raise MuxError("bad-frame", f"{name}: of its members {either}, not both")
    build: Callable[..., Frame] = kind
    return build(**{member: _CHECKS[member](f"{name}.{member}", value) for member, value in content.items()})


def _text(pattern: str) -> Callable[[str, Json], str]:
    regex = re.compile(pattern, re.DOTALL)

    def check(where: str, value: Json) -> str:
        if not isinstance(value, str) or not regex.fullmatch(value):
            raise MuxError("bad-frame", f"{where}: a string of the form {pattern}")
        return value

    return check


def _age(where: str, value: Json) -> int:
    age = whole(value)
    if age is None or not 0 <= age <= 5000:
        raise MuxError("bad-frame", f"{where}: whole milliseconds from 0 to 5000")
    return age


def _links(where: str, value: Json) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(link, str) for link in value):
        raise MuxError("bad-frame", f"{where}: a list of strings")
    return tuple(cast(list[str], value))


_CHECKS: Mapping[str, Callable[[str, Json], object]] = {
    "ticket": _text(r"[!-~]{1,512}"),
    "token": _text(r"[!-~]{1,512}"),
    "resume": _text(r"[!-~]{1,512}"),
    "ref": _text(r"[A-Za-z0-9_.:-]{1,64}"),
    "app": _text(r"[a-z][a-z0-9-]{0,23}"),
    "upstream": _text(r"[a-z][a-z0-9-]{0,23}"),
    "sha256": _text(r"[0-9a-f]{64}"),
    "view": _text(r"[A-Za-z0-9_-]{22,64}"),
    "resource": _text(r"(ui|mcp-app)://[!-~]{1,1024}"),
    "code": _text(r"[a-z][a-z0-9-]{0,63}"),
    "reason": _text(r".{0,256}"),
    "detail": _text(r".{0,1024}"),
    "age": _age,
    "links": _links,
}

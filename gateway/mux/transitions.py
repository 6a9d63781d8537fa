"""The protocol tables, transitions of a view and methods of its channels, and the states that frames advance."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from gateway.errors import MuxError
from gateway.model import Channel
from gateway.mux.frames import Close, ErrorFrame, Focus, Frame, Gesture, Hello, Message, Open, Opened, Resume, kind_of

IN_FLIGHT_LIMIT = 64
"""Calls in flight per view, channel and direction."""

CLOSED_REMEMBERED = 256
"""Closed views that are remembered: their late frames crossed with the close."""


class Role(StrEnum):
    """An end of the bridge: the page that shows views, or the gateway."""

    HOST = "host"
    GATEWAY = "gateway"

    @property
    def other(self) -> Role:
        """The opposite end."""
        return Role.GATEWAY if self is Role.HOST else Role.HOST


class ViewState(StrEnum):
    """The state of a view on this connection."""

    ABSENT = "absent"
    OPENING = "opening"
    RESUMING = "resuming"
    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: dict[Role, dict[tuple[ViewState, str], ViewState]] = {
    Role.HOST: {
        (ViewState.ABSENT, "open"): ViewState.OPENING,
        (ViewState.ABSENT, "resume"): ViewState.RESUMING,
        (ViewState.RESUMING, "close"): ViewState.CLOSED,
        (ViewState.OPEN, "message"): ViewState.OPEN,
        (ViewState.OPEN, "gesture"): ViewState.OPEN,
        (ViewState.OPEN, "focus"): ViewState.OPEN,
        (ViewState.OPEN, "close"): ViewState.CLOSED,
        (ViewState.CLOSED, "message"): ViewState.CLOSED,
        (ViewState.CLOSED, "gesture"): ViewState.CLOSED,
        (ViewState.CLOSED, "focus"): ViewState.CLOSED,
        (ViewState.CLOSED, "close"): ViewState.CLOSED,
    },
    Role.GATEWAY: {
        (ViewState.OPENING, "opened"): ViewState.OPEN,
        (ViewState.OPENING, "error"): ViewState.ABSENT,
        (ViewState.RESUMING, "resume"): ViewState.OPEN,
        (ViewState.RESUMING, "error"): ViewState.ABSENT,
        (ViewState.OPEN, "message"): ViewState.OPEN,
        (ViewState.OPEN, "error"): ViewState.OPEN,
        (ViewState.OPEN, "close"): ViewState.CLOSED,
        (ViewState.CLOSED, "message"): ViewState.CLOSED,
        (ViewState.CLOSED, "resume"): ViewState.CLOSED,
        (ViewState.CLOSED, "error"): ViewState.CLOSED,
        (ViewState.CLOSED, "close"): ViewState.CLOSED,
    },
}
"""The state of a view after a frame of the role; a frame not listed breaks the protocol.

In state CLOSED a frame has crossed with the close, and is dropped.
"""


@dataclass(frozen=True, slots=True)
class Methods:
    """The methods that one end may use on one channel."""

    calls: frozenset[str]
    notices: frozenset[str]


METHODS: dict[tuple[Channel, Role], Methods] = {
    (Channel.UI, Role.HOST): Methods(
        calls=frozenset(
            {
                "initialize",
                "server/discover",
                "tools/list",
                "tools/call",
                "resources/read",
                "resources/list",
                "resources/templates/list",
                "prompts/list",
                "prompts/get",
                "completion/complete",
                "ping",
            }
        ),
        notices=frozenset({"notifications/initialized", "notifications/cancelled", "notifications/progress"}),
    ),
    (Channel.UI, Role.GATEWAY): Methods(
        calls=frozenset({"ping"}),
        notices=frozenset(
            {
                "notifications/progress",
                "notifications/cancelled",
                "notifications/message",
                "notifications/tools/list_changed",
                "notifications/resources/list_changed",
                "notifications/prompts/list_changed",
                # data of the model's call for the app that it opens (MCP Apps), passed on by the host page
                "ui/notifications/tool-input",
                "ui/notifications/tool-input-partial",
                "ui/notifications/tool-result",
                "ui/notifications/tool-cancelled",
            }
        ),
    ),
    (Channel.WEBMCP, Role.GATEWAY): Methods(
        calls=frozenset({"initialize", "tools/list", "tools/call", "ping"}),
        notices=frozenset({"notifications/initialized", "notifications/cancelled"}),
    ),
    (Channel.WEBMCP, Role.HOST): Methods(
        calls=frozenset({"ping"}),
        notices=frozenset({"notifications/tools/list_changed", "notifications/progress", "notifications/message"}),
    ),
}
"""On `ui` the host is the client; on `webmcp` the gateway is the client and the page, through its host, the server."""


_ViewFrame: TypeAlias = Message | Gesture | Focus | Close | Resume | ErrorFrame


class Progress:
    """The state of one connection. `advance` raises MuxError `unexpected` for a frame out of sequence."""

    __slots__ = ("_closed_views", "_greeted", "_opening", "_views", "ended")

    def __init__(self) -> None:
        self.ended = False
        self._greeted = False
        self._opening: set[str] = set()
        self._views: dict[str, ViewState] = {}
        self._closed_views: OrderedDict[str, None] = OrderedDict()

    @property
    def open_views(self) -> tuple[str, ...]:
        """The open views."""
        return tuple(view for view in self._views if self.is_open(view))

    def is_open(self, view: str) -> bool:
        """Return whether messages may pass."""
        return self._views.get(view) is ViewState.OPEN

    def advance(self, speaker: Role, frame: Frame) -> bool:
        """Advance by a frame of `speaker`; return False if it crossed with a close and must be dropped."""
        match frame:
            case ErrorFrame(ref=None, view=None) if speaker is Role.GATEWAY:
                self.ended = True
            case Hello() if speaker is Role.HOST and not self._greeted:
                self._greeted = True
            case Hello() | ErrorFrame(ref=None, view=None):
                raise MuxError("unexpected", "hello comes first, once, from the host")
            case _ if not self._greeted:
                raise MuxError("unexpected", "hello comes first, once, from the host")
            case Open(ref=ref) | Opened(ref=ref) | ErrorFrame(ref=str(ref)):
                self._advance_reference(speaker, frame, ref)
            case _:
                return self._advance_view(speaker, frame)
        return True

    def _advance_reference(self, speaker: Role, frame: Open | Opened | ErrorFrame, reference: str) -> None:
        state = ViewState.OPENING if reference in self._opening else ViewState.ABSENT
        if _next_state(speaker, frame, state) is ViewState.OPENING:
            self._opening.add(reference)
            return
        if isinstance(frame, Opened):
            if frame.view in self._views or frame.view in self._closed_views:
                raise MuxError("unexpected", "opened names a view that was there before")
            self._views[frame.view] = ViewState.OPEN
        self._opening.discard(reference)

    def _advance_view(self, speaker: Role, frame: _ViewFrame) -> bool:
        view = str(frame.view)
        state = self._views.get(view, ViewState.CLOSED if view in self._closed_views else ViewState.ABSENT)
        following = _next_state(speaker, frame, state)
        if state is ViewState.CLOSED:
            return False
        if following is ViewState.OPEN or following is ViewState.RESUMING:
            self._views[view] = following
            return True
        self._views.pop(view, None)
        if following is ViewState.CLOSED:
            self._remember_closed(view)
        return True

    def _remember_closed(self, view: str) -> None:
        self._closed_views[view] = None
        if len(self._closed_views) > CLOSED_REMEMBERED:
            self._closed_views.popitem(last=False)


def _next_state(speaker: Role, frame: Frame, state: ViewState) -> ViewState:
    following = TRANSITIONS[speaker].get((state, kind_of(frame)))
    if following is None:
        raise MuxError("unexpected", f"the {speaker} may not send {kind_of(frame)} where the view is {state}")
    return following

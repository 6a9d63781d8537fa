"""The protocol tables: transitions of a view, and methods of its channels."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gateway.model import Channel

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


class State(StrEnum):
    """The state of a view on this connection."""

    ABSENT = "absent"
    OPENING = "opening"
    RESUMING = "resuming"
    OPEN = "open"
    CLOSED = "closed"


TRANSITIONS: dict[Role, dict[tuple[State, str], State]] = {
    Role.HOST: {
        (State.ABSENT, "open"): State.OPENING,
        (State.ABSENT, "resume"): State.RESUMING,
        (State.RESUMING, "close"): State.CLOSED,
        (State.OPEN, "message"): State.OPEN,
        (State.OPEN, "gesture"): State.OPEN,
        (State.OPEN, "focus"): State.OPEN,
        (State.OPEN, "close"): State.CLOSED,
        (State.CLOSED, "message"): State.CLOSED,
        (State.CLOSED, "gesture"): State.CLOSED,
        (State.CLOSED, "focus"): State.CLOSED,
        (State.CLOSED, "close"): State.CLOSED,
    },
    Role.GATEWAY: {
        (State.OPENING, "opened"): State.OPEN,
        (State.OPENING, "error"): State.ABSENT,
        (State.RESUMING, "resume"): State.OPEN,
        (State.RESUMING, "error"): State.ABSENT,
        (State.OPEN, "message"): State.OPEN,
        (State.OPEN, "error"): State.OPEN,
        (State.OPEN, "close"): State.CLOSED,
        (State.CLOSED, "message"): State.CLOSED,
        (State.CLOSED, "resume"): State.CLOSED,
        (State.CLOSED, "error"): State.CLOSED,
        (State.CLOSED, "close"): State.CLOSED,
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

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

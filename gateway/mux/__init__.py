"""The bridge protocol without I/O: frames of many views over one connection, two channels per view that never mix.

    conn = ServerConnection()
    for event in conn.receive_data(text): ...      # raises MuxError: write the output, then close the connection
    for event in conn.send(Opened(...)): ...       # the core's own answers to this side
    for text in conn.pending_output(): await ws.send_str(text)

`browser/src/mux` is the same in TypeScript; `tests/mux/vectors.json` holds the two together.
"""

from gateway.mux.connection import ClientConnection, Connection, ServerConnection
from gateway.mux.detached_bodies import BODY_LIMIT, is_large, join_body, named_body, split_body
from gateway.mux.frames import (
    FRAME_LIMIT,
    FRAMES,
    Close,
    ErrorFrame,
    Focus,
    Frame,
    Gesture,
    Hello,
    Message,
    Open,
    Opened,
    Resume,
    decode,
    encode,
)
from gateway.mux.transitions import IN_FLIGHT_LIMIT, Role

__all__ = [
    "BODY_LIMIT",
    "FRAMES",
    "FRAME_LIMIT",
    "IN_FLIGHT_LIMIT",
    "ClientConnection",
    "Close",
    "Connection",
    "ErrorFrame",
    "Focus",
    "Frame",
    "Gesture",
    "Hello",
    "Message",
    "Open",
    "Opened",
    "Resume",
    "Role",
    "ServerConnection",
    "decode",
    "encode",
    "is_large",
    "join_body",
    "named_body",
    "split_body",
]

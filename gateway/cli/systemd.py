"""systemd's protocols for services: readiness (sd_notify(3)) and listening sockets (sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

FIRST = 3
"""The first inherited descriptor."""

Sockets = dict[tuple[str, int], socket.socket]
"""Listening sockets by address and port."""


def notify(state: str) -> None:
    """Report a state, such as `READY=1`, to the supervisor that started this process, if it wants to know."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        sender.sendall(state.encode())


def inherited_sockets(environ: MutableMapping[str, str]) -> Sockets:
    """Return the TCP sockets that the supervisor listens on for this process, and unset the variables for children.

    Connections that are made while the gateway restarts wait in them.
    """
    count, process = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not count.isdecimal() or process != str(os.getpid()):
        return {}
    found = {}
    for descriptor in range(FIRST, FIRST + int(count)):
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
            found[sock.getsockname()[:2]] = sock
        else:
            sock.close()
    return found

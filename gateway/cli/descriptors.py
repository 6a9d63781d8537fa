"""Raises the limit of file descriptors for this process."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from gateway.exchange.streams import IN_ALL

ENOUGH: Final = 4 * IN_ALL
"""Each open stream has two, to its page and to its backend; as many again are for clients, views and upstreams."""

ENDLESS: Final = 2**20
"""The requested limit if the system states no maximum: no system with a limit allows more."""


def raised() -> str | None:
    """Raise the limit to the maximum of this process; return a warning if that is too low.

    Most systems default to 1,024, and allow more on request.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENDLESS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= most:
        most = soft
    else:
        with suppress(OSError, ValueError):  # the system may have a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or most >= ENOUGH:
        return None
    return (
        f"only {most} connections and files may be open at a time, where {IN_ALL} streams alone take {2 * IN_ALL}: "
        f"set the limit to {ENOUGH} (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container)"
    )

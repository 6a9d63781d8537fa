"""How many connections and files this process may have open at a time."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

from gateway.exchange.streams import IN_ALL

ENOUGH: Final = 4 * IN_ALL
"""Each open stream has two, to its page and to its backend; as many again are for clients, views and upstreams."""

ENDLESS: Final = 2**20
"""As many are asked for where the system names no most: none that does gives more."""


def raised() -> str | None:
    """Take as many as the system lets this process have; what to do where those are too few.

    Most systems let programs have 1,024, and more where they ask for them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENDLESS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= most:
        most = soft
    else:
        with suppress(OSError, ValueError):  # a system may have another bound beside this one
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or most >= ENOUGH:
        return None
    return (
        f"only {most} connections and files may be open at a time, where {IN_ALL} streams alone take {2 * IN_ALL}: "
        f"set the limit to {ENOUGH} (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container)"
    )

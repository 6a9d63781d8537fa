"""Redirects of an upstream: one that keeps the request and the origin is followed, and all others are refused."""

from __future__ import annotations

from typing import Final

from yarl import URL

from gateway.mcp.upstreams.transport.conversation import UpstreamLost
from gateway.model import with_path

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

MOST: Final = 5
"""Consecutive redirects of one request."""

_KEPT: Final = frozenset({307, 308})
"""Redirects that repeat the request with its method and body (RFC 9110, 15.4.8 and 15.4.9)."""

_SHOWN: Final = 200
"""Characters of a foreign address in a message."""


class Trail:
    """The addresses of one request, which began at `url`; credentials stay within its origin."""

    def __init__(self, url: str) -> None:
        self._seen = [with_path(as_http(url))]

    def follow(self, status: int, location: str | None) -> str:
        """Return the next address after a status of `REDIRECTS`. Raises `UpstreamLost` with the reason to refuse it."""
        here = self._seen[-1]
        if not location:
            raise UpstreamLost(f"it answered with the redirect {status}, which names no address")
        try:
            there = URL(here).join(URL(as_http(location))).with_fragment(None)
            same = there.origin() == URL(here).origin()
        except ValueError:
            raise UpstreamLost(f"it redirects to {_shown(location)}, which is no URL") from None
        if not same:
            raise UpstreamLost(
                f"it answered with the redirect {status} to {_shown(str(there))}, which is another origin: "
                "write that URL in gateway.yaml if it is the right one"
            )
        if status not in _KEPT:
            raise UpstreamLost(
                f"it answered with the redirect {status} to {_shown(str(there))}, which does not keep a POST: "
                "write that URL in gateway.yaml"
            )
        address = with_path(str(there.with_user(None)))
        if address in self._seen:
            raise UpstreamLost(f"it redirects in a circle, to {_shown(address)} again")
        if len(self._seen) > MOST:
            raise UpstreamLost(f"it redirects more than {MOST} times in a row")
        self._seen.append(address)
        return address


def as_http(url: str) -> str:
    """Return a WebSocket URL as that of its opening request (RFC 6455, 4.1)."""
    return f"http{url[2:]}" if url.startswith(("ws:", "wss:")) else url


def _shown(address: str) -> str:
    return ascii(address[:_SHOWN])[1:-1]

"""HTTP requests to an upstream, with its credential, and the redirects that are followed."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from yarl import URL

from gateway.backends.connect import Connections, Network, Origin
from gateway.backends.http import http_client, split_url
from gateway.backends.http1 import Lost, Malformed
from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.transport.conversation import UpstreamLost
from gateway.mcp.upstreams.transport.credentials import Credentials
from gateway.mcp.upstreams.transport.http_answer import HttpAnswer
from gateway.model import with_path

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

MOST: Final = 5
"""Consecutive redirects of one request."""

_KEPT: Final = frozenset({307, 308})
"""Redirects that repeat the request with its method and body (RFC 9110, 15.4.8 and 15.4.9)."""

_NOT_IN_URL: Final = re.compile(r"[^!-~]")

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
            there = URL(here).join(URL(as_http(_in_ascii(location)))).with_fragment(None)
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


def _in_ascii(location: str) -> str:
    """Percent-encode the bytes of a header's value, one character each, that a URL must not contain."""
    return _NOT_IN_URL.sub(lambda match: f"%{ord(match[0]):02X}", location)


def _shown(address: str) -> str:
    return ascii(address[:_SHOWN])[1:-1]


log = logging.getLogger(__name__)

_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_ANSWERED: Final = frozenset({Reason.RESPONSE_TOO_LARGE, Reason.BACKEND_PROTOCOL})
"""Refusals of an answer; all others occur before anything is sent."""


class Requests:
    """Requests to `url`, and to other addresses of its origin."""

    def __init__(self, connections: Connections, network: Network, url: str, *, credentials: Credentials) -> None:
        origin, host, target = _placed(url)
        self._url = url
        self._host = host
        self._head = self._to(target)
        self._client = http_client(connections, network, origin, host)
        self._credentials = credentials

    async def ask(
        self,
        method: str,
        body: bytes | None,
        fields: Mapping[str, str],
        make: Callable[[str], HttpAnswer],
        url: str = "",
    ) -> HttpAnswer:
        """Return the answer, made by `make` for its URL, once it is complete, or what was awaited of it.
        `url` overrides the default one. Redirects are followed within the origin, with method and body. Raises
        `UpstreamLost`, and `Lost` if nothing came back.
        """
        begun = url = url or self._url
        trail: Trail | None = None
        while True:
            answer, changed = await self._once(method, body, fields, make(url), url)
            if changed and answer.status >= 300:
                answer, _ = await self._once(method, body, fields, make(url), url)
            if answer.status not in REDIRECTS:
                return answer
            trail = trail or Trail(begun)
            try:
                url = trail.follow(answer.status, answer.header("location"))
            except UpstreamLost as lost:
                raise UpstreamLost(self._credentials.hide_text(str(lost))) from lost

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    async def _once(
        self, method: str, body: bytes | None, fields: Mapping[str, str], answer: HttpAnswer, url: str
    ) -> tuple[HttpAnswer, bool]:
        """Return the answer, and whether another attempt would carry another credential."""
        try:
            head = self._head if url == self._url else self._to(_placed(url)[2])
            credential = await self._credentials.inject(method, url)
            data = _written(method, head, {**fields, **dict(credential.headers)}, body)
            try:
                await self._client.send(data, answer.reading)
            except Malformed as error:
                if not answer.resumable:
                    raise
                log.debug("a stream of an upstream broke, and is taken up again there: %s", error)
            await answer.ended()
        except Refusal as refusal:
            if refusal.reason not in _ANSWERED:
                raise UpstreamLost.refused(refusal) from refusal
            raise UpstreamLost(refusal.detail) from refusal
        except Malformed as error:
            raise UpstreamLost(f"the upstream answered with something that is not HTTP: {error}") from error
        except Lost:
            raise
        except OSError as error:
            raise Lost from error
        finally:
            answer.close()
        if answer.failed is not None:
            raise answer.failed
        try:
            changed = await self._credentials.answered(credential, url, answer.status, answer.reading.head.headers)
        except Refusal as refusal:
            if answer.status >= 300:
                raise UpstreamLost.refused(refusal) from refusal
            raise UpstreamLost(refusal.detail) from refusal
        return answer, changed

    def _to(self, target: str) -> str:
        return f" {target} HTTP/1.1\r\nhost: {self._host}\r\n"


def origin_of(url: str) -> Origin:
    """Return the origin of an upstream's URL. Raises `Refusal`."""
    return _placed(as_http(url))[0]


def _placed(url: str) -> tuple[Origin, str, str]:
    """Return `split_url` of a URL in any valid spelling."""
    return split_url(with_path(str(URL(url).with_fragment(None))))


def _written(method: str, head: str, fields: Mapping[str, str], body: bytes | None) -> bytes:
    lines = [method, head]
    for name, value in fields.items():
        if not _VALUE.fullmatch(value):
            raise UpstreamLost(f"the field {name} for the upstream holds characters that cannot be sent")
        lines.append(f"{name}: {value}\r\n")
    if body is not None:
        lines.append(f"content-length: {len(body)}\r\n")
    return "".join((*lines, "\r\n")).encode() + (body or b"")

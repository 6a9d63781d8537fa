"""Requests to an upstream over HTTP: each carries the credential, and its answer is processed as it comes."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Final

from yarl import URL

from gateway.backends.connect import Connections, Network, Origin
from gateway.backends.connection_pool import Lost, Wires
from gateway.backends.http import place
from gateway.backends.http1 import Malformed
from gateway.errors import Reason, Refusal
from gateway.mcp.upstreams.transport.conversation import UpstreamLost
from gateway.mcp.upstreams.transport.credentials import Credentials
from gateway.mcp.upstreams.transport.http_answer import HttpAnswer
from gateway.mcp.upstreams.transport.redirects import REDIRECTS, Trail, as_http
from gateway.model import with_path

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
        self._wires = Wires(connections, network, origin, host)
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
        url = url or self._url
        trail = Trail(url)
        while True:
            answer, changed = await self._once(method, body, fields, make(url), url)
            if changed and answer.status >= 300:
                answer, _ = await self._once(method, body, fields, make(url), url)
            if answer.status not in REDIRECTS:
                return answer
            try:
                url = trail.follow(answer.status, answer.header("location"))
            except UpstreamLost as lost:
                raise UpstreamLost(self._credentials.hide_text(str(lost))) from lost

    def close(self) -> None:
        """Close the connections."""
        self._wires.close()

    async def _once(
        self, method: str, body: bytes | None, fields: Mapping[str, str], answer: HttpAnswer, url: str
    ) -> tuple[HttpAnswer, bool]:
        """Return the answer, and whether another attempt would carry another credential."""
        try:
            head = self._head if url == self._url else self._to(_placed(url)[2])
            credential = await self._credentials.inject(method, url)
            data = _written(method, head, {**fields, **dict(credential.headers)}, body)
            try:
                await self._wires.carry(data, answer.reading)
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
    """Return `place` of a URL in any valid spelling."""
    return place(with_path(str(URL(url).with_fragment(None))))


def _written(method: str, head: str, fields: Mapping[str, str], body: bytes | None) -> bytes:
    lines = [method, head]
    for name, value in fields.items():
        if not _VALUE.fullmatch(value):
            raise UpstreamLost(f"the field {name} for the upstream holds characters that cannot be sent")
        lines.append(f"{name}: {value}\r\n")
    if body is not None:
        lines.append(f"content-length: {len(body)}\r\n")
    return "".join((*lines, "\r\n")).encode() + (body or b"")

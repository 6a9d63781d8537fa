"""An upstream of the older HTTP transport (2024-11-05): answers on one event stream, requests to another URL."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from gateway.backends.connect import USER_AGENT, Connections, Network
from gateway.backends.http1 import Lost
from gateway.event_stream import Event
from gateway.eventloop.fair_share import Moments
from gateway.jsontext.messages import encoded
from gateway.mcp.upstreams.transport.conversation import Message, Receive, SessionEnded, UpstreamLost
from gateway.mcp.upstreams.transport.credentials import Credentials
from gateway.mcp.upstreams.transport.http_answer import EVENTS, HttpAnswer, StreamPosition
from gateway.mcp.upstreams.transport.requests import Requests

_LISTENS: Final = {"accept": EVENTS, "accept-encoding": "identity", "user-agent": USER_AGENT}
_SAYS: Final = {"content-type": "application/json", "user-agent": USER_AGENT}


class OlderSse:
    """Carries messages to the URL that the stream at `url` names first; it must be of the same origin."""

    def __init__(
        self, connections: Connections, network: Network, url: str, *, credentials: Credentials, limit: int
    ) -> None:
        self._url = url
        self._requests = Requests(connections, network, url, credentials=credentials)
        self._credentials = credentials
        self._limit = limit
        self._moments = Moments(connections.in_turn)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, receive: Receive) -> None:
        try:
            await self._read(receive)
        except UpstreamLost as lost:
            self._fail(lost)
            raise
        finally:
            self._requests.close()
        self._fail(UpstreamLost("the upstream closed the stream", unsent=True))

    async def abandon(self, id: int) -> bool:
        return False

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        endpoint = await asyncio.shield(self._endpoint)

        def nothing(message: object, related: int | None, size: int) -> bool:
            """Ignore the body: the answer comes on the stream."""
            return False

        answer = await self._ask("POST", await encoded(message), _SAYS, nothing, endpoint)
        if answer.status in (404, 410) or (answer.status == 400 and b"session" in answer.reading.body().lower()):
            raise SessionEnded
        if answer.status >= 300:
            raise UpstreamLost(f"the upstream answered with HTTP status {answer.status}")

    async def _read(self, receive: Receive) -> None:
        answer = await self._ask("GET", None, _LISTENS, receive, self._url)
        if answer.status != 200 or answer.kind != EVENTS:
            raise UpstreamLost(f"the upstream answered with HTTP status {answer.status}, not with an event stream")

    async def _ask(
        self, method: str, body: bytes | None, fields: Mapping[str, str], take: Receive, url: str
    ) -> HttpAnswer:
        def answer(at: str) -> HttpAnswer:
            if method == "GET":
                self._url = at  # the endpoint is relative to the final URL
            return HttpAnswer(
                method, self._limit, StreamPosition(None), take, self._credentials, self._moments, self._named
            )

        try:
            return await self._requests.ask(method, body, fields, answer, url)
        except Lost as error:
            raise UpstreamLost("the connection to the upstream broke") from error

    def _named(self, event: Event) -> None:
        """Take the endpoint for requests from the stream."""
        if event.type != "endpoint" or self._endpoint.done():
            return
        endpoint = urljoin(self._url, event.data.decode())
        if urlsplit(endpoint)[:2] != urlsplit(self._url)[:2]:
            raise UpstreamLost("the upstream names an endpoint of another origin")
        self._endpoint.set_result(endpoint)

    def _fail(self, lost: UpstreamLost) -> None:
        if not self._endpoint.done():
            self._endpoint.set_exception(UpstreamLost(str(lost), unsent=True, refusal=lost.refusal))
            self._endpoint.exception()  # marks the exception as retrieved

"""An upstream of the older HTTP transport (2024-11-05): answers on one event stream, requests to another URL."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

import aiohttp

from gateway.backends.connect import OpenSession
from gateway.errors import Refusal
from gateway.mcp.upstreams.conversation import Message, Receive, UpstreamLost
from gateway.mcp.upstreams.credentials import Credentials
from gateway.mcp.upstreams.decode import encode, read_text
from gateway.mcp.upstreams.events import Event, EventReader
from gateway.mcp.upstreams.unreadable import Unreadable


class OlderSse:
    """Carries messages to the URL that the stream at `url` names first; it must be of the same origin."""

    def __init__(self, session: OpenSession, url: str, *, credentials: Credentials, limit: int) -> None:
        self._open = session
        self._url = url
        self._credentials = credentials
        self._limit = limit
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, receive: Receive) -> None:
        try:
            await self._read(receive)
        except UpstreamLost as lost:
            self._fail(lost)
            raise
        self._fail(UpstreamLost("the upstream closed the stream", unsent=True))

    async def abandon(self, id: int) -> bool:
        return False

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        endpoint = await asyncio.shield(self._endpoint)
        try:
            fields = {"content-type": "application/json", **await self._credentials.headers("POST", endpoint)}
            async with self._open().post(
                endpoint, data=encode(message), headers=fields, allow_redirects=False
            ) as response:
                if response.status >= 300:
                    raise UpstreamLost(f"the upstream answered with HTTP status {response.status}")
        except Refusal as refusal:
            raise UpstreamLost.refused(refusal) from refusal
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamLost("the connection to the upstream broke") from error

    async def _read(self, receive: Receive) -> None:
        try:
            fields = {"accept": "text/event-stream", "accept-encoding": "identity"}
            fields |= await self._credentials.headers("GET", self._url)
            async with self._open().get(self._url, headers=fields, allow_redirects=False) as response:
                if response.status != 200 or response.content_type != "text/event-stream":
                    raise UpstreamLost(
                        f"the upstream answered with HTTP status {response.status}, not with an event stream"
                    )
                reader = EventReader(self._limit)
                async for part in response.content.iter_any():
                    for event in reader.feed(part):
                        await self._take(event, receive)
                    await asyncio.sleep(0)  # a flood must leave time to others
        except Refusal as refusal:
            raise UpstreamLost.refused(refusal) from refusal
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamLost("the connection to the upstream broke") from error
        except ValueError as error:
            raise UpstreamLost(f"the upstream sent {error}") from error

    async def _take(self, event: Event, receive: Receive) -> None:
        if event.type == "endpoint" and not self._endpoint.done():
            endpoint = urljoin(self._url, event.data)
            if urlsplit(endpoint)[:2] != urlsplit(self._url)[:2]:
                raise UpstreamLost("the upstream names an endpoint of another origin")
            self._endpoint.set_result(endpoint)
        elif event.type == "message" and event.data:
            text = self._credentials.hide_text(event.data)
            try:
                message = await read_text(text)
            except ValueError as error:
                message = Unreadable.of(text, error)
            receive(message, None, len(event.data))

    def _fail(self, lost: UpstreamLost) -> None:
        if not self._endpoint.done():
            self._endpoint.set_exception(UpstreamLost(str(lost), unsent=True, refusal=lost.refusal))
            self._endpoint.exception()  # nobody may wait for it

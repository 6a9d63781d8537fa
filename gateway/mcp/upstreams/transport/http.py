"""An upstream at a URL: Streamable HTTP, and the older transport of 2024-11-05 with its one event stream."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urljoin, urlsplit

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from gateway.backends.connect import USER_AGENT, Connections, Network
from gateway.backends.http1 import ConnectionLost
from gateway.errors import Reason
from gateway.event_stream import Event
from gateway.eventloop.fair_share import TimeSlices
from gateway.jsontext.messages import TooLarge, encode_in_thread
from gateway.mcp.upstreams.transport.conversation import Message, Receive, SessionEnded, UpstreamLost, is_answer
from gateway.mcp.upstreams.transport.requests import EVENTS, Credentials, HttpAnswer, Requests, StreamPosition

log = logging.getLogger(__name__)

SESSION: Final = "mcp-session-id"
LAST_EVENT: Final = "last-event-id"
RESUMES = 5
"""Consecutive failed attempts to resume the stream of a session, unless a call waits for the same upstream."""

FIRST_WAIT, LONGEST_WAIT = 0.5, 5.0
"""Seconds before the next attempt to resume a stream: the first, doubled each time, up to the longest."""

OPENING: Final = frozenset({"initialize", "server/discover"})
"""Requests that begin a conversation."""

_NO_SESSION: Final = re.compile(
    r"\b(?:no|not|invalid|unknown|missing|bad|expired|without)\b[^.]{0,30}\bsession"
    r"|\bsession[^.]{0,30}\b(?:not found|exist|invalid|missing|unknown|expired|required|ended|terminated|closed)"
    r"|\bnot initialized",
    re.IGNORECASE,
)

_ACCEPT: Final = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": USER_AGENT,
}


class StreamableHttp:
    """Carries messages by POST; each answer comes with its request, and other messages on one GET of a session."""

    def __init__(
        self, connections: Connections, network: Network, url: str, *, credentials: Credentials, limit: int
    ) -> None:
        self._requests = Requests(connections, network, url, credentials=credentials)
        self._credentials = credentials
        self._limit = limit
        self._moments = TimeSlices(connections.in_turn)
        self._session: str | None = None
        self._version: str | None = None
        self._receive: Receive | None = None
        self._running = asyncio.Event()
        self._loss: asyncio.Future[UpstreamLost] = asyncio.get_running_loop().create_future()
        self._standing: asyncio.Event = asyncio.Event()
        self._resuming = 0
        self._sending = 0

    async def run(self, receive: Receive) -> None:
        """Run until the session is lost; a server without sessions answers each request separately."""
        self._receive = receive
        self._running.set()
        standing = asyncio.ensure_future(self._stand())
        try:
            raise await asyncio.shield(self._loss)  # cancellation does not lose it: `_leave` ends it
        finally:
            standing.cancel()
            await asyncio.wait({standing})
            await asyncio.shield(asyncio.ensure_future(self._leave()))

    async def abandon(self, id: int) -> bool:
        """Return whether closing the stream of a request cancels it, as it does in the modern era."""
        return self._version is None or self._version >= "2026"

    async def send(self, message: Message, headers: Mapping[str, str]) -> None:
        await self._running.wait()
        if self._loss.done() and isinstance(self._loss.result(), SessionEnded):
            raise SessionEnded
        self._sending += 1
        try:
            await self._send_message(message, headers)
        except UpstreamLost as lost:
            if _unreachable(lost) and self._sending == 1:  # other calls may still get their answers
                self._lose(lost)
            raise
        finally:
            self._sending -= 1

    async def _send_message(self, message: Message, headers: Mapping[str, str]) -> None:
        if (version := headers.get(MCP_PROTOCOL_VERSION_HEADER)) is not None:
            self._version = version
        method = message.get("method")
        asks = method is not None and "id" in message
        request_id: int | None = message["id"] if asks else None
        opening = method == "initialize"
        if opening:
            self._session = self._version = None
        stream = StreamPosition(request_id, RESUMES if method == "subscriptions/listen" else None)
        try:
            answer = await self._exchange("POST", await encode_in_thread(message), headers, stream)
        except ConnectionLost as error:
            # Safe requests may be repeated; a tool could run twice.
            raise UpstreamLost("the connection to the upstream broke", unsent=method != "tools/call") from error
        if opening and (session := answer.header(SESSION)) is not None:
            self._session = session if session.isascii() and session.isprintable() else None
        if answer.status >= 300:
            await self._take_failure(answer, method, request_id)
        elif request_id is None:
            if method == "notifications/initialized":
                self._standing.set()
        elif answer.status == 202:
            raise UpstreamLost("the upstream took a request and gave no answer")
        else:
            await self._take_answer(answer, request_id, stream)

    async def _exchange(
        self, method: str, body: bytes | None, headers: Mapping[str, str], stream: StreamPosition
    ) -> HttpAnswer:
        """Return the answer once it is complete, or what was awaited of it.

        Raises `ConnectionLost` if nothing came back.
        """
        fields = {**_ACCEPT, **headers}
        if self._session is not None:
            fields[SESSION] = self._session
        if self._version is not None:
            fields[MCP_PROTOCOL_VERSION_HEADER] = self._version

        def answer(_: str) -> HttpAnswer:
            return HttpAnswer(method, self._limit, stream, self._take, self._credentials, self._moments)

        return await self._requests.ask(method, body, fields, answer)

    async def _take_failure(self, answer: HttpAnswer, method: str | None, request_id: int | None) -> None:
        message: object = None
        if answer.kind == "application/json":
            with suppress(ValueError):
                message = await answer.message()
        error = message.get("error") if isinstance(message, dict) else None
        gone = answer.status in (404, 410) and self._session is not None
        if gone or (method not in OPENING and answer.status == 400 and knows_no_session(_message_of(error))):
            self._lose(SessionEnded())
            raise SessionEnded
        if request_id is None:
            return
        if isinstance(error, dict) and self._receive is not None:
            self._receive({"id": request_id, "error": error}, request_id, 0)
            return
        raise MCPError(types.INTERNAL_ERROR, f"The upstream answered with HTTP status {answer.status}.")

    async def _take_answer(self, answer: HttpAnswer, request_id: int, stream: StreamPosition) -> None:
        if answer.kind == "application/json":
            try:
                message = await answer.message()
            except TooLarge as error:
                raise UpstreamLost(f"the upstream answered with JSON that is too large: {error}") from error
            except ValueError as error:
                raise UpstreamLost(f"the upstream's response is not valid JSON: {error}") from error
            if isinstance(message, dict) and message.get("id") is None and "error" in message:
                message = {**message, "id": request_id}  # JSON-RPC 2.0, 5: the server could not tell the request's id
            if not isinstance(message, dict) or not is_answer(message, request_id):
                raise UpstreamLost("the upstream answered another request than it was asked")
            self._take(message, request_id, 0)
        elif answer.kind == EVENTS:
            if not stream.answered:
                await self._resume(stream)
        else:
            kind = self._credentials.hide_text(answer.kind)[:80]
            raise UpstreamLost(
                f"the upstream answered with {kind!r}, not with JSON or an event stream: check that its URL is that of "
                "an MCP server"
            )

    async def _resume(self, stream: StreamPosition) -> None:
        """Resume the stream of one request until its answer."""
        failures = 0
        self._resuming += 1
        try:
            while stream.last is not None and (stream.tries is None or failures < stream.tries):
                await asyncio.sleep(_wait(stream, failures))
                before = stream.last
                if not await self._again(stream):
                    break
                if stream.answered:
                    return
                failures = 0 if stream.last != before else failures + 1
        except asyncio.CancelledError as given_up:
            if failures:
                given_up.add_note(f"its stream broke, and was not taken up again in {failures} attempts")
            raise
        finally:
            self._resuming -= 1
        raise UpstreamLost("the upstream ended the stream of a request before its answer")

    async def _again(self, stream: StreamPosition) -> bool:
        """Resume a stream once; return False if the upstream does not have it. An unreachable upstream may return."""
        try:
            answer = await self._exchange("GET", None, {LAST_EVENT: stream.last or ""}, stream)
        except ConnectionLost:
            return True
        except UpstreamLost as lost:
            if not _unreachable(lost):
                raise
            log.debug("a stream cannot be taken up again yet: %s", lost)
            return True
        return answer.status >= 500 or (answer.status == 200 and answer.kind == EVENTS)

    def _take(self, message: object, request_id: int | None, size: int) -> bool:
        if self._receive is None:
            return False
        try:
            return self._receive(message, request_id, size)
        except UpstreamLost as lost:
            self._lose(lost)
            raise

    async def _stand(self) -> None:
        """Keep the session's GET stream open, for messages that belong to no request, while the server offers it."""
        await self._standing.wait()
        stream = StreamPosition(None)
        failures = 0
        while self._session is not None and (failures < RESUMES or self._resuming):
            headers = {LAST_EVENT: stream.last} if stream.last is not None else {}
            try:
                answer = await self._exchange("GET", None, headers, stream)
                if answer.status in (404, 410):
                    self._lose(SessionEnded())
                    return
                if answer.status != 200 or answer.kind != EVENTS:
                    return
                failures = 0
            except (UpstreamLost, ConnectionLost) as lost:
                log.debug("the standing stream of an upstream: %s", lost)
                failures += 1
            await asyncio.sleep(_wait(stream, failures))
        if failures:
            self._lose(UpstreamLost("the upstream is gone"))

    def _lose(self, lost: UpstreamLost) -> None:
        if not self._loss.done():
            self._loss.set_result(lost)

    async def _leave(self) -> None:
        """End the session, so that the server need not keep it, and close the connections."""
        try:
            if self._session is not None and not self._loss.done():
                with suppress(UpstreamLost, ConnectionLost, TimeoutError):
                    async with asyncio.timeout(2):
                        await self._exchange("DELETE", None, {}, StreamPosition(None))
        finally:
            self._requests.close()


def knows_no_session(message: str) -> bool:
    """Return whether the text of a 400 answer reports an unknown or missing session.
    A server must report that with 404; those made after widely copied examples of the SDKs use this status.
    """
    return _NO_SESSION.search(message) is not None


def _message_of(error: object) -> str:
    """Return the message of a JSON-RPC error; empty if it has none."""
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else ""


def _unreachable(lost: UpstreamLost) -> bool:
    """Return whether no server was reachable at the upstream's address."""
    return lost.refusal is not None and lost.refusal.reason is Reason.BACKEND_UNREACHABLE


def _wait(stream: StreamPosition, failures: int) -> float:
    """Return the seconds before the next attempt to resume `stream`, after so many failures."""
    return max(stream.retry, min(FIRST_WAIT * 2 ** min(failures - 1, 10), LONGEST_WAIT)) if failures else stream.retry


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
        self._moments = TimeSlices(connections.in_turn)
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

        def nothing(message: object, request_id: int | None, size: int) -> bool:
            """Ignore the body: the answer comes on the stream."""
            return False

        answer = await self._ask("POST", await encode_in_thread(message), _SAYS, nothing, endpoint)
        text = answer.reading.body().decode("utf-8", "replace")
        if answer.status in (404, 410) or (answer.status == 400 and knows_no_session(text)):
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
                method, self._limit, StreamPosition(None), take, self._credentials, self._moments, self._take_endpoint
            )

        try:
            return await self._requests.ask(method, body, fields, answer, url)
        except ConnectionLost as error:
            raise UpstreamLost("the connection to the upstream broke") from error

    def _take_endpoint(self, event: Event) -> None:
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

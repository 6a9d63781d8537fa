"""Relays JSON-RPC lines between a client's stdio and `/mcp`, for both eras of the protocol."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import aiohttp

from gateway.errors import Refusal
from gateway.event_stream import EventReader
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import compact_json, plain_json

LARGEST = 64 * 1024 * 1024
"""Bytes of the largest event; an app of several megabytes is one event."""


@dataclass(slots=True)
class Messages:
    """Bytes in, data of events out; `last_id` is the latest event id, with which a broken stream is resumed."""

    last_id: str | None = None
    _reader: EventReader = field(default_factory=lambda: EventReader(LARGEST))

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the data of events completed by `data`. Raises ValueError for an event that is too large."""
        for event in self._reader.feed(data):
            if event is None:
                continue
            if event.id is not None:
                self.last_id = event.id
            if event.data:  # an event with only an id, for resumption, has no data
                yield event.data.decode()


Message: TypeAlias = dict[str, Any]

INITIALIZED: Final = "notifications/initialized"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_CHANGED: Final = ("tools", "prompts", "resources")


@dataclass(slots=True)
class PipeSession:
    """The current session: `id` and `version` are the gateway's latest, empty before the handshake."""

    id: str = ""
    version: str = ""
    opening: bytes = b""
    _answers: dict[str, bytes] = field(default_factory=dict)

    def keep(self, message: Message, line: bytes) -> None:
        """Keep the client's messages that change the session's state."""
        params = message.get("params")
        match message.get("method"):
            case "initialize":
                self.opening = line
                self._answers.clear()
            case "logging/setLevel" | "notifications/initialized" as method:
                self._answers[method] = line
            case "resources/subscribe" if isinstance(params, dict):
                self._answers[f"resource {params.get('uri')}"] = line
            case "resources/unsubscribe" if isinstance(params, dict):
                self._answers.pop(f"resource {params.get('uri')}", None)
            case _:
                pass

    def again(self) -> Iterator[tuple[Message, bytes]]:
        """Yield the messages to replay after the opening of a new session."""
        for line in list(self._answers.values()):
            yield parse_json(line), line

    def take_opening(self, id: str, text: str) -> bool:
        """Read the answer to an opening; return whether there is a session now."""
        try:
            version = str(parse_json(text)["result"]["protocolVersion"])
        except (ValueError, KeyError, TypeError):
            return False
        self.id, self.version = id, version
        return True


def changes(text: str) -> Iterator[str]:
    """Yield the notifications for a client whose session was replaced by a new one, opened with the answer `text`."""
    capabilities = parse_json(text)["result"].get("capabilities", {})
    for kind in _CHANGED:
        offered = capabilities.get(kind)
        if isinstance(offered, dict) and offered.get("listChanged") is True:
            yield plain_json({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})


def missed_changes(acknowledged: Message) -> Iterator[str]:
    """Yield the notifications for changes that a client may have missed while its stream was closed."""
    match acknowledged.get("params"):
        case {"_meta": meta, "notifications": {**content}}:
            for kind in _CHANGED:
                if content.get(f"{kind}ListChanged") is True:
                    yield _notification(f"notifications/{kind}/list_changed", {"_meta": meta})
            uris = content.get("resourceSubscriptions")
            for uri in uris if isinstance(uris, list) else ():
                yield _notification("notifications/resources/updated", {"uri": uri, "_meta": meta})
        case _:
            pass


def _notification(method: str, params: Message) -> str:
    return plain_json({"jsonrpc": "2.0", "method": method, "params": params})


log = logging.getLogger(__name__)

Id: TypeAlias = str | int

LONGEST: Final = 16 * 1024 * 1024
"""Bytes of one message of the client, the limit of `/mcp`."""

GRACE: Final = 10.0
"""Seconds for calls in flight after the client closed its end."""

AGAIN: Final = 1.0
"""Seconds before a broken stream is opened again."""

EVENTS: Final = "text/event-stream"

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNREACHABLE: Final = -32001

_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_LISTEN: Final = "subscriptions/listen"
_MOUNT: Final = re.compile(r"/mcp(?:/([^/]+))?/?\Z")
_PLAIN: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class Pipe:
    """Relays messages to `url`. `say` writes one line to the client, `complain` a message to the user."""

    def __init__(
        self,
        url: str,
        client: aiohttp.ClientSession,  # noqa: TID251  # one of `Connections`
        say: Callable[[str], Awaitable[None]],
        complain: Callable[[str], None],
        token: str | None = None,
    ) -> None:
        self._url = url
        self._client = client
        self._say = say
        self._complain = complain
        self._own = {"authorization": f"Bearer {token}"} if token else {}
        self._session = PipeSession()
        self._renewing = asyncio.Lock()
        self._calls: dict[Id, asyncio.Task[None]] = {}
        self._modern: set[Id] = set()
        self._endless: set[asyncio.Task[None]] = set()
        self._standing: asyncio.Task[None] | None = None
        self._tasks = asyncio.TaskGroup()

    async def run(self, lines: AsyncIterator[bytes]) -> None:
        """Relay until `lines` end; then calls in flight get some seconds, and the session is deleted."""
        async with self._tasks:
            async for line in lines:
                if line.strip():
                    await self._take(line)
            running = {task for task in self._calls.values() if task not in self._endless}
            if running:
                await asyncio.wait(running, timeout=GRACE)
            for task in (*self._calls.values(), *([self._standing] if self._standing else ())):
                task.cancel()
        await self._give_back()

    async def _take(self, line: bytes) -> None:
        """Handle one line of the client. No content ends the pipe."""
        if len(line) > LONGEST:
            await self._fail(None, INVALID_REQUEST, f"This message is too large (413): {LONGEST} bytes are allowed.")
            return
        try:
            message = parse_json(line)
        except (ValueError, RecursionError):
            await self._fail(None, PARSE_ERROR, "This line is not JSON.")
            return
        if not isinstance(message, dict):
            await self._fail(None, INVALID_REQUEST, "A message is one JSON object; batches are not supported.")
            return
        id = message.get("id")
        if isinstance(message.get("method"), str) and "id" in message:
            await self._request(message, line, id)
        elif message.get("method") == "notifications/cancelled" and self._cancel(message):
            return
        else:
            await self._tell(message, line)

    async def _request(self, message: Message, line: bytes, id: object) -> None:
        if not isinstance(id, str | int) or isinstance(id, bool):
            await self._fail(None, INVALID_REQUEST, "An id must be a string or an integer.")
            return
        if id in self._calls:
            await self._fail(id, INVALID_REQUEST, "A call with this id is in flight.")
            return
        if message["method"] == "initialize":
            await self._call(message, line, id)  # no message may overtake the handshake
            return
        modern, listens = _version(message) is not None, message["method"] == _LISTEN
        asking = self._listen if modern and listens else self._call
        task = self._tasks.create_task(asking(message, line, id))
        self._calls[id] = task
        if modern:
            self._modern.add(id)
        if listens:
            self._endless.add(task)
        task.add_done_callback(lambda task: self._end_stream(id, task))

    def _end_stream(self, id: Id, task: asyncio.Task[None]) -> None:
        self._endless.discard(task)
        if self._calls.get(id) is task:
            del self._calls[id]
            self._modern.discard(id)

    def _cancel(self, message: Message) -> bool:
        """Cancel a call of the newer protocol by closing its request; return False for others, which are forwarded."""
        params = message.get("params")
        id = params.get("requestId") if isinstance(params, dict) else None
        if not isinstance(id, str | int) or id not in self._modern:
            return False
        self._calls[id].cancel()
        return True

    async def _call(self, message: Message, line: bytes, id: Id) -> None:
        """Send a request and relay its responses; if the gateway lost the session, repeat it in a new one."""
        older = _version(message) is None
        if older:
            self._session.keep(message, line)
        session = self._session.id if older and message["method"] != "initialize" else ""
        try:
            async with self._post(message, line) as answer:
                if not session or answer.status != 404:
                    await self._forward_answer(message, id, answer)
                    return
            await self._renew(session)
            async with self._post(message, line) as answer:
                await self._forward_answer(message, id, answer)
        except (Refusal, aiohttp.ClientError, OSError, ValueError) as error:
            await self._unreachable(id, error)

    async def _forward_answer(self, message: Message, id: Id, answer: aiohttp.ClientResponse) -> None:
        answered = False
        async for received in _messages(answer):
            text = received if answer.status < 400 else _about(received, id)
            if message["method"] == "initialize":
                self._session.take_opening(answer.headers.get("mcp-session-id", ""), text)
            answered = answered or answer.status < 400 or _answers(text, id)
            await self._say(text)
        if not answered:
            await self._fail(id, UNREACHABLE, await self._refusal(answer))

    async def _renew(self, session: str) -> None:
        """Open another session on behalf of the client, which does not know that the old one is lost."""
        async with self._renewing:
            if self._session.id != session:
                return  # already renewed for another call
            opening = parse_json(self._session.opening)
            async with self._post(opening, self._session.opening) as answer:
                texts = [text async for text in _messages(answer)]
                id = answer.headers.get("mcp-session-id", "")
            if not (texts and id and self._session.take_opening(id, texts[-1])):
                return  # the next request is answered with the error
            for message, line in self._session.again():
                await self._tell(message, line)
            for text in changes(texts[-1]):
                await self._say(text)

    async def _tell(self, message: Message, line: bytes) -> None:
        """Send a notification, or a response of the client, in order."""
        if _version(message) is None:
            self._session.keep(message, line)
        try:
            async with self._post(message, line) as answer:
                async for text in _messages(answer):
                    if answer.status >= 400:
                        self._complain(f"the gateway did not take {message.get('method', 'an answer')}: {text[:500]}")
        except (Refusal, aiohttp.ClientError, OSError, ValueError) as error:
            self._complain(f"{self._url}: {_words(error)}")
        if message.get("method") == INITIALIZED and self._session.id:
            if self._standing not in (None, asyncio.current_task()):
                self._standing.cancel()  # the old session's stream ends
            self._standing = self._tasks.create_task(self._stand())

    async def _stand(self) -> None:
        """Relay the gateway's own messages in the older protocols: one stream, reopened when it breaks."""
        session, reader = self._session.id, Messages()
        while True:
            reader = Messages(reader.last_id)
            headers = {**self._headers({}), "accept": EVENTS}
            if reader.last_id is not None:
                headers["last-event-id"] = reader.last_id
            try:
                async with self._client.get(self._url, headers=headers) as answer:
                    if answer.status == 404:
                        await self._renew(session)  # it starts a new stream
                    if 400 <= answer.status < 500:
                        return  # this gateway has no such stream
                    if answer.status < 400:
                        async for data in answer.content.iter_any():
                            for text in reader.feed(data):
                                await self._say(_one_line(text))
            except (Refusal, aiohttp.ClientError, OSError, ValueError) as error:
                log.info("the stream of the gateway broke: %s", _words(error))
            await asyncio.sleep(AGAIN)

    async def _listen(self, message: Message, line: bytes, id: Id) -> None:
        """Relay a stream of changes of the newer protocol, reopening it when it ends before the client's."""
        begun = False
        while True:
            try:
                async with self._post(message, line) as answer:
                    if begun and answer.status >= 500:
                        raise ValueError(await self._refusal(answer))
                    if answer.content_type != EVENTS:
                        await self._forward_answer(message, id, answer)
                        return
                    async for text in _messages(answer):
                        received = parse_json(text) if _is_message(text) else {}
                        if begun and received.get("method") == ACKNOWLEDGED:
                            for change in missed_changes(received):
                                await self._say(change)
                        elif begun and received.get("id") == id and "result" in received:
                            break  # the gateway is stopping, and may start again
                        else:
                            begun = begun or received.get("method") == ACKNOWLEDGED
                            await self._say(text)
                            if received.get("id") == id:
                                return
            except (Refusal, aiohttp.ClientError, OSError, ValueError) as error:
                if not begun:
                    await self._unreachable(id, error)
                    return
                log.info("the stream of the gateway broke: %s", _words(error))
            await asyncio.sleep(AGAIN)

    def _post(self, message: Message, line: bytes) -> Any:
        headers = self._headers(message)
        return self._client.post(self._url, data=line.strip(), headers=headers, allow_redirects=False)

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **self._own,
        }
        version = _version(message)
        if version is not None:
            params = message["params"]
            headers |= {"mcp-protocol-version": version, "mcp-method": _field(str(message.get("method", "")))}
            name = params.get(_NAMED.get(str(message.get("method")), ""))
            if isinstance(name, str):
                headers["mcp-name"] = _field(name)
        elif message.get("method") != "initialize" and self._session.id:
            headers |= {"mcp-session-id": self._session.id, "mcp-protocol-version": self._session.version}
        return headers

    async def _give_back(self) -> None:
        if not self._session.id:
            return
        try:
            async with asyncio.timeout(2), self._client.delete(self._url, headers=self._headers({})):
                return
        except (Refusal, aiohttp.ClientError, OSError):
            return  # the gateway is gone, and its session too

    async def _refusal(self, answer: aiohttp.ClientResponse) -> str:
        """Describe an answer that is not MCP: its own detail, and a remedy."""
        problem = f"{self._url} answered with the status {answer.status}."
        if answer.content_type == "application/problem+json":
            with suppress(ValueError, KeyError, TypeError):  # the body is not such an object
                problem += f" {str((await answer.json(content_type=None))['detail'])[:500]}"
        place = _MOUNT.search(urlsplit(self._url).path)
        if place is None:
            return f"{problem} The address of a gateway ends with /mcp, as in --url http://localhost:8080/mcp."
        if answer.status == 404 and place[1]:
            return f"{problem} This gateway has no app or upstream {place[1]!r}: correct --app, or leave it out."
        return problem

    async def _unreachable(self, id: Id, error: Exception) -> None:
        self._complain(f"{self._url}: {_words(error)}")
        await self._fail(id, UNREACHABLE, f"The gateway at {self._url} cannot be reached: {_words(error)}")

    async def _fail(self, id: Id | None, code: int, words: str) -> None:
        await self._say(plain_json({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": words}}))


async def _messages(answer: aiohttp.ClientResponse) -> AsyncIterator[str]:
    """Yield each message of an answer as one line."""
    kind = answer.content_type
    if kind == EVENTS:
        reader = Messages()
        async for data in answer.content.iter_any():
            for text in reader.feed(data):
                yield _one_line(text)
    elif kind == "application/json":
        text = await answer.text("utf-8")
        if text.strip() and _is_message(text):
            yield _one_line(text)
    else:
        await answer.read()


def _is_message(text: str) -> bool:
    try:
        message = parse_json(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0"


def _about(text: str, id: Id) -> str:
    """Give an error without id the id of the request."""
    message = parse_json(text)
    return plain_json({**message, "id": id}) if "error" in message and message.get("id") is None else text


def _answers(text: str, id: Id) -> bool:
    """Return whether an error answer's message has the id of the request."""
    return bool(parse_json(text).get("id") == id)


def _one_line(text: str) -> str:
    return text if "\n" not in text and "\r" not in text else compact_json(parse_json(text))


def _version(message: Message) -> str | None:
    """Return the version in a message of the newer protocol; None for older ones."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(_VERSION) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and _PLAIN.fullmatch(version) else None


def _field(text: str) -> str:
    """Encode a text as a header field, in base64 if it is not plain."""
    if _PLAIN.fullmatch(text) and not text.startswith("=?base64?"):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def _words(error: Exception) -> str:
    return error.detail if isinstance(error, Refusal) else str(error) or type(error).__name__

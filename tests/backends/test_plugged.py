"""A plugin's backend is held to the limits of every backend."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.backends.in_process import wrap_plugin
from gateway.errors import Reason, Refusal
from gateway.model import Arriving, Headers, Outbound, Response, StreamingBackend

REQUEST = Outbound("GET", "http://b/", timeout=0.01, response_limit=10)


class Plugin:
    """Answers with `answer`, or never."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def send(self, request: Outbound) -> Response:
        """Return the given answer; with None, never return."""
        if self._answer is None:
            await asyncio.Event().wait()
        if self._answer is asyncio.CancelledError:
            raise asyncio.CancelledError
        answer: Response = self._answer
        return answer

    async def close(self) -> None:
        """Raise an error."""
        raise OSError


class Streaming(Plugin):
    """Streams its body byte by byte; `!` cancels the stream, and after a full stop at the end it never ends."""

    @asynccontextmanager
    async def stream(self, request: Outbound) -> AsyncIterator[Arriving]:
        """The parts of the answer."""
        yield Arriving(self._answer, self._parts())

    async def _parts(self) -> AsyncIterator[bytes]:
        for byte in self._answer.body:
            if byte == ord("!"):
                raise asyncio.CancelledError
            yield bytes([byte])
        if self._answer.body.endswith(b"."):
            await asyncio.Event().wait()


def answer(status: Any = 200, headers: Any = (), body: Any = b"") -> Response:
    """An answer that may be invalid."""
    return Response(status, headers, body)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, Reason.BACKEND_TIMEOUT),
        ({"status": 200}, Reason.BACKEND_PROTOCOL),
        (answer(status="200"), Reason.BACKEND_PROTOCOL),
        (answer(status=99), Reason.BACKEND_PROTOCOL),
        (answer(headers={"content-type": "text/plain"}), Reason.BACKEND_PROTOCOL),
        (answer(headers=(("content-length", 5),)), Reason.BACKEND_PROTOCOL),
        (answer(headers=(("x", "a\r\nset-cookie: b"),)), Reason.BACKEND_PROTOCOL),
        (answer(body="text"), Reason.BACKEND_PROTOCOL),
        (answer(body=b"12345678901"), Reason.RESPONSE_TOO_LARGE),
    ],
)
async def test_what_is_no_answer_is_refused(given: object, reason: Reason) -> None:
    """An invalid answer is refused with a reason, and nothing of it is passed on."""
    with pytest.raises(Refusal) as refused:
        await wrap_plugin("b", Plugin(given)).send(REQUEST)
    assert refused.value.reason is reason


async def test_a_backend_that_is_cancelled_by_itself_fails() -> None:
    """A cancellation by the plugin itself is an error, so the caller gets an answer and keeps the connection."""
    with pytest.raises(RuntimeError, match="it cancelled itself"):
        await wrap_plugin("b", Plugin(asyncio.CancelledError)).send(REQUEST)
    backend = wrap_plugin("b", Streaming(answer(body=b"!")))
    assert isinstance(backend, StreamingBackend)
    async with backend.stream(REQUEST) as arriving:
        with pytest.raises(RuntimeError, match="it cancelled itself"):
            _ = [part async for part in arriving.parts]
    asked = asyncio.create_task(wrap_plugin("b", Plugin(None)).send(replace(REQUEST, timeout=60)))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait({asked})
    assert asked.cancelled()


async def test_an_answer_is_given_as_of_any_backend() -> None:
    """Names are lower-cased, codings decoded, hop-by-hop fields dropped; an error in `close` is only logged."""
    fields: Headers = (("Content-Type", "text/plain"), ("Content-Encoding", "gzip"), ("Connection", "close"))
    backend = wrap_plugin("b", Plugin(answer(201, fields, gzip.compress(b"hello"))))
    assert await backend.send(REQUEST) == Response(201, (("content-type", "text/plain"),), b"hello")
    assert not isinstance(backend, StreamingBackend)
    await backend.close()
    head = wrap_plugin("b", Plugin(answer(headers=(*fields[:2], ("Content-Length", "30")))))
    assert (await head.send(replace(REQUEST, method="HEAD"))).status == 200


@pytest.mark.parametrize(
    ("body", "reason"), [(b"12345678901", Reason.RESPONSE_TOO_LARGE), (b"silence.", Reason.BACKEND_TIMEOUT)]
)
async def test_a_stream_is_bounded_too(body: bytes, reason: Reason) -> None:
    """The sum of its parts and each silence are bounded."""
    backend = wrap_plugin("b", Streaming(answer(body=body)))
    assert isinstance(backend, StreamingBackend)
    async with backend.stream(REQUEST) as arriving:
        with pytest.raises(Refusal) as refused:
            _ = [part async for part in arriving.parts]
    assert refused.value.reason is reason


async def test_a_stream_is_given_as_it_comes() -> None:
    """The parts are passed on one by one, to the end."""
    async with wrap_plugin("b", Streaming(answer(body=b"good"))).stream(REQUEST) as arriving:  # type: ignore[attr-defined]  # one that streams still can
        assert [part async for part in arriving.parts] == [b"g", b"o", b"o", b"d"]

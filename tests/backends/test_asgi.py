"""Tests of `gateway.backends.in_process`: an application in this process, under the limits of every backend."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from gateway.backends.in_process import AsgiBackend, Message
from gateway.errors import Reason, Refusal
from gateway.model import Outbound

URL = "http://shop.invalid"


async def echo(request: Request) -> JSONResponse:
    """Answer with the request."""
    body = (await request.body()).decode()
    said = [f"{name}={value}" for name, value in request.headers.items()]
    return JSONResponse({"path": request.url.path, "query": request.url.query, "body": body, "headers": said})


async def answer_compressed(_: Request) -> PlainTextResponse:
    """Answer with a compressed body."""
    return PlainTextResponse(gzip.compress(b"x" * 2000), headers={"content-encoding": "gzip", "connection": "close"})


async def test_a_request_arrives_as_it_was_decided_on() -> None:
    """Path, query, header fields and body arrive unchanged; the answer comes with its status and fields."""
    backend = AsgiBackend("shop", Starlette(routes=[Route("/echo/{rest:path}", echo, methods=["POST"])]))
    request = Outbound("POST", f"{URL}/echo/a%20b?q=1", (("content-type", "text/plain"),), b"hello")
    response = await backend.send(request)
    assert (response.status, response.header("content-type")) == (200, "application/json")
    for part in (b'"/echo/a b"', b'"q=1"', b'"hello"', b"content-length=5", b"host=shop.invalid"):
        assert part in response.body
    await backend.close()


async def test_the_length_of_a_body_that_is_left_out() -> None:
    """The length is kept for HEAD without a content coding, and for an empty body."""
    routes = [Route(f"/{text}", lambda _, text=text: PlainTextResponse(text)) for text in ("four", "")]
    routes.append(Route("/packed", answer_compressed))
    backend = AsgiBackend("shop", Starlette(routes=routes))
    asked = (("HEAD", "/four"), ("GET", "/four"), ("HEAD", "/packed"), ("GET", "/"))
    answers = [await backend.send(Outbound(method, URL + path)) for method, path in asked]
    assert [answer.length for answer in answers] == [4, None, None, 0]
    await backend.close()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/slow", Reason.BACKEND_TIMEOUT),
        ("/broken", Reason.BACKEND_PROTOCOL),
        ("/leaves", Reason.BACKEND_PROTOCOL),
    ],
)
async def test_what_goes_wrong_is_a_reason(path: str, reason: Reason) -> None:
    """A silent or failing application is refused with a reason."""

    async def application(scope: Message, receive: object, send: object) -> None:
        if scope["type"] == "lifespan":
            raise RuntimeError("unknown")
        if scope["path"] == "/slow":
            await asyncio.Event().wait()
        if scope["path"] == "/leaves":
            raise SystemExit

    backend = AsgiBackend("shop", application)
    with pytest.raises(Refusal) as refused:
        await backend.send(Outbound("GET", URL + path, timeout=1.0))
    assert refused.value.reason is reason


async def test_the_limits_of_an_answer() -> None:
    """The size counts after decompression, and hop-by-hop fields are dropped."""
    backend = AsgiBackend("shop", Starlette(routes=[Route("/", answer_compressed)]))
    answer = await backend.send(Outbound("GET", f"{URL}/"))
    assert (answer.body, answer.header("content-encoding"), answer.header("connection")) == (b"x" * 2000, None, None)
    with pytest.raises(Refusal) as refused:
        await backend.send(Outbound("GET", f"{URL}/", response_limit=1999))
    assert refused.value.reason is Reason.RESPONSE_TOO_LARGE


async def test_a_stream_comes_as_it_is_sent_and_ends_with_its_reader() -> None:
    """Parts are passed on as they come; an application whose reader leaves is cancelled."""
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def stream(_: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            try:
                yield "one"
                await go_on.wait()
                yield "two"
                await asyncio.Event().wait()
            finally:
                ended.set()

        return StreamingResponse(parts())

    backend = AsgiBackend("shop", Starlette(routes=[Route("/", stream)]))
    async with backend.stream(Outbound("GET", f"{URL}/")) as arriving:
        assert await anext(arriving.parts) == b"one"
        go_on.set()
        assert await anext(arriving.parts) == b"two"
    await asyncio.wait_for(ended.wait(), 20)


@pytest.mark.parametrize("kind", ["text/plain", "text/event-stream"])
async def test_events_may_be_far_apart(kind: str) -> None:
    """The timeout bounds the silence of other answers only."""
    go_on = asyncio.Event()

    async def stream(_: Request) -> StreamingResponse:
        async def parts() -> AsyncIterator[str]:
            await go_on.wait()
            yield "data: 1\n\n"

        return StreamingResponse(parts(), media_type=kind)

    backend = AsgiBackend("shop", Starlette(routes=[Route("/", stream)]))
    async with backend.stream(Outbound("GET", f"{URL}/", timeout=0.2)) as arriving:
        coming = asyncio.ensure_future(anext(arriving.parts))
        await asyncio.wait({coming}, timeout=0.5)
        go_on.set()
        if kind == "text/event-stream":
            assert await coming == b"data: 1\n\n"
        else:
            with pytest.raises(Refusal, match="did not answer"):
                await coming


async def test_the_lifespan_of_an_application() -> None:
    """It starts before the first request, once, and ends with the backend."""
    events: list[str] = []

    async def application(scope: Message, receive: object, send: object) -> None:
        assert callable(receive)
        assert callable(send)
        if scope["type"] == "lifespan":
            for _ in range(2):
                event = (await receive())["type"]
                events.append(event)
                await send({"type": f"{event}.complete"})
            return
        events.append("request")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    backend = AsgiBackend("shop", application)
    await asyncio.gather(*(backend.send(Outbound("GET", f"{URL}/")) for _ in range(2)))
    await backend.close()
    assert events == ["lifespan.startup", "request", "request", "lifespan.shutdown"]


async def test_an_application_that_cannot_start() -> None:
    """Its requests are refused with the reason."""

    async def application(scope: Message, receive: object, send: object) -> None:
        assert callable(receive)
        assert callable(send)
        await receive()
        await send({"type": "lifespan.startup.failed"})

    with pytest.raises(Refusal) as refused:
        await AsgiBackend("shop", application).send(Outbound("GET", f"{URL}/"))
    assert refused.value.reason is Reason.BACKEND_UNAVAILABLE

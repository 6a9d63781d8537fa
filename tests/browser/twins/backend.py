"""A backend without knowledge of gateways, for pages that test the requests of browsers."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from pathlib import Path
from typing import Any, Final

from aiohttp import web

PIXEL: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture of one pixel."""

SOUND: Final = base64.b64decode("UklGRjQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YRAAAACAgICAgICAgICAgICAgICA")
"""A sound of two milliseconds."""

EVENTS: Final = (
    "\ufeff: comment\n\ndata: one\n\nid: 7\nevent: named\ndata: two\ndata:  three\n\r\n"
    "data\n\nunknown: x\ndata:{}\r\rid\ndata: no id\n\nretry: 50\n\nevent: end\ndata: over\n\n"
)


class Backend:
    """The requests that it received, and its routes. `folder` contains the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.beacon: dict[str, str] = {}
        self.sunk = web.json_response({})
        self.next = asyncio.Event()
        self.gone = 0
        self.asked: Counter[str] = Counter()

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=80 * 1024 * 1024)
        app.on_response_prepare.append(self.count)
        app.router.add_get("/api/asked", self.tell_asked)
        app.router.add_get("/api/sheet.css", self.sheet)
        app.router.add_get("/api/named.{kind}", self.named)
        app.router.add_get("/api/typed", self.typed)
        app.router.add_route("*", "/api/echo", self.echo)
        app.router.add_route("*", "/api/echo/{rest}", self.echo)
        app.router.add_route("*", "/api/status/{status}", self.status)
        app.router.add_route("*", "/api/redirect", self.redirect)
        app.router.add_route("*", "/api/slow", self.slow)
        app.router.add_get("/api/slowly", self.slowly)
        app.router.add_route("*", "/api/beacon", self.take_beacon)
        app.router.add_route("*", "/api/sink", self.sink)
        app.router.add_route("*", "/api/beacon/sink", self.sink)
        app.router.add_get("/api/sunk", self.tell_sunk)
        app.router.add_get("/api/loop", self.loop)
        app.router.add_get("/api/lines", self.lines)
        app.router.add_post("/api/lines/next", self.go_on)
        app.router.add_get("/api/lines/gone", self.tell_gone)
        app.router.add_get("/api/large", self.large)
        app.router.add_get("/api/broken", self.broken)
        app.router.add_get("/api/garbled", self.garbled)
        app.router.add_get("/api/events", self.events)
        app.router.add_get("/api/events/short", self.short_events)
        app.router.add_get("/api/events/split", self.split_events)
        app.router.add_get("/api/events/said", self.said_events)
        app.router.add_get("/api/said", self.said)
        app.router.add_get("/api/events/quiet", self.quiet_events)
        app.router.add_post("/api/fragment", self.fragment)
        app.router.add_post("/api/graphql", self.graphql)
        app.router.add_put("/api/items/{id}", self.item)
        for path, (body, kind) in FIXED.items():
            app.router.add_get(path, _fixed_response(body, kind))
        app.router.add_static("/", self.folder)
        return app

    async def count(self, request: web.Request, _: web.StreamResponse) -> None:
        """Count a request."""
        self.asked[request.path_qs] += 1

    async def tell_asked(self, request: web.Request) -> web.Response:
        """The number of requests for this URL."""
        return web.json_response(self.asked[request.query["url"]])

    async def sheet(self, request: web.Request) -> web.Response:
        """The given sheet; by default one that imports itself."""
        css = request.query.get("css", '@import "sheet.css?circle"; #a { color: green }')
        return web.Response(text=css, content_type="text/css")

    async def named(self, request: web.Request) -> web.Response:
        """A script that reports its name, or a sheet, after so many milliseconds."""
        await asyncio.sleep(int(request.query.get("ms", "0")) / 1000)
        if request.match_info["kind"] == "css":
            return web.Response(text="#named { color: red }", content_type="text/css")
        return web.Response(text=f"order.push('{request.query['name']}')", content_type="text/javascript")

    async def typed(self, request: web.Request) -> web.Response:
        """The given body with the given content type."""
        return web.Response(body=request.query["body"].encode(), headers={"content-type": request.query["type"]})

    async def echo(self, request: web.Request) -> web.Response:
        """The request as JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0]
        fields: list[Any] = []
        if kind == "multipart/form-data" and "raw" in request.query:
            boundary = request.headers["content-type"].partition("boundary=")[2].encode()
            body = base64.b64encode((await request.read()).replace(boundary, b"boundary")).decode()
        elif kind == "multipart/form-data":
            for name, value in (await request.post()).items():
                if isinstance(value, web.FileField):
                    data = base64.b64encode(value.file.read()).decode()
                    fields.append([name, value.filename, value.content_type, data])
                else:
                    fields.append([name, value if isinstance(value, str) else value.decode()])
            body = ""
        else:
            body = base64.b64encode(await request.read()).decode()
        # Browsers add cache fields to the navigation of a form, and not to a fetch.
        fresh = () if request.headers.get("sec-fetch-mode") == "navigate" else ("cache-control", "pragma")
        told = ("x-a", "x-b", "x-one", "x-requested-with", "accept", "accept-language", *fresh)
        said = {name.lower(): value for name, value in request.headers.items() if name.lower() in told}
        return web.json_response(
            {
                "method": request.method,
                "path": request.path,
                "query": request.query_string,
                "language": request.headers.get("content-language", ""),
                "type": request.headers.get("content-type", "") if kind != "multipart/form-data" else kind,
                "headers": dict(sorted(said.items())),
                "fields": fields,
                "body": body,
            }
        )

    async def sink(self, request: web.Request) -> web.Response:
        """Store the form's request."""
        self.sunk = await self.echo(request)
        return web.Response(text="thanks", content_type="text/html")

    async def tell_sunk(self, _: web.Request) -> web.Response:
        """Return the stored request once."""
        sunk, self.sunk = self.sunk, web.json_response({})
        return web.Response(body=sunk.body, content_type="application/json")

    async def status(self, request: web.Request) -> web.Response:
        """The given status."""
        status = int(request.match_info["status"])
        return web.Response(status=status, text=None if status in (204, 205, 304) else f"status {status}")

    async def redirect(self, request: web.Request) -> web.Response:
        """Redirect to the echo, or to the query's target; `times` is the number of redirects to itself before that."""
        status, times = int(request.query.get("status", "302")), int(request.query.get("times", "0"))
        again = f"/api/redirect?times={times - 1}" if times else None
        return web.Response(
            status=status, headers={"location": again or request.query.get("to", "/api/echo?redirected")}
        )

    async def loop(self, _: web.Request) -> web.Response:
        """Redirect forever."""
        return web.Response(status=302, headers={"location": "/api/loop"})

    async def slowly(self, request: web.Request) -> web.StreamResponse:
        """The start of a text, without an end."""
        headers = {"content-type": request.query["type"], "x-content-type-options": "nosniff"}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        await response.write(base64.b64decode(request.query["start"]))
        await asyncio.sleep(30)
        return response

    async def slow(self, _: web.Request) -> web.Response:
        """Never answer."""
        await asyncio.sleep(3600)
        return web.Response()

    async def take_beacon(self, request: web.Request) -> web.Response:
        """Store a beacon; return it once."""
        if request.method == "POST":
            self.beacon = {"body": await request.text(), "type": request.headers.get("content-type", "")}
            return web.Response()
        beacon, self.beacon = self.beacon, {}
        return web.json_response(beacon)

    async def lines(self, request: web.Request) -> web.StreamResponse:
        """`n` lines, the first at once, each other on demand."""
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        self.next.clear()
        await response.prepare(request)
        try:
            for number in range(int(request.query["n"])):
                if number:
                    await self.next.wait()
                    self.next.clear()
                await response.write(b"%d\n" % number)
        except asyncio.CancelledError:
            self.gone += 1
            raise
        return response

    async def go_on(self, _: web.Request) -> web.Response:
        """Release the next line."""
        self.next.set()
        return web.Response(status=204)

    async def tell_gone(self, _: web.Request) -> web.Response:
        """The number of readers of lines that have left since the last query."""
        gone = self.gone
        if gone >= 2:
            self.gone = 0
        return web.json_response(gone)

    async def large(self, request: web.Request) -> web.Response:
        """The given number of bytes."""
        size = int(request.query["size"])
        return web.Response(body=(bytes(range(251)) * (size // 251 + 1))[:size])

    async def broken(self, request: web.Request) -> web.StreamResponse:
        """Half of the declared length."""
        response = web.StreamResponse(headers={"content-length": "100", "content-type": "application/x-ndjson"})
        await response.prepare(request)
        await response.write(b"half")
        await asyncio.sleep(0.3)  # else the end may arrive together with it, and a browser reports neither or both
        if request.transport is not None:
            request.transport.close()
        return response

    async def garbled(self, request: web.Request) -> web.StreamResponse:
        """A part, then an invalid chunk."""
        response = web.StreamResponse(headers={"content-type": "application/x-ndjson"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"part")
        await asyncio.sleep(0.3)
        if request.transport is not None:
            request.transport.write(b"garbage")
            request.transport.close()
        return response

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Every feature of an event stream."""
        return await _event_stream(request, EVENTS, hold=True)

    async def short_events(self, request: web.Request) -> web.StreamResponse:
        """One event, then the end; a reconnect with its id is answered with that id."""
        last = request.headers.get("last-event-id")
        text = f"event: end\ndata: {last}\n\n" if last else "retry: 20\nid: 42\ndata: once\n\ndata: never whole\n"
        return await _event_stream(request, text, hold=bool(last))

    async def quiet_events(self, request: web.Request) -> web.StreamResponse:
        """Silent for longer than the route's timeout, then one event."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(1.2)
        await response.write(b"event: end\ndata: at last\n\n")
        await asyncio.sleep(3600)
        return response

    async def said(self, request: web.Request) -> web.Response:
        """An answer of this type, status and base64 body."""
        status, kind = int(request.query.get("status", "200")), request.query.get("type", "")
        body = base64.b64decode(request.query.get("body", ""))
        return web.Response(status=status, body=body, headers={"content-type": kind} if kind else {})

    async def said_events(self, request: web.Request) -> web.StreamResponse:
        """The given bytes as events; a reconnect is answered with the bytes of its id."""
        last = next((value for name, value in request.raw_headers if name.lower() == b"last-event-id"), None)
        text = base64.b64decode(request.query["body"])
        if last is not None:
            return await _event_stream(request, f"retry: 10\nevent: end\ndata: {last.hex()}\n\n", hold=True)
        response = web.StreamResponse(headers={"content-type": request.query.get("type", "text/event-stream")})
        await response.prepare(request)
        await response.write(text)
        if "hold" in request.query:
            await asyncio.sleep(3600)
        return response

    async def split_events(self, request: web.Request) -> web.StreamResponse:
        """Lines with every line ending, in parts that split lines and their endings."""
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        parts = (
            b"da",
            b"ta: o",
            b"ne\r",
            b"\ndata: \xc3",
            b"\xbc\r",
            b"\r",
            b"data: three\n",
            b"\n\r\n",
            b"event: end\rdata: x\r\r",
        )
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0.02)
        await asyncio.sleep(3600)
        return response

    async def fragment(self, request: web.Request) -> web.Response:
        """HTML with the submitted value."""
        values = await request.post()
        return web.Response(text=f"<b>{values['a']!s}</b>", content_type="text/html")

    async def graphql(self, request: web.Request) -> web.Response:
        """Answer the one known query."""
        asked = await request.json()
        if "item" in asked["query"]:
            return web.json_response({"data": {"item": {"name": f"tea {asked['variables']['id']}"}}})
        return web.json_response({"errors": [{"message": "no such field"}]})

    async def item(self, request: web.Request) -> web.Response:
        """Accept a written item."""
        return web.json_response({"id": request.match_info["id"], **(await request.json())}, status=201)


FIXED: Final[dict[str, tuple[bytes, str]]] = {
    "/api/json": (b'{"a": [1, 2, null], "b": "\\u00fc"}', "application/json; charset=utf-8"),
    "/api/text": ("plain ü".encode(), "text/plain; charset=utf-8"),
    "/api/hello": (b"hello", "text/plain"),
    "/api/latin1": ("ü é".encode("latin-1"), "text/plain; charset=iso-8859-1"),
    "/api/empty": (b"", "text/plain"),
    "/api/bytes": (bytes([0, 1, 127, 128, 255]), "application/octet-stream"),
    "/api/form": (b"a=1&b=%C3%BC", "application/x-www-form-urlencoded"),
    "/api/xml": ("<?xml version='1.0'?><root>ü</root>".encode(), "application/xml"),
    "/api/page": (b"<!doctype html><title>t</title><p>page</p>", "text/html; charset=utf-8"),
    "/api/sound.wav": (SOUND, "audio/wav"),
    "/api/pixel.png": (PIXEL, "image/png"),
    "/api/pixel.svg": (
        b'<svg xmlns="http://www.w3.org/2000/svg" width="3" height="2"/>',
        "image/svg+xml; charset=utf-8",
    ),
    "/api/theme.css": (b"#styled { color: rgb(1, 2, 3); background-image: url(pixel.png) }", "text/css"),
    "/api/current.js": (
        b"order.push([document.currentScript.outerHTML, document.currentScript.getAttribute('src')])",
        "text/javascript",
    ),
    "/api/script.js": (b"window.loaded = (window.loaded ?? 0) + 1;", "text/javascript"),
}


def _fixed_response(body: bytes, kind: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"content-type": kind, "etag": '"7"', "set-cookie": "a=b"})

    return answer


async def _event_stream(request: web.Request, text: str, *, hold: bool) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(text.encode())
    if hold:
        await asyncio.sleep(3600)
    return response

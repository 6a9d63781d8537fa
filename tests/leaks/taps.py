"""Taps everything that a gateway in this process writes: answers, frames, logs, spans, exports, metrics, commands."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakSet

import click.testing
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_websocket import WebSocketWriter
from aiohttp.http_writer import StreamWriter
from aiohttp.web_protocol import RequestHandler
from prometheus_client import generate_latest

from gateway.app import RELOAD
from gateway.assembly.otlp import Collector
from gateway.config.secrets import UNSET
from gateway.fastpath.connection import FastConnection
from gateway.model import Json, Secret
from gateway.telemetry import Metrics
from gateway.traces import Span
from tests.leaks.marks import LONGEST, look_for
from tests.leaks.watch import TAPS

_COOKIE: Final = re.compile(r"webmcp-gateway-session[^= ]*=([A-Za-z0-9_-]{20,})")


def install() -> None:
    """From now on pass everything through `TAPS`; the output stays the same."""
    _tap_secrets()
    _tap_answers()
    _tap_files()
    _tap_frames()
    _tap_traces()
    _tap_commands()
    _tap_log()
    _tap_metrics()


def _is_ours(protocol: object) -> bool:
    """Return whether a gateway answers there: the tests' other servers in this process may write anything."""
    if not isinstance(protocol, RequestHandler) or protocol._manager is None:
        return False
    app = getattr(protocol._manager.request_handler, "__self__", None)
    return isinstance(app, web.Application) and RELOAD in app


_GIVEN: Final = ("gateway.config.secrets", "gateway.credentials.token_requests", "gateway.doors.issuers", "tests.")
"""Modules that make secrets of given values; secrets that the gateway itself generates are sent to their owners."""

_SHOWN: Final = {("gateway.doors.issuers", "finish_login")}
"""Makes a value that comes back through the browser: at a logout, the person's ID token."""

_PLACE: Final = re.compile(r"(sqlite|postgresql):.*|.*\.db")
"""The URL of a database, which is a secret only if it contains a password."""


def _tap_secrets() -> None:
    """Search for every secret that a gateway is given, also if a test forgot the mark."""
    made = Secret.__init__

    def making(self: Secret, value: str) -> None:
        made(self, value)
        frame = sys._getframe(1)
        maker, why = frame.f_globals["__name__"], frame.f_code.co_name
        given = maker.startswith(_GIVEN) and (maker, why) not in _SHOWN and maker != "tests.mcp.fakes"
        if given and value != UNSET and not _PLACE.fullmatch(value):
            look_for(value)

    Secret.__init__ = making  # type: ignore[method-assign]  # the same, and searched for


def _tap_answers() -> None:
    """Scan before compression and chunking; earlier bytes are scanned again, since a secret may be split."""
    write, write_eof, write_headers = StreamWriter.write, StreamWriter.write_eof, StreamWriter.write_headers
    ends: dict[int, bytes] = {}

    def look(writer: AbstractStreamWriter, chunk: Any, *, last: bool) -> None:
        if chunk and _is_ours(getattr(writer, "protocol", None)):
            data = ends.pop(id(writer), b"") + bytes(chunk)
            TAPS.watch.look("answers", data)
            ends[id(writer)] = data[-LONGEST:]
        if last:
            ends.pop(id(writer), None)

    async def writing(self: StreamWriter, chunk: Any, **options: Any) -> None:
        look(self, chunk, last=False)
        await write(self, chunk, **options)

    async def ending(self: StreamWriter, chunk: bytes = b"") -> None:
        look(self, chunk, last=True)
        await write_eof(self, chunk)

    async def heading(self: StreamWriter, status_line: str, headers: Any) -> None:
        if _is_ours(self.protocol):
            ends.pop(id(self), None)
            TAPS.watch.look("headers", f"{status_line}\n{list(headers.items())}".encode())
            TAPS.cookies.update(_COOKIE.findall(" ".join(headers.getall("set-cookie", ()))))
        await write_headers(self, status_line, headers)

    send = FastConnection.send

    def sending(self: FastConnection, data: bytes) -> None:
        """Scan the answers that the fast path writes itself."""
        whole = ends.pop(id(self), b"") + data
        TAPS.watch.look("fast answers", whole)
        ends[id(self)] = whole[-LONGEST:]
        send(self, data)

    FastConnection.send = sending  # type: ignore[method-assign]
    StreamWriter.write = writing  # type: ignore[method-assign]  # the same, and scanned
    StreamWriter.write_eof = ending  # type: ignore[method-assign]
    StreamWriter.write_headers = heading  # type: ignore[method-assign]


def _tap_files() -> None:
    """Scan files of apps, which the kernel sends past the other writers."""
    sendfile = web.FileResponse._sendfile

    async def sending(self: web.FileResponse, request: Any, fobj: Any, offset: int, count: int) -> Any:
        if _is_ours(request.protocol):
            TAPS.watch.look("sent files", os.pread(fobj.fileno(), count, offset))
        return await sendfile(self, request, fobj, offset, count)

    web.FileResponse._sendfile = sending  # type: ignore[method-assign]  # the same, and scanned


def _tap_frames() -> None:
    send_frame = WebSocketWriter.send_frame

    async def sending(self: WebSocketWriter, message: bytes, opcode: int, compress: int | None = None) -> None:
        if _is_ours(self.protocol):
            TAPS.watch.look("frames", bytes(message))
        await send_frame(self, message, opcode, compress)

    WebSocketWriter.send_frame = sending  # type: ignore[method-assign]


def _tap_traces() -> None:
    """Scan the fields of spans, exported or not, and everything sent to a collector."""
    note, send = Span.note, Collector.send

    def noting(self: Span, fields: Mapping[str, object]) -> None:
        TAPS.watch.look("spans", repr(fields).encode())
        note(self, fields)

    async def sending(self: Collector, signal: str, body: Json) -> None:
        TAPS.watch.look("exports", json.dumps(body).encode())
        await send(self, signal, body)

    Span.note = noting  # type: ignore[method-assign]
    Collector.send = sending  # type: ignore[method-assign]


def _tap_commands() -> None:
    invoke = click.testing.CliRunner.invoke

    def invoking(self: Any, *arguments: Any, **options: Any) -> click.testing.Result:
        result = invoke(self, *arguments, **options)
        TAPS.watch.look("commands", result.output_bytes)
        return result

    click.testing.CliRunner.invoke = invoking  # type: ignore[method-assign]


def _tap_log() -> None:
    """Scan the log of `--verbose`, of the gateway only; other programs of the tests log in this process, too."""

    class Looking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            TAPS.watch.look("log", self.format(record).encode("utf-8", "backslashreplace"), record.name)

    ours = logging.getLogger("gateway")
    ours.addHandler(Looking())
    ours.setLevel(logging.INFO)


def _tap_metrics() -> None:
    """Scan the metrics of each gateway when it ends, whether or not they were requested."""
    all_metrics: WeakSet[Metrics] = WeakSet()
    made, cleanup = Metrics.__init__, web.BaseRunner.cleanup

    def making(self: Metrics) -> None:
        made(self)
        all_metrics.add(self)

    async def cleaning(self: Any) -> None:
        for metrics in all_metrics:
            TAPS.watch.look("metrics", generate_latest(metrics.registry))
        all_metrics.clear()
        await cleanup(self)

    Metrics.__init__ = making  # type: ignore[method-assign]
    web.BaseRunner.cleanup = cleaning  # type: ignore[method-assign]

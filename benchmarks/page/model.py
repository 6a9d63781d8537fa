"""A model's client that uses hardly any processor time, and a probe of an otherwise idle server."""

from __future__ import annotations

import json
import socket
import threading
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from typing import Any, Self

from benchmarks.backend import PATH
from benchmarks.errors import BenchmarkError
from benchmarks.targets import call

MOUNT = "/mcp"
WITHIN = 60.0
"""Seconds that any answer may take."""

BETWEEN = 0.01
"""Seconds between two requests to the idle server."""


class Model:
    """Calls tools at the gateway on `port`, one at a time, over one connection. A context manager."""

    def __init__(self, port: int) -> None:
        self._host = f"localhost:{port}"
        self._connection = socket.create_connection(("127.0.0.1", port), WITHIN)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the structured content of the result. Raises `BenchmarkError` if the call failed."""
        self._connection.sendall(call(self._host, MOUNT, arguments, tool))
        with HTTPResponse(self._connection, method="POST") as response:
            response.begin()
            text = response.read()
        answer: dict[str, Any] = json.loads(text) if response.status == HTTPStatus.OK else {}
        result = answer.get("result")
        if result is None or result.get("isError"):
            raise BenchmarkError(f"The model's call of {tool} failed: {text.decode()}")
        content: dict[str, Any] = result["structuredContent"]
        return content


class Idle:
    """Sends requests to the otherwise idle server on `port`, one after the other within its block.

    `longest` is the longest response time, in milliseconds: the delay that the machine itself causes.
    """

    def __init__(self, port: int) -> None:
        self.longest = 0.0
        self._connection = HTTPConnection("127.0.0.1", port, timeout=WITHIN)
        self._over = threading.Event()
        self._asking = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._asking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asking.join()
        self._connection.close()

    def _ask(self) -> None:
        over = False
        while not over:
            began = time.perf_counter()
            self._connection.request("GET", PATH)
            self._connection.getresponse().read()
            self.longest = max(self.longest, (time.perf_counter() - began) * 1000)
            over = self._over.wait(BETWEEN)

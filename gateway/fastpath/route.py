"""The protocols between a connection of the fast path and the doors whose requests it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from gateway.doors.access import IncomingRequest
from gateway.eventloop.shared_timeouts import SharedTimeouts
from gateway.fastpath.request_head import RequestHead
from gateway.model import Principal
from gateway.shares import Shares

R = TypeVar("R")


class ResponseWriter(Protocol):
    """The connection that takes one answer: `gateway.fastpath.connection.FastConnection`."""

    def alarms(self, seconds: float) -> SharedTimeouts:
        """Return the shared timeouts of this duration."""
        ...

    def send(self, data: bytes) -> None:
        """Write a part of an answer."""
        ...

    def write(self, data: bytes, person: str) -> None:
        """Write a complete answer to a request of `person`."""
        ...

    async def write_parts(self, parts: Iterable[bytes], person: str, count: int) -> None:
        """Write a long answer of `count` bytes with backpressure, in turns with other connections."""
        ...

    async def drain(self) -> None:
        """Wait while the write buffer is full."""
        ...

    def abort(self) -> None:
        """Abort the connection in the middle of an answer."""
        ...


class FastRoute(Protocol[R]):
    """The requests with one head, at one door; `R` is a request that was read."""

    def is_current(self) -> bool:
        """Whether the configuration that it was made for is still in use."""
        ...

    def read(self, body: bytes) -> R | None:
        """Return the request with this body; None, without a side effect, if aiohttp must serve it."""
        ...

    async def caller(self, request: IncomingRequest) -> Principal | None:
        """Return the authorized caller; None if the guard or the door would refuse."""
        ...

    async def answer(self, request: R, principal: Principal, writer: ResponseWriter) -> None:
        """Run the request, and write its answer."""
        ...


class RouteFinder(Protocol):
    """Finds routes, and guards their requests: `gateway.fastpath.routes.FastRoutes`."""

    places: Shares
    """The places of all requests that are in flight, by person."""

    def find(self, head: RequestHead) -> FastRoute[Any] | None:
        """Return the route of a head, None if the fast path has none."""
        ...

    def client(self, request: IncomingRequest) -> str | None:
        """Return the address of the client, as reported by trusted proxies."""
        ...

    def generation(self) -> int:
        """Return a number that changes when callers must be identified again, such as after a logout."""
        ...

    def held(self, principal: Principal, end: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `end` when the credential of `principal` is revoked or expires while the block runs."""
        ...

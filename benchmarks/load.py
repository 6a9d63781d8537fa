"""The load: a process that repeats one request over persistent connections, and checks every response.

It implements only a minimum of HTTP/1.1, so that the servers and not the load are measured. The loads of several
servers run in turns, a moment each: a temporary slowdown of the machine affects all of them.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import math
import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import cast

from benchmarks.errors import BenchmarkError

BEFOREHAND = 60_000
"""Requests that are prepared before a load begins."""

STRETCH = 0.2
"""Seconds of a turn: less than the quarter of a second after which the gateway considers itself idle."""

PATIENCE = 30.0
"""Seconds beyond its own time after which a run has failed."""

PROOF = "P" * 82
"""The placeholder of a view proof of equal length: 22 of the view, 15 of the number, 43 of the signature."""

_EPOCH = 1577836800.0

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Load:
    """A load: until `requests` are sent or `seconds` are over, whichever is first, after a separate warm-up.

    `request` is the bytes on the wire as Latin-1; every response is a 200 and contains `marker`. In place of `PROOF`,
    each request has a new view proof: of the view `view` with the key `key` (base64url).
    """

    port: int
    request: str
    marker: str
    connections: int
    requests: int
    seconds: float
    warm_up: float
    view: str = ""
    key: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of one run; response times in milliseconds.

    `answered` includes the warm-up; `cpu_seconds` is the load's own processor time, without it.
    """

    answered: int
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_seconds: float


@dataclass(slots=True)
class _Drive:
    """One stretch of requests on all connections."""

    left: int
    deadline: float
    done: asyncio.Future[None]
    active: int = 0
    times: list[float] = field(default_factory=list)

    def may_send(self, now: float) -> bool:
        if self.left <= 0 or now >= self.deadline:
            return False
        self.left -= 1
        return True

    def ended(self) -> None:
        self.active -= 1
        if self.active == 0 and not self.done.done():
            self.done.set_result(None)

    def failed(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(BenchmarkError(why))


class Requests:
    """The requests of one load in order, prepared before, since the load's own work must not be measured."""

    def __init__(self, load: Load) -> None:
        self._before, self._proof, self._after = load.request.encode("latin-1").partition(PROOF.encode())
        self._view = load.view.encode()
        self._key = base64.urlsafe_b64decode(f"{load.key}==")
        self._number = int((time.time() - _EPOCH) * 1e6)  # beyond those of every previous load
        self._ready = deque(self._made() for _ in range(min(load.requests, BEFOREHAND)))

    def next(self) -> bytes:
        """Return the bytes of the next one."""
        return self._ready.popleft() if self._ready else self._made()

    def _made(self) -> bytes:
        if not self._proof:
            return self._before
        self._number += 1
        number = b"%d" % self._number
        signature = base64.urlsafe_b64encode(hmac.digest(self._key, number, "sha256")).rstrip(b"=")
        return b"%b%b.%b.%b%b" % (self._before, self._view, number, signature, self._after)


class _Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    def __init__(self, requests: Requests, marker: bytes) -> None:
        self._requests = requests
        self._marker = marker
        self._received = b""
        self._sent = 0.0
        self._drive: _Drive | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._drive is not None:
            self._drive.failed("The server closed a connection in the middle of the run.")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def begin(self, drive: _Drive) -> None:
        """Take part in `drive`."""
        self._drive = drive
        drive.active += 1
        self._next(drive, time.perf_counter())

    def data_received(self, data: bytes) -> None:
        drive = self._drive
        if drive is None:
            return
        self._received = answer = self._received + data if self._received else data
        head = answer.find(b"\r\n\r\n")
        if head < 0:
            return
        length = _LENGTH.search(answer, 0, head)
        if length is None:
            drive.failed(f"An answer has no content-length:\n{_shorten(answer)}")
        elif len(answer) >= head + 4 + int(length[1]):
            self._answered(drive, answer)

    def _answered(self, drive: _Drive, answer: bytes) -> None:
        now = time.perf_counter()
        if not answer.startswith(b"HTTP/1.1 200") or self._marker not in answer:
            drive.failed(f"This is not the answer that was asked for:\n{_shorten(answer)}")
            return
        drive.times.append(now - self._sent)
        self._received = b""
        self._next(drive, now)

    def _next(self, drive: _Drive, now: float) -> None:
        if self._transport is not None and drive.may_send(now):
            request = self._requests.next()
            self._sent = time.perf_counter()
            self._transport.write(request)
        else:
            self._drive = None
            drive.ended()


class _Turns:
    """The load of one server, and the results of all its turns."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._requests = Requests(load)
        self._connections: list[_Connection] = []
        self._times: list[float] = []
        self._warm = 0
        self._seconds = 0.0
        self._cpu = 0.0

    @property
    def over(self) -> bool:
        """True if it has sent all, or its time is over."""
        return len(self._times) >= self._load.requests or self._seconds >= self._load.seconds

    async def connect(self) -> None:
        """Connect, and warm up."""
        loop, marker = asyncio.get_running_loop(), self._load.marker.encode()
        for _ in range(self._load.connections):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._requests, marker), "127.0.0.1", self._load.port
            )
            self._connections.append(connection)
        if self._load.warm_up > 0:
            self._warm = len(await _driven(self._connections, self._load.requests, self._load.warm_up))

    async def turn(self, stretch: float) -> None:
        """Continue for at most `stretch` seconds."""
        started, cpu = time.perf_counter(), time.process_time()
        left = self._load.requests - len(self._times)
        self._times += await _driven(self._connections, left, min(stretch, self._load.seconds - self._seconds))
        self._seconds += time.perf_counter() - started
        self._cpu += time.process_time() - cpu

    def measured(self) -> Measured:
        """Return the result of all turns."""
        return Measured(
            answered=self._warm + len(self._times),
            requests=len(self._times),
            seconds=self._seconds,
            p50_ms=1000 * percentile(self._times, 0.50),
            p99_ms=1000 * percentile(self._times, 0.99),
            cpu_seconds=self._cpu,
        )

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()


async def run(loads: Sequence[Load], stretch: float = STRETCH) -> list[Measured]:
    """Warm up, then measure in turns. Raises `BenchmarkError` at the first wrong response."""
    turns = [_Turns(load) for load in loads]
    try:
        for one in turns:
            await one.connect()
        while not all(one.over for one in turns):
            for one in turns:
                if not one.over:
                    await one.turn(stretch)
        return [one.measured() for one in turns]
    finally:
        for one in turns:
            one.close()


async def _driven(connections: list[_Connection], requests: int, seconds: float) -> list[float]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    drive = _Drive(requests, time.perf_counter() + seconds, done)
    for connection in connections:
        connection.begin(drive)
    try:
        async with asyncio.timeout(seconds + PATIENCE):
            await done
    except TimeoutError as error:
        raise BenchmarkError(f"The server did not answer within {PATIENCE:g} s.") from error
    return drive.times


def percentile(times: list[float], share: float) -> float:
    """Return the smallest of `times` that is not exceeded by `share` of them (nearest rank)."""
    return sorted(times)[max(0, math.ceil(share * len(times)) - 1)]


def _shorten(answer: bytes) -> str:
    return answer[:2000].decode("utf-8", "replace")


def main() -> None:
    """Read `Load`s as JSON from the standard input, write the results to the standard output."""
    try:
        measured = asyncio.run(run([Load(**given) for given in json.load(sys.stdin)]))
    except (BenchmarkError, OSError) as error:
        sys.exit(str(error))
    print(json.dumps([asdict(one) for one in measured]))


if __name__ == "__main__":
    main()

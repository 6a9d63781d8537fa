"""The event loop of `serve`: when it busy-polls, and when it sleeps."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Iterator

import pytest

from gateway.eventloop import busy_poll as loops

MOMENT = 2**-12  # its quarters add up to it exactly


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of one connection."""
    one, other = socket.socketpair()
    with one, other:
        yield one, other


class Watched(loops.BusyPoll):
    """Records the timeouts of the system's select calls; each look at the clock takes a quarter of the moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.asked: list[float | None] = []
        self.now = self.late = 0.0
        ready = selectors.DefaultSelector.select

        def select(this: selectors.DefaultSelector, timeout: float | None = None) -> object:
            self.asked.append(timeout)
            self.now += self.late
            return ready(this, 0)

        def clock() -> float:
            self.now += MOMENT / 4
            return self.now

        monkeypatch.setattr(selectors.DefaultSelector, "select", select)
        monkeypatch.setattr(loops, "perf_counter", clock)
        monkeypatch.setattr(loops, "MOMENT", MOMENT)

    def waits(self, timeout: float | None = 1.0) -> list[float | None]:
        """Return the timeouts of the system calls in one wait."""
        self.asked.clear()
        self.select(timeout)
        return list(self.asked)

    def rest(self) -> int:
        """Sleep through the waits that do not poll; return how many there were."""
        count = 0
        while self._asleep:
            assert self.waits() == [1.0]
            count += 1
        return count


def test_it_looks_before_it_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It polls for a moment, which is a part of the timeout; not with a timeout of zero."""
    watched = Watched(monkeypatch)

    assert watched.waits(0) == [0]
    assert watched.waits(1.0) == [0, 0, 0, 1.0 - MOMENT]


@pytest.mark.parametrize("timeout", [None, MOMENT / 2], ids=["for ever", "less than a moment"])
def test_it_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch, timeout: float | None) -> None:
    """The last timeout ends at the same time as without polling."""
    *looks, last = Watched(monkeypatch).waits(timeout)

    assert set(looks) == {0}
    assert last == (None if timeout is None else 0)


def test_a_look_that_took_longer_is_taken_off_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system ran other processes meanwhile: timers are not delayed by that."""
    watched = Watched(monkeypatch)
    watched.late = 0.25

    assert watched.waits(1.0) == [0, pytest.approx(0.75, abs=MOMENT)]
    watched.rest()
    assert watched.waits(0.1) == [0, 0]


def test_what_looked_in_vain_sleeps_twice_as_long_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """2, 4, 8 waits, up to a thousand; then it polls once."""
    watched = Watched(monkeypatch)
    slept = []
    for _ in range(12):
        assert len(watched.waits()) > 1
        slept.append(watched.rest())

    assert slept == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_what_is_there_ends_the_look(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[socket.socket, socket.socket]
) -> None:
    """And the next wait polls again, as if no poll had failed."""
    watched = Watched(monkeypatch)
    one, other = pair
    for _ in range(3):
        watched.waits()
        watched.rest()
    watched.register(one, selectors.EVENT_READ)
    other.send(b"x")

    assert watched.waits() == [0]
    assert watched.waits() == [0]
    one.recv(1)
    assert watched.waits() == [0, 0, 0, 1.0 - MOMENT]
    assert watched.rest() == 2


@pytest.mark.parametrize("busy_poll", [True, False])
async def test_the_loop_does_what_loops_do(busy_poll: bool) -> None:
    """Timers, processes, threads and connections, with polling and without."""

    async def work() -> tuple[bytes, str]:
        process = await asyncio.create_subprocess_exec("echo", "said", stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        await asyncio.sleep(0.001)
        return said, await asyncio.to_thread(str, 1)

    def run() -> tuple[bytes, str, bool]:
        with asyncio.Runner(loop_factory=loops.loop_factory(busy_poll=busy_poll)) as runner:
            selector = getattr(runner.get_loop(), "_selector", None)
            return *runner.run(work()), isinstance(selector, loops.BusyPoll)

    assert await asyncio.to_thread(run) == (b"said\n", "1", busy_poll)

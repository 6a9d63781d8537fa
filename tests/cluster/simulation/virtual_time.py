"""An event loop on a virtual clock, whose tasks belong to machines that can be stopped and killed at any step.

`install` replaces the clocks and the randomness of this process. Modules bind clocks as defaults when they are
imported, so that it must be called before any module of the gateway is imported.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import random
import time
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, TypeVar

T = TypeVar("T")

EPOCH: Final = 1_800_000_000.0
"""The wall clock at the beginning of a run, in seconds since the epoch."""

_RANDOM: Final = random.Random(0)
"""The source of all random bytes."""


MOST_STEPS: Final = 300_000
"""Steps of the longest run: usual ones have ten thousand."""


class State(Enum):
    """Whether a machine's process runs, is stopped (SIGSTOP), or was killed."""

    RUNS = auto()
    STOPPED = auto()
    DEAD = auto()


@dataclass(eq=False)
class Machine:
    """One process with its clocks. `wall` is the error of its wall clock, `zero` the start of its steady one.

    While it is stopped, its callbacks wait in `backlog`, and time goes on. `context` is that of its tasks.
    """

    name: str
    wall: float = 0.0
    zero: float = 0.0
    state: State = State.RUNS
    backlog: list[asyncio.Handle] = field(default_factory=list)
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.context = copy_context()
        self.context.run(MACHINE.set, self)


MACHINE: ContextVar[Machine | None] = ContextVar("MACHINE", default=None)
"""The machine on which the current callback runs; None for the world outside the gateway."""

OUTSIDE: Final = Context()
"""The context of what is no machine's: the database, the wires, and people."""


class _Handle(asyncio.Handle):
    __slots__ = ()

    def _run(self) -> None:
        _run_on_machine(self)


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        _run_on_machine(self)


def _run_on_machine(handle: Any) -> None:
    """Run a callback, unless its machine is dead; that of a stopped one waits."""
    machine = handle._context.get(MACHINE)
    if machine is not None and machine.state is not State.RUNS:
        if machine.state is State.STOPPED:
            machine.backlog.append(handle)
        return
    try:
        handle._context.run(handle._callback, *handle._args)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # noqa: BLE001  as asyncio does
        handle._loop.call_exception_handler({"message": "a callback failed", "exception": error})


class VirtualLoop(BaseEventLoop):
    """The event loop of one run. `now` is the true time, in seconds since its beginning."""

    _scheduled: list[tuple[float, int, asyncio.TimerHandle]]  # with a number, since tuples are compared quickly

    def __init__(self, seed: object) -> None:
        super().__init__()
        self.now = 0.0
        self._clock_resolution = 1e-9
        self._steps = self._timers = 0
        self.seed = seed
        self.tasks: set[asyncio.Task[Any]] = set()
        self.network: Any = None
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]  # a method, with the context among its options
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Return the virtual time."""
        return self.now

    def on(self, machine: Machine | None, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine on a machine; None is outside."""
        return self.create_task(work, context=(machine.context if machine is not None else OUTSIDE).copy())

    def stop_machine(self, machine: Machine) -> None:
        """Stop a process, as SIGSTOP does."""
        if machine.state is State.RUNS:
            machine.state = State.STOPPED

    def continue_machine(self, machine: Machine) -> None:
        """Let a stopped process go on, with all timers that are due by now."""
        if machine.state is State.STOPPED:
            machine.state = State.RUNS
            self._ready.extend(machine.backlog)  # type: ignore[attr-defined]  # of BaseEventLoop
            machine.backlog.clear()

    def kill_machine(self, machine: Machine) -> None:
        """Kill a process, as `kill -9` does: none of its callbacks runs any more."""
        machine.state = State.DEAD
        machine.backlog.clear()

    def later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> None:
        """Call something outside all machines after some seconds."""
        self.call_at(self.now + seconds, callback, *arguments, context=OUTSIDE)

    # ── what BaseEventLoop needs ─────────────────────────────────────────────────────────────────────────────────

    def _new_task(self, _: object, work: Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
        task = asyncio.Task(work, loop=self, **options)
        self.tasks.add(task)  # also those of dead machines: the collector must not run their `finally`
        task.add_done_callback(self.tasks.discard, context=OUTSIDE)
        return task

    def _call_soon(self, callback: Any, arguments: Any, context: Context | None) -> asyncio.Handle:
        handle = _Handle(callback, arguments, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]  # of BaseEventLoop
        return handle

    def call_later(  # type: ignore[override]  # as `call_at`
        self, delay: float, callback: Any, *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something after some virtual seconds."""
        return self.call_at(self.now + delay, callback, *arguments, context=context)

    def call_at(  # type: ignore[override]  # without the types of the arguments
        self, when: float, callback: Any, *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a virtual time, a microsecond from now at the earliest: computing takes no time here."""
        when = max(when, self.now + 1e-6)
        timer = _Timer(when, callback, arguments, self, context)
        self._timers += 1
        heapq.heappush(self._scheduled, (when, self._timers, timer))
        return timer

    def _run_once(self) -> None:
        """Run what is ready; without any, set the clock to the next timer instead of waiting for sockets."""
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]  # of BaseEventLoop
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise RuntimeError(f"the run does not end: {MOST_STEPS} steps, and it is {self.now:.1f} s")
        while not ready:
            if not scheduled:
                raise RuntimeError("everything waits, and nothing will ever happen")
            when, _, timer = heapq.heappop(scheduled)
            if not timer.cancelled():
                self.now = max(self.now, when)
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: it is skipped when its time has come."""

    def _write_to_self(self) -> None:
        """Do nothing: there is one thread."""

    def _process_events(self, events: object) -> None:
        """Do nothing: there are no sockets."""

    def run_in_executor(self, executor: Any, function: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:  # type: ignore[override]  # simpler
        """Run a function at once."""
        answer: asyncio.Future[T] = self.create_future()
        try:
            answer.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001  it belongs to the caller
            answer.set_exception(error)
        return answer

    async def create_unix_server(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Listen in the virtual network."""
        return self.network.listen(protocol_factory, str(path), MACHINE.get())

    async def create_unix_connection(self, protocol_factory: Any, path: Any = None, **_: Any) -> Any:
        """Connect in the virtual network."""
        return await self.network.connect(protocol_factory, str(path), MACHINE.get())


_current: VirtualLoop | None = None


def use(loop: VirtualLoop | None) -> None:
    """Let the clocks of this process show the time of this loop, and the random bytes depend on its seed."""
    global _current  # noqa: PLW0603  the clocks of a process are global
    _current = loop
    if loop is not None:
        _RANDOM.seed(f"bytes of {loop.seed}")
        random.seed(f"numbers of {loop.seed}")


def install() -> None:
    """Replace the clocks and the random bytes of this process; outside a run the clocks are the real ones."""
    real = time.time, time.monotonic, time.perf_counter, time.clock_gettime

    def wall() -> float:
        if _current is None:
            return real[0]()
        machine = MACHINE.get()
        return EPOCH + _current.now + (machine.wall if machine is not None else 0.0)

    def steady(instead: Callable[[], float]) -> float:
        if _current is None:
            return instead()
        machine = MACHINE.get()
        return _current.now + (machine.zero if machine is not None else 0.0)

    time.time = wall
    time.monotonic = lambda: steady(real[1])
    time.perf_counter = lambda: steady(real[2])
    time.clock_gettime = lambda clock: steady(lambda: real[3](clock))
    os.urandom = _RANDOM.randbytes
    random._urandom = _RANDOM.randbytes  # type: ignore[attr-defined]  # the source of `secrets`

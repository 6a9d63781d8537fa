"""Unix sockets between virtual machines: with delays, partitions, broken connections, and captured bytes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from tests.cluster.simulation.virtual_time import OUTSIDE, Machine, State, VirtualLoop


class _Server:
    """A listening socket, as aiohttp sees it."""

    sockets = ()

    def __init__(self, network: Network, path: str) -> None:
        self._network = network
        self._path = path

    def close(self) -> None:
        """Stop listening."""
        self._network.listeners.pop(self._path, None)

    async def wait_closed(self) -> None:
        """Return at once."""


class End(asyncio.Transport):
    """One end of a connection. What is written here arrives at `peer`, in order, after a while."""

    peer: End

    def __init__(self, network: Network, machine: Machine | None, protocol: Any) -> None:
        super().__init__()
        self.network = network
        self.machine = machine
        self.protocol = protocol
        self.context = (machine.context if machine is not None else OUTSIDE).copy()
        self.closed = False
        self.paused = False
        self.arrived: list[bytes] = []
        self.last = 0.0
        self.captured: bytearray | None = None

    def write(self, data: Any) -> None:
        """Send some bytes."""
        if not self.closed and data:
            if self.captured is not None:
                self.captured += data
            self.network.carry(self, self.peer.take, bytes(data))

    def writelines(self, chunks: Any) -> None:
        """Send some bytes."""
        self.write(b"".join(chunks))

    def close(self) -> None:
        """Close after what was written has arrived."""
        if not self.closed:
            self.closed = True
            self.network.carry(self, self.peer.end, None)
            self._lose(None)

    def abort(self) -> None:
        """Close at once."""
        if not self.closed:
            self.closed = True
            self.network.carry(self, self.peer.end, ConnectionResetError("reset"))
            self._lose(None)

    def take(self, data: bytes) -> None:
        """Bytes have arrived."""
        if self.closed:
            return
        if self.paused:
            self.arrived.append(data)
        else:
            self.protocol.data_received(data)

    def end(self, error: Exception | None) -> None:
        """The other end was closed, or has broken."""
        if not self.closed:
            self.closed = True
            if error is None:
                self.protocol.eof_received()
            self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        self.network.ends.pop(self, None)
        self.network.loop.call_soon(self.protocol.connection_lost, error, context=self.context)

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self.paused = True

    def resume_reading(self) -> None:
        """Hand on what has arrived."""
        self.paused = False
        arrived, self.arrived = self.arrived, []
        for data in arrived:
            self.take(data)

    def is_reading(self) -> bool:
        """Return whether what arrives is handed on."""
        return not self.paused

    def is_closing(self) -> bool:
        """Return whether it is closed."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """Return 0: the wires hold everything."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing."""

    def can_write_eof(self) -> bool:
        """Return False, as for TLS."""
        return False

    def set_protocol(self, protocol: Any) -> None:
        """Replace the protocol."""
        self.protocol = protocol

    def get_protocol(self) -> Any:
        """Return the protocol."""
        return self.protocol


class _Silent(asyncio.Protocol):
    """The client of a replayed request, which reads nothing."""


class Network:
    """All connections. `chance` decides about delays; nothing arrives over the `parted` pairs of machines."""

    def __init__(self, loop: VirtualLoop, chance: random.Random) -> None:
        self.loop = loop
        self.chance = chance
        self.listeners: dict[str, tuple[Callable[[], Any], Machine | None]] = {}
        self.ends: dict[End, None] = {}
        self.parted: set[frozenset[str]] = set()
        self.vanished: set[str] = set()
        self.captured: list[tuple[str, bytearray]] = []
        self._waiting: list[tuple[End, Any, Any]] = []
        self._numbers = 0

    def listen(self, factory: Callable[[], Any], path: str, machine: Machine | None) -> _Server:
        """Accept connections."""
        self.listeners[path] = (factory, machine)
        return _Server(self, path)

    async def connect(self, factory: Callable[[], Any], path: str, machine: Machine | None) -> tuple[End, Any]:
        """Connect to a listener. Raises ConnectionRefusedError; waits for ever over a partition."""
        await asyncio.sleep(self._delay())
        while path in self.vanished:  # nothing answers
            await asyncio.sleep(1.0)
        there = self.listeners.get(path)
        if there is None or (there[1] is not None and there[1].state is State.DEAD):
            raise ConnectionRefusedError(path)
        while machine is not None and there[1] is not None and self._is_parted(machine, there[1]):
            await asyncio.sleep(1.0)
        joined = self._join(factory, machine, path, *there)
        await asyncio.sleep(0)  # until its protocol knows of the connection
        return joined

    def _join(
        self, factory: Callable[[], Any], machine: Machine | None, path: str, serve: Callable[[], Any], server: Any
    ) -> tuple[End, Any]:
        here, there = End(self, machine, factory()), End(self, server, None)
        here.peer, there.peer = there, here
        here.captured = bytearray()
        if machine is not None:  # between two nodes: what clients send is not repeated by anyone
            self.captured.append((path, here.captured))
        self.ends |= {here: None, there: None}

        def accept() -> None:
            there.protocol = serve()
            there.protocol.connection_made(there)

        self.loop.call_soon(accept, context=there.context)
        self.loop.call_soon(here.protocol.connection_made, here, context=copy_context())
        return here, here.protocol

    def replay(self) -> None:
        """Send captured bytes of a connection once more."""
        if not self.captured:
            return
        path, captured = self.chance.choice(self.captured)
        there = self.listeners.get(path)
        if there is not None and captured and (there[1] is None or there[1].state is not State.DEAD):
            end, _ = self._join(_Silent, None, path, *there)
            end.write(bytes(captured))

    def carry(self, end: End, arrive: Callable[[Any], None], what: Any) -> None:
        """Let something arrive at the other end, after all that was sent before."""
        if self._apart(end):
            self._waiting.append((end, arrive, what))
            return
        end.last = max(end.last + 1e-7, self.loop.now + self._delay())
        self.loop.call_at(end.last, arrive, what, context=end.peer.context)

    def part(self, one: Machine, other: Machine) -> None:
        """Separate two machines."""
        self.parted.add(frozenset((one.name, other.name)))

    def heal(self) -> None:
        """Join all machines again; what was sent meanwhile arrives."""
        self.parted.clear()
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self.carry(*one)

    def break_some(self) -> None:
        """Break some connections; what is under way may arrive or not."""
        for end in list(self.ends):
            if not end.closed and self.chance.random() < 0.5:
                wait = self.chance.choice((0.0, 0.01))
                for one in (end, end.peer):
                    self.loop.call_at(
                        self.loop.now + wait, one.end, ConnectionResetError("broken"), context=one.context
                    )

    def vanish(self, machine: Machine) -> None:
        """Take a machine from the network: whoever is connected with it is not told."""
        self.vanished.add(machine.name)
        self._leave(machine)

    def kill(self, machine: Machine) -> None:
        """Break the connections of a machine whose process was killed."""
        for end in self._leave(machine):
            self.carry(end, end.peer.end, ConnectionResetError("killed"))

    def _leave(self, machine: Machine) -> list[End]:
        self.listeners = {path: one for path, one in self.listeners.items() if one[1] is not machine}
        mine = [end for end in self.ends if end.machine is machine]
        for end in mine:
            self.ends.pop(end)
            end.closed = True
        return mine

    def _apart(self, end: End) -> bool:
        here, there = end.machine, end.peer.machine
        return here is not None and there is not None and self._is_parted(here, there)

    def _is_parted(self, one: Machine, other: Machine) -> bool:
        return frozenset((one.name, other.name)) in self.parted

    def _delay(self) -> float:
        return self.chance.choice((0.0002, 0.001, 0.005)) * (1 + self.chance.random())

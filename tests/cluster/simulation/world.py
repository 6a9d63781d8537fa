"""One run: nodes, faults, people, pages and models, all by one seed, and the judge who watches them."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from gateway.cluster.lease import LEFT_FOR
from gateway.errors import Reason, Refusal
from gateway.exchange.drain import CUT_WITHIN
from gateway.model import Outbound, Response
from tests.cluster.simulation.database import IDLE, Server
from tests.cluster.simulation.network import Network
from tests.cluster.simulation.node import SCARCE, SimulatedNode
from tests.cluster.simulation.virtual_time import Machine, State, VirtualLoop, use

T = TypeVar("T")

ENDS: Final = 75.0
"""Seconds in which each call of a client must have ended: the longest wait for a person is 50 seconds."""

REVOKED: Final = 8.0
"""Seconds after a revocation from which nothing may be sent that waited for a person: the credential is looked up right
before the approval is used, and a slow database may delay what follows."""

LENGTHS: Final = (4.0, 16.0, 4.0, 8.0, 4.0, 25.0, 4.0, 8.0)
"""Virtual seconds of runs before everything is healed: many short ones, and such in which leases end."""

LEFT: Final = LEFT_FOR + CUT_WITHIN
"""Seconds in which a node that has left, and still answers, ends what had begun before."""

STOPPED: Final = 60.0
"""Seconds in which a node has ended that was told to: it waits for statements that fail, and for others."""

MOVED: Final = 11.0
"""Seconds after a page attached at another node from which its former view may not act: the longest lease."""


@dataclass
class Effect:
    """A request that reached the backend."""

    at: float
    node: str
    path: str


@dataclass
class Judge:
    """What really happened, and what may not happen."""

    world: World
    effects: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    answered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    approved: set[str] = field(default_factory=set)
    """The targets for which a person has begun to say yes."""
    granted_until: dict[str, float] = field(default_factory=dict)
    revoked: dict[str, float] = field(default_factory=dict)
    """When a revocation was answered as done, by principal."""
    began: dict[str, float] = field(default_factory=dict)
    """When the latest attempt of each request began."""
    entered: dict[str, str] = field(default_factory=dict)
    """The page and event by which each call of a model entered a page."""
    moved: dict[str, float] = field(default_factory=dict)
    """When each attachment of a page was followed by another one."""
    problems: list[str] = field(default_factory=list)

    def problem(self, text: str) -> None:
        """Note that an invariant is broken."""
        self.problems.append(f"{self.world.loop.now:.3f} {text}")
        self.world.note(f"VIOLATION: {text}")

    def effect(self, node: SimulatedNode, request: Outbound) -> None:
        """A node sends a request to the backend."""
        path = request.url.removeprefix("http://api.test")
        _, route, id = path.split("/")
        who, attachment, tainted, _ = id.split("_")
        now, world = self.world.loop.now, self.world
        world.note(f"{node.machine.name} sends {path}")
        self.effects[id].append(Effect(now, node.machine.name, path))
        if len(self.effects[id]) > 1:
            self.problem(f"the request {path} was sent twice: {self.effects[id]}")
        ends = self.began.get(id, 0.0) <= node.left <= now <= node.left + LEFT
        if not ends and not world.holds_lease(node):
            self.problem(f"{node.machine.name} sends {path} after its lease has ended")
        asks = route in ("guarded", "granted") or (route == "edit" and tainted == "model")
        granted = route == "granted" and now <= self.granted_until.get(who, -1.0)
        if asks and path not in self.approved and not granted:
            self.problem(f"{path} was sent, and nobody has said yes")
        revoked = self.revoked.get(who, float("inf"))
        if self.began.get(id, 0.0) > revoked or (asks and not granted and now > revoked + REVOKED):
            self.problem(f"{path} was sent after the revocation of {who}")
        if now > self.moved.get(attachment, now) + MOVED:
            self.problem(f"{path} was sent for a view that has moved")

    def end(self) -> None:
        """Judge what can be judged at the end."""
        for id, by in self.answered.items():
            if len(by) > 1:
                self.problem(f"the question {id} was answered by {by}")
        used: dict[str, int] = defaultdict(int)
        for id, effects in self.effects.items():
            if effects[0].path.startswith("/scarce/"):
                used[id.split("_")[0]] += 1
        for who, count in used.items():
            if count > SCARCE:
                self.problem(f"{count} requests of {who} were sent, where {SCARCE} are allowed")


class Backend:
    """The backend of one node, which tells the judge of each request."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.node: SimulatedNode

    async def send(self, request: Outbound) -> Response:
        """Answer after a while; sometimes the answer is lost."""
        self.world.judge.effect(self.node, request)
        await asyncio.sleep(self.world.chance.choice((0.001, 0.05, 1.0)))
        if self.world.chance.random() < 0.05:
            raise Refusal(Reason.BACKEND_UNREACHABLE, "the answer was lost")
        headers = (("set-cookie", "seen=1"),) if self.world.chance.random() < 0.3 else ()
        return Response(200, headers, b"done")

    async def close(self) -> None:
        """Do nothing."""


def is_dead(node: SimulatedNode) -> bool:
    """Return whether the process of a node was killed."""
    return node.machine.state is State.DEAD


async def count(node: SimulatedNode, work: Callable[[SimulatedNode], Coroutine[Any, Any, T]]) -> T:
    """Run a request among the running calls of a node, which may cut it when it stops."""
    try:
        with node.calls.call(), node.calls.refusing_cuts:
            return await work(node)
    except Refusal as refusal:
        if refusal.reason is Reason.STOPPING:
            raise ConnectionResetError("the node stopped") from refusal
        raise


class World:
    """One run. `faults` are the kinds of faults that happen; `seconds` is its length before everything is healed.

    None are all faults, and a length by the seed.
    """

    def __init__(
        self, seed: int, folder: Path, *, seconds: float | None = None, faults: frozenset[str] | None = None
    ) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.loop = VirtualLoop(seed)
        self.trace: list[str] = []
        self.server = Server(self.loop, random.Random(f"sql {seed}"), folder, self.note)
        self.network = self.loop.network = Network(self.loop, random.Random(f"net {seed}"))
        self.judge = Judge(self)
        self.seconds = seconds if seconds is not None else LENGTHS[seed % len(LENGTHS)]
        self.nodes: dict[str, SimulatedNode] = {}
        self.jobs: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[asyncio.Future[Any], Machine] = {}
        self.versions: dict[str, str] = defaultdict(lambda: "1")
        self._faults = faults
        self._count = 0

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.loop.now:9.4f} {text}")

    def number(self) -> int:
        """Return the next number."""
        self._count += 1
        return self._count

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str) -> SimulatedNode:
        """Start a process of a node, with the version that is installed there."""
        wall = self.chance.choice((0.0, 0.0, 60.0, -60.0)) if self.has("clock") else 0.0
        machine = Machine(name, wall, zero=self.chance.uniform(0, 1e6))
        backend = Backend(self)
        node = self.nodes[name] = SimulatedNode(self.loop, machine, self.server, backend, version=self.versions[name])
        backend.node = node
        self.jobs[name] = self.loop.on(machine, node.run())

        def ended(job: asyncio.Task[None]) -> None:
            if not job.cancelled() and (error := job.exception()) is not None:
                self.judge.problem(f"{name} ended with {error!r}")

        self.jobs[name].add_done_callback(ended)
        self.note(f"{name} starts")
        return node

    def restart(self, name: str) -> None:
        """Start a process again, unless another one runs there already, or its machine has vanished."""
        if is_dead(self.nodes[name]) and name not in self.network.vanished:
            self.start(name)

    def has(self, fault: str) -> bool:
        """Return whether faults of this kind happen in this run."""
        return self._faults is None or fault in self._faults

    def holds_lease(self, node: SimulatedNode) -> bool:
        """Return whether no other node may have taken over, by the database's own time."""
        rows = self.server.read("SELECT renewed FROM nodes WHERE incarnation = ?", node.node.incarnation)
        return bool(rows) and self.server.time() - rows[0][0] < 10.0

    def kill(self, name: str, *, for_ever: bool = False) -> None:
        """Kill a process, or let its machine vanish `for_ever`: then other nodes are not told by broken connections."""
        node = self.nodes[name]
        self.note(f"{name} {'vanishes' if for_ever else 'is killed'}")
        self.loop.kill_machine(node.machine)
        if for_ever:
            self.network.vanish(node.machine)
            node.ready.clear()
        else:
            self.network.kill(node.machine)
        self.server.drop_machine(node.machine)
        for waiting, machine in list(self._waiting.items()):
            if machine is node.machine and not waiting.done():
                waiting.set_exception(ConnectionResetError(f"{name} was killed"))

    async def stop(self, name: str, seconds: float) -> None:
        """Stop a process for some time."""
        machine = self.nodes[name].machine
        self.note(f"{name} is stopped for {seconds:.1f} s")
        self.loop.stop_machine(machine)
        await asyncio.sleep(min(seconds, IDLE))
        if machine.state is State.STOPPED:
            self.server.drop_idle(machine)
        await asyncio.sleep(max(0.0, seconds - IDLE))
        self.note(f"{name} goes on")
        self.loop.continue_machine(machine)

    def heal(self) -> None:
        """End all faults: let what is stopped go on, and start what was killed or was about to end."""
        self.server.unreliable = 0.0
        self.network.heal()
        for name, node in list(self.nodes.items()):
            self.loop.continue_machine(node.machine)
            if node.leaves.is_set() and not is_dead(node):
                self.kill(name)
            self.restart(name)
        self.note("all is healed")

    async def ask(self, name: str, work: Callable[[SimulatedNode], Coroutine[Any, Any, T]]) -> T:
        """Run a request of a client at a node; raise ConnectionError if the node is gone, or its client gives up."""
        node = self.nodes[name]
        if not node.ready.is_set() or is_dead(node):
            raise ConnectionRefusedError(name)
        answer: asyncio.Future[T] = self.loop.create_future()
        task = self.loop.on(node.machine, count(node, work))

        def done(task: asyncio.Task[T]) -> None:
            if answer.done():
                if not task.cancelled():
                    task.exception()
            elif task.cancelled():
                answer.set_exception(ConnectionResetError("cancelled"))
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        task.add_done_callback(done)
        self._waiting[answer] = node.machine
        began = self.loop.now
        try:
            async with asyncio.timeout(ENDS):
                return await answer
        except TimeoutError:
            if node.machine.state is State.RUNS:
                self.judge.problem(f"a call at {name} hangs since {began:.3f}: {task.get_stack()[-1:]}")
            raise ConnectionResetError("the client gave up") from None
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            del self._waiting[answer]

    def ready(self) -> str:
        """Return the node to which the balancer sends the next request: any that is ready."""
        ready = [name for name, node in self.nodes.items() if node.ready.is_set()]
        return self.chance.choice(ready or sorted(self.nodes))

    async def stop_cleanly(self, name: str) -> None:
        """Let a process drain, leave and end, as SIGTERM does."""
        node, job = self.nodes[name], self.jobs[name]
        if node.machine.state is not State.RUNS or not node.ready.is_set():
            return
        self.note(f"{name} stops")
        node.leaves.set()
        await asyncio.wait({job}, timeout=STOPPED)
        if not job.done() and node.machine.state is State.RUNS:
            self.judge.problem(f"{name} does not stop: {job.get_stack(limit=1)}")
        if self.nodes[name] is node and not is_dead(node):
            self.kill(name)

    # ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, play: Callable[[World], Awaitable[None]]) -> list[str]:
        """Run it all, and return the problems."""
        use(self.loop)
        try:
            self.loop.run_until_complete(self.loop.on(None, self._run(play)))
        finally:
            self.loop.close()
            self.server.close()
            use(None)
        return self.judge.problems

    async def _run(self, play: Callable[[World], Awaitable[None]]) -> None:
        await play(self)
        self.judge.end()

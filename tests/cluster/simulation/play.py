"""What happens in a run: people, pages, models and clients at work, while processes, wires and stores fail."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from gateway.callers.tokens import parse_token
from gateway.errors import Reason, Refusal
from gateway.exchange.approval_answers import NotAllowed
from gateway.mcp.mount_interfaces import MountClient
from gateway.model import Principal, Response
from tests.cluster.simulation.node import SimulatedNode, principal_of
from tests.cluster.simulation.sessions import SessionClient
from tests.cluster.simulation.virtual_time import State
from tests.cluster.simulation.world import World

T = TypeVar("T")

LOST: Final = (OSError, TimeoutError)
"""What a client sees when its node is gone."""

AGAIN: Final = {Reason.VIEW_MOVED, Reason.STATE_UNAVAILABLE, Reason.RATE_LIMITED}
"""Reasons after which a client repeats its call, since nothing was sent."""

LAST: Final = 200.0
"""Seconds after which all clients have ended that began before everything was healed."""

GRANTED: Final = 10.0
"""Seconds for which a grant is valid at the longest, by the policy."""

TOOLS: Final = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in ("add", "careful")]


async def play(world: World) -> None:
    """Let everything happen, then heal everything, and wait until all calls have ended."""
    names = [f"n{number}" for number in range(1, world.chance.choice((2, 2, 2, 3)) + 1)]
    for name in names:
        world.start(name)
    await asyncio.sleep(0.5)
    people = [Person(world, name) for name in ("ann", "bob")[: world.chance.choice((1, 1, 2))]]
    if world.chance.random() < 0.3:
        await people[-1].take_token()
    async with asyncio.TaskGroup() as tasks:
        faults = tasks.create_task(fail(world, names))
        sessions = [SessionClient(world, one.name).work() for one in people]
        clients = [tasks.create_task(work) for work in (*sessions, *(work for one in people for work in one.work()))]
        await asyncio.sleep(world.seconds)
        faults.cancel()
        world.heal()
        _, waiting = await asyncio.wait(clients, timeout=LAST)
        for task in waiting:
            world.judge.problem(f"a client has not ended: {task.get_stack(limit=1)}")
            task.cancel()


async def fail(world: World, names: list[str]) -> None:
    """Let things fail, one after another, and some at the same time."""
    chance = world.chance
    kinds = [kind for kind in FAULTS if world.has(kind)]
    async with asyncio.TaskGroup() as tasks:
        while True:
            await asyncio.sleep(chance.expovariate(1 / 2.5))
            if kinds:
                tasks.create_task(FAULTS[chance.choice(kinds)](world, chance.choice(names)))


async def _stop(world: World, name: str) -> None:
    if world.nodes[name].machine.state is State.RUNS:
        await world.stop(name, world.chance.choice((0.5, 3.0, 8.0, 15.0)))


async def _kill(world: World, name: str) -> None:
    if world.nodes[name].machine.state is not State.DEAD:
        world.kill(name)
        await asyncio.sleep(world.chance.choice((0.3, 2.0)))
        world.restart(name)


async def _leave(world: World, name: str) -> None:
    await world.stop_cleanly(name)
    world.restart(name)


async def _roll(world: World, _: str) -> None:
    world.note("another version is rolled out")
    version = f"{world.number()}"
    for name in world.nodes:
        world.versions[name] = version
        await _leave(world, name)
        with suppress(TimeoutError):
            async with asyncio.timeout(20.0):
                await world.nodes[name].ready.wait()


async def _vanish(world: World, name: str) -> None:
    if not world.network.vanished and world.nodes[name].machine.state is not State.DEAD:
        world.kill(name, for_ever=True)


async def _sql(world: World, _: str) -> None:
    world.note("statements fail")
    world.server.unreliable = world.chance.choice((0.05, 0.2, 0.5))
    await asyncio.sleep(world.chance.choice((0.5, 3.0)))
    world.server.unreliable = 0.0


async def _restart(world: World, _: str) -> None:
    world.note("the database restarts")
    world.server.restart(world.chance.choice((0.2, 2.0, 9.0)))


async def _part(world: World, name: str) -> None:
    others = [node.machine for other, node in world.nodes.items() if other != name]
    other = world.chance.choice(others)
    world.note(f"{name} and {other.name} are parted")
    world.network.part(world.nodes[name].machine, other)
    await asyncio.sleep(world.chance.choice((0.5, 4.0, 12.0)))
    world.network.heal()


async def _break(world: World, _: str) -> None:
    world.note("connections break")
    world.network.break_some()


async def _replay(world: World, _: str) -> None:
    for _try in range(3):
        world.network.replay()


FAULTS: Final = {
    "stop": _stop,
    "kill": _kill,
    "vanish": _vanish,
    "leave": _leave,
    "roll": _roll,
    "sql": _sql,
    "restart": _restart,
    "part": _part,
    "break": _break,
    "replay": _replay,
}


class Person:
    """Someone with pages, a model, and a console at which questions are answered."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.principal: Principal = principal_of(name)
        self.pages: list[Page] = []
        self.tainted = False
        self.tabs: list[tuple[str, str, bytes, int]] = []
        """The pages that have attached again elsewhere, and still run: their attachment, view, key and last number."""

    def work(self) -> list[Any]:
        """Return all that happens for this person."""
        more = [self._revoke()] if self.principal.proof else []
        return [self._browse(), self._browse(), self._model(), self._answer(), self._old_tabs(), *more]

    async def take_token(self) -> None:
        """Use a token of the gateway's own from now on."""

        async def create(node: SimulatedNode) -> str:
            now = time.time()
            token = await node.tokens.create(self.name, ["mcp"], None, now=now, expires=now + 3600)
            return parse_token(token.reveal()).id

        self.principal = principal_of(self.name, f"token:{await self.ask(create)}")

    async def _revoke(self) -> None:
        """Revoke the token at some time."""
        await asyncio.sleep(self.world.chance.uniform(1.0, self.world.seconds))
        while True:
            with suppress(*LOST):
                await self.world.ask(self.world.ready(), lambda node: node.tokens.revoke(self.name, time.time()))
                break
            await asyncio.sleep(0.3)
        self.world.judge.revoked[self.name] = self.world.loop.now
        self.world.note(f"the token of {self.name} is revoked")

    async def ask(self, work: Callable[[SimulatedNode], Coroutine[Any, Any, T]]) -> T:
        """Send a request to some node, whose door looks the credential up. Raises OSError."""

        async def enter(node: SimulatedNode) -> T:
            task = asyncio.current_task()
            if self.principal.proof and not await node.revocations.still(self.principal):
                raise PermissionError("the credential was revoked")

            def end() -> None:
                if task is not None:
                    task.cancel()

            with node.revocations.hold(self.principal, end, needs="mcp"):
                return await work(node)

        return await self.world.ask(self.world.ready(), enter)

    @property
    def over(self) -> bool:
        """True once no new calls begin."""
        return self.world.loop.now > self.world.seconds

    def client(self) -> MountClient:
        """Return the client that shows the pages."""
        return MountClient(self.principal, is_app=True)

    async def tool(self, name: str, arguments: Mapping[str, Any], *, app: bool = True) -> dict[str, Any]:
        """Call a tool at some node, and return its result in JSON. Raises OSError."""
        client = MountClient(self.principal, is_app=app)

        async def work(node: SimulatedNode) -> dict[str, Any]:
            result = await node.mount.catalog.call_tool(name, arguments, client)
            return result.model_dump(by_alias=True, mode="json", exclude_none=True)

        return await self.ask(work)

    async def _pause(self, mean: float) -> None:
        await asyncio.sleep(self.world.chance.expovariate(1 / mean))

    async def _browse(self) -> None:
        """Open pages, one after another; each is reloaded now and then."""
        while not self.over:
            page = Page(self)
            try:
                await page.open()
            except LOST:
                await self._pause(0.5)
                continue
            self.pages.append(page)
            async with asyncio.TaskGroup() as tasks:
                polling = tasks.create_task(page.poll())
                await page.use()
                self.pages.remove(page)
                polling.cancel()

    async def _model(self) -> None:
        """Let a model call tools of the pages."""
        while not self.over:
            await self._pause(2.0)
            if not self.pages:
                continue
            page = self.world.chance.choice(self.pages)
            tool = self.world.chance.choice(("add", "add", "careful"))
            id = f"call{self.world.number()}"
            with suppress(*LOST):
                arguments = {"view": page.view, "tool": tool, "arguments": {"id": id}}
                result = await self.tool("call_view_tool", arguments, app=False)
                running = result.get("structuredContent", {}).get("call")
                for _ in range(10):
                    if running is None:
                        break
                    result = await self.tool("call_view_tool", {"call": running}, app=False)
                    running = result.get("structuredContent", {}).get("call")
                self.world.note(f"{id} of {tool}: {json.dumps(result)[:160]}")

    async def _old_tabs(self) -> None:
        """Let a page that has attached again in another tab go on in the old one."""
        while not self.over:
            await self._pause(0.7)
            if not self.tabs:
                continue
            place = self.world.chance.randrange(len(self.tabs))
            attachment, view, key, sent = self.tabs[place]
            self.tabs[place] = (attachment, view, key, sent + 1)
            url, proof = f"/free/{self.name}_{attachment}_model_{self.world.number()}", prove(view, key, sent + 1)

            async def work(node: SimulatedNode, url: str = url, proof: str = proof) -> Response:
                arguments = {"url": url, "method": "POST", "_view": proof}
                return await node.mount.catalog.http_request(arguments, self.client())

            with suppress(*LOST, Refusal):
                response = await self.ask(work)
                self.world.note(f"the old tab {attachment} gets {response.status} for {url}")

    async def _answer(self) -> None:
        """Answer questions at any node, some twice and at two nodes, some late, some never."""
        chance = self.world.chance
        seen: dict[str, None] = {}
        async with asyncio.TaskGroup() as tasks:
            while not self.over:
                await self._pause(0.7)
                with suppress(*LOST, Refusal):

                    async def look(node: SimulatedNode) -> list[tuple[str, str]]:
                        return [(one.id, one.target) for one in node.answers.questions(self.principal)]

                    for id, target in await self.world.ask(self.world.ready(), look):
                        if id in seen:
                            continue
                        seen[id] = None
                        for _ in range(chance.choice((0, 1, 1, 2, 3))):
                            approve = chance.random() < 0.7
                            late = chance.choice((0.0, 0.0, 0.1, 2.0, 7.0))
                            tasks.create_task(self._give(id, target, approve, late, chance.random() < 0.4))

    async def _give(self, id: str, target: str, approve: bool, late: float, grant: bool) -> None:
        await asyncio.sleep(late)
        judge, at = self.world.judge, self.world.ready()
        grant = grant and approve and target.startswith("/granted/")
        if approve:
            judge.approved.add(target)
        owner = target.rpartition("/")[2].partition("_")[0]
        if grant:
            judge.granted_until[owner] = float("inf")

        async def work(node: SimulatedNode) -> str:
            return await node.answers.give(id, approve, self.principal, "console", grant=grant)

        try:
            state = await self.world.ask(at, work)
        except (Refusal, NotAllowed, *LOST) as error:
            self.world.note(f"{self.name}'s answer to {target} at {at}: {error}")
            return
        if grant:
            judge.granted_until[owner] = self.world.loop.now + GRANTED
        judge.answered[id].append(f"{'yes' if approve else 'no'} at {at}")
        self.world.note(f"{self.name} answers {target} at {at}: {approve} {state}")


def prove(view: str, key: bytes, number: int) -> str:
    """Return the proof of a call of a view."""
    mac = hmac.digest(key, str(number).encode(), hashlib.sha256)
    return f"{view}.{number}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


class Page:
    """A page of the app in a browser, which attaches again when it is told to, or is reloaded."""

    def __init__(self, person: Person) -> None:
        self.person = person
        self.world = person.world
        self.number = self.world.number()
        self.attachment = ""
        self.tainted = False
        self.launch = self.view = ""
        self._key = b""
        self._sent = self._after = 0
        self._attaching = asyncio.Lock()

    async def open(self) -> None:
        """Open the app and attach. Raises OSError."""
        self.tainted = self.person.tainted
        opened = await self.person.tool("open_shop", {})
        self.launch = opened.get("_meta", {}).get("webmcp-gateway/launch", "")
        if not self.launch or not await self.attach():
            raise ConnectionError("not opened")

    async def attach(self) -> bool:
        """Attach with the launch value."""
        async with self._attaching:
            former, old_tab = self.attachment, (self.view, self._key, self._sent)
            result = await self.person.tool("webmcp_attach", {"launch": self.launch})
            values = result.get("structuredContent", {})
            if "key" not in values:
                self.world.note(f"page {self.number} does not attach: {json.dumps(result)[:150]}")
                return False
            self.view, self._key = values["view"], base64.urlsafe_b64decode(values["key"] + "=")
            self._sent = self._after = 0
            self.attachment = f"p{self.number}a{self.world.number()}"
            if former:
                self.world.judge.moved[former] = self.world.loop.now
                self.person.tabs.append((former, *old_tab))
            self.world.note(f"page {self.number} of {self.person.name} attaches as {self.attachment} {self.view[:6]}")
            return True

    def proof(self) -> str:
        """Return the proof of the next call."""
        self._sent += 1
        return prove(self.view, self._key, self._sent)

    async def use(self) -> None:
        """Send requests for a while, several at a time."""
        chance = self.world.chance
        async with asyncio.TaskGroup() as tasks:
            for _ in range(chance.choice((3, 6, 12))):
                await self.person._pause(1.0)
                if self.person.over:
                    return
                if chance.random() < 0.15:
                    with suppress(*LOST):
                        await self.attach()
                else:
                    route = chance.choice(("free", "edit", "guarded", "granted", "scarce"))
                    tasks.create_task(self.request(route))

    async def request(self, route: str) -> None:
        """Send one request; repeat it as long as nothing was sent."""
        number = self.world.number()
        for _ in range(4):
            tainted = "model" if self.tainted else "clean"
            url = f"/{route}/{self.person.name}_{self.attachment}_{tainted}_{number}"
            try:
                answer = await self._once(url)
            except Refusal as refusal:
                why = refusal.reason
            except LOST as error:
                self.world.note(f"{url}: {error!r}")
                return
            else:
                self.world.note(f"{url}: {answer}")
                known = [reason for reason in AGAIN if f"{reason}" in answer]
                if not known:
                    return
                why = known[0]
            if why is Reason.VIEW_MOVED:
                with suppress(*LOST):
                    await self.attach()
            await asyncio.sleep(0.3)

    async def _once(self, url: str) -> str:
        """Send a request, and poll for its answer while it waits for a person."""
        proof, client = self.proof(), self.person.client()

        async def work(node: SimulatedNode) -> Response:
            return await node.mount.catalog.http_request({"url": url, "method": "POST", "_view": proof}, client)

        self.world.judge.began[url.rpartition("/")[2]] = self.world.loop.now
        response = await self.person.ask(work)
        pending = response.header("gateway-pending")
        if pending is None:
            return f"{response.status} {response.header('gateway-reason') or ''}"
        for _ in range(12):
            result = await self.person.tool("http_stream", {"id": pending, "_view": self.proof()})
            values = result.get("structuredContent", {})
            if values.get("status") != 202:
                return json.dumps(values)[:200]
            if self.world.chance.random() < 0.1:
                return "the page gives up"
        return "nobody answers"

    async def poll(self) -> None:
        """Poll for the model's calls, and run them."""
        while True:
            attachment, arguments = self.attachment, {"after": self._after, "wait": 2000, "tools": TOOLS}
            try:
                result = await self.person.tool("webmcp_poll", {**arguments, "_view": self.proof()})
            except LOST:
                await asyncio.sleep(0.5)
                continue
            events = result.get("structuredContent", {}).get("events")
            if events is None or attachment != self.attachment:
                if "view-moved" in json.dumps(result):
                    with suppress(*LOST):
                        await self.attach()
                await asyncio.sleep(0.5)
                continue
            for event in events:
                self._after = max(self._after, event["number"])
                if event.get("tool") is not None:
                    await self._serve(event)

    async def _serve(self, event: Mapping[str, Any]) -> None:
        """Run a call of the model."""
        judge, id = self.world.judge, event["arguments"]["id"]
        entry = f"{self.attachment} event {event['number']}"
        if judge.entered.setdefault(id, entry) != entry:
            judge.problem(f"{id} entered the page twice: {judge.entered[id]}, {entry}")
            return
        self.tainted = self.person.tainted = True
        self.world.note(f"{id} enters page {self.number}")
        result = {"content": [{"type": "text", "text": id}]}
        with suppress(*LOST):
            await self.person.tool("webmcp_result", {"call": event["call"], "result": result, "_view": self.proof()})

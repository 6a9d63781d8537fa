"""Two real gateways on one real PostgreSQL: login, console, approvals, the loss of a node or the database, forgery."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.doors.bridge.bridge import PROTOCOL
from tests.cli.test_serve import COMMAND
from tests.cluster.alternating import alternating
from tests.cluster.cluster import ENCRYPTION, KEY, Cluster, Node, Page, client, cluster
from tests.leaks.watch import environment
from tests.postgresql import PostgreSQL

ASKS = (
    "version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
    "routes: [{{path: '/api/{{name}}', methods: [GET, POST]}}]\ntools: {{add: {{confirm: {{grant: 10m}}}}}}\n"
)
NAVIGATION = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


class Console:
    """A person's console at one node, or with `port` at the proxy."""

    def __init__(self, http: aiohttp.ClientSession, node: Node, port: int | None = None) -> None:
        self._http = http
        self._node = node
        self._port = port or node.port
        self.cookie = ""
        self._seen: set[str] = set()

    async def send(self, method: str, path: str, body: Any = None, **fields: str) -> tuple[int, Any]:
        """Send a request as the console's page does; return status and JSON."""
        host = f"gateway.localhost:{self._node.public}"
        headers = {"host": host, "origin": f"http://{host}", "sec-fetch-site": "same-origin", **fields}
        headers |= {"cookie": self.cookie} if self.cookie else {}
        url = f"http://127.0.0.1:{self._port}{path}"
        async with self._http.request(method, url, json=body, headers=headers, allow_redirects=False) as answer:
            given = answer.headers.getall("set-cookie", [])
            kept = [one.partition(";")[0] for one in given if "max-age=0" not in one.lower()]
            self.cookie = kept[0] if kept else self.cookie
            raw = await answer.text()
            return answer.status, json.loads(raw) if raw.startswith(("{", "[")) else raw

    async def change(self, path: str, body: Any) -> tuple[int, Any]:
        """Send a change with the CSRF token that some node has issued."""
        _, state = await self.send("GET", "/api/state")
        return await self.send("POST", path, body, **{"webmcp-gateway-csrf": state["csrf"]})

    async def question(self) -> dict[str, Any]:
        """Wait for an open question that this console was not shown before; the list may lag behind by a second."""
        async with asyncio.timeout(60):
            while True:
                _, listed = await self.send("GET", "/api/approvals")
                for one in listed["approvals"]:
                    if one["id"] not in self._seen:
                        self._seen.add(one["id"])
                        return dict(one)
                await asyncio.sleep(0.1)

    async def answer(self, id: str, word: str = "approve", **more: Any) -> tuple[int, Any]:
        """Answer a question."""
        return await self.change(f"/api/approvals/{id}", {"answer": word, **more})


class Asked:
    """A page at node `a` whose tool `add` asks a person, and the model's calls of it at any node."""

    def __init__(self, nodes: Cluster, http: aiohttp.ClientSession, page: Page) -> None:
        self.nodes = nodes
        self.http = http
        self.page = page
        self.at_a, self.at_b = (Console(http, nodes[name]) for name in "ab")
        self.tasks: list[asyncio.Task[Any]] = []

    def call(self, at: str, number: int) -> asyncio.Task[Any]:
        """Begin a call of the model at a node."""
        arguments = {"view": self.page.view, "tool": "add", "arguments": {"n": number}}
        task = asyncio.create_task(self.nodes[at].call(self.http, "call_view_tool", app=False, **arguments))
        self.tasks.append(task)
        return task

    def serve(self) -> asyncio.Task[dict[str, Any]]:
        """Let the page run one call."""
        task = asyncio.create_task(self.page.serve_one())
        self.tasks.append(task)
        return task


@asynccontextmanager
async def asked(folder: Path, database: str) -> AsyncIterator[Asked]:
    """Yield the page and its nodes."""
    async with cluster(folder, database, "a", "b") as nodes, client() as http:
        for name in "ab":
            (nodes[name].folder / "policy.yaml").write_text(ASKS.format(backend=nodes.backend))
        await until(lambda: all("policy.yaml is in effect" in "".join(one.lines) for one in nodes.nodes.values()))
        page = await Page.open(http, nodes["a"])
        await page.offer("add")
        made = Asked(nodes, http, page)
        try:
            yield made
        finally:
            for task in made.tasks:
                task.cancel()
            await asyncio.gather(*made.tasks, return_exceptions=True)


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.1)


async def run_sql(database: str, statement: str, **values: Any) -> list[Any]:
    """Run a statement as someone who can write the database."""
    engine = create_async_engine(database.replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT")
    try:
        async with engine.connect() as connection:
            found = await connection.execute(text(statement), values)
            return list(found.all()) if found.returns_rows else []
    finally:
        await engine.dispose()


async def test_what_one_node_asks_is_answered_at_the_other(tmp_path: Path, database: str) -> None:
    """The page runs each call once; of answers at both nodes one counts; a grant counts at both, and ends at both."""
    async with asked(tmp_path, database) as place:
        serving, calling = place.serve(), place.call("b", 1)
        question = await place.at_b.question()
        answers = await asyncio.gather(*[one.answer(question["id"]) for one in (place.at_a, place.at_b) for _ in "12"])
        assert sorted(status for status, _ in answers) == [200, 410, 410, 410]
        assert (await serving)["arguments"] == {"n": 1}
        assert json.loads((await calling)["content"][0]["text"]) == {"n": 1}
        declined = place.call("a", 2)
        assert (await place.at_b.answer((await place.at_b.question())["id"], "decline"))[0] == 200
        assert "declined" in json.dumps(await declined)
        serving, granted = place.serve(), place.call("a", 3)
        assert (await place.at_b.answer((await place.at_b.question())["id"], grant=True))[0] == 200
        await serving
        await granted
        serving, free = place.serve(), place.call("b", 4)
        assert (await serving)["arguments"] == {"n": 4}
        await free
        _, listed = await place.at_b.send("GET", "/api/grants")
        assert (await place.at_b.change(f"/api/grants/{listed['grants'][0]['id']}/revoke", {}))[0] == 200
        asking = place.call("a", 5)
        assert (await place.at_b.question())["message"]
        asking.cancel()


async def test_a_forged_answer_runs_nothing(tmp_path: Path, database: str) -> None:
    """Someone who writes the row approves nothing, also with the answer to another question."""
    async with asked(tmp_path, database) as place:
        serving, real = place.serve(), place.call("b", 1)
        question = await place.at_b.question()
        assert (await place.at_b.answer(question["id"]))[0] == 200
        await serving
        await real
        (answer,) = await run_sql(database, "SELECT answer FROM approvals WHERE id = :id", id=question["id"])
        served, forged = place.serve(), place.call("a", 2)
        other = await place.at_b.question()
        statement = "UPDATE approvals SET state = 'approved', answer = :answer WHERE id = :id"
        await run_sql(database, statement, id=other["id"], answer=answer[0])
        assert "approval-expired" in json.dumps(await forged)
        await run_sql(
            database, "UPDATE approvals SET state = 'approved', ended = NULL WHERE id = :id", id=question["id"]
        )
        again = place.call("a", 1)
        assert (await place.at_b.question())["id"] not in (question["id"], other["id"])
        assert not served.done()
        again.cancel()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGKILL, id="killed"),
        pytest.param(signal.SIGSTOP, id="stopped", marks=pytest.mark.cluster),
    ],
)
@pytest.mark.parametrize("answered", [False, True], ids=["open", "answered"])
async def test_the_calls_of_a_node_that_is_gone_are_never_sent(
    tmp_path: Path, database: str, number: signal.Signals, answered: bool
) -> None:
    """Killed, or stopped for longer than its lease, before or after the answer; the question ends with it."""
    async with asked(tmp_path, database) as place:
        serving, _ = place.serve(), place.call("b", 1)
        question = await place.at_b.question()
        owner = place.nodes["a"].process
        owner.send_signal(number)
        if answered:
            status, body = await place.at_b.answer(question["id"])
            assert (status, body["status"]) == (200, "approved")  # not `dispatched`: it was not sent
        async with asyncio.timeout(60):
            while (await place.at_b.send("GET", "/api/approvals"))[1]["approvals"]:
                await asyncio.sleep(0.2)
        assert (await place.at_b.answer(question["id"]))[0] == 410
        await asyncio.sleep(2 if number is signal.SIGKILL else 12)
        if number is signal.SIGSTOP:
            owner.send_signal(signal.SIGCONT)
            await asyncio.sleep(4)
        (row,) = await run_sql(database, "SELECT state FROM approvals WHERE id = :id", id=question["id"])
        assert row[0] in ("approved", "void") if answered else row[0] in ("open", "void")
        assert not serving.done() or serving.exception() is not None


async def test_a_restart_of_the_database_loses_no_question(tmp_path: Path, database: str, server: PostgreSQL) -> None:
    """Meanwhile an answer is refused, and can be given again."""
    async with asked(tmp_path, database) as place:
        serving, calling = place.serve(), place.call("b", 1)
        question = await place.at_b.question()
        server.stop()
        try:
            status, body = await place.at_b.answer(question["id"])
            assert (status, body["type"]) == (503, "urn:webmcp-gateway:approval-unavailable")
        finally:
            server.start()
        async with asyncio.timeout(60):
            while (await place.at_b.answer(question["id"]))[0] != 200:
                await asyncio.sleep(0.2)
        assert (await serving)["arguments"] == {"n": 1}
        await calling


async def test_a_person_logs_in_and_works_behind_a_proxy_that_alternates(tmp_path: Path, database: str) -> None:
    """Login link, state, CSRF, ticket and logout: each request is at another node than the one before."""
    async with cluster(tmp_path, database, "a", "b", more="auth: [token]\n") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        made = await asyncio.create_subprocess_exec(
            *COMMAND, "token", "link", cwd=a.folder, stdout=asyncio.subprocess.PIPE,
            env={**environment(), "DATABASE": database, "ENCRYPTION": ENCRYPTION, "CLUSTER": KEY},
        )  # fmt: skip
        link = (await made.communicate())[0].decode().strip()
        async with alternating(nodes.public, a.port, b.port):
            person = Console(http, a, nodes.public)
            path = link.partition(f"localhost:{nodes.public}")[2]
            status, _ = await person.send("GET", path, **NAVIGATION)
            assert (status < 400, bool(person.cookie)) == (True, True)
            assert (await Console(http, b).send("GET", path, **NAVIGATION))[0] == 403  # it was used
            for _ in range(4):
                status, state = await person.send("GET", "/api/state")
                assert (status, state["principal"]["name"]) == (200, "local")
            for _ in range(3):
                status, given = await person.change("/bridge/tickets", {"apps": ["page"]})
                assert status == 200
                assert [await opens(http, nodes.public, person, given["ticket"]) for _ in "12"] == [True, False]
            cookie = person.cookie
            assert (await person.change("/api/logout", {}))[0] == 200
            async with asyncio.timeout(60):  # the other node remembers a login for some seconds
                for node in (a, b):
                    gone = Console(http, node)
                    gone.cookie = cookie
                    while (await gone.send("GET", "/api/state"))[0] != 401:
                        await asyncio.sleep(0.2)


async def opens(http: aiohttp.ClientSession, port: int, person: Console, ticket: str) -> bool:
    """Return whether a ticket opens a view at the bridge."""
    host = f"gateway.localhost:{port}"
    headers = {"host": host, "origin": f"http://{host}", "cookie": person.cookie, "sec-fetch-site": "same-origin"}
    async with http.ws_connect(f"http://127.0.0.1:{port}/bridge", headers=headers, protocols=[PROTOCOL]) as socket:
        await socket.send_str(json.dumps({"hello": {"ticket": ticket}}))
        await socket.send_str(json.dumps({"open": {"ref": "1", "app": "page"}}))
        answer = json.loads((await socket.receive(30)).data)
        assert "opened" in answer or answer["error"]["code"] == "bad-ticket", answer
        return "opened" in answer


async def test_cookies_of_a_backend_are_the_same_at_both(tmp_path: Path, database: str) -> None:
    """What it sets through one node it gets through the other; two that set some at once lose none."""
    policy = (
        "version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private, cookies: jar}}}}\n"
        "routes: [{{path: '/api/{{name}}', methods: [GET]}}]\n"
    )
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        for name in "ab":
            (nodes[name].folder / "policy.yaml").write_text(policy.format(backend=nodes.backend))
        await until(lambda: all("policy.yaml is in effect" in "".join(one.lines) for one in nodes.nodes.values()))
        pages = [await Page.open(http, nodes[name]) for name in "ab"]
        await asyncio.gather(*[page.fetch(f"/api/set?set=c{number}") for number, page in enumerate(pages)])
        answers = [await page.fetch("/api/items") for page in pages]
        assert [sorted(answer["body"]["cookies"]) for answer in answers] == [["c0", "c1"]] * 2

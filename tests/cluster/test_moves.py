"""Views that move between two real nodes: a model's call follows its view, and runs once."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster.cluster import Cluster, Page, client, cluster
from tests.cluster.rolling import ServedPage
from tests.redis_server import redis_server

pytestmark = pytest.mark.cluster


@dataclass(slots=True)
class Place:
    """A page at node a whose requests arrive at node b, as the model's calls do."""

    nodes: Cluster
    http: aiohttp.ClientSession
    page: ServedPage

    async def send(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool as a model, and return its result."""
        return dict(await self.nodes["b"].call(self.http, name, app=False, **arguments))

    async def call(self, number: str) -> dict[str, Any]:
        """Call the page's tool by the handle of its view, and return the result or how to collect it."""
        arguments = {"view": self.page.page.view, "tool": "add", "arguments": {"n": number}}
        return await self.send("call_view_tool", **arguments)

    async def result(self, answer: dict[str, Any]) -> object:
        """Return what the page answered to a call; it is collected if it takes longer."""
        async with asyncio.timeout(90):
            while (answer.get("structuredContent") or {}).get("status") == "running":
                answer = await self.send("call_view_tool", call=answer["structuredContent"]["call"])
        assert not answer.get("isError"), (answer, self.page.refused[-3:])
        return json.loads(answer["content"][0]["text"])

    async def end(self, name: str = "a") -> None:
        """Wait until a node has ended of its own accord."""
        async with asyncio.timeout(90):
            code = await self.nodes[name].process.wait()
        assert code == 0, "".join(self.nodes[name].lines[-30:])


@asynccontextmanager
async def place(folder: Path, database: str, redis: str = "") -> AsyncIterator[Place]:
    """Yield two nodes and a page, which runs nothing yet."""
    async with cluster(folder, database, "a", "b", redis=redis) as nodes, client() as http:
        page = ServedPage(http, nodes["b"])
        await page.begin(nodes["a"])
        yield Place(nodes, http, page)


@asynccontextmanager
async def running(page: ServedPage) -> AsyncIterator[None]:
    """Let a page run its calls within the block."""
    task = asyncio.create_task(page.run())
    try:
        yield
    finally:
        assert not task.done() or task.exception() is None, task
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("by", ["handle", "name"])
async def test_calls_go_on_while_their_view_moves(tmp_path: Path, database: str, by: str) -> None:
    """While its node drains, and after that, each call runs once, whether it names the view or the tool."""
    with redis_server() as redis:
        await _call_on(tmp_path, database, redis.url, by)


async def _call_on(folder: Path, database: str, redis: str, by: str) -> None:
    async with place(folder, database, redis) as at, running(at.page):

        async def call(number: str) -> object:
            answer = await (at.call(number) if by == "handle" else at.send("page_add", n=number))
            return await at.result(answer)

        async with asyncio.timeout(60):  # until node b knows of the tool at node a
            while "page_add" not in json.dumps(await at.nodes["b"].rpc(at.http, "tools/list", {}, app=False)):
                await asyncio.sleep(0.1)
        assert await call("first") == {"n": "first"}
        at.nodes["a"].process.terminate()
        ending, left = asyncio.create_task(at.end()), 5
        for number in map(str, count()):
            assert await call(number) == {"n": number}
            left -= ending.done()
            if not left:
                break
        await ending
        assert all(len(runs) == 1 for runs in at.page.ran.values()), at.page.ran
        assert len(at.page.ran) == int(number) + 2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["ended", "killed"])
async def test_a_call_waits_for_a_view_whose_node_has_just_ended(
    tmp_path: Path, database: str, how: signal.Signals
) -> None:
    """It runs once the page has attached at another node; one for a page that does not come ends with an error."""
    async with place(tmp_path, database) as at:
        at.nodes["a"].process.send_signal(how)
        await at.nodes["a"].process.wait()
        if how == signal.SIGKILL:
            async with asyncio.timeout(60):  # until its lease has ended
                while "view-moved" not in json.dumps(await at.page.page.call("webmcp_poll", after=0, wait=0)):
                    await asyncio.sleep(0.5)
        calling = asyncio.create_task(at.call("1"))
        await asyncio.sleep(1)
        assert not calling.done()
        async with running(at.page):
            assert await at.result(await calling) == {"n": "1"}
        assert at.page.ran == {"1": ["1"]}


async def test_a_parked_call_is_finished_and_its_result_handed_over(tmp_path: Path, database: str) -> None:
    """The node that drains waits for it, and another one gives its result, once, to its caller alone."""
    async with place(tmp_path, database) as at:
        page = at.page.page
        calling = asyncio.create_task(at.call("1"))
        event: dict[str, Any] = {}
        async with asyncio.timeout(60):
            while "arguments" not in event:
                polled = await page.call("webmcp_poll", after=0, wait=500)
                event = next(iter(polled["structuredContent"]["events"]), {})
        parked = (await calling)["structuredContent"]
        assert parked["status"] == "running"
        at.nodes["a"].process.terminate()
        await asyncio.sleep(1)
        assert (await at.send("call_view_tool", call=parked["call"]))["structuredContent"] == parked
        result = {"content": [{"type": "text", "text": json.dumps(event["arguments"])}]}
        await page.call("webmcp_result", call=event["call"], result=result)
        await at.end()
        assert await at.result(await at.send("call_view_tool", call=parked["call"])) == {"n": "1"}
        assert "No call" in json.dumps(await at.send("call_view_tool", call=parked["call"]))


async def test_of_two_pages_that_attach_at_once_one_is_the_view(tmp_path: Path, database: str) -> None:
    """With one launch value at two nodes: the other page is refused, at both nodes."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        for turn in range(8):
            opened = await nodes["ab"[turn % 2]].call(http, "open_page")
            launch = opened["_meta"]["webmcp-gateway/launch"]
            pages = await asyncio.gather(
                *(Page.attach(http, nodes[name], launch) for name in "ab"), return_exceptions=True
            )
            attached = [page for page in pages if isinstance(page, Page)]
            for at in "ab":
                answers = [await replace(one, sent=one.sent + 10 * (at == "b")).call(
                    "http_request", nodes[at], url=f"/api/{turn}{at}") for one in attached]  # fmt: skip
                served = [(one.get("structuredContent") or {}).get("status") == 200 for one in answers]
                assert sum(served) == 1, (answers, pages)
        assert len(nodes.arrived) == 16

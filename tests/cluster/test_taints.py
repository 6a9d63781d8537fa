"""Taints of views at two nodes: a page that a model has called is the model's, wherever its next request arrives."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.cluster import Cluster, Page, client, cluster
from tests.cluster.test_shared_state import run_sql, until

ONLY_PAGES = (
    "version: 1\nbackends: {{api: {{url: 'http://127.0.0.1:{backend}', network: private}}}}\n"
    "routes: [{{path: '/api/{{name}}', methods: [GET], when: 'initiator != \"model\"'}}]\ntools: {{add: {{}}}}\n"
)


@dataclass(slots=True)
class Place:
    """Two nodes whose policy serves pages, and refuses models."""

    nodes: Cluster
    http: aiohttp.ClientSession

    async def launch(self, at: str, **arguments: Any) -> str:
        """Open the app, and return its launch value."""
        opened = await self.nodes[at].call(self.http, "open_page", **arguments)
        return str(opened["_meta"]["webmcp-gateway/launch"])

    async def page(self, at: str) -> Page:
        """Return a page with a new launch value, all at one node."""
        page = await Page.attach(self.http, self.nodes[at], await self.launch(at))
        await page.offer("add")
        return page

    async def call(self, page: Page) -> None:
        """Let a model call the page's tool."""
        serving = asyncio.create_task(page.serve_one())
        arguments = {"view": page.view, "tool": "add", "arguments": {"n": 1}}
        result = await self.nodes["b"].call(self.http, "call_view_tool", app=False, **arguments)
        assert json.loads(result["content"][0]["text"]) == {"n": 1}, result
        await serving


@asynccontextmanager
async def place(folder: Path, database: str) -> AsyncIterator[Place]:
    """Yield two nodes."""
    async with cluster(folder, database, "a", "b") as nodes, client() as http:
        for name in "ab":
            (nodes[name].folder / "policy.yaml").write_text(ONLY_PAGES.format(backend=nodes.backend))
        await until(lambda: all("policy.yaml is in effect" in "".join(one.lines) for one in nodes.nodes.values()))
        yield Place(nodes, http)


async def status(page: Page) -> int:
    """Return the status of a request of the page: 403 if it counts as a model's."""
    return int((await page.fetch("/api/items"))["status"])


async def test_a_view_that_moves_is_as_tainted_as_it_was(tmp_path: Path, database: str) -> None:
    """A clean one stays clean, and a tainted one tainted, while both nodes live; the former one ends it at once."""
    async with place(tmp_path, database) as at:
        launch = await at.launch("a")
        clean = await Page.attach(at.http, at.nodes["a"], launch)
        moved = await Page.attach(at.http, at.nodes["b"], launch)
        assert await status(moved) == 200
        refused = await clean.call("http_request", url="/api/items")
        assert "view-unproven" in json.dumps(refused)
        launch = await at.launch("a")
        page = await Page.attach(at.http, at.nodes["a"], launch)
        await page.offer("add")
        await at.call(page)
        assert await status(page) == 403
        assert await status(await Page.attach(at.http, at.nodes["b"], launch)) == 403


async def test_a_model_s_call_taints_the_views_at_the_other_node(tmp_path: Path, database: str) -> None:
    """Views with launch values share their taint: those that are open, and those that open later, at either node."""
    async with place(tmp_path, database) as at:
        called, beside = await at.page("a"), await at.page("b")
        assert [await status(one) for one in (called, beside)] == [200, 200]
        await at.call(called)
        assert [await status(one) for one in (called, beside)] == [403, 403]
        assert [await status(await at.page(name)) for name in "ab"] == [403, 403]


async def test_the_view_of_a_node_that_died_is_tainted(tmp_path: Path, database: str) -> None:
    """Nobody can say whether a model had called it."""
    async with place(tmp_path, database) as at:
        launch = await at.launch("a")
        page = await Page.attach(at.http, at.nodes["a"], launch)
        assert await status(page) == 200
        at.nodes["a"].process.send_signal(signal.SIGKILL)
        moved = await Page.attach(at.http, at.nodes["b"], launch)
        assert await status(moved) == 403


async def test_a_page_that_attaches_as_another_view_ends_the_former_one(tmp_path: Path, database: str) -> None:
    """Also if that is at the other node; only its proof does so, and what tainted it taints the new one."""
    async with place(tmp_path, database) as at:
        page, launch = await at.page("a"), await at.launch("b")
        await at.call(page)
        forged = f"{page.view}.9.{'A' * 43}"
        for former, ends in ((forged, False), (page.proof(), True)):
            values = await at.nodes["b"].call(at.http, "webmcp_attach", launch=launch, former=former)
            assert values["structuredContent"]["proven"] is True
            told = json.dumps(await page.call("webmcp_poll", after=0, wait=0))
            assert ("view-unproven" in told) is ends, told
            page = replace(page, sent=page.sent + 1)
        assert await status(await Page.attach(at.http, at.nodes["b"], launch)) == 403


async def test_a_call_waits_for_a_node_that_must_know_of_it(tmp_path: Path, database: str) -> None:
    """A node that is stopped is told when it goes on, or has lost its views by then: never is a view clean."""
    async with place(tmp_path, database) as at:
        called, beside = await at.page("b"), await at.page("a")
        at.nodes["a"].process.send_signal(signal.SIGSTOP)
        try:
            calling = asyncio.create_task(at.call(called))
            await asyncio.sleep(2.5)
            assert not calling.done()
        finally:
            at.nodes["a"].process.send_signal(signal.SIGCONT)
        await calling
        assert await status(called) == 403
        assert await status(beside) == 403


async def test_a_taint_from_before_the_cluster_counts(tmp_path: Path, database: str) -> None:
    """Those that a single process has stored are those of a node that has ended."""
    async with place(tmp_path, database) as at:
        assert await status(await at.page("a")) == 200
        principal = (await run_sql(database, "SELECT principal FROM launches"))[0][0]
        insert = "INSERT INTO taints (principal, app, evidence) VALUES (:principal, 'page', 'model-call')"
        await run_sql(database, insert, principal=principal)
        assert await status(await at.page("b")) == 403

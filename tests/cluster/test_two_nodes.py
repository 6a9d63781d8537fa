"""Two processes as one gateway: a view at one node, requests and a model's calls at the other."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path

from gateway.cluster.lease import STOP_AFTER
from tests.cli.test_serve import COMMAND
from tests.cluster.cluster import KEY, Page, client, cluster
from tests.leaks.watch import environment

OK = {"status": "ok"}
"""A check of `/readyz` that finds nothing."""


async def test_calls_reach_the_view_at_another_node(tmp_path: Path, database: str) -> None:
    """The page's requests, its polls, and a model's call with the handle run where the view is."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        page = await Page.open(http, a)
        assert (await page.fetch("/api/here"))["status"] == 200
        assert (await page.fetch("/api/there", b))["status"] == 200
        assert nodes.arrived == ["GET /api/here", "GET /api/there"]
        await page.offer("add", at=b)
        calling = asyncio.create_task(
            b.call(http, "call_view_tool", app=False, view=page.view, tool="add", arguments={"n": 1})
        )
        event = await page.serve_one(b)
        result = await calling
        assert (event["tool"], json.loads(result["content"][0]["text"])) == ("add", {"n": 1})
        known = {"a": "serving", "b": "serving"}
        plain = f"http://127.0.0.1:{b.port}"
        async with http.get(f"{plain}/metrics", headers={"host": f"localhost:{b.public}"}) as answer:
            scraped = await answer.text()
        assert re.search(r'cluster_forward_seconds_count{outcome="answered"} [1-9]', scraped)
        for state, count in (("serving", 2), ("ended", 0), ("differing", 0)):
            assert f'webmcp_gateway_cluster_nodes{{state="{state}"}} {count}.0' in scraped
        (age,) = re.findall(r"^webmcp_gateway_cluster_lease_age_seconds (\S+)$", scraped, re.MULTILINE)
        assert 0 <= float(age) < STOP_AFTER
        async with http.get(f"{plain}/readyz", headers={"host": f"localhost:{b.public}"}) as answer:
            ready = await answer.json()
        assert (ready["cluster"]["name"], ready["cluster"]["nodes"]) == ("b", known)
        assert (ready["status"], ready["checks"]["lease"], ready["checks"]["nodes"]) == ("ok", OK, OK)


async def test_a_page_that_attaches_again_moves_its_view(tmp_path: Path, database: str) -> None:
    """The newest attachment is the view, at whichever node; the former one ends, and calls follow."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        opened = await a.call(http, "open_page")
        launch = opened["_meta"]["webmcp-gateway/launch"]
        old = await Page.attach(http, a, launch)
        new = await Page.attach(http, b, launch)
        assert old.view == new.view
        assert (await new.fetch("/api/new", a))["status"] == 200
        assert (await new.fetch("/api/new", b))["status"] == 200
        assert (await old.fetch("/api/old", a))["status"] == 403
        assert (await new.fetch("/api/new", a))["status"] == 200
        assert (await old.call("http_request", b, url="/api/old"))["structuredContent"]["status"] != 200


async def test_a_dead_nodes_view_attaches_again(tmp_path: Path, database: str) -> None:
    """Once its lease has ended the view is told to move; it is tainted, since nobody knows what a model did in it."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        opened = await a.call(http, "open_page")
        launch = opened["_meta"]["webmcp-gateway/launch"]
        page = await Page.attach(http, a, launch)
        a.process.kill()
        await a.process.wait()
        async with asyncio.timeout(90):
            while "view-moved" not in json.dumps(await page.call("http_request", b, url="/api/x")):
                await asyncio.sleep(0.5)
        again = await Page.attach(http, b, launch)
        assert (await again.fetch("/api/again"))["status"] == 200
        arrived = nodes.arrived.count("GET /api/again")
        assert arrived == 1
        status = await asyncio.create_subprocess_exec(
            *COMMAND, "cluster", "status", "--json",
            cwd=b.folder, env={**environment(), "DATABASE": database, "CLUSTER": KEY}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await status.communicate()
        found = json.loads(output)
        assert {node["name"]: node["state"] for node in found["nodes"]} == {"a": "ended", "b": "serving"}
        assert (found["ok"], status.returncode) == (True, 0)


async def test_a_stopped_node_does_nothing_when_it_wakes(tmp_path: Path, database: str) -> None:
    """SIGSTOP for longer than its lease: others answer meanwhile, and its view has ended."""
    async with cluster(tmp_path, database, "a", "b") as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        page = await Page.open(http, a)
        assert (await page.fetch("/api/before"))["status"] == 200
        a.process.send_signal(signal.SIGSTOP)
        waiting = asyncio.create_task(page.call("http_request", b, url="/api/while"))
        async with asyncio.timeout(90):
            assert "connection-lost" in json.dumps(await waiting)
        a.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(90):
            while "connection-lost" in (said := json.dumps(await page.call("http_request", a, url="/api/after"))):
                await asyncio.sleep(0.2)
        assert "state-unavailable" in said or "view-unproven" in said or "view-moved" in said
        assert nodes.arrived == ["GET /api/before"]

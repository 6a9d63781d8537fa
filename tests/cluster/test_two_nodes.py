"""Two processes as one gateway: a view at one node, requests and a model's calls at the other."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.cluster.cluster import Page, client, cluster


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

"""Nodes with a Redis: a model finds and calls the tools of a page by name, whichever node it asks."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.cluster import Node, Page, client, cluster
from tests.redis_server import redis_server


async def names(http: aiohttp.ClientSession, at: Node) -> set[str]:
    """Return the tools that a model gets from a node."""
    listed: dict[str, Any] = (await at.rpc(http, "tools/list", {}, app=False))["result"]
    return {tool["name"] for tool in listed["tools"]}


async def until_offered(http: aiohttp.ClientSession, at: Node, name: str, *, there: bool) -> None:
    """Wait until a node offers a tool, or no longer does."""
    async with asyncio.timeout(60):
        while (name in await names(http, at)) is not there:
            await asyncio.sleep(0.1)


async def test_a_models_call_by_name_reaches_the_page_at_another_node(tmp_path: Path, database: str) -> None:
    """The first message at that node finds the tool; it comes, goes, and is the node's own alone without Redis."""
    with redis_server() as redis:
        async with cluster(tmp_path, database, "a", "b", redis=redis.url) as nodes, client() as http:
            a, b = nodes["a"], nodes["b"]
            page = await Page.open(http, a)
            await page.offer("add")
            async with asyncio.timeout(30):
                while not any(name.startswith("webmcp:views:") for name in redis.names()):
                    await asyncio.sleep(0.05)
            calling = asyncio.create_task(b.call(http, "page_add", app=False, n=1))
            event = await page.serve_one()
            result = await calling
            assert (event["tool"], json.loads(result["content"][0]["text"])) == ("add", {"n": 1})
            await page.offer()
            await until_offered(http, b, "page_add", there=False)
            redis.stop()
            await page.offer("add")
            await until_offered(http, a, "page_add", there=True)
            assert "page_add" not in await names(http, b)
            redis.start()
            await until_offered(http, b, "page_add", there=True)

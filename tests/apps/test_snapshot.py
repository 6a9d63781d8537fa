"""A page contains its first data, from a backend in the gateway's own process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mcp import Client

from tests.world import running

POLICY = """
version: 1
backends: {shop: {type: asgi, app: "fixture_shop:application"}}
routes: [{path: "/api/products/**", methods: [GET], snapshot: true}]
tools: {get_cart: {}, add_to_cart: {confirm: always}}
"""

SHOP = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


async def products(request):
    return JSONResponse([{"name": "</script><script>alert(1)</script>"}])


application = Starlette(routes=[Route("/api/products", products)])
"""


async def test_the_page_carries_the_answers_that_the_policy_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that carries no requests can still show data; data cannot close its element."""
    (tmp_path / "fixture_shop.py").write_text(SHOP, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    async with running(tmp_path, policy=POLICY) as world, Client(f"{world.url}/mcp/cart") as client:
        (resource,) = (await client.list_resources()).resources
        (contents,) = (await client.read_resource(resource.uri)).contents
    page = contents.model_dump()["text"]
    (snapshot,) = re.findall(r'<script type="application/json" id="webmcp-gateway-snapshot">(.*?)</script>', page)
    assert json.loads(snapshot)["responses"]["/api/products"]["body"] == [
        {"name": "</script><script>alert(1)</script>"}
    ]
    assert json.loads(snapshot)["tools"] == ["get_cart"]
    assert page.index(snapshot) < page.index('<meta name="webmcp-gateway"')

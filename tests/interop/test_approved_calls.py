"""A person answers the question about an upstream's tool: once, for a while, or with no."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mcp import Client

from tests.doors.upstream_view import shop
from tests.interop.serving import gateway, over_http
from tests.world import Loopback

POLICY = 'version: 1\ntools:\n  both: {confirm: {when: always, message: "Do it?", grant: 10m}}\n'


async def answer_question(console: str, answer: dict[str, Any]) -> None:
    """Wait for the one open question, and answer it as a person on the console."""
    own = {"origin": console, "sec-fetch-site": "same-origin"}
    connector = aiohttp.TCPConnector(resolver=Loopback())
    async with asyncio.timeout(60), aiohttp.ClientSession(connector=connector, headers=own) as person:
        asked: list[dict[str, Any]] = []
        while not asked:
            async with person.get(f"{console}/api/approvals") as said:
                asked = (await said.json())["approvals"]
        async with person.get(f"{console}/api/state") as said:
            csrf = {"webmcp-gateway-csrf": (await said.json())["csrf"]}
        async with person.post(f"{console}/api/approvals/{asked[0]['id']}", json=answer, headers=csrf) as said:
            assert said.status == 200, await said.text()


@pytest.mark.parametrize(
    ("answer", "runs"),
    [({"answer": "approve"}, True), ({"answer": "approve", "grant": True}, True), ({"answer": "decline"}, False)],
)
async def test_a_call_waits_for_its_answer(tmp_path: Path, answer: dict[str, Any], runs: bool) -> None:
    """A granted call runs again without a question, and the record names the person."""
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    async with (
        over_http(shop()) as url,
        gateway(tmp_path, f"shop: {{url: '{url}', network: private, policy: policy.yaml}}") as mcp,
        Client(f"{mcp}/shop", cache=None) as client,
    ):
        console = mcp[:-4].replace("localhost", "gateway.localhost")
        await client.list_tools()
        result, _ = await asyncio.gather(client.call_tool("both"), answer_question(console, answer))
        assert result.is_error is not runs
        if answer.get("grant"):
            async with asyncio.timeout(60):
                assert not (await client.call_tool("both", {"other": 1})).is_error
    lines = [json.loads(line)["fields"] for line in (tmp_path / "gateway.journal").read_text("utf-8").splitlines()]
    assert any(line.get("grant") for line in lines) is bool(answer.get("grant"))

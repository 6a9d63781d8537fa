"""Upstreams of two real nodes: a question of an upstream goes back to the node that has asked, whichever gets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.cluster import Cluster, Door, client, cluster

SERVER = Path(__file__).parent / "counting_server.py"
ELICITING: dict[str, Any] = {"elicitation": {}}


def upstream(folder: Path, more: str = "") -> str:
    """Return the configuration of the counting server, whose starts are noted in `folder`."""
    return f"upstreams: {{counting: {{command: [{sys.executable}, {SERVER}, {folder / 'starts'}]{more}}}}}\n"


async def send(at: Door, http: aiohttp.ClientSession, tool: str, mount: str = "/mcp/counting", **more: Any) -> Any:
    """Call a tool as a client that can be asked, and return the result, or else the whole message."""
    params = {"name": tool, "arguments": {}, **more}
    answer = await at.rpc(http, "tools/call", params, mount=mount, capabilities=ELICITING)
    return answer.get("result", answer)


def values(result: Any) -> dict[str, Any]:
    """Return the values in a result of the counting server."""
    found: dict[str, Any] = json.loads(result["content"][0]["text"])
    return found


async def test_the_answer_to_an_upstreams_question_arrives_at_the_other_node(tmp_path: Path, database: str) -> None:
    """It reaches the call that waits, once, at the mount of the upstream and at that of all; a forged one does not."""
    async with cluster(tmp_path, database, "a", "b", more=upstream(tmp_path)) as nodes, client() as http:
        for mount, tool in (("/mcp/counting", "ask"), ("/mcp", "counting_ask")):
            await _answered_elsewhere(nodes, http, mount, tool)


async def _answered_elsewhere(nodes: Cluster, http: aiohttp.ClientSession, mount: str, tool: str) -> None:
    asked = await send(nodes["a"], http, tool, mount)
    assert asked["resultType"] == "input_required", asked
    state, (question,) = asked["requestState"], asked["inputRequests"]
    answers = {question: {"action": "accept", "content": {"word": "heron"}}}
    for forged in (state[:-6] + "AAAAAA", "A" + state[1:], state.partition(".")[2]):
        refused = await send(nodes["b"], http, tool, mount, requestState=forged, inputResponses=answers)
        assert "requestState" in json.dumps(refused), refused
    result = await send(nodes["b"], http, tool, mount, requestState=state, inputResponses=answers)
    assert values(result)["answer"]["content"] == {"word": "heron"}, result
    again = await send(nodes["b"], http, tool, mount, requestState=state, inputResponses=answers)
    assert "requestState" in json.dumps(again), again

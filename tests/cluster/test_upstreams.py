"""Upstreams of two real nodes: one process for both, whose questions come back to the call, at whichever node."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cluster.cluster import Cluster, Door, client, cluster

pytestmark = pytest.mark.cluster

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


async def count(at: Door, http: aiohttp.ClientSession) -> dict[str, Any]:
    """Count at a node, and return the values; a call that another process of the gateway refuses is made again."""
    async with asyncio.timeout(90):
        while True:
            result = await send(at, http, "count")
            if "content" in result and not result.get("isError"):
                return values(result)
            await asyncio.sleep(0.2)


def starts(folder: Path) -> list[int]:
    """Return the process ids of the starts of the command."""
    return [int(line) for line in (folder / "starts").read_text().splitlines()]


def runs(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_one_process_of_a_command_serves_both_nodes(tmp_path: Path, database: str) -> None:
    """Its state is one; questions, cancellation, changes and resources work from the node that does not run it.

    When its node is killed or stopped, the other one runs it, and never while the first process lives.
    """
    async with cluster(tmp_path, database, "a", "b", more=upstream(tmp_path)) as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        first = await count(a, http)
        second = await count(b, http)
        assert (first["pid"], second["pid"], second["count"]) == (starts(tmp_path)[0], first["pid"], 2)
        assert len(starts(tmp_path)) == 1
        for here, there in ((a, b), (b, a)):
            asked = await send(here, http, "ask")
            assert asked["resultType"] == "input_required", asked
            answers = {key: {"action": "accept", "content": {"word": "ibis"}} for key in asked["inputRequests"]}
            told = await send(there, http, "ask", requestState=asked["requestState"], inputResponses=answers)
            assert values(told)["answer"]["content"] == {"word": "ibis"}, told
        waiting = [asyncio.create_task(send(at, http, "wait", arguments={"seconds": 1})) for at in (a, b, b)]
        pids = {values(one)["pid"] for one in await asyncio.gather(*waiting)}
        assert pids == {first["pid"]}
        a.process.send_signal(signal.SIGSTOP)
        third = await count(b, http)
        assert third["pid"] != first["pid"]
        assert not runs(first["pid"])
        a.process.send_signal(signal.SIGCONT)
        assert (await count(a, http))["pid"] == third["pid"]
        b.process.kill()
        fourth = await count(a, http)
        assert fourth["pid"] not in (first["pid"], third["pid"])
        assert not runs(third["pid"])
        assert len(starts(tmp_path)) == 3


async def test_a_node_that_drains_hands_its_command_over(tmp_path: Path, database: str) -> None:
    """A call in flight is answered, those after it run in a new process at the other node, and none is lost."""
    async with cluster(tmp_path, database, "a", "b", more=upstream(tmp_path)) as nodes, client() as http:
        a, b = nodes["a"], nodes["b"]
        first = await count(a, http)
        long = asyncio.create_task(send(b, http, "wait", arguments={"seconds": 3}))
        await count(b, http)
        a.process.send_signal(signal.SIGTERM)
        counted = [values(await send(b, http, "count"))["pid"] for _ in range(20)]
        assert values(await long)["pid"] == first["pid"]
        await a.process.wait()
        assert not runs(first["pid"])
        last = await count(b, http)
        assert [*dict.fromkeys([*counted, last["pid"]])][-1] == starts(tmp_path)[-1]
        assert len(starts(tmp_path)) == 2


async def test_a_command_may_run_at_each_node(tmp_path: Path, database: str) -> None:
    """`replicas: each`: no node depends on another."""
    more = upstream(tmp_path, ", replicas: each")
    async with cluster(tmp_path, database, "a", "b", more=more) as nodes, client() as http:
        pids = {(await count(nodes[name], http))["pid"] for name in ("a", "b")}
        assert pids == set(starts(tmp_path))
        assert len(pids) == 2

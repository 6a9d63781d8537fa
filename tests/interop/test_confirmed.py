"""`confirm` of an upstream's tool, asked by elicitation like that of a page's tool: in both eras, at both mounts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext

from gateway.mcp.upstreams.calls import upstream_calls
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http
from tests.interop.test_approved_calls import answer_question

MODES = ["legacy", "2026-07-28"]
POLICY = (
    'version: 1\ntools:\n  plain: {confirm: {when: always, message: "Do it?"}}\n'
    '  hold: {confirm: {when: always, message: "Hold?"}}\n'
)


@asynccontextmanager
async def serving_gateway(folder: Path, era: str) -> AsyncIterator[tuple[str, Probe]]:
    """Yield a gateway in front of a probe whose tool needs a person."""
    probe = Probe()
    (folder / "policy.yaml").write_text(POLICY, "utf-8")
    async with (
        over_http(probe.server, only=era) as url,
        gateway(folder, f'up: {{url: "{url}", network: private, policy: policy.yaml}}') as mcp,
    ):
        yield mcp, probe


def console(mcp: str) -> str:
    """Return the console of the gateway with this `/mcp`."""
    return mcp[:-4].replace("localhost", "gateway.localhost")


def records(folder: Path) -> list[dict[str, Any]]:
    """Return the outcomes of calls."""
    lines = [json.loads(line) for line in (folder / "gateway.journal").read_text("utf-8").splitlines()]
    return [line["fields"] for line in lines if line["phase"] == "outcome" and line["fields"].get("kind") == "tool"]


@pytest.mark.parametrize("upstream", MODES)
@pytest.mark.parametrize(("mount", "tool"), [("/up", "plain"), ("", "up_plain")])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("answer", ["approve", "decline"])
async def test_the_client_sends_its_person_to_the_page(
    tmp_path: Path, mode: str, mount: str, tool: str, upstream: str, answer: str
) -> None:
    """Its call waits; the upstream is called once, and only after the answer."""
    visited: list[str] = []

    async with serving_gateway(tmp_path, upstream) as (mcp, probe):

        async def visit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
            assert isinstance(params, types.ElicitRequestURLParams)
            visited.append(params.url)
            assert probe.seen == []
            await answer_question(console(mcp), {"answer": answer})
            return types.ElicitResult(action="accept")

        async with Client(f"{mcp}{mount}", mode=mode, elicitation_callback=visit) as client:
            await client.list_tools()
            result = await client.call_tool(tool, {"n": 1})
        assert [url.partition("/approvals/")[0] for url in visited] == [console(mcp)]
        assert result.is_error is (answer == "decline")
        assert [one["name"] for one in probe.seen] == (["plain"] if answer == "approve" else [])
        if answer == "decline":
            assert "approval-declined" in text(result)
    assert [line["status"] for line in records(tmp_path)] == [200 if answer == "approve" else 403]


@pytest.mark.parametrize("mode", MODES)
async def test_a_person_who_does_not_want_to_be_asked_ends_the_call(tmp_path: Path, mode: str) -> None:
    """Nothing is sent."""

    async def away(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with (
        serving_gateway(tmp_path, "2026-07-28") as (mcp, probe),
        Client(f"{mcp}/up", mode=mode, elicitation_callback=away) as client,
    ):
        result = await client.call_tool("plain")
        assert result.is_error
        assert "approval-declined" in text(result)
        assert probe.seen == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_goes_away_while_it_is_called_ends_the_call_at_the_upstream(
    tmp_path: Path, mode: str
) -> None:
    """Also an approved call, which runs independently of its client's requests."""
    async with serving_gateway(tmp_path, "legacy") as (mcp, probe):

        async def visit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
            await answer_question(console(mcp), {"answer": "approve"})
            return types.ElicitResult(action="accept")

        async with Client(f"{mcp}/up", mode=mode, elicitation_callback=visit) as client:
            calling = asyncio.ensure_future(client.call_tool("hold"))
            await asyncio.wait_for(probe.held.wait(), 20)
            calling.cancel()
            await asyncio.wait_for(probe.given_up.wait(), 20)


async def test_a_state_of_another_call_is_not_taken_up(tmp_path: Path) -> None:
    """A state that the gateway never issued, or has evicted, starts no call at the upstream."""
    async with (
        serving_gateway(tmp_path, "2026-07-28") as (mcp, probe),
        Client(f"{mcp}/up", mode="2026-07-28", elicitation_callback=_nobody) as client,
    ):
        result = await client.call_tool("plain", request_state="call-of-somebody-else")
        assert "approval-expired" in text(result)
        assert probe.seen == []


async def _nobody(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    raise AssertionError("nobody is asked")


async def test_a_rate_and_a_quota_count_whoever_calls(tmp_path: Path) -> None:
    """The tool's own limits, with Retry-After; another tool is not affected."""
    policy = "version: 1\ntools:\n  plain: {rate: 2/minute per principal}\n  ask: {quota: 1/day per principal}\n"
    (tmp_path / "policy.yaml").write_text(policy, "utf-8")
    probe = Probe()
    async with (
        over_http(probe.server) as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private, policy: policy.yaml}}') as mcp,
        Client(f"{mcp}/up", mode="legacy") as one,
        Client(mcp, mode="2026-07-28") as other,
    ):
        await other.list_tools()
        assert not (await one.call_tool("plain")).is_error
        assert not (await other.call_tool("up_plain")).is_error
        for result in (await one.call_tool("plain"), await other.call_tool("up_plain")):
            assert "rate-limited" in text(result)
        assert not (await one.call_tool("ask")).is_error
        assert "quota-exceeded" in text(await other.call_tool("up_ask"))
        assert len(probe.seen) == 3


async def test_a_call_that_its_upstream_wants_again_is_let_through_once(tmp_path: Path) -> None:
    """As the next round of the call that was counted; a third time it is another call."""
    assert await count_upstream_calls(tmp_path, "visit accept") == 2


@pytest.mark.bound("calls to repeat for an upstream")
async def test_a_call_that_is_not_remembered_is_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many calls with a next round are pending already."""
    monkeypatch.setattr(upstream_calls, "ROUNDS_EACH", 0)
    assert await count_upstream_calls(tmp_path, "rate-limited") == 1


async def count_upstream_calls(tmp_path: Path, told: str) -> int:
    """Call a rate-limited tool with a second round; return how often its upstream was called."""
    (tmp_path / "policy.yaml").write_text("version: 1\ntools: {visit: {rate: 1/minute per principal}}\n", "utf-8")
    probe = Probe()

    async def visit(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept")

    async with (
        over_http(probe.server, only="2026-07-28") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private, policy: policy.yaml}}') as mcp,
        Client(f"{mcp}/up", mode="2026-07-28", elicitation_callback=visit) as client,
    ):
        assert told in text(await client.call_tool("visit", {}))
        answers: dict[str, Any] = {"visit": types.ElicitResult(action="accept")}
        again = await client.call_tool("visit", {}, input_responses=answers, request_state="s")
        assert "rate-limited" in text(again)
    return len(probe.seen)


@pytest.mark.parametrize("mode", MODES)
async def test_a_rule_may_give_a_tool_less_time(tmp_path: Path, mode: str) -> None:
    """Less than its upstream's timeout; the result says so, and the upstream receives a cancellation."""
    probe = Probe()
    (tmp_path / "policy.yaml").write_text("version: 1\ntools: {hold: {timeout: 1500ms}}\n", "utf-8")
    async with (
        over_http(probe.server, only="2026-07-28") as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private, policy: policy.yaml}}') as mcp,
        Client(f"{mcp}/up", mode=mode) as client,
    ):
        result = await client.call_tool("hold", {})
        await asyncio.wait_for(probe.given_up.wait(), 20)
    assert result.is_error
    assert "backend-timeout: The tool hold of up did not answer within 1.5 seconds" in text(result)

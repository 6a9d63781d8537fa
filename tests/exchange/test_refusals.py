"""Repeated refusals have a line each up to a rate of their caller; the rest is counted, never dropped."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from gateway.cli.audit.report import Tally
from gateway.errors import Reason
from gateway.exchange import refusals
from gateway.exchange.record import OnFailure, Recorder
from gateway.exchange.refusals import LINES, PERIOD, Refusals
from gateway.hooks import Hooks
from gateway.model import LOCAL, Caller, Door, Initiator, Json, Request, Response
from gateway.stores.journal import Journal
from gateway.stores.records import StoredRecord
from tests.callers.tokens import token
from tests.clock import Clock
from tests.exchange.house import PAGE, House, building, reason
from tests.mcp.fast_cases import META
from tests.world import running

DENIED = Request("GET", "/nothing/here")
UNSAFE = Request("POST", "/api/items", (("content-type", "application/json"),), b"{}")


async def send_refused(house: House, count: int, caller: Caller = PAGE) -> list[Response]:
    """Return the answers to so many requests that no rule allows."""
    return [await house.exchange.run(DENIED, caller) for _ in range(count)]


def outcomes(house: House) -> list[dict[str, Any]]:
    """Return the outcomes in the journal."""
    return [line for line in house.lines() if line["phase"] == "outcome"]


@pytest.mark.bound("record lines of refused calls")
async def test_refusals_beyond_the_rate_of_a_caller_are_counted(tmp_path: Path) -> None:
    """In one line of the chain, with their number and time span; the answers are the usual ones, and contain its id."""
    other = structs.replace(PAGE, principal=replace(LOCAL, subject="bob"))
    async with building(tmp_path) as house:
        answers = await send_refused(house, LINES + 30)
        assert {(answer.status, reason(answer)) for answer in answers} == {(403, "policy-denied")}
        assert len(outcomes(house)) == LINES
        await send_refused(house, 1, other)  # who has a separate rate
        assert len(outcomes(house)) == LINES + 1
        assert (await house.exchange.run(UNSAFE, PAGE)).status < 400  # an unsafe request always has its lines
        assert [line["phase"] for line in house.lines()][-2:] == ["intent", "outcome"]
        await house.recorder.sum_up()
        line = outcomes(house)[-1]
        fields = line["fields"]
        assert (fields["kind"], fields["of"], fields["more"], fields["app"]) == ("refused", "http", 30, "cart")
        assert (fields["principal"], fields["reason"], fields["status"]) == (LOCAL.id, "policy-denied", 403)
        assert fields["first"] <= fields["last"] <= line["time"]
        named = Counter(json.loads(answer.body)["instance"].rpartition(":")[2] for answer in answers)
        assert named[line["id"]] == 30
        await house.recorder.sum_up()
        assert outcomes(house)[-1] == line


@pytest.mark.bound("pending counts of refusals")
def test_kinds_of_refusals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals of too many callers are counted together; none is lost."""
    monkeypatch.setattr(refusals, "SUMS", 3)
    clock = Clock()
    counting = Refusals(1, name=lambda: "id", clock=clock)
    fields: dict[str, Json] = {"kind": "http", "door": "mcp", "app": "cart", "reason": "policy-denied", "status": 403}
    own = sum(counting.count({**fields, "principal": f"p{number % 20}"}) is None for number in range(200))
    sums = counting.due()
    assert (own, sum(one.count for one in sums)) == (20, 180)
    assert len(sums) == 3 + 1
    assert (sums[-1].same["principal"], sums[-1].same["reason"]) == (None, "policy-denied")
    clock.now += PERIOD
    assert counting.count({**fields, "principal": "p0"}) is None


async def test_a_stop_and_plugins_hear_of_what_was_counted(tmp_path: Path) -> None:
    """Counts that are not written yet are written when the gateway stops."""
    async with running(tmp_path, extra="audit: {refusals: 2}\n") as world, world.client() as client:
        for _ in range(5):
            headers = {"webmcp-gateway-client": "1"}
            async with client.get(f"{world.site}/nothing/here", headers=headers) as answer:
                assert answer.status == 403
        assert [line["fields"].get("more") for line in denial_lines(world.records())] == [None, None]
    assert [line["fields"].get("more") for line in denial_lines(world.records())] == [None, None, 3]


async def test_a_holder_of_mcp_fills_no_disk(tmp_path: Path) -> None:
    """However it is refused: by the policy, for an unknown view, for a missing tool."""
    async with running(tmp_path, extra="auth: [token]\naudit: {refusals: 5}\n") as world:
        shown = await token(world, "holder", "mcp")
        calls = [
            {"name": "http_request", "arguments": {"url": "/nothing"}},
            {"name": "http_request", "arguments": {"url": "/api/products", "_view": "x.1.y"}},
            {"name": "call_view_tool", "arguments": {"view": "none", "tool": "x", "arguments": {}}},
        ]
        async with world.client(headers={**shown, "accept": "application/json, text/event-stream"}) as client:
            for number in range(60):
                await call_tool(client, f"{world.url}/mcp/cart", calls[number % 3])
            before = len(denial_lines(world.records()))
            assert before <= 5
    counted = denial_lines(world.records())[before:]
    assert sum(line["fields"]["more"] for line in counted) == 40 - before


async def call_tool(client: aiohttp.ClientSession, url: str, params: dict[str, Any]) -> None:
    """Call a tool once."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": META}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": params["name"]}
    async with client.post(url, json=message, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


def denial_lines(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of refusals."""
    return [line for line in lines if line["phase"] == "outcome" and line["fields"].get("reason")]


async def test_a_plugin_hears_the_count(tmp_path: Path) -> None:
    """Like every line of the record."""
    (tmp_path / "sink.py").write_text(
        "from pathlib import Path\nfrom gateway.hookspecs import hookimpl\n\n@hookimpl\ndef audit_record(record):\n"
        '    with Path(__file__).with_name("said").open("a") as file:\n'
        '        file.write(str(record.fields.get("more")))\n'
    )
    caller = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "no-gesture")
    async with Journal(tmp_path / "journal") as journal:
        recorder = Recorder(journal, Hooks(["sink.py"], tmp_path), OnFailure.REFUSE, refusals=1)
        for _ in range(8):
            record = recorder.start("tool", caller, safe=False)
            await record.close(status=403, reason=Reason.POLICY_DENIED)
        await recorder.sum_up()
    assert (tmp_path / "said").read_text() == "None7"


def test_a_report_counts_them_all() -> None:
    """A line for many refusals counts as many."""
    tally = Tally(0.0, 100.0)
    fields = {"principal": "p", "app": "cart", "initiator": "page", "reason": "policy-denied"}
    tally.take(StoredRecord("1", 1.0, 1.0, {**fields, "kind": "http", "method": "GET", "url": "/x"}))
    tally.take(StoredRecord("2", 2.0, 2.0, {**fields, "kind": "refused", "more": 41}))
    assert (tally.total, tally.reasons["policy-denied"], tally.callers["p", "cart"].refused) == (42, 42, 42)

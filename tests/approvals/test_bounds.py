"""The bounds of approvals at the doors: floods, silence, other people, shared principals, typed codes, no touch."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from msgspec import structs

from gateway.errors import Refusal
from gateway.exchange.approval_answers import ApprovalAnswers, NotAllowed
from gateway.exchange.approvals import MemoryApprovals, MemoryGrants
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import Caller, Door, Initiator, Principal
from gateway.ports.approvals import ApprovalState, Ask
from gateway.stores.journal import Journal
from gateway.telemetry import Metrics
from tests.approvals.page import show_cart
from tests.approvals.test_ways import command, count_requests, send_removal
from tests.clock import Clock
from tests.doors.upstream_view import shop
from tests.interop.serving import over_http
from tests.mcp.mounts import result_text
from tests.whole.test_main_job import answer_next, person, questions
from tests.world import World, running

MODES = ["legacy", "2026-07-28"]
ANN = Principal("https://login.test", "chat", "ann", capabilities=frozenset({"mcp"}))
ANN_THERE = Principal("https://login.test", "console", "ann", session=True)
BOB_THERE = replace(ANN_THERE, subject="bob")
APPROVER = replace(ANN_THERE, subject="olga", capabilities=frozenset({"approve"}))
TOKEN = replace(ANN, client="script")
TEAM = Principal("gateway", "tokens", "team", shared=True)
ASK = Ask("Remove tea?", "DELETE", "/api/cart/tea", "digest", "sha256:1", grant=600.0, rule="DELETE /api/cart/{item}")


async def test_a_page_that_floods_is_asked_about_twice(world: World) -> None:
    """Eight requests cause two questions and six refusals; after three declines no further question is asked."""
    async with person(world) as ann, show_cart(world, ann) as page, asyncio.TaskGroup() as tasks:
        wishes = [
            tasks.create_task(page.fetch(url="/api/checkout", method="POST", body={"number": number}))
            for number in range(8)
        ]
        while len([one for one in wishes if one.done()]) < 6:
            await asyncio.sleep(0.01)
        assert len(await questions(ann, world)) == 2
        for _ in range(2):
            await answer_next(ann, world, "decline")
        reasons = [(await wish)["headers"]["gateway-reason"] for wish in wishes]
        assert sorted(set(reasons)) == ["approval-declined", "approval-unavailable"]
        third = tasks.create_task(page.fetch(url="/api/checkout", method="POST", body={"number": 9}))
        await answer_next(ann, world, "decline")
        await third
        assert (await page.fetch(url="/api/checkout", method="POST", body={}))["headers"]["gateway-reason"] == (
            "approval-declined"
        )
        async with ann.get(f"{world.console}/api/approvals") as listed:
            assert (await listed.json())["approvals"] == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_that_is_given_up_leaves_no_question(world: World, mode: Any) -> None:
    """The principal disconnects while the call waits: a late answer is void, and nothing is sent."""
    async with person(world) as ann, show_cart(world, ann):
        async with Client(f"{world.url}/mcp", mode=mode) as client:
            calling = asyncio.create_task(client.call_tool("cart_checkout", {}))
            (question,) = await questions(ann, world)
            calling.cancel()
            await asyncio.wait({calling})
        async with asyncio.timeout(60):
            while True:
                async with ann.get(f"{world.console}/api/approvals") as listed:
                    if not (await listed.json())["approvals"]:
                        break
                await asyncio.sleep(0.05)
        url = f"{world.console}/api/approvals/{question['id']}"
        async with ann.post(url, json={"answer": "approve"}) as late:
            assert late.status == 410
    assert [line for line in world.arrived() if line["path"] == "/api/checkout"] == []


class Typing:
    """A person who types what `code` derives from the message of a form."""

    def __init__(self, code: Any) -> None:
        self.code = code
        self.forms: list[ElicitRequestFormParams] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Read the code, and type it."""
        assert isinstance(params, ElicitRequestFormParams)
        self.forms.append(params)
        found = re.search(r"code ([0-9A-Z]{4})\.", params.message)
        assert found is not None
        return ElicitResult(action="accept", content={"code": self.code(found[1], len(self.forms))})


@pytest.mark.parametrize("mode", MODES)
async def test_a_trusted_client_has_a_code_typed(tmp_path: Path, mode: Any) -> None:
    """The code is mistyped once, then right: the new code counts, the old one does not."""
    async with running(tmp_path, extra="approvals: {interactive: [local]}") as world:
        typing = Typing(lambda code, turn: "0000" if turn == 1 else code.lower())
        async with (
            person(world) as ann,
            show_cart(world, ann) as page,
            Client(f"{world.url}/mcp", mode=mode, elicitation_callback=typing) as client,
        ):
            result = await client.call_tool("cart_checkout", {})
            assert page.ran == ["checkout"]
        assert "approval" not in result_text(result)
        assert len(typing.forms) == 2
        assert typing.forms[0].message.startswith("Order what is in the cart, and pay for it?")
        assert typing.forms[0].message != typing.forms[1].message
        record = next(line["fields"] for line in world.records() if line["fields"].get("kind") == "approval")
        assert (record["door"], record["evidence"]) == ("mcp", "elicitation")


async def test_wrong_codes_approve_nothing(tmp_path: Path) -> None:
    """After three wrong codes the client is not asked again; the other ways to answer remain."""
    async with running(tmp_path, extra="approvals: {interactive: [local]}") as world:
        typing = Typing(lambda code, turn: [None, "AAAA ", ""][turn - 1])
        async with (
            person(world) as ann,
            show_cart(world, ann),
            Client(f"{world.url}/mcp", mode="legacy", elicitation_callback=typing) as client,
            asyncio.TaskGroup() as tasks,
        ):
            calling = tasks.create_task(client.call_tool("cart_checkout", {}))
            while len(typing.forms) < 3:
                await asyncio.sleep(0.01)
            await answer_next(ann, world, "decline")
        assert "approval-declined" in result_text(calling.result())
        assert len(typing.forms) == 3


@pytest.mark.parametrize("mode", MODES)
async def test_a_code_that_comes_too_late_changes_nothing(tmp_path: Path, mode: Any) -> None:
    """Another answer was given at the console first; the gateway and its other calls continue."""
    async with running(tmp_path, extra="approvals: {interactive: [local]}") as world, person(world) as ann:

        class Slow(Typing):
            async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
                typed = await super().__call__(context, params)
                await answer_next(ann, world, "decline")
                return typed

        slow = Slow(lambda code, _: code)
        async with (
            show_cart(world, ann) as page,
            Client(f"{world.url}/mcp", mode=mode, elicitation_callback=slow) as client,
        ):
            assert "approval-declined" in result_text(await client.call_tool("cart_checkout", {}))
            assert not (await client.call_tool("cart_get_cart", {})).is_error
            assert page.ran == ["checkout", "get_cart"]


async def test_without_a_touch_the_command_line_only_declines(tmp_path: Path) -> None:
    """`presence` applies to every way to answer."""
    async with running(tmp_path, extra="approvals: {presence: webauthn}") as world, person(world) as ann:
        async with asyncio.TaskGroup() as tasks:
            removing = tasks.create_task(send_removal(world))
            (question,) = await questions(ann, world)
            refused = await command(world, "answer", question["id"], "--approve")
            assert "touch of a key" in refused.output
            assert count_requests(world) == 0
            assert "declined" in (await command(world, "answer", question["id"], "--decline")).output
        assert removing.result()["headers"]["gateway-reason"] == "approval-declined"


class Room:
    """The approvals of a gateway, and the check of who may answer them."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.approvals = MemoryApprovals(120.0, clock, steady=clock)
        self.grants = MemoryGrants(clock)
        self.journal = Journal(folder / "journal")
        recorder = Recorder(self.journal, Hooks([], folder), OnFailure.CONTINUE, Metrics())
        self.answers = ApprovalAnswers(self.approvals, self.grants, recorder)

    async def asked(self, principal: Principal) -> str:
        """A question of `principal`."""
        caller = Caller(principal, "cart", Door.MCP, Initiator.MODEL, "model-call", view="v1")
        return (await self.approvals.park(ASK, caller)).question.id


@pytest.mark.parametrize(
    ("asker", "by", "may"),
    [
        (ANN, ANN_THERE, True),
        (ANN, BOB_THERE, None),
        (ANN, APPROVER, True),
        (ANN, TOKEN, None),
        (ANN, ANN, False),
        (ANN, TEAM, None),
        (TEAM, APPROVER, True),
        (TEAM, ANN_THERE, None),
        (TEAM, TEAM, None),
    ],
)
async def test_who_may_answer(tmp_path: Path, asker: Principal, by: Principal, may: bool | None) -> None:
    """The person themself in a browser, and approvers, may answer; for others the question does not exist."""
    room = Room(tmp_path, Clock())
    async with room.journal:
        id = await room.asked(asker)
        assert bool(room.answers.questions(by)) == (may is not None)
        if may:
            assert await room.answers.give(id, True, by, "console") is ApprovalState.APPROVED
            return
        with pytest.raises(Refusal if may is None else NotAllowed):
            await room.answers.give(id, True, by, "console")
        assert room.approvals.state(id) is ApprovalState.OPEN


async def test_a_grant_ends_in_time_and_is_its_principals_alone(tmp_path: Path) -> None:
    """A grant expires, and covers no other principal, app, rule or version; another person cannot revoke it."""
    clock = Clock()
    room = Room(tmp_path, clock)
    async with room.journal:
        await room.answers.give(await room.asked(ANN), True, ANN_THERE, "console", grant=True)
        caller = Caller(ANN, "cart", Door.MCP, Initiator.MODEL, "model-call", view="v2")
        (grant,) = room.answers.grants(ANN_THERE)
        assert await room.grants.covering(caller, ASK.rule, ASK.policy_version) is grant
        for other in (structs.replace(caller, principal=TOKEN), structs.replace(caller, app="notes")):
            assert await room.grants.covering(other, ASK.rule, ASK.policy_version) is None
        assert await room.grants.covering(caller, "DELETE /api/cart", ASK.policy_version) is None
        assert await room.grants.covering(caller, ASK.rule, "sha256:2") is None
        with pytest.raises(KeyError):
            await room.answers.revoke(grant.id, BOB_THERE)
        clock.now += 601
        assert await room.grants.covering(caller, ASK.rule, ASK.policy_version) is None
        assert room.answers.grants(ANN_THERE) == []


PATIENT = """
version: 1
backends: {shop: {url: "http://127.0.0.1:9401", network: private, credential: shop-service}}
routes: [{path: "/api/cart/{item}", methods: [DELETE], confirm: {timeout: 7m}}]
tools: {both: {confirm: {timeout: 7m}}, checkout: {confirm: {timeout: 7m}}}
"""


async def test_a_question_stays_open_as_its_rule_says(tmp_path: Path) -> None:
    """The timeout applies to a request, a tool of a page, and a tool of an upstream."""
    async with over_http(shop(print)) as url:
        (tmp_path / "up.yaml").write_text("version: 1\ntools: {both: {confirm: {timeout: 7m}}}\n")
        extra = f"upstreams: {{other: {{url: '{url}', network: private, policy: up.yaml}}}}\n"
        async with (
            running(tmp_path, policy=PATIENT, extra=extra) as world,
            person(world) as ann,
            show_cart(world, ann),
            Client(f"{world.url}/mcp") as model,
            Client(f"{world.url}/mcp/other", cache=None) as other,
        ):
            await other.list_tools()
            for call in (
                lambda: send_removal(world),
                lambda: model.call_tool("cart_checkout", {}),
                lambda: other.call_tool("both"),
            ):
                calling = asyncio.ensure_future(call())
                (question,) = await questions(ann, world)
                assert question["expires"] - question["created"] == 420
                await answer_next(ann, world, "decline")
                await calling

"""The ways to ask for an approval (command line, signed webhook, plugin), grants, and who may answer, once."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from mcp import Client

from gateway.cli import main
from gateway.exchange.approvers import SIGNATURE, TIMESTAMP, signature
from gateway.model import Secret
from tests.leaks.marks import MARK
from tests.whole.test_main_job import UI, answer_next, person, questions, request
from tests.world import EXAMPLE, Server, World, running

KEY = f"a webhook secret of these tests, long enough {MARK}"
GRANTS = (
    (EXAMPLE / "policy.yaml").read_text("utf-8").replace("{when: model, message", "{when: model, grant: 10m, message")
)


async def send_removal(world: World, item: str = "tea") -> dict[str, Any]:
    """Send a request without view proof, which requires approval."""
    async with Client(f"{world.url}/mcp/cart", extensions=UI) as client:
        return await request(client, url=f"/api/cart/{item}", method="DELETE")


def count_requests(world: World) -> int:
    """The number of such requests that arrived."""
    return len([line for line in world.arrived() if line["method"] == "DELETE"])


async def command(world: World, *arguments: str, typed: str = "") -> Result:
    """Run a command beside the gateway."""
    given = ["approvals", *arguments, "--config", str(world.folder / "gateway.yaml")]
    return await asyncio.to_thread(CliRunner().invoke, main, given, typed)


async def test_the_command_line_shows_and_answers(world: World) -> None:
    """The command line shows summary and request; the answer is bound to what was shown, and recorded with its way."""
    async with person(world) as ann, asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(send_removal(world))
        (question,) = await questions(ann, world)
        listed = await command(world, "list")
        assert "Remove tea from the cart?" in listed.output
        assert "DELETE /api/cart/tea" in listed.output
        answered = await command(world, "answer", question["id"][:6], typed="approve\n")
        assert answered.output.strip().endswith("approved"), answered.output
    assert "gateway-reason" not in removing.result()["headers"]
    record = next(line for line in world.records() if line["fields"]["kind"] == "approval")
    assert (record["fields"]["door"], record["fields"]["evidence"]) == ("console", "cli")
    assert "Nothing waits" in (await command(world, "list")).output


async def test_the_command_line_answers_only_where_it_is_a_way(tmp_path: Path) -> None:
    """`approvals.ask` lists the ways."""
    async with running(tmp_path, extra="approvals: {ask: [console]}") as world, person(world) as ann:
        async with asyncio.TaskGroup() as tasks:
            removing = tasks.create_task(send_removal(world))
            (question,) = await questions(ann, world)
            refused = await command(world, "answer", question["id"], "--approve")
            assert (refused.exit_code, "does not name `cli`" in refused.output) == (2, True)
            await answer_next(ann, world, "decline")
        assert removing.result()["headers"]["gateway-reason"] == "approval-declined"


@pytest.mark.parametrize("arguments", [["list"], ["answer", "4f0ak1"], ["watch"], ["grants"], ["revoke", "9a2Bx4"]])
async def test_a_gateway_that_does_not_run_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    """It is no traceback, whichever command it is; nor is another server at that address."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="hello", content_type="text/html")

    other = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    await other.start(app)
    try:
        for port, why in ((1, "does not answer: 127.0.0.1:1: no connection"), (other.port, "does not answer as one")):
            url = f"http://127.0.0.1:{port}"
            result = await asyncio.to_thread(CliRunner().invoke, main, ["approvals", *arguments, "--url", url])
            assert (result.exit_code, why in result.output) == (2, True), (result.output, result.exception)
    finally:
        await other.stop()


class Bot:
    """A chat bot's side of the webhook."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.failures = 0

    async def handle(self, request: web.Request) -> web.Response:
        """Check the signature, and keep the message."""
        body = await request.read()
        assert request.headers[SIGNATURE] == signature(Secret(KEY), request.headers[TIMESTAMP], body)
        if self.failures:
            self.failures -= 1
            return web.Response(status=503)
        self.heard.put_nowait(json.loads(body))
        return web.Response(status=204)


@asynccontextmanager
async def hooked(folder: Path, answers: str = "true") -> AsyncIterator[tuple[World, Bot]]:
    """A gateway with a chat bot."""
    bot = Bot()
    app = web.Application()
    app.router.add_post("/hook", bot.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (folder / "key").write_text(KEY)
    extra = f"""
approvals:
  ask: [console, cli, webhook]
  webhook:
    url: http://127.0.0.1:{runner.addresses[0][1]}/hook
    secret: "${{file:key}}"
    answers: {answers}
    network: [127.0.0.0/8]
"""
    try:
        async with running(folder, extra=extra) as world:
            yield world, bot
    finally:
        await runner.cleanup()


async def back(world: World, key: str = KEY, age: float = 0, **answer: Any) -> tuple[int, dict[str, Any]]:
    """Send a signed answer; return status and body."""
    body, timestamp = json.dumps(answer).encode(), str(int(time.time() - age))
    headers = {TIMESTAMP: timestamp, SIGNATURE: signature(Secret(key), timestamp, body)}
    async with (
        world.client() as client,
        client.post(f"{world.url}/approvals/webhook", data=body, headers=headers) as response,
    ):
        return response.status, await response.json(content_type=None)


async def test_a_chat_bot_asks_and_answers(tmp_path: Path) -> None:
    """Messages are signed both ways; an answer counts once, bound by the digest; then the bot gets the end."""
    async with hooked(tmp_path) as (world, bot), asyncio.TaskGroup() as tasks:
        bot.failures = 1
        removing = tasks.create_task(send_removal(world))
        asked = await bot.heard.get()
        question = asked["question"]
        assert (asked["type"], question["message"]) == ("approval.asked", "Remove tea from the cart?")
        assert asked["answer_url"] == f"{world.console}/approvals/{question['id']}"
        answer = {"id": question["id"], "digest": question["digest"], "answer": "approve", "by": "ann"}
        for wrong in ({"key": KEY + "x"}, {"age": 400}, {"age": -400}):
            assert (await back(world, **wrong, **answer))[0] == 403
        assert (await back(world, **{**answer, "digest": "0" * 64}))[0] == 410
        assert (await back(world, **{**answer, "answer": "perhaps"}))[0] == 403
        assert count_requests(world) == 0
        assert await back(world, **answer) == (200, {"status": "approved"})
        assert (await back(world, **answer))[0] == 410
        assert (await bot.heard.get())["type"] == "approval.over"
        assert "gateway-reason" not in (await removing)["headers"]
        record = next(line for line in world.records() if line["fields"]["kind"] == "approval")
        assert (record["fields"]["door"], record["fields"]["principal"]) == ("webhook", "gateway|approvals|webhook:ann")
    assert count_requests(world) == 1


async def test_a_bot_that_only_tells_can_not_answer(tmp_path: Path) -> None:
    """Without `answers: true` the endpoint does not exist."""
    async with hooked(tmp_path, answers="false") as (world, bot), person(world) as ann, asyncio.TaskGroup() as tasks:
        tasks.create_task(send_removal(world))
        question = (await bot.heard.get())["question"]
        headers = {"webmcp-gateway-client": "1"}
        async with (
            world.client(headers=headers) as client,
            client.post(f"{world.url}/approvals/webhook", data=b"{}") as response,
        ):
            assert response.status in (404, 405)
        assert question["id"]
        await answer_next(ann, world, "decline")


PLUGIN = '''
"""Says what its file says."""
from pathlib import Path

from gateway.hookspecs import hookimpl
from gateway.model import Question


@hookimpl
async def ask_approval(question: Question) -> bool | None:
    return {WORD}
'''


@pytest.mark.parametrize(
    ("word", "reason"),
    [("True", None), ("False", "approval-declined"), ("None", "person"), ("1 / 0", "person"), ("'yes'", "person")],
)
async def test_a_plugin_answers(tmp_path: Path, word: str, reason: str | None) -> None:
    """Approve or decline counts; silence, an error and an invalid answer leave the question to the other ways."""
    (tmp_path / "asking.py").write_text(PLUGIN.replace("{WORD}", word))
    extra = "plugins: [asking.py]\napprovals: {ask: [plugin, console]}"
    async with running(tmp_path, extra=extra) as world, person(world) as ann, asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(send_removal(world))
        if reason == "person":
            await answer_next(ann, world, "decline")
            reason = "approval-declined"
        assert (await removing)["headers"].get("gateway-reason") == reason


async def test_the_first_of_two_answers_counts(world: World) -> None:
    """Of simultaneous answers the first counts; the others get 410."""
    async with person(world) as ann, person(world) as bob, asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(send_removal(world))
        (question,) = await questions(ann, world)
        url = f"{world.console}/api/approvals/{question['id']}"

        async def answer(client: aiohttp.ClientSession, word: str) -> int:
            async with client.post(url, json={"answer": word}) as response:
                return response.status

        given = await asyncio.gather(answer(ann, "approve"), answer(bob, "decline"), answer(bob, "approve"))
        assert sorted(given) == [200, 410, 410]
        await removing
    told = [line for line in world.records() if line["fields"]["kind"] == "approval"]
    assert len([line for line in told if line["phase"] == "outcome" and line["fields"]["status"] == 200]) == 1
    assert count_requests(world) <= 1


@pytest.mark.parametrize("first", range(3))
async def test_the_first_of_all_ways_counts(tmp_path: Path, first: int) -> None:
    """Console, command line and chat bot answer at once: one counts, once, and is recorded as such, in any order."""
    async with hooked(tmp_path) as (world, bot), person(world) as ann, asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(send_removal(world))
        question = (await bot.heard.get())["question"]
        url = f"{world.console}/api/approvals/{question['id']}"

        async def at_the_gateway(way: str) -> tuple[str, int]:
            headers = {"webmcp-gateway-client": "1"} if way == "cli" else {}
            async with ann.post(url, json={"answer": "approve"}, headers=headers) as response:
                return way, response.status

        async def of_the_bot() -> tuple[str, int]:
            signed = {"id": question["id"], "digest": question["digest"], "by": "bob"}
            return "webhook", (await back(world, **signed, answer="decline"))[0]

        ways = [lambda: at_the_gateway("console"), lambda: at_the_gateway("cli"), of_the_bot]
        given = await asyncio.gather(*(ways[(first + number) % 3]() for number in range(9)))
        assert sorted(status for _, status in given) == [200, *[410] * 8]
        (taken,) = [way for way, status in given if status == 200]
        reason = (await removing)["headers"].get("gateway-reason")
    answers = [line["fields"] for line in world.records() if line["fields"]["kind"] == "approval"]
    assert {fields["evidence"] for fields in answers if fields.get("status") == 200} == {taken}
    assert (reason, count_requests(world)) == (("approval-declined", 0) if taken == "webhook" else (None, 1))


async def test_a_wrong_digest_answers_nothing(world: World) -> None:
    """An answer is valid only with the digest of the question that was shown."""
    async with person(world) as ann, asyncio.TaskGroup() as tasks:
        tasks.create_task(send_removal(world))
        (question,) = await questions(ann, world)
        url = f"{world.console}/api/approvals/{question['id']}"
        async with ann.post(url, json={"answer": "approve", "digest": "0" * 64}) as refused:
            assert refused.status == 409
        assert count_requests(world) == 0
        await answer_next(ann, world, "decline")


async def grants_in_effect(ann: aiohttp.ClientSession, world: World) -> list[dict[str, Any]]:
    """The grants in effect."""
    async with ann.get(f"{world.console}/api/grants") as response:
        held: list[dict[str, Any]] = (await response.json())["grants"]
        return held


async def test_a_grant_covers_its_route_until_it_is_revoked(tmp_path: Path) -> None:
    """A grant is listed, recorded with each call that it covers, and revoked; another route still requires approval."""
    async with running(tmp_path, policy=GRANTS) as world, person(world) as ann:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send_removal(world))
            (question,) = await questions(ann, world)
            assert question["grant"] == 600
            url = f"{world.console}/api/approvals/{question['id']}"
            async with ann.post(url, json={"answer": "approve", "grant": True}) as answer:
                assert answer.status == 200
        async with asyncio.timeout(60):
            assert (await send_removal(world, "mug"))["headers"].get("gateway-reason") is None
        (grant,) = await grants_in_effect(ann, world)
        assert (grant["rule"], grant["app"]) == ("DELETE /api/cart/{item}", "cart")
        covered = [line["fields"] for line in world.records() if line["fields"].get("grant") == grant["id"]]
        assert "/api/cart/mug" in [fields.get("url") for fields in covered]
        assert "DELETE /api/cart/{item}" in (await command(world, "grants")).output
        assert (await command(world, "revoke", grant["id"][:8])).output == "Revoked.\n"
        ended = [line["fields"]["door"] for line in world.records() if line["fields"].get("kind") == "grant"]
        assert set(ended) == {"console"}
        assert await grants_in_effect(ann, world) == []
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(send_removal(world, "bowl"))
            await answer_next(ann, world, "decline")
        assert asked.result()["headers"]["gateway-reason"] == "approval-declined"


async def test_no_grant_without_the_policys_word(world: World) -> None:
    """The cart's policy offers no grant, so each call requires approval."""
    async with person(world) as ann, asyncio.TaskGroup() as tasks:
        tasks.create_task(send_removal(world))
        (question,) = await questions(ann, world)
        url = f"{world.console}/api/approvals/{question['id']}"
        for body in ({"answer": "approve", "grant": True}, {"answer": "approve", "grant": "yes"}):
            async with ann.post(url, json=body) as refused:
                assert refused.status in (400, 403)
        assert count_requests(world) == 0
        await answer_next(ann, world, "decline")


async def test_a_grant_dies_with_its_policy(tmp_path: Path) -> None:
    """Any change of the policy ends the grant."""
    async with running(tmp_path, policy=GRANTS) as world, person(world) as ann:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send_removal(world))
            (question,) = await questions(ann, world)
            url = f"{world.console}/api/approvals/{question['id']}"
            async with ann.post(url, json={"answer": "approve", "grant": True}) as answer:
                assert answer.status == 200
        file = world.folder / "policy.yaml"
        file.write_text(file.read_text("utf-8").replace("16KiB", "15KiB"), "utf-8")
        async with asyncio.timeout(60):
            while await grants_in_effect(ann, world):
                await asyncio.sleep(0.05)

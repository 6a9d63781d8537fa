"""Access to apps and upstreams: the same at every door, and the same as for one that does not exist."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway import mux
from gateway.assembly.apps import in_one_task
from tests.callers.issuer import issuer
from tests.doors.access_world import HR, OTHER, Building, building

UNTIL = (datetime.now(UTC) + timedelta(days=3)).date().isoformat()


@pytest.fixture(scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Building]:
    """One gateway for the table."""
    found: list[Building] = []

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        async with building(tmp_path_factory.mktemp("access"), UNTIL) as one:
            found.append(one)
            yield

    async with in_one_task(run()):  # the upstream's server is left in the task that entered it
        yield found[0]


Door = Callable[[Building, dict[str, str], str], Awaitable[Any]]
"""Knocks for the app or upstream of the given name; what it returns must not contain that name."""


async def _state(place: Building, who: dict[str, str], name: str) -> Any:
    state = await place.state(who)
    return [one["id"] for one in state["apps"] if one["id"] == name], name in json.dumps(state["problems"])


async def _app_events(place: Building, who: dict[str, str], name: str) -> Any:
    problems = await place.events(who, "problems")
    return name.capitalize() in json.dumps(problems)


async def _ticket(place: Building, who: dict[str, str], name: str) -> Any:
    status, body = await place.post(who, "/bridge/tickets", {"apps": [name]})
    return status, "ticket" in body


async def _bridge(place: Building, who: dict[str, str], name: str) -> Any:
    tickets = ["notes", name] if (await _ticket(place, who, name))[0] == 200 else ["notes"]
    async with place.bridge(who, tickets, name) as bridge:
        frame = bridge.first
        return type(frame).__name__, frame.code if isinstance(frame, mux.ErrorFrame) else None


async def _mount(place: Building, who: dict[str, str], name: str) -> Any:
    status, message = await place.mcp(who, f"/mcp/{name}", "tools/list", {})
    return status, {**message, "detail": str(message.get("detail")).replace(name, "…")} if status != 200 else "listed"


async def _handshake(place: Building, who: dict[str, str], name: str) -> Any:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    headers = {**who, "accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    async with place.client.post(f"http://localhost:{place.port}/mcp/{name}", json=body, headers=headers) as answer:
        return answer.status


async def _request(place: Building, who: dict[str, str], name: str) -> Any:
    arguments = {"url": "/api/pay", "method": "GET"}
    status, message = await place.mcp(
        who, f"/mcp/{name}", "tools/call", {"name": "http_request", "arguments": arguments}, "http_request"
    )
    return status, "paid" in json.dumps(message)


async def _tools(place: Building, who: dict[str, str], name: str) -> Any:
    return [tool for tool in await place.listed(who, "tools", "tools") if name in tool]


async def _resources(place: Building, who: dict[str, str], name: str) -> Any:
    return [uri for uri in await place.listed(who, "resources", "resources") if name in uri]


async def _read(place: Building, who: dict[str, str], name: str) -> Any:
    known = await place.listed(HR, "resources", "resources")
    uri = next((one for one in known if one.startswith(f"ui://{name}/")), f"ui://{name}/index.html")
    message = (await place.mcp(who, "/mcp", "resources/read", {"uri": uri}, uri))[1]
    return json.dumps(message.get("error", "read")).replace(uri, "…")


async def _open(place: Building, who: dict[str, str], name: str) -> Any:
    message = await place.call(who, f"open_{name}", {})
    return json.dumps(message.get("error", "opened")).replace(name, "…")


async def _live_tool(place: Building, who: dict[str, str], name: str) -> Any:
    message = await place.call(who, f"{name}_jot", {})
    return json.dumps(message.get("error", "known")).replace(name, "…")


async def _upstream_tool(place: Building, who: dict[str, str], name: str) -> Any:
    message = await place.call(who, f"{name}_both", {})
    return json.dumps(message.get("error", "called")).replace(name, "…")


async def _prompts(place: Building, who: dict[str, str], name: str) -> Any:
    message = (await place.mcp(who, "/mcp", "prompts/get", {"name": f"{name}_greet"}, f"{name}_greet"))[1]
    listed = [one for one in await place.listed(who, "prompts", "prompts") if name in one]
    return len(listed), json.dumps(message.get("error", "got")).replace(name, "…")


async def _completion(place: Building, who: dict[str, str], name: str) -> Any:
    params = {"ref": {"type": "ref/prompt", "name": f"{name}_greet"}, "argument": {"name": "x", "value": "Pa"}}
    message = (await place.mcp(who, "/mcp", "completion/complete", params))[1]
    return json.dumps(message.get("error", "completed")).replace(name, "…")


async def _templates(place: Building, who: dict[str, str], name: str) -> Any:
    shown = await place.listed(who, "resources/templates", "resource_templates")
    return shown if name == "books" else []


async def _metadata(place: Building, who: dict[str, str], name: str) -> Any:
    """No token is accepted here at all; with an issuer, the document is the same for any name."""
    async with place.client.get(
        f"http://localhost:{place.port}/.well-known/oauth-protected-resource/mcp/{name}"
    ) as answer:
        return answer.status


APP_DOORS: dict[str, Door] = {
    "the console's list": _state,
    "the console's problems": _app_events,
    "a ticket of the bridge": _ticket,
    "a view on the bridge": _bridge,
    "its mount": _mount,
    "its mount, by handshake": _handshake,
    "a request at its mount": _request,
    "tools of /mcp": _tools,
    "resources of /mcp": _resources,
    "its page at /mcp": _read,
    "opening it at /mcp": _open,
    "a live tool at /mcp": _live_tool,
    "metadata": _metadata,
}
UPSTREAM_DOORS: dict[str, Door] = {
    "its mount": _mount,
    "its mount, by handshake": _handshake,
    "tools of /mcp": _tools,
    "a tool at /mcp": _upstream_tool,
    "its app at /mcp": _read,
    "prompts": _prompts,
    "completion": _completion,
    "templates": _templates,
    "metadata": _metadata,
}
BORROWED_DOORS = {name: APP_DOORS[name] for name in ("the console's list", "a ticket of the bridge", "its mount")}
TABLE = [
    *(("pay", door) for door in APP_DOORS),
    *(("books", door) for door in UPSTREAM_DOORS),
    *(("board", door) for door in BORROWED_DOORS),
]


@pytest.mark.parametrize(("name", "door"), TABLE)
async def test_for_whom_it_is_not_it_does_not_exist(place: Building, name: str, door: str) -> None:
    """At each door one caller uses it; for the other one it is exactly as a name that nothing has."""
    knock = (UPSTREAM_DOORS if name == "books" else APP_DOORS)[door]
    admitted, excluded = await knock(place, HR, name), await knock(place, OTHER, name)
    assert excluded == await knock(place, OTHER, "nothing")
    if door != "metadata":
        assert admitted != excluded


async def test_an_account_that_only_it_needs_is_not_offered(place: Building) -> None:
    """The list of accounts, and beginning to connect one, are as without that credential."""
    listed = [json.loads((await place.get(who, "/api/connections"))[1])["connections"] for who in (HR, OTHER)]
    assert [[one["credential"] for one in found] for found in listed] == [["bank"], []]
    refused = [await place.post(OTHER, f"/api/connections/{name}", {}) for name in ("bank", "nothing")]
    assert refused[0] == refused[1]


@pytest.mark.parametrize("path", ["/", "/api/pay", "/index.html"])
async def test_its_site_refuses_in_words(place: Building, path: str) -> None:
    """The host of a site is public, so its refusal hides nothing; pages and requests are refused alike."""
    assert (await place.get(HR, path, "pay"))[0] == 200
    place.arrived.clear()
    status, text = await place.get(OTHER, path, "pay")
    assert (status, "not-allowed" in text) == (403, True)
    assert place.arrived == []


async def test_others_neither_see_nor_answer_its_questions_and_records(tmp_path: Path) -> None:
    """An approver without access sees no question, no view and no record of the app; one with access answers."""
    boss = {"x-user": "boss", "x-groups": "boss"}
    both = {"x-user": "lead", "x-groups": "boss, hr"}
    async with building(tmp_path, UNTIL) as place, place.bridge(HR, ["pay"], "pay") as bridge:
        assert isinstance(bridge.first, mux.Opened)
        view = bridge.first.view
        await bridge.call(view, "http_request", {"url": "/api/pay", "method": "POST"})
        [question] = json.loads((await place.get(both, "/api/approvals"))[1])["approvals"]
        assert question["app"] == "pay"
        assert json.loads((await place.get(boss, "/api/approvals"))[1])["approvals"] == []
        assert await place.events(boss, "approvals") == []
        assert (await place.post(boss, f"/api/approvals/{question['id']}", {"answer": "approve"}))[0] == 410
        assert (await place.post(both, f"/api/approvals/{question['id']}", {"answer": "approve"}))[0] == 200
        before = {"x-user": "ann", "x-groups": "sales"}
        assert [one["app"] for one in await place.events(HR, "views")] == ["pay"]
        assert json.loads((await place.get(HR, "/api/audit"))[1])["records"] != []
        assert await place.events(before, "views") == []
        assert json.loads((await place.get(before, "/api/audit"))[1])["records"] == []


async def test_the_advice_about_an_app_is_for_administrators_who_may_use_it(tmp_path: Path) -> None:
    """It names files: others are refused, and an app that one may not use does not exist."""
    async with building(tmp_path, UNTIL) as place:
        assert (await place.get(HR, "/api/apps/pay/advice"))[0] == 403
        assert (await place.get(OTHER, "/api/apps/pay/advice"))[0] == 404
        boss = {"x-user": "boss", "x-groups": "hr, root"}
        status, body = await place.get(boss, "/api/apps/pay/advice")
        assert status == 200, body
        assert json.loads(body)["app"] == "pay"
        assert (await place.get(boss, "/api/apps/gone/advice"))[0] == 404


async def test_access_that_is_taken_away_ends_what_is_open(tmp_path: Path) -> None:
    """A reload closes the view, ends the streams, voids the question; nothing that was approved later is sent."""
    both = {"x-user": "lead", "x-groups": "boss, hr"}
    async with building(tmp_path, UNTIL) as place, place.bridge(HR, ["pay"], "pay") as bridge:
        assert isinstance(bridge.first, mux.Opened)
        origin = f"http://pay.localhost:{place.port}"
        headers = {**HR, "origin": origin, "sec-fetch-site": "same-origin"}
        async with place.client.get(f"{origin}/api/feed", headers=headers) as feed:
            assert await feed.content.readline() == b"data: 1\n"
            pending = await bridge.call(bridge.first.view, "http_request", {"url": "/api/pay", "method": "POST"})
            id = pending["structuredContent"]["body"]["id"]
            place.configure(pay="{roles: [nobody, boss]}")
            await place.reload()
            closed = await bridge.until(mux.Close)
            assert closed.view == bridge.first.view
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(feed.content.read(), 10)
        assert (await place.post(both, f"/api/approvals/{id}", {"answer": "approve"}))[0] == 410
        assert "POST /api/pay" not in place.arrived
        assert (await place.get(HR, "/api/pay", "pay"))[0] == 403
        assert (await place.mcp(HR, "/mcp/pay", "tools/list", {}))[0] == 404
        assert "open_pay" not in await place.listed(HR, "tools", "tools")
        place.configure()
        await place.reload()
        assert (await place.get(HR, "/api/pay", "pay"))[0] == 200


async def test_newer_claims_end_what_older_ones_opened(tmp_path: Path) -> None:
    """Ann loses the role: at her next request her view closes, and the stream of her other window ends."""
    async with building(tmp_path, UNTIL) as place, place.bridge(HR, ["pay"], "pay") as bridge:
        assert isinstance(bridge.first, mux.Opened)
        origin = f"http://pay.localhost:{place.port}"
        headers = {**HR, "origin": origin, "sec-fetch-site": "same-origin"}
        async with place.client.get(f"{origin}/api/feed", headers=headers) as feed:
            assert await feed.content.readline() == b"data: 1\n"
            assert (await place.state({**HR, "x-groups": "sales"}))["apps"] != []
            assert isinstance(await bridge.until(mux.Close), mux.Close)
            with pytest.raises(aiohttp.ClientError):
                await asyncio.wait_for(feed.content.read(), 10)


BOSS = {"x-user": "ann", "x-groups": "hr, boss"}


@pytest.mark.parametrize(("path", "prefix"), [("/mcp", "books_"), ("/mcp/books", "")])
async def test_a_list_has_what_its_caller_may_call(place: Building, path: str, prefix: str) -> None:
    """A tool whose condition over the principal is false is not listed; one that depends on arguments is."""
    lists = {}
    for who in (HR, BOSS):
        listed = await place.listed(who, "tools", "tools", path)
        lists[who["x-groups"]] = {name for name in listed if name in {f"{prefix}model", f"{prefix}http_request"}}
    assert lists == {"hr": {f"{prefix}http_request"}, "hr, boss": {f"{prefix}http_request", f"{prefix}model"}}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/books"])
async def test_new_claims_announce_the_list(tmp_path: Path, path: str) -> None:
    """Ann gets a role: her client that follows the list is told, and Bob's is not."""
    async with building(tmp_path, UNTIL) as place:
        await place.listed(HR, "tools", "tools", path)
        async with place.listening(HR, path) as hers:
            await place.listed(BOSS, "tools", "tools", path)
            async with asyncio.timeout(60):
                while b"notifications/tools/list_changed" not in await hers.readline():
                    pass


ABOVE = "version: 1\nroutes:\n  - {path: /api/pay, methods: [GET], deny: closed}\n"


async def test_the_organisation_and_the_parts_are_watched(tmp_path: Path) -> None:
    """A changed organisation's file, and a changed part, take effect; a loosening is in the record with its place."""
    async with building(tmp_path, UNTIL) as place:

        async def paid() -> int:
            return (await place.get(HR, "/api/pay", "pay"))[0]

        async def offered() -> bool:
            return "books_both" in await place.listed(HR, "tools", "tools")

        with (tmp_path / "gateway.yaml").open("a", encoding="utf-8") as file:
            file.write("policy: {organisation: above.yaml}\n")
        (tmp_path / "above.yaml").write_text(ABOVE, "utf-8")
        await place.until(paid, 403)
        (tmp_path / "above.yaml").write_text("version: 1\ninclude: [part.yaml]\n", "utf-8")
        (tmp_path / "part.yaml").write_text("tools: {both: {deny: never}}\n", "utf-8")
        await place.until(paid, 200)
        await place.until(offered, False)
        opened = [change for line in place.changes() for change in line["changes"] if change["turn"] == "opened"]
        assert any("no longer holds: denied: closed" in change["detail"] for change in opened)
        (tmp_path / "part.yaml").write_text("tools: {both: {rate: 5/minute per principal}}\n", "utf-8")
        await place.until(offered, True)
        (tmp_path / "part.yaml").unlink()

        async def broken() -> bool:
            problems = (await place.state({"x-user": "root", "x-groups": "root"}))["problems"]
            return any("part.yaml" in problem["message"] for problem in problems)

        await place.until(broken, True)
        assert await offered()


OAUTH = (
    '{{type: oauth, issuer: "{url}", network: private, introspection: true, client_id: us, client_secret: s3cret-k4na, '
    "audience: here}}, "
)


async def test_an_approval_comes_too_late_for_claims_that_have_changed(tmp_path: Path) -> None:
    """The role is taken away at the issuer while a person is asked: nobody calls again, and nothing is sent."""
    lead = {"x-user": "lead", "x-groups": "boss, hr"}
    async with issuer() as there, building(tmp_path, UNTIL, OAUTH.format(url=there.url)) as place:
        token = {"active": True, "token_type": "Bearer", **there.claims("here", roles=["hr"])}
        there.introspected["opaque-ann"] = token
        ann = {"authorization": "Bearer opaque-ann"}
        arguments = {"url": "/api/pay", "method": "POST"}
        calling = asyncio.ensure_future(place.call(ann, "http_request", arguments, "/mcp/pay"))
        async with asyncio.timeout(60):
            while not (asked := json.loads((await place.get(lead, "/api/approvals"))[1])["approvals"]):
                await asyncio.sleep(0.05)
        there.introspected["opaque-ann"] = {**token, "roles": ["sales"]}
        status, _ = await place.post(lead, f"/api/approvals/{asked[0]['id']}", {"answer": "approve"})
        assert status == 200
        with pytest.raises(aiohttp.ServerDisconnectedError):  # as when a token is revoked
            await calling
        assert "POST /api/pay" not in place.arrived


async def test_with_presence_an_app_is_not_opened_to_more_without_a_person(tmp_path: Path) -> None:
    """Wider access waits, and the console says so; narrower access holds at once."""
    root = {"x-user": "root", "x-groups": "root"}
    async with building(tmp_path, UNTIL, more="approvals: {presence: webauthn}\n") as place:

        async def told() -> bool:
            return "waits for a person" in json.dumps((await place.state(root))["problems"])

        place.configure(pay="{roles: [hr, sales]}")
        await place.until(told, True)
        assert (await place.mcp(OTHER, "/mcp/pay", "tools/list", {}))[0] == 404
        place.configure(pay="{roles: [hr], when: '\"boss\" in principal.roles'}")

        async def mount() -> int:
            return (await place.mcp(HR, "/mcp/pay", "tools/list", {}))[0]

        await place.until(mount, 404)
        assert not await told()

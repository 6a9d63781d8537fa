"""The model's call of a page's tool: the choice of the view, the decision, and the answer."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from gateway.model import LOCAL, Door, Initiator, Principal
from gateway.policy import Per, Policy, Quota, ReportMode, Window, parse_policy
from gateway.ports.approvals import Ask
from gateway.views import forward, registry, session
from gateway.views.view import AppRules, View
from tests.views.pages import JsonObject, Page, connect, text, until
from tests.views.rooms import Rooms, rooms

POLICY = parse_policy(
    """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET]}]
tools:
  add: {}
  rare: {rate: 1/minute per principal}
  clear: {confirm: {when: always, message: "Clear {arguments.what}?"}}
  wait: {}
  slow: {timeout: 60ms}
""",
    "policy.yaml",
)
ITEM = {"type": "object", "properties": {"item_id": {"type": "string"}}, "required": ["item_id"]}
ADD = "cart_add"
TEAM = Principal("issuer", "client", "team", shared=True)


@dataclass(slots=True, kw_only=True)
class House(Rooms):
    """A forwarder with its collaborators, and one page."""

    page: Page
    view: View
    calls: list[tuple[str, JsonObject]]

    async def call(self, name: str, arguments: JsonObject | None = None, **options: Any) -> CallToolResult:
        """Call a tool as the model."""
        return await self.forwarder.call(LOCAL, name, arguments or {}, **{"app": None, **options})


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """Yield one open view of the cart, whose page has five tools."""
    calls: list[tuple[str, JsonObject]] = []
    page = Page()

    def noting(name: str) -> None:
        async def run(arguments: JsonObject) -> JsonObject:
            calls.append((name, arguments))
            if name in ("wait", "slow"):
                await asyncio.sleep(60)
            return text(f"{name} done")

        page.register(name, run, inputSchema=ITEM if name == "add" else {"type": "object"})

    for name in POLICY.tools:
        noting(name)
    async with rooms(tmp_path, POLICY) as made:
        view = connect(made.views, LOCAL, page)
        await until(lambda: len(view.tools) == 5)
        yield House(made.forwarder, made.views, made.approvals, made.journal, page=page, view=view, calls=calls)
        for task in page.tasks:
            task.cancel()


def result_text(result: CallToolResult) -> str:
    """Return the text of a result."""
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def test_the_pages_function_runs_and_answers(house: House) -> None:
    """The call is recorded with its arguments; during and after it the view is tainted."""
    result = await house.call("cart_add", {"item_id": "tea"})
    assert (result.is_error, result_text(result)) == (False, "add done")
    assert house.calls == [("add", {"item_id": "tea"})]
    (outcome,) = house.outcomes()
    assert (outcome["kind"], outcome["tool"], outcome["arguments"]) == ("tool", "add", {"item_id": "tea"})
    assert house.views.caller_of(house.view, Door.BRIDGE).initiator is Initiator.MODEL


async def test_a_tool_that_its_page_registered_just_now_runs(house: House) -> None:
    """The page is asked for its list once a second, and at once if calls wait for that."""
    run = house.page.tools["add"][1]
    house.page.drop("add")
    await until(lambda: len(house.view.tools) == 4)
    house.page.register("add", run)
    results = await asyncio.gather(*(house.call("cart_add") for _ in range(2)))
    assert [result_text(result) for result in results] == ["add done"] * 2


class Broken(Page):
    """A page whose connection may break, so that no message reaches it any more."""

    broken = False

    async def hear(self, message: JsonObject) -> None:
        """Handle a message of the gateway, or fail."""
        if self.broken:
            raise ConnectionResetError
        await super().hear(message)


async def test_a_page_that_cannot_be_asked_is_nothing_to_the_call_of_another(house: House) -> None:
    """Its exception is only logged."""
    run, other = house.page.tools["add"][1], Broken()
    house.views.apps = {**house.views.apps, "notes": AppRules("Notes", POLICY)}
    other.tools["wait"] = house.page.tools["wait"]
    view = connect(house.views, LOCAL, other, "notes")
    await until(lambda: len(view.tools) == 1)
    other.register("slow", run)
    house.page.drop("add")
    await until(lambda: (len(view.tools), len(house.view.tools)) == (2, 4))
    for page in (other, house.page):
        page.register("add", run)
    other.broken = True
    assert result_text(await house.call("cart_add")) == "add done"


async def test_who_calls_a_tool_of_a_silent_page_does_not_wait_for_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page may be suspended: the model learns that there is no such tool."""
    monkeypatch.setattr(session, "CATCH_UP", 0.05)
    house.page.drop("add")
    await until(lambda: len(house.view.tools) == 4)
    house.page.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    house.page.view = None
    assert "Open its app" in result_text(await house.call("cart_add"))


@pytest.mark.parametrize(
    ("name", "arguments", "options", "words"),
    [
        ("cart_add", {}, {}, "item_id"),
        ("cart_add", {"item_id": 7}, {}, "item_id"),
        ("cart_nothing", {}, {}, "Open its app"),
        ("add", {"item_id": "x"}, {"view": "A" * 22}, "list_view_tools"),
        ("nothing", {}, {"view": "mine"}, "It has: add, rare"),
        ("cart_add", {"item_id": "x"}, {"app": "notes"}, "Open its app"),
    ],
)
async def test_what_cannot_run_says_what_to_do(
    house: House, name: str, arguments: JsonObject, options: dict[str, str], words: str
) -> None:
    """The message is for the model, and nothing runs."""
    if options.get("view") == "mine":
        options = {"view": house.view.id}
    result = await house.call(name, arguments, **options)
    assert result.is_error
    assert words in result_text(result)
    assert house.calls == []


async def test_a_view_whose_page_has_not_come_yet_is_waited_for(house: House) -> None:
    """The model should try again; not another principal or app, nor once the view was closed."""
    opened = await house.views.open(LOCAL, "cart")

    async def answer(principal: Principal = LOCAL, app: str | None = None) -> str:
        result = await house.forwarder.call(principal, "add", {"item_id": "x"}, app=app, view=opened.view)
        assert result.is_error
        return result_text(result)

    assert "has not come up yet. Try again" in await answer()
    assert f"No view '{opened.view}' is open" in await answer(TEAM)
    assert f"No view '{opened.view}' is open" in await answer(app="notes")
    await house.views.attach(LOCAL, "cart", opened.launch.reveal(), {})
    assert "This view has no tool" in await answer()
    view = house.views.find(opened.view, LOCAL)
    assert view is not None
    house.views.close(view)
    assert f"No view '{opened.view}' is open" in await answer()


async def test_with_two_views_the_handle_decides(house: House) -> None:
    """Another conversation's view is never picked."""
    other = Page()
    other.tools = dict(house.page.tools)
    view = connect(house.views, LOCAL, other)
    await until(lambda: len(view.tools) == 5)
    assert "view" in result_text(await house.call("cart_add", {"item_id": "tea"}))
    assert house.calls == []
    assert not (await house.call("add", {"item_id": "tea"}, view=view.id)).is_error
    assert [message for message in house.page.heard if message.get("method") == "tools/call"] == []


async def test_views_without_the_tool_do_not_make_its_name_ambiguous(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one without tools, nor one with others, nor one over MCP that lists none in time."""
    none, other = Page(), Page()
    other.tools["rare"] = house.page.tools["rare"]
    connect(house.views, LOCAL, none)
    rare = connect(house.views, LOCAL, other)
    quiet = await house.views.attach(LOCAL, "cart", None, {})
    await until(lambda: any(message["method"] == "tools/list" for message in none.heard) and len(rare.tools) == 1)
    assert "Pass view" in result_text(await house.call("cart_add", {"item_id": "tea"}))  # the last one is new
    monkeypatch.setattr(registry, "LISTING", 0.0)
    assert result_text(await house.call("cart_add", {"item_id": "tea"})) == "add done"
    assert "Pass view" in result_text(await house.call("cart_rare"))  # which two of them offer
    assert house.views.find(quiet.view, LOCAL) is not None
    assert house.calls == [("add", {"item_id": "tea"})]


async def test_a_view_whose_tools_are_not_known_yet_may_be_the_one_meant(house: House) -> None:
    """Its page has not answered, or reported a change: another conversation's view is not used instead."""

    class Slow(Page):
        """A page that does not list its tools yet."""

        slow = True

        async def hear(self, message: JsonObject) -> None:
            """Handle a message of the gateway, except for the list."""
            if not self.slow or message.get("method") != "tools/list":
                await super().hear(message)

    page = Slow()
    view = connect(house.views, LOCAL, page)
    await until(lambda: view.session is not None and view.session.behind)
    assert view.tool_list is None
    assert "Pass view" in result_text(await house.call("cart_wait", view=None))
    page.slow = False
    house.views.disconnect(view)
    house.views.connect(view, page.hear)
    await until(lambda: view.tool_list == [])
    page.register("wait", house.page.tools["wait"][1])
    assert "Pass view" in result_text(await house.call("cart_wait"))
    assert house.calls == []


OUTPUT = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({**text("3"), "structuredContent": {"total": 3}}, None),
        ({**text("3"), "structuredContent": {"total": "3"}}, "total: '3' is not of type 'integer'"),
        (text("3"), "it has no structuredContent"),
        ({**text("sold out"), "isError": True}, "sold out"),
    ],
)
async def test_structured_content_fits_the_output_schema(house: House, answer: JsonObject, error: str | None) -> None:
    """A misfit is an error with the reason: clients would drop it without telling the model."""

    async def run(arguments: JsonObject) -> JsonObject:
        return answer

    house.page.register("add", run, outputSchema=OUTPUT)
    await until(lambda: any(tool.output_schema == OUTPUT for tool in house.view.tools))
    result = await house.call("cart_add", {})
    if error is None:
        assert (result.is_error, result.structured_content) == (False, {"total": 3})
    else:
        assert (result.is_error, result.structured_content) == (True, None)
        assert error in result_text(result)
        assert result_text(result) == "sold out" or result.content[1] == TextContent(type="text", text="3")


async def test_a_shared_principal_needs_the_handle(house: House) -> None:
    """No view of a shared principal is picked by name."""
    page = Page()
    page.tools = dict(house.page.tools)
    view = connect(house.views, TEAM, page)
    await until(lambda: len(view.tools) == 5)
    result = await house.forwarder.call(TEAM, "cart_add", {"item_id": "tea"}, app=None)
    assert result.is_error
    result = await house.forwarder.call(TEAM, "add", {"item_id": "tea"}, app=None, view=view.id)
    assert not result.is_error


async def test_a_rate_holds_for_tools(house: House) -> None:
    """The second call is refused."""
    assert not (await house.call("cart_rare")).is_error
    assert "rate-limited" in result_text(await house.call("cart_rare"))
    assert len(house.calls) == 1


async def test_a_tool_that_asks_runs_once_a_person_said_yes(house: House) -> None:
    """The question contains the values; a repeated call joins it, and runs once."""
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(house.call("cart_clear", {"what": "everything"}))
        await until(lambda: bool(house.approvals.open()))
        (question,) = [one.question for one in house.approvals.open()]
        parked = house.approvals.find(question.id, house.views.caller_of(house.view, Door.MCP))
        second = tasks.create_task(house.call("cart_clear", {"what": "everything"}))
        await until(lambda: parked.holding == 2)
        assert len(house.approvals.open()) == 1
        assert question.message == "Clear everything?"
        assert house.calls == []
        await house.approvals.answer(question.id, True, "ann")
    assert sorted([first.result().is_error, second.result().is_error]) == [False, True]
    assert house.calls == [("clear", {"what": "everything"})]


async def test_a_tool_that_changed_after_the_question_does_not_run(house: House) -> None:
    """Only the tool that the person saw may run."""
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.call("cart_clear", {"what": "x"}))
        await until(lambda: bool(house.approvals.open()))
        _, execute = house.page.tools["clear"]
        house.page.register("clear", execute, description="something else now")
        await until(lambda: any(tool.description == "something else now" for tool in house.view.tools))
        await house.approvals.answer(house.approvals.open()[0].question.id, True, "ann")
    assert call.result().is_error
    assert house.calls == []


async def test_a_call_is_not_let_go_under_another_policy_than_the_one_that_asked(house: House) -> None:
    """The person approved what the older policy asked."""
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.call("cart_clear", {"what": "x"}))
        await until(lambda: bool(house.approvals.open()))
        under(house, replace(POLICY, version="another"))
        await house.approvals.answer(house.approvals.open()[0].question.id, True, "ann")
    assert "its policy changed after it was approved" in result_text(call.result())
    assert house.calls == []


async def test_a_view_that_closes_ends_the_call(house: House) -> None:
    """The message warns that it may have run."""
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.call("cart_wait"))
        await until(lambda: bool(house.calls))
        house.views.close(house.view)
    assert call.result().is_error
    assert "may have run" in result_text(call.result())


async def test_a_silent_page_is_given_up(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the deadline."""
    monkeypatch.setattr(forward, "DEADLINE", 0.05)
    assert "did not answer" in result_text(await house.call("cart_wait"))


async def test_a_tool_may_have_a_deadline_of_its_own(house: House) -> None:
    """Its rule sets it; the page is notified of the cancellation."""
    result = await house.call("cart_slow")
    assert "not within 0.06 seconds" in result_text(result)


async def test_the_deadline_stands_still_while_a_person_is_asked(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page waits for the person."""
    monkeypatch.setattr(forward, "DEADLINE", 1.0)
    ask = Ask("Remove tea?", "DELETE", "/api/cart/tea", "digest", POLICY.version)

    async def run(arguments: JsonObject) -> JsonObject:
        caller = house.views.caller_of(house.view, Door.BRIDGE)
        id = (await house.approvals.park(ask, caller)).question.id
        await house.approvals.wait(id, caller, 5)
        return text("a person answered")

    house.page.tools["wait"] = (house.page.tools["wait"][0], run)
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(house.call("cart_wait"))
        await until(lambda: bool(house.approvals.open()))
        await asyncio.sleep(1.2)
        await house.approvals.answer(house.approvals.open()[0].question.id, True, "ann")
    assert result_text(call.result()) == "a person answered"


async def test_cancelling_reaches_the_page(house: House) -> None:
    """The page is notified, the record has the cancellation."""
    call = asyncio.ensure_future(house.call("cart_wait"))
    await until(lambda: bool(house.calls))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: any(message.get("method") == "notifications/cancelled" for message in house.page.heard))
    assert house.outcomes()[-1]["reason"] == "cancelled"


async def test_what_could_reach_beyond_a_result_is_removed(house: House) -> None:
    """`_meta`, resource links and embedded apps are removed, in any spelling."""
    odd = ("ui://cart/x", "UI://x", "mcp-app://cart/x", " ui://x", "\tu\ni://x", "\x00mcp-app:x", "ui:x")
    apps: list[JsonObject] = [{"uri": uri, "text": "<p>", "mimeType": "text/html"} for uri in odd]
    apps.append({"uri": "x:y", "text": "<p>", "mimeType": 'text/html; profile="MCP-App"'})
    kept: JsonObject = {"uri": "x:y", "text": "kept", "mimeType": "text/plain"}

    async def run(arguments: JsonObject) -> JsonObject:
        return {
            "_meta": {"webmcp-gateway/launch": "forged"},
            "content": [
                {"type": "text", "text": "kept", "_meta": {"x": 1}},
                {"type": "resource_link", "uri": "ui://cart/x", "name": "x"},
                *({"type": "resource", "resource": app} for app in apps),
                {"type": "resource", "resource": {**kept, "_meta": {"ui": {}}}, "_meta": {"x": 1}},
            ],
        }

    house.page.register("add", run)
    await until(
        lambda: any(tool.page_name == "add" and "required" not in tool.input_schema for tool in house.view.tools)
    )
    result = await house.call("cart_add")
    told = [{"type": "text", "text": "kept"}, {"type": "resource", "resource": kept}]
    assert result.model_dump(exclude_none=True, by_alias=True)["content"] == told
    assert result.meta is None


async def test_what_is_no_result_of_a_tool_is_told_and_recorded(house: House) -> None:
    """The model learns that the tool may have run; the record has that reason."""

    async def run(arguments: JsonObject) -> JsonObject:
        return {"content": "added"}

    house.page.tools["add"] = (house.page.tools["add"][0], run)
    result = await house.call("cart_add", {"item_id": "tea"})
    assert result.is_error
    assert "its answer is not the result of a tool. The tool may have run" in result_text(result)
    assert house.outcomes()[-1]["reason"] == "connection-lost"


def under(house: House, policy: Policy) -> None:
    """Give the app another policy."""
    house.views.apps = {"cart": AppRules("Cart", policy)}


async def test_a_quota_counts_calls(house: House) -> None:
    """The next one is refused, and does not reach the page."""
    add = replace(POLICY.tools["add"], quotas=(Quota(1, Window.MONTH, Per.PRINCIPAL, "add"),))
    under(house, replace(POLICY, tools={**POLICY.tools, "add": add}))
    assert not (await house.call(ADD, {"item_id": "tea"})).is_error
    assert "quota-exceeded" in result_text(await house.call(ADD, {"item_id": "tea"}))
    assert len(house.calls) == 1


async def test_report_mode_writes_down_what_it_lets_through(house: House) -> None:
    """An exceeded limit, and a condition that does not hold."""
    rules = parse_policy(
        """
version: 1
backends: {shop: {url: "http://shop.test"}}
routes: [{path: /api, methods: [GET]}]
tools:
  add: {when: 'arguments.item_id == "coffee"', rate: 1/minute per principal}
""",
        "policy.yaml",
    )
    under(house, replace(rules, mode=ReportMode("", time.time() + 86400)))
    for _ in range(2):
        assert not (await house.call(ADD, {"item_id": "tea"})).is_error
    first, second = (" ".join(fields["reported"]) for fields in house.outcomes())
    assert "does not hold" in first
    assert "rate-limited" not in first
    assert "rate-limited" in second


async def test_a_refused_call_is_recorded_with_its_size(house: House) -> None:
    """One with wrong arguments, and one that the policy denies."""
    await house.call(ADD, {"item_id": 7})
    under(house, replace(POLICY, tools={"add": replace(POLICY.tools["add"], deny="no more")}))
    await house.call(ADD, {"item_id": "tea"})
    assert [(fields["status"], fields["request_size"]) for fields in house.outcomes()] == [(400, 14), (403, 18)]


async def test_a_call_that_no_text_can_carry_is_recorded(house: House) -> None:
    """A parser may accept deeper nesting than a serializer can write."""
    deep: Any = "tea"
    for _ in range(5000):
        deep = [deep]
    result = await house.call(ADD, {"item_id": deep})
    assert (result.is_error, house.calls) == (True, [])
    assert "nested deeper" in result_text(result)
    assert [fields["status"] for fields in house.outcomes()] == [400]

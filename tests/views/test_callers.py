"""Views and tools that a caller is shown: by its claims, by the access of the app, across a person's clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from gateway.callers.entitlements import Entitlements
from gateway.callers.methods import PERSON_VIEWS
from gateway.errors import Refusal
from gateway.model import Initiator, Principal
from gateway.policy import parse_policy
from gateway.views.forward import BackgroundCalls
from gateway.views.view import View
from tests.views.pages import JsonObject, Page, connect, text, until
from tests.views.rooms import Rooms, rooms

POLICY = parse_policy(
    """
version: 1
tools:
  read: {}
  pay: {when: '"buyer" in principal.roles'}
  some: {when: '"buyer" in principal.roles && arguments.count < 3'}
  mine: {when: 'principal.claims.country == "DE"'}
""",
    "cart.yaml",
)
ANN = Principal("https://issuer.test", "console", "ann", roles=frozenset({"buyer"}), claims={"country": "DE"})
DESK = replace(ANN, client="desk", capabilities=frozenset({"mcp", PERSON_VIEWS}))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[tuple[Rooms, View]]:
    """Yield the rooms with one view of Ann's, whose page has all tools."""
    page = Page()

    async def run(arguments: JsonObject) -> JsonObject:
        return text("done")

    for name in POLICY.tools:
        page.register(name, run)
    async with rooms(tmp_path, POLICY) as made:
        view = connect(made.views, ANN, page)
        await until(lambda: len(view.tools) == 4)
        yield made, view
        for task in page.tasks:
            task.cancel()


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({}, ["read", "pay", "some", "mine"]),
        ({"roles": frozenset[str]()}, ["read", "some", "mine"]),
        ({"claims": {}}, ["read", "pay", "some"]),
        ({"claims": {"country": ["DE"]}}, ["read", "pay", "some"]),
        ({"roles": frozenset({"Buyer"}), "claims": {"country": 49}}, ["read", "some"]),
    ],
)
async def test_a_caller_is_shown_what_it_may_call(
    house: tuple[Rooms, View], changed: dict[str, object], names: list[str]
) -> None:
    """A condition over the principal is evaluated; one that reads arguments, too, counts as allowed."""
    made, _ = house
    caller = replace(ANN, **changed)  # type: ignore[arg-type]  # fields of the principal
    assert [tool.page_name for tool in made.views.tools(caller, None)] == names
    [listed] = made.views.live(caller)
    assert [tool.page_name for tool in listed.tools] == names


async def test_another_client_of_the_person_reaches_the_view_by_its_handle(house: tuple[Rooms, View]) -> None:
    """Its tools are called as that client; they are not among the tools of its list."""
    made, view = house
    assert made.views.tools(DESK, None) == ()
    assert [(owner, listed.id) for owner, listed in made.views.reachable(DESK)] == [(ANN, view.id)]
    result = await made.forwarder.call(DESK, "read", {}, app=None, view=view.id)
    assert not result.is_error
    (outcome,) = made.outcomes()
    assert (outcome["principal"], outcome["initiator"]) == (DESK.id, Initiator.MODEL)


@pytest.mark.parametrize(
    "caller",
    [
        replace(DESK, capabilities=frozenset({"mcp"})),
        replace(DESK, subject="bob"),
        replace(DESK, issuer="https://other.test"),
        replace(DESK, subject="", shared=True),
    ],
)
async def test_no_other_client_does(house: tuple[Rooms, View], caller: Principal) -> None:
    """Neither one that is not named, nor another person's, another issuer's, or one without a person."""
    made, view = house
    assert made.views.reachable(caller) == []
    result = await made.forwarder.call(caller, "read", {}, app=None, view=view.id)
    assert result.is_error
    unknown = await made.forwarder.call(caller, "read", {}, app=None, view="unknown")
    shown = [str(one.content[0]).replace(view.id, "unknown") for one in (result, unknown)]
    assert shown[0] == shown[1]


async def test_a_view_without_access_is_as_if_closed(house: tuple[Rooms, View]) -> None:
    """Once the app excludes its caller, or the client that calls by the handle, the view is not there."""
    made, view = house
    admitted = {ANN, DESK}
    made.views.admits = lambda principal, app: principal in admitted
    assert made.views.reach(view.id, DESK) is view
    admitted.remove(ANN)
    assert (made.views.reach(view.id, DESK), made.views.find(view.id, ANN)) == (None, None)
    assert made.views.list_excluded() == [view]
    with pytest.raises(Refusal, match="closed"):
        made.views.caller_of(view, None)  # type: ignore[arg-type]  # refused before the door is read
    admitted = {ANN}
    assert made.views.reach(view.id, DESK) is None


def test_watchers_hear_of_claims_that_change_a_list() -> None:
    """New claims that show the same tools and apps notify nobody."""
    rules, heard = Entitlements(), list[Principal | None]()
    rules.watch(heard.append)
    rules.replace({}, [POLICY])
    rules.note_arrival(ANN)
    rules.note_arrival(replace(ANN, claims={"country": "DE", "iat": 1}))
    assert heard == []
    poorer = replace(ANN, roles=frozenset(), claims={"country": "DE", "iat": 2})
    rules.note_arrival(poorer)
    rules.note_arrival(ANN)  # an older token that is still valid brings nothing back
    assert heard == [poorer]


class Quiet:
    """A relay whose view shows no activity."""

    def timeout(self) -> float:
        """Return how long to wait."""
        return 0.0


async def test_a_result_that_waits_is_gone_with_the_access() -> None:
    """The result of a call that ran before is not collected any more."""
    admitted, go = [True], asyncio.Event()
    calls = BackgroundCalls(asyncio.ensure_future, admits=lambda _principal, _app: admitted[0])

    async def work() -> CallToolResult:
        await go.wait()
        return CallToolResult(content=[])

    relay: Any = Quiet()
    later = await calls.run(ANN, relay, work(), lambda: False)
    assert later.structured_content is not None
    go.set()
    admitted[0] = False
    with pytest.raises(Refusal, match="No call"):
        await calls.collect(ANN, str(later.structured_content["call"]))
    admitted[0] = True
    assert await calls.collect(ANN, str(later.structured_content["call"])) == CallToolResult(content=[])

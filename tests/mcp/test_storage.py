"""Tests of `webmcp_storage`: which views may store their page's items, and the answers of others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.mcp.mount_interfaces import MountClient
from gateway.model import LOCAL, Json, Principal
from gateway.stores.page_storage import QUOTA
from gateway.stores.sealing import SealBroken
from tests.mcp.fakes import fake_app
from tests.mcp.mounts import Mount, Served

ANN = Principal("login", "host", "ann")


def mount(**options: Any) -> Mount:
    """Yield a mount on which the cart stores its items, and the to-do list does not."""
    return Mount(apps={"cart": replace(fake_app("cart"), keeps=True), "todo": fake_app("todo")}, **options)


async def call(
    place: Mount, principal: Principal = ANN, *, proof: str | None = "proof", **arguments: Json
) -> tuple[bool, dict[str, Any]]:
    """Return whether a call is refused, and its values."""
    said = arguments if proof is None else {**arguments, "_view": proof}
    async with place.face() as served:
        result = await served.face.catalog.call_tool("webmcp_storage", said, MountClient(principal, is_app=True))
    assert result.structured_content is not None
    return bool(result.is_error), result.structured_content


async def test_a_proven_view_finds_what_it_kept() -> None:
    """For its person in any client; for no other person."""
    place = mount()
    assert await call(place, changes={"a": "1", "b": "2"}) == (False, {"quota": QUOTA})
    assert await call(place, changes={"a": None}) == (False, {"quota": QUOTA})
    elsewhere = Principal("login", "other host", "ann")
    assert await call(place, elsewhere) == (False, {"items": {"b": "2"}, "quota": QUOTA})
    assert await call(place, Principal("login", "host", "bob")) == (False, {"items": {}, "quota": QUOTA})
    assert await call(place, clear=True) == (False, {"quota": QUOTA})
    assert await call(place) == (False, {"items": {}, "quota": QUOTA})


@pytest.mark.parametrize(
    ("options", "principal", "arguments", "reason"),
    [
        ({}, ANN, {"proof": None}, "view-unproven"),
        ({}, ANN, {"proof": "forged"}, "view-unproven"),
        ({}, replace(ANN, shared=True), {}, "policy-denied"),
        ({"app": "todo"}, ANN, {}, None),
        ({}, ANN, {"changes": [1]}, "bad-request"),
        ({}, ANN, {"changes": {"a": 1}}, "bad-request"),
        ({}, ANN, {"changes": {"a": {"b": "c"}}}, "bad-request"),
        ({}, ANN, {"changes": {"a": "\ud800"}}, "bad-request"),
        ({}, ANN, {"changes": {"\udfff": "a"}}, "bad-request"),
        ({}, ANN, {"clear": "yes"}, "bad-request"),
        ({}, ANN, {"changes": {"too much": "x"}}, "quota-exceeded"),
    ],
)
async def test_others_are_refused(
    options: dict[str, Any], principal: Principal, arguments: dict[str, Any], reason: str | None
) -> None:
    """Nothing is stored; if no app uses storage, the tool does not exist."""
    place = mount(**options)
    if reason is None:
        async with place.face() as served:
            assert not served.face.catalog.owns("webmcp_storage")
        return
    refused, values = await call(place, principal, **arguments)
    assert (refused, values["reason"], place.storage.items) == (True, reason, {})


@pytest.mark.parametrize(
    ("failing", "reason"), [(OSError("down"), "state-unavailable"), (SealBroken("no key"), "internal")]
)
async def test_a_store_that_fails_says_so(failing: Exception, reason: str) -> None:
    """With a retry hint if retrying may help."""
    place = mount()
    place.storage.failing = failing
    assert (await call(place))[1]["reason"] == reason
    assert (await call(place, changes={"a": "1"}))[1]["reason"] == reason


@pytest.mark.bound("loads and saves of page storage")
async def test_a_page_that_asks_too_often_is_refused() -> None:
    """At all mounts together; the pages of others are served meanwhile."""
    place = mount()
    async with place.face() as served, place.face() as other:

        async def ask(principal: Principal, there: Served = served) -> str:
            client = MountClient(principal, is_app=True)
            result = await there.face.catalog.call_tool("webmcp_storage", {"_view": "proof"}, client)
            assert result.structured_content is not None
            return str(result.structured_content.get("reason", "served"))

        asked = [await ask(ANN) for _ in range(100)]
        assert set(asked) == {"served", "rate-limited"}
        assert asked.count("served") < 50
        assert "rate-limited" in [await ask(ANN, other) for _ in range(10)]
        assert await ask(Principal("login", "host", "bob")) == "served"


async def test_models_are_not_told_of_it() -> None:
    """It is listed only for clients that show apps, and for apps only."""
    async with mount().face() as served:
        listed = {tool.name: tool for tool in served.face.catalog.list_tools(MountClient(LOCAL, is_app=True))}
        assert (listed["webmcp_storage"].meta or {})["ui"] == {"visibility": ["app"]}
        assert "webmcp_storage" not in {tool.name for tool in served.face.catalog.list_tools(MountClient(LOCAL))}

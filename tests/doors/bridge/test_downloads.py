"""Files that an app gave to a person: the console's reports of them are checked and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.doors.bridge.offers import OFFERS
from tests.doors.bridge.test_bridge import connected, console
from tests.whole.test_record_fails import full
from tests.world import running

FILE = {"name": "tea list.csv", "size": 3}


async def test_what_was_answered_is_recorded(tmp_path: Path) -> None:
    """With names and sizes, as the act of the view's app; an invalid answer, or one for another view, is not."""
    async with running(tmp_path) as world, console(world) as client, connected(world, client) as host:
        view = (await host.open()).view

        async def post(**body: Any) -> int:
            async with client.post(f"{world.console}/api/downloads", json=body) as answer:
                return answer.status

        assert await post(view=view, files=[FILE, {"name": "übersicht 2\u00a0€.txt", "size": 0}], answered=True) == 200
        assert await post(view=view, files=[FILE], answered=False) == 200
        assert await post(view="x" * 22, files=[FILE], answered=True) == 403
        wrongs: list[dict[str, Any]] = [
            {"files": []},
            {"files": [FILE] * 17},
            {"files": "all"},
            {"files": [{"name": "", "size": 1}]},
            {"files": [{"name": "a\nb", "size": 1}]},
            {"files": [{"name": "\ud800", "size": 1}]},
            {"files": [{"name": "a", "size": -1}]},
            {"files": [{"name": "a", "size": True}]},
            {"answered": "yes"},
            {"view": 1},
        ]
        for wrong in wrongs:
            assert await post(**{"view": view, "files": [FILE], "answered": True, **wrong}) == 400
        lines = [line for line in world.records() if line["fields"]["kind"] == "download"]
    said = [{**line["fields"], "phase": line["phase"]} for line in lines]
    assert [(line["phase"], line["decision"]) for line in said] == [
        ("intent", "approved"),
        ("outcome", "approved"),
        ("outcome", "declined"),
    ]
    assert said[1]["files"] == [FILE, {"name": "übersicht 2\u00a0€.txt", "size": 0}]
    assert {line["view"] for line in said} == {view}
    assert {line["app"] for line in said} == {"cart"}
    assert said[2]["reason"] == "approval-declined"


@pytest.mark.bound("links and downloads that the pages of an app offer")
async def test_a_page_cannot_fill_the_record_with_offers(tmp_path: Path) -> None:
    """Links and downloads count together, and what is beyond the rate is summed up."""
    async with running(tmp_path) as world, console(world) as client, connected(world, client) as host:
        view = (await host.open()).view
        asked: list[tuple[str, dict[str, Any]]] = [
            ("links", {"view": view, "url": "https://docs.example.com/"}),
            ("downloads", {"view": view, "files": [FILE], "answered": False}),
        ]
        told = list[int]()
        for number in range(OFFERS.count + 20):
            path, body = asked[number % 2]
            async with client.post(f"{world.console}/api/{path}", json=body) as answer:
                told.append(answer.status)
        lines = [line for line in world.records() if line["fields"]["kind"] in ("download", "link")]
    assert set(told[: OFFERS.count]) <= {200, 403}
    assert told.count(429) in (19, 20)
    assert len(lines) <= OFFERS.count + 1


async def test_nothing_is_saved_without_a_record(tmp_path: Path) -> None:
    """The console receives an error if the record cannot be written."""
    async with running(tmp_path) as world, console(world) as client, connected(world, client) as host:
        body = {"view": (await host.open()).view, "files": [FILE], "answered": True}
        with full(world.config.journal):
            async with client.post(f"{world.console}/api/downloads", json=body) as answer:
                assert (answer.status, (await answer.json())["type"]) == (503, "urn:webmcp-gateway:audit-unavailable")

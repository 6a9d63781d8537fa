"""Sessions of the handshake protocols go on at the next process, for their own caller and mount."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from mcp.server.streamable_http import GET_STREAM_KEY

from gateway.mcp import resume
from gateway.mcp.resume import event_id, lost_call
from gateway.model import LOCAL
from tests.mcp.fakes import ADD
from tests.mcp.mounts import Mount
from tests.mcp.test_resume import event, open_session

CALL = {"name": "http_request", "arguments": {"method": "POST", "url": "/api/cart"}}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


async def send_request(
    http: aiohttp.ClientSession, url: str, fields: dict[str, str], message: dict[str, Any] = LIST
) -> tuple[int, Any]:
    """Return status and answer of a request."""
    async with http.post(url, json=message, headers=fields) as answer:
        text = await answer.text()
    events = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
    return answer.status, json.loads(events[-1] if events else text)


async def test_a_session_goes_on_after_a_restart() -> None:
    """Its first request is answered; so are several at once."""
    mount = Mount()
    async with aiohttp.ClientSession() as http:
        async with mount.serve() as served:
            fields = await open_session(http, served.url)
            before = await send_request(http, served.url, fields)
        async with mount.serve() as served:
            answers = await asyncio.gather(
                *[send_request(http, served.url, fields, {**LIST, "id": number}) for number in range(1, 6)]
            )
    assert [status for status, _ in answers] == [200] * 5
    assert answers[0] == before


@pytest.mark.parametrize(("user", "status"), [("i|c|other", 404), ("", 200)])
async def test_a_session_is_adopted_by_its_own_principal_alone(user: str, status: int) -> None:
    """For another one it is unknown, and stays the owner's."""
    mount = Mount()
    async with aiohttp.ClientSession() as http:
        async with mount.serve() as served:
            fields = await open_session(http, served.url)
        async with mount.serve() as served:
            assert (await send_request(http, served.url, {**fields, "x-user": user}))[0] == status
            assert (await send_request(http, served.url, fields))[0] == 200
            assert (await send_request(http, served.url, {**fields, "x-user": "i|c|other"}))[0] == 404


async def test_a_session_is_adopted_at_its_own_mount_alone() -> None:
    """At another one it is unknown."""
    first, second = Mount(), Mount(app="cart")
    second.kept = first.kept
    async with aiohttp.ClientSession() as http:
        async with first.serve() as served:
            fields = await open_session(http, served.url)
        async with second.serve() as served:
            assert (await send_request(http, served.url, fields))[0] == 404


@pytest.mark.parametrize("id", ["0" * 32, "x" * 32, "é", "0" * 5000, "0' OR 1=1 --"])
async def test_an_unknown_id_is_404(id: str) -> None:
    """As before a restart."""
    async with Mount().serve() as served, aiohttp.ClientSession() as http:
        fields = {**await open_session(http, served.url), "mcp-session-id": id}
        assert (await send_request(http, served.url, fields))[0] == 404


async def test_a_session_that_its_client_ended_is_not_adopted() -> None:
    """Neither one that was ended before the restart, nor after it."""
    mount = Mount()
    async with aiohttp.ClientSession() as http:
        async with mount.serve() as served:
            first, second = await open_session(http, served.url), await open_session(http, served.url)
            async with http.delete(served.url, headers=first) as answer:
                assert answer.status == 200
        async with mount.serve() as served:
            async with http.delete(served.url, headers=second) as answer:
                assert answer.status == 200
            for fields in (first, second):
                assert (await send_request(http, served.url, fields))[0] == 404


async def test_the_standing_stream_begins_anew_and_reports_changed_lists() -> None:
    """With the `Last-Event-ID` of the former process; later changes follow on it."""
    mount = Mount()
    async with aiohttp.ClientSession() as http:
        async with mount.serve() as served:
            fields = await open_session(http, served.url)
            async with http.get(served.url, headers=fields) as stream:
                last = (await event(stream))["id"]
        again = {**fields, "last-event-id": last}
        async with mount.serve() as served, http.get(served.url, headers=again) as stream:
            assert stream.status == 200
            assert (await event(stream))["id"].startswith(".")
            assert json.loads((await event(stream))["data"])["method"] == "notifications/tools/list_changed"
            served.views.offer(LOCAL, ADD)
            assert json.loads((await event(stream))["data"])["method"] == "notifications/tools/list_changed"


async def test_a_call_that_was_cut_ends_with_connection_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that resumes its stream is told at once; the call does not run again."""
    mount = Mount()
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": CALL}
    async with aiohttp.ClientSession() as http:
        async with mount.serve() as served:
            fields = await open_session(http, served.url)
            async with http.post(served.url, json=message, headers=fields) as stream:
                last = (await event(stream))["id"]
        monkeypatch.setattr(resume, "_PROCESS", "another")
        async with mount.serve() as served:
            async with http.get(served.url, headers={**fields, "last-event-id": last}) as stream:
                assert stream.status == 200
                answer = json.loads((await event(stream))["data"])
                assert await event(stream) == {}
            assert answer["id"] == 7
            assert answer["error"]["message"].startswith("connection-lost: ")
            assert served.exchange.callers == []


@pytest.mark.parametrize(
    ("stream", "call"), [("7", 7), ("abc", "abc"), ("", None), ("9" * 30, "9" * 30), ("x" * 200, None), ("é", "é")]
)
def test_an_event_id_names_its_call(stream: str, call: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """To later processes only; nothing else is taken for one."""
    id = event_id(stream)
    assert lost_call(id) is None
    monkeypatch.setattr(resume, "_PROCESS", "another")
    assert lost_call(id) == call
    for other in ("", "~", "a~~b", "a~/~b", "a~_w~b", event_id(GET_STREAM_KEY)):
        assert lost_call(other) is None


async def test_settings_of_a_session_are_restored() -> None:
    """They are repeated as its client sent them, to what answers before the mount."""
    mount = Mount()
    async with aiohttp.ClientSession() as http:
        async with mount.serve() as served:
            fields = await open_session(http, served.url)
            id = fields["mcp-session-id"]
            await mount.kept.change(id, lambda state: replace(state, level="error", subscriptions=("ui://a",)))
        async with mount.serve() as served:
            assert (await send_request(http, served.url, fields))[0] == 200
    state = mount.kept._rows[id].state
    assert (state.level, state.subscriptions) == ("error", ("ui://a",))
    assert state.info == {"name": "a", "version": "1"}

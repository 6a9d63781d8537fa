"""A record that cannot be written: what is refused then, and its report in the log, the metrics and the console."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from mcp import Client

from gateway.stores import filler
from tests.approvals.page import show_cart
from tests.approvals.test_ways import count_requests, grants_in_effect, send_removal
from tests.credentials.house import house
from tests.doors.upstream_view import shop
from tests.interop.serving import over_http
from tests.software_key import SoftwareKey
from tests.whole.test_main_job import person, questions
from tests.world import EXAMPLE, Server, World, running

CLIENT = {"webmcp-gateway-client": "1"}


POLICY = """
version: 1
backends: {shop: {url: "http://127.0.0.1:PORT", network: private}}
routes: [{path: /api/echo, methods: [GET, POST]}]
"""


def answering() -> web.Application:
    """Return a backend that answers every request."""

    async def handle(request: web.Request) -> web.Response:
        return web.json_response({}, status=201 if request.method == "POST" else 200)

    app = web.Application()
    app.router.add_route("*", "/api/echo", handle)
    return app


async def status_of(world: World, client: aiohttp.ClientSession, method: str) -> int:
    """Return the status of one request."""
    async with client.request(method, f"{world.site}/api/echo") as answer:
        return answer.status


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Limit all files to the current size of `path`, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _writes(number: str) -> bool:
    """Return whether a descriptor of this process was opened for writing."""
    flags = re.search(r"^flags:\s*([0-7]+)$", Path(f"/proc/self/fdinfo/{number}").read_text("ascii"), re.MULTILINE)
    return flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY


@contextmanager
def fail_writes(path: Path) -> Iterator[None]:
    """Make writes to the journal fail as to a closed file; its descriptor stays taken for no other file to get it."""
    opened = [one.name for one in Path("/proc/self/fd").iterdir() if one.resolve() == path]
    (number,) = [int(name) for name in opened if _writes(name)]  # the console reads it, too
    kept, closed_for_writing = os.dup(number), os.open(os.devnull, os.O_RDONLY)
    os.dup2(closed_for_writing, number, inheritable=False)
    try:
        yield
    finally:
        os.dup2(kept, number, inheritable=False)
        os.close(kept)
        os.close(closed_for_writing)


@contextmanager
def pipe_writes(path: Path) -> Iterator[None]:
    """Send the journal's writes into a pipe: they succeed, but cannot be synced."""
    opened = [one.name for one in Path("/proc/self/fd").iterdir() if one.resolve() == path]
    (number,) = [int(name) for name in opened if _writes(name)]  # the console reads it, too
    kept, (end, pipe) = os.dup(number), os.pipe()
    os.dup2(pipe, number, inheritable=False)
    try:
        yield
    finally:
        os.dup2(kept, number, inheritable=False)
        for one in (kept, end, pipe):
            os.close(one)


BREAKS: dict[str, Callable[[Path], AbstractContextManager[None]]] = {"full": full, "closed": fail_writes}


async def lengthen_journal(world: World, client: aiohttp.ClientSession) -> None:
    """Make the journal longer than other files that are written meanwhile."""
    for _ in range(30):
        async with client.get(f"{world.site}/api/nothing") as answer:  # which takes nothing of the rate
            assert answer.status == 403


async def problems(world: World, client: aiohttp.ClientSession) -> list[str]:
    """Return the problems of the record in the console's state."""
    async with client.get(f"{world.console}/api/state") as answer:
        return [one["message"] for one in (await answer.json())["problems"] if one["kind"] == "record"]


async def scrape(world: World, client: aiohttp.ClientSession) -> str:
    """Return the metrics."""
    async with client.get(f"{world.url}/metrics") as answer:
        return await answer.text()


@pytest.mark.parametrize(
    ("on_failure", "statuses", "words"),
    [
        ("refuse-unsafe", (200, 503), "unsafe requests are refused"),
        ("refuse", (503, 503), "everything is refused"),
        ("continue", (200, 201), "everything continues unrecorded"),
    ],
)
async def test_a_full_disk_is_said_aloud(
    tmp_path: Path, on_failure: str, statuses: tuple[int, int], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While it lasts, and not after it."""
    backend = Server()
    await backend.start(answering())
    policy = POLICY.replace("PORT", str(backend.port))
    try:
        async with (
            running(tmp_path, policy=policy, extra=f"audit: {{on_failure: {on_failure}}}\n") as world,
            world.client(headers=CLIENT) as client,
        ):
            for _ in range(30):  # the journal is longer than other files that are written meanwhile
                assert await status_of(world, client, "GET") == 200
            with full(world.config.journal):
                found = (await status_of(world, client, "GET"), await status_of(world, client, "POST"))
                told, metrics = await problems(world, client), await scrape(world, client)
            assert found == statuses
            assert any(words in one for one in told)
            assert "webmcp_gateway_journal_failures_total" in metrics
            assert "cannot be written" in caplog.text
            assert await status_of(world, client, "GET") == 200
            assert not any(words in one for one in await problems(world, client))
            assert "can be written again" in caplog.text
    finally:
        await backend.stop()


@pytest.mark.parametrize(("fsync", "statuses"), [("always", (200, 503)), ("never", (200, 201))])
async def test_a_disk_that_does_not_keep_what_is_written(tmp_path: Path, fsync: str, statuses: tuple[int, int]) -> None:
    """With `fsync: always` unsafe requests are refused, as if the line could not be written."""
    backend = Server()
    await backend.start(answering())
    policy = POLICY.replace("PORT", str(backend.port))
    try:
        async with (
            running(tmp_path, policy=policy, extra=f"audit: {{fsync: {fsync}}}") as world,
            world.client(headers=CLIENT) as client,
        ):
            assert await status_of(world, client, "POST") == 201
            with pipe_writes(world.config.journal):
                assert (await status_of(world, client, "GET"), await status_of(world, client, "POST")) == statuses
                assert bool(await problems(world, client)) is (fsync == "always")
    finally:
        await backend.stop()


async def test_a_database_that_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests continue, the console reports it, and afterwards all records are in the database."""
    monkeypatch.setattr("gateway.stores.sql.SQLITE_BUSY_SECONDS", 0.1)
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(filler, "LONGEST_PAUSE_SECONDS", 0.1)
    async with running(tmp_path) as world, world.client(headers=CLIENT) as client:
        path = world.config.database.reveal().removeprefix("sqlite:///")
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # In a thread: a transaction of the gateway that it waits for needs this thread to end.
        await asyncio.to_thread(other.execute, "BEGIN EXCLUSIVE")
        async with client.get(f"{world.site}/api/products") as answer:
            assert answer.status == 200
        async with asyncio.timeout(60):
            while not await problems(world, client):
                await asyncio.sleep(0.02)
        metrics = await scrape(world, client)
        other.execute("ROLLBACK")
        other.close()
        async with asyncio.timeout(60):
            while await problems(world, client):
                await asyncio.sleep(0.02)
        ids: list[str] = []
        async with asyncio.timeout(60):
            while not ids:
                async with client.get(f"{world.console}/api/audit") as answer:
                    ids = [one["id"] for one in (await answer.json())["records"]]
    assert 'sink_failures_total{sink="database"}' in metrics
    assert 'sink_lag_bytes{sink="database"}' in metrics
    assert ids


@pytest.mark.parametrize("broken", sorted(BREAKS))
@pytest.mark.parametrize(("on_failure", "runs"), [("refuse-unsafe", False), ("refuse", False), ("continue", True)])
async def test_tool_calls_without_a_record(tmp_path: Path, on_failure: str, runs: bool, broken: str) -> None:
    """Of a page and of an upstream alike: the effects of a tool are unknown, so it counts as unsafe."""
    ran: list[str] = []
    async with over_http(shop(ran.append)) as url:
        policy = tmp_path / "open.yaml"
        policy.write_text("version: 1\ntools: {both: {}}\n")
        upstream = f"upstreams: {{other: {{url: '{url}', network: private, policy: open.yaml}}}}\n"
        extra = f"{upstream}audit: {{on_failure: {on_failure}}}\n"
        async with (
            running(tmp_path, extra=extra) as world,
            person(world) as ann,
            world.client(headers=CLIENT) as client,
        ):
            await lengthen_journal(world, client)
            async with (
                show_cart(world, ann) as page,
                Client(f"{world.url}/mcp") as model,
                Client(f"{world.url}/mcp/other", cache=None) as other,
            ):
                await other.list_tools()
                with BREAKS[broken](world.config.journal):
                    of_page = await model.call_tool("cart_get_cart", {})
                    of_upstream = await other.call_tool("both")
                assert (page.ran, ran) == ((["get_cart"], ["both"]) if runs else ([], []))
                assert (of_page.is_error, of_upstream.is_error) == (not runs, not runs)
                for refused in (of_page, of_upstream):
                    assert ("audit-unavailable" in str(refused)) is not runs
                assert not (await model.call_tool("cart_get_cart", {})).is_error
                assert not (await other.call_tool("both")).is_error


@pytest.mark.parametrize("broken", sorted(BREAKS))
@pytest.mark.parametrize(
    ("on_failure", "word", "status"),
    [
        ("refuse-unsafe", "approve", 503),
        ("refuse", "approve", 503),
        ("continue", "approve", 200),
        ("refuse-unsafe", "decline", 200),
        ("refuse", "decline", 200),
    ],
)
async def test_an_answer_without_a_record(
    tmp_path: Path, on_failure: str, word: str, status: int, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A yes that cannot be recorded is refused, and the question stays open; a no counts. The failure is reported."""
    rules = (
        (EXAMPLE / "policy.yaml")
        .read_text("utf-8")
        .replace("{when: model, message", "{when: model, grant: 10m, message")
    )
    async with (
        running(tmp_path, policy=rules, extra=f"audit: {{on_failure: {on_failure}}}\n") as world,
        person(world) as ann,
        world.client(headers=CLIENT) as client,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        await lengthen_journal(world, client)
        removing = tasks.create_task(send_removal(world))
        (question,) = await questions(ann, world)
        url = f"{world.console}/api/approvals/{question['id']}"
        given = {"answer": word, "grant": word == "approve"}
        with BREAKS[broken](world.config.journal):
            async with ann.post(url, json=given) as answer:
                said = (answer.status, (await answer.json()).get("type", ""))
            async with ann.get(f"{world.console}/api/grants") as answer:
                grants = (await answer.json())["grants"]
            told = await problems(world, client)
        assert said == (status, "urn:webmcp-gateway:audit-unavailable" if status == 503 else "")
        assert told
        assert "cannot be written" in caplog.text
        assert len(grants) == (1 if on_failure == "continue" else 0)
        if status == 503:
            async with ann.get(f"{world.console}/api/approvals") as answer:
                open_ones = [one["id"] for one in (await answer.json())["approvals"]]
            assert (count_requests(world), open_ones) == (0, [question["id"]])
            async with ann.post(url, json={"answer": "approve"}) as answer:
                assert answer.status == 200
        reason = (await removing)["headers"].get("gateway-reason")
    if word == "decline":
        assert (reason, count_requests(world)) == ("approval-declined", 0)
    elif status == 503:
        assert (reason, count_requests(world)) == (None, 1)


def line_phases(journal: Path, kind: str) -> list[tuple[str, int | None]]:
    """Return phase and status of the lines of one kind."""
    lines = [json.loads(line) for line in journal.read_text("utf-8").splitlines()]
    return [(one["phase"], one["fields"].get("status")) for one in lines if one["fields"].get("kind") == kind]


async def asked_for(client: aiohttp.ClientSession, url: str, body: object) -> tuple[int, dict[str, Any]]:
    """Return the answer to a POST of the console's page."""
    async with client.post(url, json=body) as answer:
        return answer.status, await answer.json()


REFUSED = (503, "urn:webmcp-gateway:audit-unavailable")


async def test_keys_without_a_record(tmp_path: Path) -> None:
    """A new one is refused until the record can be written; removing one always works."""
    async with running(tmp_path, extra="approvals: {presence: webauthn}\n") as world, person(world) as ann:
        journal, url = world.config.journal, f"{world.console}/api/keys"
        key = SoftwareKey("gateway.localhost", world.console)
        _, begun = await asked_for(ann, f"{url}/begin", {})
        new = {"name": "mine", "credential": key.create(begun["create"])}
        with fail_writes(journal):
            status, told = await asked_for(ann, url, new)
        assert (status, told["type"]) == REFUSED
        assert line_phases(journal, "key") == []
        assert await asked_for(ann, url, new) == (200, {"id": key.id})
        assert line_phases(journal, "key") == [("intent", None), ("outcome", 200)]
        for broken in (False, True):
            before = len(line_phases(journal, "key"))
            _, touch = await asked_for(ann, f"{url}/{key.id}/begin", {})
            wrong = await asked_for(ann, f"{url}/{key.id}/remove", {"assertion": {"id": key.id}})
            assert (wrong[0], line_phases(journal, "key")[before:]) == (403, [("intent", None), ("outcome", 403)])
            _, touch = await asked_for(ann, f"{url}/{key.id}/begin", {})
            before = len(line_phases(journal, "key"))
            with fail_writes(journal) if broken else nullcontext():
                gone = await asked_for(ann, f"{url}/{key.id}/remove", {"assertion": key.get(touch)})
            assert gone == (200, {"removed": key.id})
            lines = [] if broken else [("intent", None), ("outcome", 200)]
            assert line_phases(journal, "key")[before:] == lines
            if not broken:
                _, begun = await asked_for(ann, f"{url}/begin", {})
                key = SoftwareKey("gateway.localhost", world.console)
                new = {"name": "mine", "credential": key.create(begun["create"])}
                assert (await asked_for(ann, url, new))[0] == 200


async def test_accounts_without_a_record(tmp_path: Path) -> None:
    """A new one is refused until the record can be written; disconnecting one always works."""
    async with house(tmp_path) as home:
        journal = tmp_path / "gateway.journal"
        told = await home.consented()
        with fail_writes(journal):
            status, refused = await home.api("connections/finish", told)
        assert (status, refused["type"]) == REFUSED
        assert line_phases(journal, "credential") == []
        assert (await home.get("person"))[0] == 401
        assert (await home.api("connections/finish", told))[0] == 200
        assert line_phases(journal, "credential") == [("intent", None), ("outcome", 200)]
        assert (await home.api("connections/person/disconnect", {}))[0] == 200
        assert line_phases(journal, "credential")[2:] == [("intent", None), ("outcome", 200)]
        assert (await home.connect())[0] == 200
        with fail_writes(journal):
            assert (await home.api("connections/person/disconnect", {}))[0] == 200
        assert (await home.get("person"))[0] == 401
        assert len(line_phases(journal, "credential")) == 6


@pytest.mark.parametrize("broken", [False, True])
async def test_a_grant_ends_with_and_without_a_record(tmp_path: Path, broken: bool) -> None:
    """Its end is recorded as intent and outcome, but does not depend on that."""
    rules = (EXAMPLE / "policy.yaml").read_text("utf-8")
    rules = rules.replace("{when: model, message", "{when: model, grant: 10m, message")
    async with (
        running(tmp_path, policy=rules) as world,
        person(world) as ann,
        asyncio.timeout(60),
        asyncio.TaskGroup() as tasks,
    ):
        removing = tasks.create_task(send_removal(world))
        (question,) = await questions(ann, world)
        answer = {"answer": "approve", "grant": True}
        assert (await asked_for(ann, f"{world.console}/api/approvals/{question['id']}", answer))[0] == 200
        await removing
        (grant,) = await grants_in_effect(ann, world)
        with fail_writes(world.config.journal) if broken else nullcontext():
            assert (await asked_for(ann, f"{world.console}/api/grants/{grant['id']}/revoke", {}))[0] == 200
        assert await grants_in_effect(ann, world) == []
        lines = [] if broken else [("intent", None), ("outcome", 200)]
        assert line_phases(world.config.journal, "grant") == lines

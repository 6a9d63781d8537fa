"""One trace from the caller to the backend, as a collector receives it, and the record as its logs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from mcp import Client
from msgspec.structs import replace

from gateway.assembly import spans
from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import LOCAL, Caller, Door, Initiator
from gateway.stores import filler
from gateway.stores.journal import Journal
from tests.approvals.page import show_cart
from tests.approvals.test_ways import send_removal
from tests.whole.test_main_job import answer_next, person
from tests.world import SECRET, Server, World, running

CLIENT = {"webmcp-gateway-client": "1"}
ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{ID}-{SPAN}-01"
POLICY = """
version: 1
backends: {shop: {url: "http://127.0.0.1:PORT", network: private, credential: shop-service, trace: TRACE}}
routes: [{path: /api/echo, methods: [GET, POST]}]
"""


@dataclass
class Far:
    """A collector and a backend in one, which keep what they receive; while `down` is set the collector refuses."""

    server: Server
    got: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    down: bool = False

    def spans(self) -> list[dict[str, Any]]:
        """Return every span."""
        found = [body["resourceSpans"] for path, body in self.got if path == "/v1/traces"]
        return [span for one in found for part in one for scope in part["scopeSpans"] for span in scope["spans"]]

    def logs(self) -> list[dict[str, Any]]:
        """Return every log record."""
        found = [body["resourceLogs"] for path, body in self.got if path == "/v1/logs"]
        return [log for one in found for part in one for scope in part["scopeLogs"] for log in scope["logRecords"]]


@asynccontextmanager
async def far() -> AsyncIterator[Far]:
    """Run it."""
    there = Far(Server())

    async def handle(request: web.Request) -> web.Response:
        if request.path.startswith("/v1/"):
            if there.down:
                return web.Response(status=503)
            there.got.append((request.path, await request.json()))
            return web.json_response({})
        there.headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({})

    app = web.Application(client_max_size=10**8)
    app.router.add_route("*", "/{path:.*}", handle)
    await there.server.start(app)
    try:
        yield there
    finally:
        await there.server.stop()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits."""
    monkeypatch.setattr(spans, "EVERY", 0.05)
    monkeypatch.setattr(filler, "LINGER_SECONDS", 0.01)
    monkeypatch.setattr(filler, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(filler, "LONGEST_PAUSE_SECONDS", 0.05)


@asynccontextmanager
async def traced(
    folder: Path, there: Far, trace: str = "true", sinks: str = "[database, otlp]"
) -> AsyncIterator[World]:
    """Yield a gateway that exports everything to `there`, and whose backend is `there`."""
    extra = f"telemetry: {{otlp: 'http://127.0.0.1:{there.server.port}'}}\naudit: {{sinks: {sinks}}}\n"
    policy = POLICY.replace("PORT", str(there.server.port)).replace("TRACE", trace)
    async with running(folder, policy=policy, extra=extra) as world:
        yield world


async def problems(world: World, client: aiohttp.ClientSession) -> str:
    """Return the problems in the console's state."""
    async with client.get(f"{world.console}/api/state") as answer:
        return str((await answer.json())["problems"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_one_trace_from_the_caller_to_the_backend(tmp_path: Path) -> None:
    """The caller's id is in the record, in all spans, and in the backend's headers; each step has a span."""
    async with far() as there, traced(tmp_path, there) as world:
        said = {**CLIENT, "traceparent": GOOD, "tracestate": "vendor=1"}
        async with world.client(headers=said) as client, client.get(f"{world.site}/api/echo") as answer:
            assert answer.status == 200
        await until(lambda: any(span["name"] == "http" for span in there.spans()))
        outcome = [line for line in world.records() if line["phase"] == "outcome"][-1]
    by_name = {span["name"]: span for span in there.spans()}
    request, send = by_name["http"], by_name["send"]
    assert outcome["fields"]["trace"] == ID
    assert {span["traceId"] for span in there.spans()} == {ID}
    assert request["parentSpanId"] == SPAN
    assert send["parentSpanId"] == request["spanId"]
    assert {"decide", "limit", "authenticate", "send"} <= by_name.keys()
    assert there.headers[-1]["traceparent"] == f"00-{ID}-{send['spanId']}-01"
    assert there.headers[-1]["tracestate"] == "vendor=1"
    assert {"key": "gateway.record", "value": {"stringValue": outcome["id"]}} in request["attributes"]


async def test_a_backend_that_shall_not_know(tmp_path: Path) -> None:
    """It receives no trace header, not even the app's own."""
    async with far() as there, traced(tmp_path, there, trace="false") as world:
        said = {**CLIENT, "traceparent": GOOD, "tracestate": "a=b"}
        async with world.client(headers=said) as client, client.get(f"{world.site}/api/echo") as answer:
            assert answer.status == 200
    assert there.headers[-1].keys().isdisjoint({"traceparent", "tracestate"})


async def test_the_trace_of_an_mcp_call(tmp_path: Path) -> None:
    """In `_meta`, or in the header fields of its request."""
    async with far() as there, traced(tmp_path, there) as world:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
            },
        }
        heads = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "http_request",
        }
        for number, (said, header) in enumerate([({"traceparent": GOOD}, {}), ({}, {"traceparent": GOOD})]):
            params = {"name": "http_request", "arguments": {"url": "/api/echo"}, "_meta": {**meta, **said}}
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            request: dict[str, Any] = {"json": message, "headers": {**heads, **header}}
            async with world.client() as client, client.post(f"{world.url}/mcp/cart", **request) as answer:
                assert answer.status == 200, await answer.text()
        outcomes = [line["fields"] for line in world.records() if line["phase"] == "outcome"]
    assert [one["trace"] for one in outcomes] == [ID, ID]


async def test_what_a_models_call_causes_is_in_its_trace(tmp_path: Path) -> None:
    """The page's request belongs to the trace of the call that runs in it, whatever the page sends."""
    async with Journal(tmp_path / "journal") as journal:
        recorder = Recorder(journal, Hooks([], tmp_path), OnFailure.REFUSE)
        caller = Caller(LOCAL, "cart", Door.MCP, Initiator.MODEL, "model-call", "v")
        call = recorder.start("tool", caller, safe=False)
        caused = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.MODEL, "model-call", "v", True, call.id)
        request = recorder.start("http", caused, safe=True)
        other = recorder.start("http", caller, safe=True)
    assert request.fields["trace"] == call.fields["trace"]
    assert other.fields["trace"] != call.fields["trace"]


async def test_what_one_gesture_causes_is_in_one_trace(tmp_path: Path) -> None:
    """Each request of the page after it, whatever else the page does meanwhile."""
    async with Journal(tmp_path / "journal") as journal:
        recorder = Recorder(journal, Hooks([], tmp_path), OnFailure.REFUSE)
        person = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PERSON, "attested-gesture", "v", True, "gesture-1")
        callers = [person, replace(person, initiator=Initiator.PAGE, cause=None), person, replace(person, cause="g2")]
        records = [recorder.start("http", caller, safe=True) for caller in callers]
    first, other, second, later = (record.fields["trace"] for record in records)
    assert first == second
    assert len({first, other, later}) == 3


async def test_a_question_its_answer_and_the_call_are_in_one_trace(tmp_path: Path) -> None:
    """From the model's call over the person's yes to the request, in the record."""
    async with running(tmp_path) as world, person(world) as ann, show_cart(world, ann):
        async with Client(f"{world.url}/mcp", mode="legacy") as client, asyncio.TaskGroup() as tasks:
            calling = tasks.create_task(client.call_tool("cart_checkout", {}))
            await answer_next(ann, world, "approve")
            assert not (await calling).is_error
        told = [line["fields"] for line in world.records() if line["phase"] == "outcome"]
    kinds = [(one["kind"], one["trace"]) for one in told if one["kind"] in ("tool", "approval", "http")]
    traces = {trace for kind, trace in kinds if kind in ("tool", "approval")}
    assert len(traces) == 1
    assert len([kind for kind, trace in kinds if trace in traces]) == 4  # the request waits, and is sent


async def test_a_request_that_waits_keeps_its_trace(tmp_path: Path) -> None:
    """The question, the answer, and the request sent then, without a common call or gesture."""
    async with running(tmp_path) as world, person(world) as ann, asyncio.TaskGroup() as tasks:
        removing = tasks.create_task(send_removal(world))
        await answer_next(ann, world, "approve")
        assert "gateway-reason" not in (await removing)["headers"]
        told = [line["fields"] for line in world.records() if line["phase"] == "outcome"]
    assert len({one["trace"] for one in told if one["kind"] in ("approval", "http")}) == 1


async def test_the_record_as_logs_through_an_outage(tmp_path: Path) -> None:
    """Every line arrives, also those from while the collector was down, with its trace and values, without secrets."""
    async with far() as there, traced(tmp_path, there) as world:
        async with world.client(headers=CLIENT) as client:
            there.down = True
            async with client.get(f"{world.site}/api/echo") as answer:
                assert answer.status == 200
            while "otlp does not take the record" not in await problems(world, client):
                await asyncio.sleep(0.01)
            there.down = False
            async with client.get(f"{world.site}/nowhere") as answer:
                assert answer.status == 403
        lines = [line["hash"] for line in world.records()]
        await until(lambda: len({json.loads(log["body"]["stringValue"])["hash"] for log in there.logs()}) >= len(lines))
        traces = [line["fields"]["trace"] for line in world.records() if line["phase"] == "outcome"]
    found = {json.loads(log["body"]["stringValue"])["hash"]: log for log in there.logs()}
    assert set(lines) <= set(found)
    assert {log.get("traceId") for log in found.values()} >= set(traces)
    assert SECRET not in json.dumps(there.got)


async def test_logs_go_on_where_they_were(tmp_path: Path) -> None:
    """After a restart nothing is sent twice, and nothing is left out."""
    async with far() as there, traced(tmp_path, there, sinks="[otlp]") as world:
        for _ in range(2):
            async with world.client(headers=CLIENT) as client, client.get(f"{world.site}/api/echo") as answer:
                assert answer.status == 200
            count = len(world.records())
            await until(lambda wanted=count: len(there.logs()) >= wanted)  # type: ignore[misc]  # bound now
            await world.gateway.stop()
            await world.start_gateway()
        count = len(world.records())
        await until(lambda: len(there.logs()) >= count)
        sent = [json.loads(log["body"]["stringValue"])["hash"] for log in there.logs()]
    assert len(sent) == len(set(sent))

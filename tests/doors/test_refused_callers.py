"""Refused callers are counted, logged and recorded, and cannot fill the log or the record."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType

import gateway.doors
from gateway.doors.refused_callers import CODES
from gateway.errors import Reason
from gateway.mux import Hello, encode
from tests.callers.doors import Knock, knocks
from tests.callers.tokens import token
from tests.doors.test_metrics import scrape, total
from tests.world import World, running

CLIENT = {"webmcp-gateway-client": "1"}
NAVIGATION = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
VERSION = "2025-06-18"
LOG = "gateway.doors.refused_callers"


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[World]:
    """Yield the cart behind a gateway that requires tokens, with five recorded refusals per minute."""
    async with running(tmp_path, extra="auth: [token]\naudit: {refusals: 5}\n") as world:
        yield world


async def trust_proxies(world: World, header: str = "") -> None:
    """Restart the gateway so that it trusts the proxies of this machine, which write `header` if it is given."""
    file = world.folder / "gateway.yaml"
    text = file.read_text("utf-8")
    listen = next(line for line in text.splitlines() if line.strip().startswith("listen:"))
    indent = listen[: len(listen) - len(listen.lstrip())]
    written = f"\n{indent}client_header: {header}" if header else ""
    file.write_text(text.replace(listen, f"{listen}\n{indent}trusted_proxies: [127.0.0.0/8]{written}"), "utf-8")
    await world.gateway.stop()
    await world.start_gateway()


def callers(world: World) -> list[Mapping[str, Any]]:
    """Return the recorded refusals of callers."""
    return [line["fields"] for line in world.records() if line["fields"].get("kind") == "caller"]


async def send(world: World, knock: Knock, **headers: str) -> int:
    """Return the status of one request."""
    async with (
        world.client() as client,
        client.request(
            knock.method, knock.url, headers=knock.headers | headers, data=knock.body, allow_redirects=False
        ) as got,
    ):
        return got.status


REFUSED = [
    ("mcp", 401, "mcp", "unidentified", {}),
    ("mcp", 401, "mcp", "unidentified", {"authorization": "Bearer wmg_" + "A" * 12 + "_" + "b" * 43}),
    ("mcp of an app", 401, "mcp", "unidentified", {"authorization": "Basic bG9jYWw6bG9jYWw="}),
    ("mcp", 421, "unknown", "unknown-host", {"host": "evil.example"}),
    ("mcp", 403, "mcp", "foreign-page", {"origin": "https://evil.example"}),
    ("console", 401, "console", "unidentified", {}),
    ("console", 403, "console", "foreign-page", {"sec-fetch-site": "same-site"}),
    ("tickets", 401, "bridge", "unidentified", {}),
    ("site", 401, "site", "unidentified", {}),
]


@pytest.mark.parametrize(("door", "status", "named", "reason", "headers"), REFUSED)
async def test_a_refused_caller_leaves_a_trace(
    guarded: World,
    door: str,
    status: int,
    named: str,
    reason: str,
    headers: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the metrics, the log and the record, with the client's address and nothing of the credentials sent."""
    assert await send(guarded, knocks(guarded)[door], **headers) == status
    (said,) = callers(guarded)
    assert (said["door"], said["reason"], said["status"], said["client"]) == (named, reason, status, "127.0.0.1")
    assert said["principal"] is None
    assert total(await scrape(guarded), "callers_refused_total", door=named, reason=reason) == 1
    lines = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert len(lines) == 1
    assert "127.0.0.1" in lines[0]
    shown = headers.get("authorization", "").rpartition(" ")[2]
    assert not shown or shown not in lines[0] + str(said)


async def test_every_other_way_to_be_refused(guarded: World) -> None:
    """Without the capability, with a wrong link, with a wrong ticket, or for metrics from another address."""
    may = await token(guarded, "small", "app:none")
    async with guarded.client(headers=CLIENT) as client:
        for url, headers in (
            (f"{guarded.console}/login/link?code=x", NAVIGATION),
            (f"{guarded.url}/metrics", {"x-forwarded-for": "203.0.113.7"}),
            (f"{guarded.site}/api/products", may),
        ):
            async with client.get(url, headers=headers) as got:
                assert got.status == 403, url
        async with client.ws_connect(f"{guarded.console}/bridge", protocols=("webmcp-gateway.v1",)) as socket:
            await socket.send_str(encode(Hello("x" * 43)))
            while (await socket.receive()).type not in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING):
                pass
    async with asyncio.timeout(60):
        while len(callers(guarded)) < 4:
            await asyncio.sleep(0.01)
    told = [(said["door"], said["reason"], said["principal"]) for said in callers(guarded)]
    assert told == [
        ("console", "not-logged-in", None),
        ("metrics", "not-allowed", None),
        ("site", "not-allowed", "local|token:small|local"),
        ("bridge", "bad-ticket", None),
    ]
    assert all("code" not in said["url"] for said in callers(guarded))


async def test_many_are_summed_up(guarded: World, caplog: pytest.LogCaptureFixture) -> None:
    """All are in the metrics; ten log lines and five of the record are for one refusal each, one sums up the rest."""
    for _ in range(30):
        await send(guarded, knocks(guarded)["mcp"])
    assert total(await scrape(guarded), "callers_refused_total", door="mcp", reason="unidentified") == 30
    lines = [record.getMessage() for record in caplog.records if record.name == LOG]
    assert len(lines) == 10
    assert len(callers(guarded)) == 5
    await guarded.gateway.stop()
    (last,) = [record.getMessage() for record in caplog.records if record.name == LOG][10:]
    assert last == "20 more in the last 60 s: callers refused at mcp (unidentified)"
    (summed,) = [line["fields"] for line in guarded.records() if line["fields"].get("kind") == "refused"]
    assert (summed["of"], summed["door"], summed["reason"], summed["more"]) == ("caller", "mcp", "unidentified", 25)
    await guarded.start_gateway()


async def test_the_address_is_the_one_that_a_trusted_proxy_tells(tmp_path: Path) -> None:
    """At every door, for refusals and for outcomes; an untrusted peer's header is ignored."""
    async with running(tmp_path, extra="auth: [token]\n") as world:
        may = await token(world, "one", "app", "mcp", "bridge")
        for trusted in (False, True):
            if trusted:
                await trust_proxies(world)
            before = len(world.records())
            shown = {"x-forwarded-for": "198.51.100.9, 203.0.113.7"}
            assert await send(world, knocks(world)["mcp"], **shown) == 401
            assert await send(world, Knock("GET", f"{world.site}/api/products", CLIENT), **shown, **may) == 200
            fields = [line["fields"] for line in world.records()[before:] if line["phase"] == "outcome"]
            done = {said["kind"]: said["client"] for said in fields if said["kind"] in ("caller", "http")}
            assert done == dict.fromkeys(("caller", "http"), "203.0.113.7" if trusted else "127.0.0.1")


@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for"])
async def test_a_client_cannot_hide_its_address_by_the_header_that_its_proxy_passes_on(
    tmp_path: Path, header: str
) -> None:
    """`server.client_header` names the one that the proxies write; the other is ignored in every record."""
    async with running(tmp_path, extra="auth: [token]\n") as world:
        await trust_proxies(world, header)
        shown = {"forwarded": "for=203.0.113.7", "x-forwarded-for": "198.51.100.9"}
        assert await send(world, knocks(world)["mcp"], **shown) == 401
        assert callers(world)[-1]["client"] == ("203.0.113.7" if header == "forwarded" else "198.51.100.9")


def test_every_refusal_of_a_door_has_a_known_reason() -> None:
    """Reasons for refusing callers are counted, and can be queried with `audit query --reason`."""
    found = set[str]()
    for path in Path(gateway.doors.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "refusal_response":
                status, code = call.args[:2]
                if (
                    isinstance(status, ast.Constant)
                    and status.value in (401, 403, 421, 429)
                    and isinstance(code, ast.Constant)
                ):
                    found.add(str(code.value))
    assert found
    assert found <= set(CODES)
    assert not set(CODES) & set(map(str, Reason)) - {"bad-request", "rate-limited"}


async def test_each_call_of_an_mcp_session_has_the_address_of_its_own_client(tmp_path: Path) -> None:
    """A session of the handshake is one task of the SDK, begun by the first request; a client's address may change."""
    addresses = ("203.0.113.1", "203.0.113.2", "203.0.113.3")
    async with running(tmp_path, extra="auth: [token]\n") as world:
        await trust_proxies(world)
        headers = {"accept": "application/json, text/event-stream", **(await token(world, "one", "mcp", "app"))}

        async def post(client: Any, body: dict[str, Any], **more: str) -> str:
            said = {"jsonrpc": "2.0", **body}
            async with client.post(f"{world.url}/mcp", json=said, headers={**headers, **more}) as got:
                assert got.status in (200, 202), await got.text()
                await got.read()
                return str(got.headers.get("mcp-session-id"))

        async with world.client() as client:
            hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            session = await post(client, {"id": 1, "method": "initialize", "params": hello})
            kept = {"mcp-session-id": session, "mcp-protocol-version": VERSION}
            await post(client, {"method": "notifications/initialized"}, **kept)
            for number, address in enumerate(addresses, 2):
                call = {"name": "http_request", "arguments": {"url": f"/api/products?n={number}", "method": "GET"}}
                more = {**kept, "x-forwarded-for": address}
                await post(client, {"id": number, "method": "tools/call", "params": call}, **more)
        fields = [line["fields"] for line in world.records() if line["fields"].get("kind") == "http"]
    assert [said["client"] for said in fields] == [*addresses]


MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"x" * 10_000 + b"\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
]


async def test_what_is_no_request_is_counted_and_summed_up(world: World) -> None:
    """aiohttp answers before the gateway's code runs: one line of the record gives their number and address."""
    for raw in MALFORMED:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
        writer.write(raw)
        assert (await reader.read()).startswith(b"HTTP/1.0 400" if raw[0] == 0x16 else b"HTTP/1.")
        writer.close()
    count = len(MALFORMED)
    assert total(await scrape(world), "callers_refused_total", door="unknown", reason="malformed") == count
    await world.gateway.stop()
    sums = [line["fields"] for line in world.records() if line["fields"].get("reason") == "malformed"]
    assert [(said["kind"], said["of"], said["more"], said["client"], said["status"]) for said in sums] == [
        ("refused", "caller", count, "127.0.0.1", 400)
    ]

"""`stdio` as a process: a pipe to the running gateway, for both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from mcp import Client, StdioServerParameters
from mcp.client import advertise
from mcp.client.stdio import stdio_client
from mcp_types import EmptyResult, ResourceUpdatedNotification, SubscribeRequest, SubscribeRequestParams
from yarl import URL

from gateway.app import build_app
from gateway.cli import lock
from gateway.cli.stdio.pipe import Messages
from gateway.config import load_config
from gateway.errors import StartError
from gateway.model import LOCAL
from tests.cli.test_serve import ROOT, process, ready, write
from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http
from tests.interop.test_reconnecting import wired
from tests.leaks.watch import environment
from tests.mcp.fakes import ADD
from tests.mcp.mounts import MODES, Mount, Served
from tests.world import Server, free_port
from tests.world import serving as served_at

COMMAND = ("-c", "from gateway.cli import main; main()", "stdio")
UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "desktop", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A mount of two apps, one of which has a live tool."""
    async with Mount().serve() as served:
        yield served


def desktop(*arguments: str, mode: str, heard: Any = None) -> Client:
    """A client that starts the pipe as desktop clients do."""
    pipe = StdioServerParameters(command=sys.executable, args=[*COMMAND, *arguments], env=environment())
    return Client(stdio_client(pipe), mode=mode, extensions=UI, message_handler=heard)


@asynccontextmanager
async def piped(*arguments: str, cwd: Path = ROOT) -> AsyncIterator[asyncio.subprocess.Process]:
    """The pipe as a process."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *COMMAND,
        *arguments,
        cwd=cwd,
        env=environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def exchange(pipe: asyncio.subprocess.Process, *lines: bytes) -> list[dict[str, Any]]:
    """Send these lines and the end of input; return all answers, once the pipe has ended with exit code 0."""
    async with asyncio.timeout(60):
        out, _ = await pipe.communicate(b"".join(line + b"\n" for line in lines))
    assert pipe.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


def call(id: object, method: str = "tools/list", **params: object) -> bytes:
    """A request of the newer protocol."""
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": META}}).encode()


@pytest.mark.parametrize("mode", MODES)
async def test_a_desktop_client_lists_and_calls_tools(served: Served, mode: str) -> None:
    """The results are the same as at `/mcp`."""
    async with desktop("--url", served.url, mode=mode) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        opened = await client.call_tool("open_cart", {})
        asked = await client.call_tool("http_request", {"url": "/é", "_view": "proof"})
    assert {"open_cart", "http_request"} <= names
    assert opened.structured_content == {"view": "view-1"}
    assert asked.structured_content is not None
    assert asked.structured_content["body"]["url"] == "/é"


async def test_desktop_clients_share_the_views(served: Served) -> None:
    """Each lists and calls the tool of the one live page, by a separate pipe, in its own era."""
    served.views.offer(LOCAL, ADD)
    async with desktop("--url", served.url, mode=MODES[0]) as one, desktop("--url", served.url, mode=MODES[1]) as other:
        for client in (one, other):
            assert ADD.name in {tool.name for tool in (await client.list_tools()).tools}
            assert not (await client.call_tool(ADD.name, {})).is_error


async def test_lines_that_are_no_messages_are_answered(served: Served) -> None:
    """Each gets an error, and the pipe continues."""
    async with piped("--url", served.url) as pipe:
        said = await exchange(
            pipe, b"{", b"[]", b"", b'"x"', b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', call("last")
        )
    assert [one["error"]["code"] for one in said if "error" in one] == [-32700, -32600, -32600, -32600]
    assert [one["id"] for one in said if "result" in one] == ["last"]


async def test_errors_of_the_gateway_come_through(served: Served) -> None:
    """They have the id of the call."""
    async with piped("--url", served.url) as pipe:
        said = await exchange(pipe, call(1, "nothing/known"), call(2, "tools/call", name="unknown", arguments={}))
    assert {one["id"]: one["error"]["code"] for one in said} == {1: -32601, 2: -32602}


async def test_an_error_that_names_no_call_is_the_answer_of_the_call(served: Served) -> None:
    """The answer is one line with the gateway's message: a client of the older protocols has no session yet."""
    async with piped("--url", served.url) as pipe:
        (answer,) = await exchange(pipe, b'{"jsonrpc": "2.0", "id": 7, "method": "tools/list"}')
    assert (answer["id"], answer["error"]["message"]) == (7, "Bad Request: Missing session ID")


async def test_an_id_in_flight_is_not_taken_twice(served: Served) -> None:
    """The second call is refused, the first one continues."""
    slow = call(7, "tools/call", name="http_request", arguments={"url": "/held", "_view": "proof"})
    shown = json.loads(slow)
    shown["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    }
    async with piped("--url", served.url) as pipe:
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        line = json.dumps(shown).encode() + b"\n"
        pipe.stdin.write(line + line)
        refused = json.loads(await pipe.stdout.readline())
        served.exchange.release.set()
        answered = json.loads(await pipe.stdout.readline())
    assert refused["error"]["code"] == -32600
    assert (answered["id"], answered["result"]["isError"]) == (7, False)


async def test_a_cancelled_call_is_cancelled_at_the_backend(served: Served) -> None:
    """The pipe closes the connection of the call."""
    shown = json.loads(call(7, "tools/call", name="http_request", arguments={"url": "/slow", "_view": "proof"}))
    shown["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    }
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7, "_meta": META}}
    async with piped("--url", served.url) as pipe:
        assert pipe.stdin is not None
        pipe.stdin.write(json.dumps(shown).encode() + b"\n")
        await served.exchange.started.wait()
        pipe.stdin.write(json.dumps(cancel).encode() + b"\n")
        await served.exchange.cancelled.wait()


async def test_a_gateway_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The call gets an error, and standard error names the URL."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    async with piped("--url", url) as pipe:
        out, err = await pipe.communicate(call(1) + b"\n")
    assert json.loads(out)["error"]["code"] == -32001
    assert url in err.decode()
    assert b"Traceback" not in err


@pytest.mark.parametrize("path", ["/mcp/crat", "/"])
async def test_an_address_without_a_mount_is_named_with_what_helps(served: Served, path: str) -> None:
    """The app may not exist, or the URL lack /mcp."""
    url = str(URL(served.url).with_path(path))
    arguments = ("--url", served.url, "--app", "crat") if path != "/" else ("--url", url)
    async with piped(*arguments) as pipe:
        out, _ = await pipe.communicate(call(1) + b"\n")
    words = json.loads(out)["error"]["message"]
    assert words.startswith(f"{url} answered with the status 40")
    assert ("no app or upstream 'crat': correct --app" if path != "/" else "ends with /mcp, as in --url") in words


async def test_a_signal_ends_it(served: Served) -> None:
    """This works also during a call."""
    async with piped("--url", served.url) as pipe:
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(call(1) + b"\n")
        await pipe.stdout.readline()
        pipe.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await pipe.wait() == 0


@pytest.mark.parametrize(
    "wrong", [("--url", "gateway"), ("--config", "nothing.yaml"), ("--config", "a.yaml", "--no-start")]
)
async def test_what_cannot_be_found_is_said(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    """The message is one line, with exit code 2."""
    (tmp_path / "a.yaml").write_text("apps: {}\n")
    async with piped(*wrong, cwd=tmp_path) as pipe:
        _, err = await pipe.communicate()
    assert pipe.returncode == 2
    assert len(err.decode().strip().splitlines()) == 1


async def test_the_running_gateway_is_found_by_its_lock_file(tmp_path: Path) -> None:
    """A second one with the same configuration does not start."""
    port = free_port()
    write(tmp_path, port)
    async with process(tmp_path) as running:
        await ready(running, 1)
        assert lock.running_url(tmp_path) == f"http://127.0.0.1:{port}/mcp"
        async with piped("--config", str(tmp_path / "gateway.yaml")) as pipe:
            said = await exchange(pipe, call(1))
        with pytest.raises(StartError, match="runs already"), lock.hold_lock(tmp_path):
            pass
    assert said[0]["result"]["tools"]
    assert lock.running_url(tmp_path) is None


async def test_where_none_runs_one_is_started_for_all(tmp_path: Path) -> None:
    """Two concurrent pipes share it; it keeps running when they end."""
    write(tmp_path, free_port())
    config = tmp_path / "gateway.yaml"
    try:
        async with piped("--config", str(config)) as one, piped("--config", str(config)) as other:
            said = [await exchange(one, call(1)), await exchange(other, call(2))]
        assert [one[0]["id"] for one in said] == [1, 2]
        assert lock.running_url(tmp_path) is not None
    finally:
        started = lock.process(tmp_path)
        if started is not None:
            os.kill(started, signal.SIGTERM)
        async with asyncio.timeout(60):
            while lock.is_starting(tmp_path):
                await asyncio.sleep(0.05)
    log = tmp_path / "gateway.log"
    assert log.read_text("utf-8").count("is ready") == 1
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_events_are_read_however_they_are_cut() -> None:
    """Comments are skipped, data lines joined, ids kept."""
    text = b': ping\r\n\r\nid: 7\r\nevent: message\r\ndata: {"a":\r\ndata: 1}\r\n\r\ndata:x\n\n'
    reader = Messages()
    found = [one for byte in text for one in reader.feed(bytes((byte,)))]
    assert (found, reader.last_id) == (['{"a":\n1}', "x"], "7")
    assert list(Messages().feed(text)) == found


@pytest.mark.parametrize("mount", ["", "/up"])
async def test_a_desktop_client_outlives_its_session(tmp_path: Path, mount: str) -> None:
    """The gateway restarted without its sessions: the client continues, and still gets its notifications.

    Idle time does not end the session: the open stream of the pipe is a request in flight.
    """
    heard: asyncio.Queue[str] = asyncio.Queue()
    probe = Probe()

    async def on_message(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    door = Server()
    async with (
        over_http(probe.server) as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}', at=door) as mcp,
        desktop("--url", f"{mcp}{mount}", mode="legacy", heard=on_message) as client,
        asyncio.timeout(60),
    ):
        await client.list_tools()
        params = SubscribeRequestParams(uri=probe.uri)
        await client.session.send_request(SubscribeRequest(params=params), EmptyResult)
        await door.stop()
        await door.start(build_app(load_config(tmp_path / "gateway.yaml", {})))
        told = await asyncio.gather(*(client.call_tool("plain" if mount else "up_plain", {"n": n}) for n in range(3)))
        assert [text(result) for result in told] == [f'plain of probe: {{"n": {n}}}' for n in range(3)]
        while heard.empty():
            await probe.updated()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def listening(url: str, uri: str, mode: str) -> AsyncIterator[asyncio.Queue[str]]:
    """The notifications of a desktop client about its tools and one resource, by kind."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    def hear(told: object) -> None:
        kind = type(told).__name__
        heard.put_nowait("tools" if kind.startswith("Tool") else "resource" if kind.startswith("ResourceU") else kind)

    async def on_message(message: Any) -> None:
        hear(message)

    async def take(changes: AsyncIterator[Any]) -> None:
        async for change in changes:
            hear(change)

    async with desktop("--url", url, mode=mode, heard=on_message) as client, AsyncExitStack() as stack:
        if mode == "legacy":
            params = SubscribeRequestParams(uri=uri)
            await client.session.send_request(SubscribeRequest(params=params), EmptyResult)
        else:
            news = client.listen(tools_list_changed=True, resource_subscriptions=[uri])
            changes = await stack.enter_async_context(news)
            stack.callback(asyncio.ensure_future(take(aiter(changes))).cancel)
        yield heard


async def hears(heard: asyncio.Queue[str], kind: str) -> None:
    """Wait until a notification of this kind arrives."""
    while await heard.get() != kind:
        pass


async def follows(heard: asyncio.Queue[str], probe: Probe) -> None:
    """Change the resource repeatedly until its notification arrives."""
    while heard.empty():
        await probe.updated()
        await asyncio.sleep(0.1)
    await hears(heard, "resource")


@pytest.mark.parametrize("mode", MODES)
async def test_a_desktop_client_that_only_listens_hears_when_the_gateway_was_started_anew(
    tmp_path: Path, mode: str
) -> None:
    """The lists may have changed; then its subscriptions continue."""
    probe, door = Probe(), Server()
    async with (
        over_http(probe.server) as url,
        gateway(tmp_path, f'up: {{url: "{url}", network: private}}', at=door) as mcp,
        listening(mcp, probe.uri, mode) as heard,
        asyncio.timeout(60),
    ):
        for _ in range(2):
            await door.stop()
            await asyncio.sleep(1.5)  # its attempts fail
            await door.start(build_app(load_config(tmp_path / "gateway.yaml", {})))
            await hears(heard, "tools")
            await follows(heard, probe)


@pytest.mark.parametrize("mode", MODES)
async def test_a_desktop_client_hears_what_changed_while_it_was_cut_off(tmp_path: Path, mode: str) -> None:
    """It is notified when its stream is resumed, or restarted."""
    probe, door = Probe(), Server()
    async with (
        over_http(probe.server) as url,
        wired(f"http://localhost:{door.port}/mcp") as (near, wire),
        AsyncExitStack() as stack,
        asyncio.timeout(60),
    ):
        lines = f"server: {{public_url: '{near[:-4]}'}}\nupstreams: {{up: {{url: '{url}', network: private}}}}\n"
        (tmp_path / "gateway.yaml").write_text(lines, "utf-8")
        await door.start(build_app(load_config(tmp_path / "gateway.yaml", {})))
        stack.push_async_callback(door.stop)
        heard = await stack.enter_async_context(listening(near, probe.uri, mode))
        await follows(heard, probe)
        wire.leave()
        await asyncio.sleep(0.5)
        while not heard.empty():
            heard.get_nowait()
        await probe.updated()
        await wire.listen()
        await hears(heard, "resource")


async def test_what_listening_cannot_mean_ends_no_pipe() -> None:
    """The stream restarts with an invalid message, or with an acknowledgement of nothing."""
    begun = {"_meta": {}, "notifications": {"toolsListChanged": True}}
    told: list[list[object]] = [[begun], [], [None, {"notifications": []}, {**begun, "notifications": {}}, begun]]

    async def answer(request: web.Request) -> web.StreamResponse:
        if not told:
            error = {"code": -32000, "message": "no more"}
            return web.json_response({"jsonrpc": "2.0", "id": (await request.json())["id"], "error": error})
        method = "notifications/subscriptions/acknowledged"
        said = ["[1]", *(json.dumps({"jsonrpc": "2.0", "method": method, "params": one}) for one in told.pop(0))]
        return web.Response(text="".join(f"data: {one}\n\n" for one in said), content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/mcp", answer)
    async with served_at(app) as port, piped("--url", f"http://127.0.0.1:{port}/mcp") as pipe, asyncio.timeout(60):
        assert pipe.stdin is not None
        assert pipe.stdout is not None
        pipe.stdin.write(call(1, "subscriptions/listen") + b"\n")
        heard: list[Any] = []
        while "error" not in (heard[-1] if heard else ()):
            heard.append(json.loads(await pipe.stdout.readline()))
        (other,) = await exchange(pipe, call(2))
    methods = [one["method"] for one in heard if isinstance(one, dict) and "method" in one]
    assert methods == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
    assert other["error"]["message"] == "no more"

"""A shop that is an upstream with an app, and a view of that app on the bridge."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import mcp_types as types
import pytest
from mcp.server import Server as McpServer

from gateway import mux
from gateway.app import RELOAD, build_app
from gateway.config import load_config, read_config
from gateway.mcp.results import BYTES
from gateway.mcp.view_server import SHOWN
from gateway.model import Channel, Json
from tests.interop.serving import over_http
from tests.world import Loopback, Server

UI = "ui://shop/app.html"
HTML = "<!doctype html><html><head></head><body>\u2028 odd \x7f bytes</body></html>"
META: dict[str, Any] = {
    "ui": {
        "csp": {
            "connectDomains": ["https://api.example.com", "javascript:x", 7],
            "frameDomains": ["https://frames.example.org", "https://*.example.org"],
        },
        "permissions": {"camera": {}},
    },
    SHOWN: {"sandbox": "https://evil.example"},
}


def shop(ran: Callable[[str], None] = lambda _: None, who: str = "shop") -> McpServer[Any]:
    """A server with an app and a tool of each visibility, called `who`; `ran` is called with each tool that runs."""

    def tool(name: str, ui: dict[str, Any] | None) -> types.Tool:
        return types.Tool(name=name, input_schema={"type": "object"}, _meta={"ui": ui} if ui else None)

    tools = [
        tool("both", None),
        tool("page", {"visibility": ["app"]}),
        tool("model", {"visibility": ["model"]}),
        tool("http_request", None),
    ]

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        ran(params.name)
        await context.session.report_progress(0.5)
        with warnings.catch_warnings(action="ignore"):  # the SDK warns that logging is deprecated
            for level in ("debug", "error"):
                await context.session.send_log_message(level, f"at {level}", related_request_id=context.request_id)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=f"{params.name} ran")],
            _meta={"kept": True, "who": who, BYTES: "../../api/state"},
        )

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=UI, name="app", title=who)])

    async def list_templates(_: Any, __: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="shop://item/{id}", name="item", title=who)
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        content = types.TextResourceContents(
            uri=params.uri, mime_type="text/html;profile=mcp-app", text=HTML, _meta=META
        )
        return types.ReadResourceResult(contents=[content], _meta={**META, "who": who})

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[types.Prompt(name="greet", title=who)], _meta={BYTES: "../x"})

    async def get_prompt(_: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        text = types.TextContent(type="text", text=f"hello from {params.name} of {who}")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    async def complete(_: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=[f"{params.argument.value}ris"]))

    return McpServer(
        "shop",
        on_completion=complete,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


@dataclass
class View:
    """One open view on a bridge."""

    socket: aiohttp.ClientWebSocketResponse
    connection: mux.ClientConnection
    id: str
    folder: Path
    mcp: str
    http: aiohttp.ClientSession
    reload: Callable[[], None]
    number: int = 0
    told: list[dict[str, Any]] = field(default_factory=list)
    refused: str = ""

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the whole answer to a request on the ui channel."""
        self.number += 1
        message: dict[str, Json] = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.connection.send(mux.Message(self.id, Channel.UI, message))
        for text in self.connection.pending_output():
            await self.socket.send_str(text)
        while True:
            for message in await self.messages():
                if message.get("id") == self.number:
                    return message

    async def hears(self, method: str) -> dict[str, Any]:
        """Return the parameters of the next notification of this kind, which may have arrived already."""
        while True:
            for message in self.told:
                if message["method"] == method:
                    self.told.remove(message)
                    found: dict[str, Any] = message.get("params", {})
                    return found
            await self.messages()

    async def messages(self) -> list[dict[str, Any]]:
        """Yield the messages on the ui channel as they arrive."""
        frames = self.connection.receive_data(await self.socket.receive_str(timeout=60))
        found = [frame.message for frame in frames if isinstance(frame, mux.Message) and frame.channel is Channel.UI]
        self.told += [message for message in found if "method" in message]
        return found

    async def result(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a request."""
        answer = await self.ask(method, **params)
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found


POLICY = "version: 1\ntools:\n  both: {}\n  page: {}\n  model: {}\n  http_request: {}\n"


ERAS = pytest.mark.parametrize("era", ["", "legacy", "modern"])


@asynccontextmanager
async def opened(
    tmp_path: Path,
    era: str = "",
    *,
    server: McpServer[Any] | None = None,
    policy: str = POLICY,
    more: str = "",
    beside: str = "",
    resource: str = UI,
    keys: str = "",
    opening: mux.Open | None = None,
) -> AsyncIterator[View]:
    """A view of the shop's app, `resource`; the shop, or another `server` with it, speaks both eras, or one.

    `beside` are upstreams before it, `keys` are further ones of the app. With `opening` the app has no entry.
    """
    door = Server()
    (tmp_path / "app.yaml").write_text("version: 1\n", "utf-8")
    (tmp_path / "shop.yaml").write_text(policy, "utf-8")
    async with over_http(server or shop(), only=era) as url:
        (tmp_path / "gateway.yaml").write_text(
            f"server: {{listen: 127.0.0.1:{door.port}}}\n"
            f"upstreams:\n{beside}  shop: {{url: '{url}', network: private, policy: shop.yaml{more}}}\n"
            + (
                f"apps:\n  shown: {{source: {{upstream: shop, resource: '{resource}'}}, policy: app.yaml{keys}}}\n"
                if opening is None
                else ""
            ),
            "utf-8",
        )
        path = tmp_path / "gateway.yaml"
        app = build_app(load_config(path, {}), lambda: read_config(path, {}))
        await door.start(app)
        try:
            console = f"http://gateway.localhost:{door.port}"
            headers = {"origin": console, "sec-fetch-site": "same-origin"}
            connector = aiohttp.TCPConnector(resolver=Loopback())
            async with aiohttp.ClientSession(headers=headers, connector=connector) as client:
                async with client.get(f"{console}/api/state") as answer:
                    state = await answer.json()
                assert all(one["site"] is None for one in state["apps"])
                csrf = {"webmcp-gateway-csrf": state["csrf"]}
                async with client.post(
                    f"{console}/bridge/tickets", json={"apps": ["shown" if opening is None else "shop"]}, headers=csrf
                ) as answer:
                    ticket = (await answer.json())["ticket"]
                async with client.ws_connect(f"{console}/bridge", protocols=["webmcp-gateway.v1"]) as socket:
                    connection = mux.ClientConnection()
                    for frame in (mux.Hello(ticket), opening or mux.Open("r1", "shown")):
                        connection.send(frame)
                    for text in connection.pending_output():
                        await socket.send_str(text)
                    [answered] = connection.receive_data(await socket.receive_str(timeout=60))
                    refused = answered.code if isinstance(answered, mux.ErrorFrame) else ""
                    assert refused or (isinstance(answered, mux.Opened) and answered.resource == resource)
                    mcp, id = f"http://localhost:{door.port}/mcp", getattr(answered, "view", None) or ""
                    yield View(socket, connection, id, tmp_path, mcp, client, app[RELOAD], refused=refused)
        finally:
            await door.stop()

"""Credentials of the gateway at MCP servers that require them: static, of the gateway itself, and of each person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import mcp_types as types
import pytest
from aiohttp import web
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from mcp import Client
from mcp.client import ClientRequestContext

from tests.interop.probe import Probe, text
from tests.interop.serving import gateway, over_http, over_sse, over_websocket
from tests.leaks.marks import MARK
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.oidc.sign_in import sign_in
from tests.world import Loopback, Server, serving

MODES = ["legacy", "2026-07-28"]
RESOURCE = "https://mcp.example/mcp"
SECRET = f"client-secret-of-upstreams-{MARK}"


@dataclass
class Protected:
    """The guard of an MCP server: it accepts one provider's tokens with its own audience, and no others."""

    provider: OidcProvider
    subjects: list[str] = field(default_factory=list)
    refused: int = 0
    voided: set[str] = field(default_factory=set)

    async def __call__(self, request: web.Request) -> web.Response | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        async with aiohttp.ClientSession() as http, http.get(f"{self.provider.issuer}/jwks") as answer:
            keys = KeySet.import_key_set(await answer.json())
        try:
            claims = jwt.decode(token, keys, algorithms=["ES256"]).claims
        except (JoseError, ValueError):
            claims = {}
        if claims.get("aud") != RESOURCE or claims.get("iss") != self.provider.issuer or token in self.voided:
            self.refused += 1
            return web.Response(status=401, headers={"www-authenticate": "Bearer"})
        self.subjects.append(str(claims.get("sub", claims.get("client_id"))))
        self.last = token
        return None


def client(id: str, **more: Any) -> dict[str, Any]:
    """Return a client that the provider knows."""
    return {"client_id": id, "client_secret": SECRET, **more}


@asynccontextmanager
async def provided(port: int) -> AsyncIterator[OidcProvider]:
    """Yield the authorization server."""
    service = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    person = {
        "grant_types": ["authorization_code", "refresh_token"],
        "redirect_uris": [f"http://gateway.localhost:{port}/oauth/callback"],
    }
    clients = [client("service", **service), client("console", **person)]
    async with oidc_provider(clients, resources={RESOURCE: {"scope": "tools"}}) as provider:
        yield provider


def credential(kind: str, id: str, provider: OidcProvider, scope: str) -> str:
    """Return the credential in gateway.yaml."""
    return (
        f'credentials: {{mine: {{type: {kind}, client_id: {id}, client_secret: "${{env:SECRET}}", scope: {scope}, '
        f'resource: "{RESOURCE}", issuer: "{provider.issuer}", network: private}}}}'
    )


@dataclass
class Guarded:
    """A gateway in front of a probe that accepts the tokens of `provider` only."""

    mcp: str
    provider: OidcProvider
    guard: Protected
    probe: Probe
    person: Person


@asynccontextmanager
async def guarded(folder: Path, kind: str, upstream: str = "") -> AsyncIterator[Guarded]:
    """Yield a gateway with this kind of credential, and a probe of one era or of both."""
    door, probe = Server(), Probe()
    id, scope = ("service", "[tools]") if kind == "client_credentials" else ("console", "[openid, tools]")
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(provided(door.port))
        guard = Protected(provider)
        url = await stack.enter_async_context(over_http(probe.server, only=upstream, admit=guard))
        more = credential(kind, id, provider, scope)
        line = f'up: {{url: "{url}", network: private, credential: mine}}'
        mcp = await stack.enter_async_context(gateway(folder, line, more, environ={"SECRET": SECRET}, at=door))
        yield Guarded(mcp, provider, guard, probe, Person(door.port))


@pytest.mark.parametrize("kind", ["url", "sse", "websocket"])
async def test_a_header_is_sent_with_all_that_is_sent(tmp_path: Path, kind: str) -> None:
    """Over every transport with header fields; without it nothing is answered."""
    seen: list[str] = []

    async def admit(request: web.Request) -> web.Response | None:
        seen.append(request.headers.get("x-api-key", ""))
        return None if seen[-1] == SECRET else web.Response(status=403)

    probe = Probe()
    server = {"url": over_http, "sse": over_sse, "websocket": over_websocket}[kind](probe.server, admit=admit)
    more = 'credentials: {key: {type: header, header: x-api-key, value: "${env:SECRET}"}}'
    async with (
        server as url,
        gateway(
            tmp_path, f'up: {{{kind}: "{url}", network: private, credential: key}}', more, environ={"SECRET": SECRET}
        ) as mcp,
        Client(f"{mcp}/up", mode="legacy") as one,
    ):
        assert text(await one.call_tool("plain")).startswith("plain of probe")
    assert set(seen) == {SECRET}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("kind", ["url", "sse", "websocket"])
async def test_no_upstream_leads_elsewhere(tmp_path: Path, kind: str, status: int) -> None:
    """The target of a redirect gets neither the credential nor any request."""
    arrived: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        arrived.append(f"{request.method} {request.headers.get('x-api-key')}")
        return web.Response()

    async def leads(request: web.Request) -> web.Response:
        return web.Response(status=status, headers={"location": f"http://localhost:{other}/"})

    app, away = web.Application(), web.Application()
    app.router.add_route("*", "/mcp", leads)
    away.router.add_route("*", "/", elsewhere)
    more = 'credentials: {key: {type: header, header: x-api-key, value: "${env:SECRET}"}}'
    async with serving(away) as other, serving(app) as port:
        scheme = "ws" if kind == "websocket" else "http"
        line = f'up: {{{kind}: "{scheme}://localhost:{port}/mcp", network: private, credential: key}}'
        async with gateway(tmp_path, line, more, environ={"SECRET": SECRET}) as mcp, Client(mcp) as one:
            result = await one.call_tool("up_plain")
    assert "The upstream up cannot be reached" in text(result)
    assert str(status) in text(result)
    assert arrived == []


@pytest.mark.parametrize("kind", ["url", "sse", "websocket"])
@pytest.mark.parametrize("mode", MODES)
async def test_what_an_upstream_echoes_of_a_credential_is_masked(
    tmp_path: Path, kind: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In results, as everywhere; log, record and metrics contain only the name of the credential."""
    probe = Probe(f"probe-{SECRET}")
    server = {"url": over_http, "sse": over_sse, "websocket": over_websocket}[kind](probe.server)
    more = 'credentials: {key: {type: header, header: x-api-key, value: "${env:SECRET}"}}'
    async with (
        server as url,
        gateway(
            tmp_path, f'up: {{{kind}: "{url}", network: private, credential: key}}', more, environ={"SECRET": SECRET}
        ) as mcp,
        Client(f"{mcp}/up", mode=mode) as one,
    ):
        found = [text(await one.call_tool("plain")), str(await one.list_resources())]
        async with aiohttp.ClientSession() as http, http.get(mcp.removesuffix("/mcp") + "/metrics") as answer:
            metrics = await answer.text()
    record = (tmp_path / "gateway.journal").read_text("utf-8")
    assert found[0].startswith("plain of probe-***")
    assert "probe-***" in found[1]
    assert 'secrets_masked_total{credential="key"}' in metrics
    assert '"masked":["key"]' in record
    assert "upstream up echoed what was injected of key" in caplog.text
    assert not any(SECRET in told for told in (*found, metrics, record, caplog.text))


@pytest.mark.parametrize("mode", MODES)
async def test_a_token_of_the_gateway_s_own_is_fetched_and_renewed(tmp_path: Path, mode: str) -> None:
    """Client credentials for the upstream's resource; a token that it refuses is replaced, and the call runs."""
    async with (
        guarded(tmp_path, "client_credentials") as behind,
        Client(f"{behind.mcp}/up", mode=mode) as one,
    ):
        assert text(await one.call_tool("plain")).startswith("plain of probe")
        assert behind.guard.refused == 0
        behind.guard.voided.add(behind.guard.last)
        assert text(await one.call_tool("plain", {"again": 1})).startswith("plain of probe")
        assert behind.guard.refused == 1
        assert len(behind.probe.seen) == 2
        assert {event["event"] for event in await behind.provider.events()} == {"grant.success"}


async def test_a_server_that_gives_no_token_is_named(tmp_path: Path) -> None:
    """Nothing is sent to the upstream, and the caller learns what is missing."""
    async with guarded(tmp_path, "client_credentials") as behind:
        await behind.provider.set_down(True)
        assert "credential 'mine'" in await refusal(f"{behind.mcp}/up")
        assert (behind.guard.refused, behind.guard.subjects) == (0, [])


async def refusal(url: str) -> str:
    """Return the error of a client that cannot connect."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    accept = {"accept": "application/json, text/event-stream"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    async with aiohttp.ClientSession() as http, http.post(url, json=message, headers=accept) as answer:
        return await answer.text()


class Person:
    """A person at the console, who connects an account."""

    def __init__(self, port: int) -> None:
        self.console = f"http://gateway.localhost:{port}"
        self.visits: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        self.visits.append(params.url)
        await self.connect("bob")
        return types.ElicitResult(action="accept")

    async def connect(self, account: str) -> None:
        """Connect through the console and the provider's login pages."""
        async with self._http() as http:
            begun = await self._post(http, "connections/mine", {})
            back = await sign_in(http, begun["location"], account, f"{self.console}/oauth/callback")
            told = {"secret": begun["secret"], "answer": dict(parse_qsl(back.partition("?")[2]))}
            await self._post(http, "connections/finish", told)

    async def disconnect(self) -> None:
        """Disconnect the account."""
        async with self._http() as http:
            await self._post(http, "connections/mine/disconnect", {})

    def _http(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback()))

    async def _post(self, http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"sec-fetch-site": "same-origin", "origin": self.console}
        async with http.get(f"{self.console}/api/state", headers=headers) as state:
            headers["webmcp-gateway-csrf"] = (await state.json())["csrf"]
        async with http.post(f"{self.console}/api/{path}", json=body, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            found: dict[str, Any] = await answer.json() if answer.status == 200 else {}
            return found


@pytest.mark.parametrize("mode", MODES)
async def test_each_person_has_an_account_of_their_own(tmp_path: Path, mode: str) -> None:
    """A person whose account was disconnected is sent to connect one, and continues with that."""
    async with guarded(tmp_path, "authorization_code") as behind:
        guard, person = behind.guard, behind.person
        await person.connect("alice")
        async with Client(f"{behind.mcp}/up", mode=mode, elicitation_callback=person) as one:
            assert text(await one.call_tool("plain")).startswith("plain of probe")
            assert set(guard.subjects) == {"alice"}
            await person.disconnect()
            async with asyncio.timeout(60):
                assert text(await one.call_tool("plain")).startswith("plain of probe")
        assert person.visits[0].startswith(f"{person.console}/connect/mine?for=")
        assert guard.subjects[-1] == "bob"
        assert len(behind.probe.seen) == 2


@dataclass
class Heard:
    """A client without a connected account, and its notifications of changes."""

    behind: Guarded
    client: Client
    changes: asyncio.Queue[None]

    async def names(self) -> set[str]:
        """Return the tools that it is offered."""
        return {tool.name for tool in (await self.client.list_tools()).tools}


@asynccontextmanager
async def without_account(folder: Path, mode: str, mount: str, upstream: str = "") -> AsyncIterator[Heard]:
    """Yield a client that can open pages, and follows the tools at `mount`."""
    changes = asyncio.Queue[None]()

    async def hear(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changes.put_nowait(None)

    async def follow(stream: Any) -> None:
        async for change in stream:
            if type(change).__name__ == "ToolsListChanged":
                changes.put_nowait(None)

    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(guarded(folder, "authorization_code", upstream))
        url, person = f"{behind.mcp}{mount}", behind.person
        client = Client(url, mode=mode, elicitation_callback=person, message_handler=hear, cache=None)
        one = await stack.enter_async_context(client)
        if mode != "legacy":
            stream = await stack.enter_async_context(one.listen(tools_list_changed=True))
            following = asyncio.ensure_future(follow(stream))
            stack.callback(following.cancel)
        yield Heard(behind, one, changes)


@pytest.mark.parametrize("mount", ["", "/up"])
@pytest.mark.parametrize("upstream", ["legacy", "modern"])
@pytest.mark.parametrize("mode", MODES)
async def test_who_has_no_account_yet_is_offered_to_connect_one(
    tmp_path: Path, mode: str, upstream: str, mount: str
) -> None:
    """One tool sends them there; then the upstream's own are listed, and followers of the list are notified."""
    before = "connect_account" if mount else "up_connect_account"
    async with without_account(tmp_path, mode, mount, upstream) as heard, asyncio.timeout(60):
        assert {name for name in await heard.names() if "view" not in name} == {before}
        assert (await heard.client.list_resources()).resources == []
        assert heard.behind.person.visits == []
        assert "The account is connected" in text(await heard.client.call_tool(before))
        await heard.changes.get()
        while before in await heard.names():  # the notification may have been about the list before
            await heard.changes.get()
        plain = "plain" if mount else "up_plain"
        assert text(await heard.client.call_tool(plain)).startswith("plain of probe")
        assert heard.behind.person.visits[0].startswith(f"{heard.behind.person.console}/connect/mine?for=")
    assert '"tool":"connect_account"' in (tmp_path / "gateway.journal").read_text("utf-8")


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_that_opens_no_page_is_told_where_to_connect(tmp_path: Path, mode: str) -> None:
    """Each of its calls, also of a tool that it knows from before; nothing reaches the upstream."""
    async with without_account(tmp_path, mode, "/up") as heard, Client(f"{heard.behind.mcp}/up", mode=mode) as plain:
        for name in ("connect_account", "plain"):
            said = await plain.call_tool(name)
            assert said.is_error
            assert (said.structured_content or {})["connect_url"].startswith(
                f"{heard.behind.person.console}/connect/mine?for="
            )
        assert heard.behind.probe.seen == []

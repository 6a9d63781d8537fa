"""One request at every door of a gateway with a caller's credential: all of them must give the same answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.world import World, local_client

MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "callers", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
    },
}


@dataclass(frozen=True, slots=True)
class Knock:
    """A request at one door."""

    method: str
    url: str
    headers: dict[str, str]
    body: str | None = None


def mcp_call(url: str, method: str = "tools/list", params: Mapping[str, Any] | None = None, name: str = "") -> Knock:
    """A message of the protocol 2026-07-28."""
    said = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": META}}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": method,
    }
    return Knock("POST", url, {**headers, **({"mcp-name": name} if name else {})}, json.dumps(said))


def knocks(world: World) -> dict[str, Knock]:
    """One request for each door, without credentials."""
    client = {"webmcp-gateway-client": "1"}
    own = {"origin": world.console, "sec-fetch-site": "same-origin"}
    return {
        "mcp": mcp_call(f"{world.url}/mcp"),
        "mcp of an app": mcp_call(f"{world.url}/mcp/cart"),
        "mcp on the console's host": mcp_call(f"{world.console}/mcp"),
        "console": Knock("GET", f"{world.console}/api/state", client),
        "events": Knock("GET", f"{world.console}/api/events", client),
        "record": Knock("GET", f"{world.console}/api/audit", client),
        "approval": Knock("POST", f"{world.console}/api/approvals/x", own, '{"answer":"approve"}'),
        "links": Knock("POST", f"{world.console}/api/links", own, "{}"),
        "downloads": Knock("POST", f"{world.console}/api/downloads", own, "{}"),
        "tickets": Knock("POST", f"{world.console}/bridge/tickets", own, '{"apps":["cart"]}'),
        "bodies": Knock("PUT", f"{world.console}/bridge/bodies/{'a' * 32}", own, "{}"),
        "site": Knock("GET", f"{world.site}/", client),
        "site's api": Knock("GET", f"{world.site}/api/cart", client),
    }


async def answer(knock: Knock, headers: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
    """Send the request with `headers`; return status, headers and the start of the answer."""
    async with local_client() as client:
        merged = {**knock.headers, **headers}
        request = client.request(knock.method, knock.url, headers=merged, data=knock.body, allow_redirects=False)
        async with request as got:
            return got.status, {str(name): value for name, value in got.headers.items()}, await got.content.read(4096)


async def statuses(world: World, headers: Mapping[str, str]) -> dict[str, int]:
    """The status of every door for a caller with these `headers`."""
    return {name: (await answer(knock, headers))[0] for name, knock in knocks(world).items()}

"""An account that a model's call needs: its client sends the person to connect it, in both eras; the page runs once."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import aiohttp
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from tests.approvals.page import show_cart
from tests.leaks.marks import MARK
from tests.oidc.provider import OidcProvider, oidc_provider
from tests.oidc.sign_in import sign_in
from tests.resource import resource
from tests.whole.test_main_job import UI, answer_next, person
from tests.world import World, running

POLICY = """
version: 1
backends:
  shop: {url: "URL", network: private, credential: shop-account}
routes:
  - {path: /api/cart, methods: [GET]}
  - {path: /api/checkout, methods: [POST], confirm: {when: always, message: "Pay?"}}
tools:
  get_cart: {}
"""
CREDENTIAL = """  shop-account:
    {type: authorization_code, issuer: "ISSUER", client_id: gateway, client_secret: hush-hush-k4naRieZq9,
     network: private, scope: [openid, email]}
"""


class Sent:
    """A person at an MCP client who opens the requested pages, and connects there."""

    def __init__(self, world: World, ann: aiohttp.ClientSession) -> None:
        self.world = world
        self.ann = ann
        self.visits: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        self.visits.append(params.url)
        if params.url.startswith(f"{self.world.console}/connect/"):
            await self.connect()
        else:
            await answer_next(self.ann, self.world, "approve")
        return ElicitResult(action="accept")

    async def connect(self) -> None:
        """Connect through the console and the server's login pages."""
        console = self.world.console
        meant = self.visits[-1].partition("for=")[2]
        async with self.ann.post(f"{console}/api/connections/shop-account", json={"for": meant}) as answer:
            begun = await answer.json()
        async with self.world.client() as browser:
            back = await sign_in(browser, begun["location"], "alice", f"{console}/oauth/callback")
        told = {"secret": begun["secret"], "answer": dict(parse_qsl(unquote(back).partition("?")[2]))}
        async with self.ann.post(f"{console}/api/connections/finish", json=told) as done:
            assert done.status == 200, await done.text()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_client_sends_the_person_to_connect(tmp_path: Path, mode: Any) -> None:
    """The call waits, the account is connected, and the one run of the page's tool continues with it."""
    async with running(tmp_path) as world, resource() as behind, provider(world) as server:
        await with_account(world, behind.url, server)
        async with person(world) as ann, show_cart(world, ann) as page:
            sent = Sent(world, ann)
            async with Client(f"{world.url}/mcp", mode=mode, elicitation_callback=sent) as client:
                result = await client.call_tool("cart_get_cart", {})
            assert (result.is_error, page.ran) == (False, ["get_cart"])
            assert page.outcomes[0]["status"] == 200
    (visit,) = sent.visits
    assert visit.startswith(f"{world.console}/connect/shop-account?for=")
    assert len(behind.seen) == 1


READ = {"url": "/api/cart"}
PAY = {"url": "/api/checkout", "method": "POST", "body": {}}


@pytest.mark.parametrize("wishes", [[READ, PAY], [PAY]], ids=["read and pay", "pay"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_requests_of_the_client_itself_send_its_person_too(
    tmp_path: Path, mode: Any, wishes: list[dict[str, Any]]
) -> None:
    """Without a view: the account is connected first, then the requests are approved; each is sent once."""
    async with running(tmp_path) as world, resource() as behind, provider(world) as server:
        await with_account(world, behind.url, server)
        async with person(world) as ann:
            sent = Sent(world, ann)
            async with Client(f"{world.url}/mcp/cart", mode=mode, elicitation_callback=sent, extensions=UI) as client:
                results = [await client.call_tool("http_request", wish) for wish in wishes]
    statuses = [result.structured_content and result.structured_content["status"] for result in results]
    assert statuses == [200] * len(wishes)
    assert [visit.removeprefix(world.console).split("/")[1] for visit in sent.visits] == ["connect", "approvals"]
    assert len(behind.seen) == len(wishes)


async def test_nobody_is_asked_about_what_cannot_be_sent(tmp_path: Path) -> None:
    """At the page of a view, the refusal comes at once."""
    async with running(tmp_path) as world, resource() as behind, provider(world) as server:
        await with_account(world, behind.url, server)
        async with person(world) as ann, show_cart(world, ann) as page:
            outcome = await page.fetch(url="/api/checkout", method="POST", body={})
            async with ann.get(f"{world.console}/api/approvals") as listed:
                assert (await listed.json())["approvals"] == []
    assert (outcome["status"], outcome["headers"]["gateway-reason"]) == (401, "credential-needed")
    assert behind.seen == []
    assert not any(line["fields"].get("approval") for line in world.records())


async def test_a_client_that_cannot_ask_is_told(tmp_path: Path) -> None:
    """The page gets 401 at once, with the URL."""
    async with running(tmp_path) as world, resource() as behind, provider(world) as server:
        await with_account(world, behind.url, server)
        async with person(world) as ann, show_cart(world, ann) as page:
            async with Client(f"{world.url}/mcp") as client:
                await client.call_tool("cart_get_cart", {})
            (outcome,) = page.outcomes
    assert (outcome["status"], outcome["headers"]["gateway-reason"]) == (401, "credential-needed")
    assert outcome["body"]["connect_url"].startswith(f"{world.console}/connect/shop-account?for=")
    assert behind.seen == []


def provider(world: World) -> Any:
    """A server with this gateway as client."""
    client = {
        "client_id": "gateway",
        "client_secret": f"hush-hush-{MARK}",
        "grant_types": ["authorization_code", "refresh_token"],
        "redirect_uris": [f"{world.console}/oauth/callback"],
    }
    return oidc_provider([client])


async def with_account(world: World, url: str, server: OidcProvider) -> None:
    """Restart the gateway with a shop for which each person needs an account."""
    (world.folder / "policy.yaml").write_text(POLICY.replace("URL", url))
    file = world.folder / "gateway.yaml"
    credential = CREDENTIAL.replace("ISSUER", server.issuer)
    file.write_text(file.read_text().replace("credentials:\n", f"credentials:\n{credential}"))
    await world.gateway.stop()
    await world.start_gateway()

"""Another web site on the machine cannot use the gateway; each site serves its own origin only."""

from collections.abc import Mapping

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from gateway.doors.pages import readable
from tests.world import World, local_client

NAVIGATION = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
CROSS = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
SAME_SITE = {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
OWN = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
CLIENT = {"webmcp-gateway-client": "1"}
JSON = {"content-type": "application/json"}


@pytest.fixture
def world(shared_world: World) -> World:
    """One world for all tests: they change nothing in it."""
    return shared_world


async def status(world: World, method: str, url: str, headers: Mapping[str, str]) -> int:
    """Return the status of one request."""
    async with world.client() as client, client.request(method, url, headers=headers, allow_redirects=False) as answer:
        return answer.status


@pytest.mark.parametrize("path", ["/", "/api/state", "/api/events", "/api/audit", "/bridge", "/assets/x.js"])
@pytest.mark.parametrize("headers", [CROSS, SAME_SITE, {"origin": "null"}, {"origin": "http://evil.localhost"}, {}])
async def test_the_console_answers_only_itself(world: World, path: str, headers: Mapping[str, str]) -> None:
    """Images, scripts, fetches and unknown clients of other origins get no answer."""
    assert await status(world, "GET", world.console + path, headers) == 403


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/bridge/tickets", {"origin": "http://localhost:3000", **JSON}),
        ("/api/approvals/x", {"sec-fetch-site": "same-site", **JSON}),
        ("/bridge/tickets", {"origin": "null", **JSON}),
        ("/mcp", {"origin": "http://localhost:3000", **JSON}),
        ("/mcp/cart", {"sec-fetch-site": "cross-site", **JSON}),
    ],
)
async def test_posts_of_other_pages_are_refused(world: World, path: str, headers: Mapping[str, str]) -> None:
    """On the console's own host and on the plain one."""
    assert await status(world, "POST", world.console + path, headers) == 403
    assert await status(world, "POST", world.url + path, headers) == 403


async def test_the_app_site_cannot_reach_the_console(world: World) -> None:
    """Its origin differs, whatever the browser reports in `Sec-Fetch-Site`."""
    headers = {"origin": world.site, "sec-fetch-site": "same-site", **JSON}
    assert await status(world, "POST", f"{world.console}/api/approvals/x", headers) == 403
    assert await status(world, "GET", f"{world.console}/api/state", {"origin": world.site}) == 403
    assert await status(world, "GET", f"{world.site}/api/state", {**OWN, "origin": world.site}) == 403


async def test_own_pages_and_clients_are_served(world: World) -> None:
    """The console's page, a person's navigation, a command-line client."""
    assert await status(world, "GET", f"{world.console}/api/state", OWN) == 200
    assert await status(world, "GET", f"{world.console}/api/state", CLIENT) == 200
    assert await status(world, "GET", f"{world.console}/", NAVIGATION) == 200
    assert await status(world, "GET", f"{world.site}/", NAVIGATION) == 200


async def test_a_navigation_is_for_pages_only(world: World) -> None:
    """A navigating POST or a frame is not a person who types an address."""
    assert await status(world, "POST", f"{world.site}/api/cart", {**NAVIGATION, "origin": "null"}) == 403
    framed = {**NAVIGATION, "sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"}
    assert await status(world, "GET", f"{world.console}/", framed) == 403
    assert await status(world, "GET", f"{world.site}/", framed) == 403


@pytest.mark.parametrize("host", ["evil.example", "localhost", "gateway.localhost.evil.example:{port}", "127.0.0.1:1"])
async def test_unknown_hosts_are_misdirected(world: World, host: str) -> None:
    """A DNS name rebound to this machine is not one of ours."""
    headers = {"host": host.format(port=world.gateway.port), **CLIENT}
    assert await status(world, "GET", f"{world.url}/healthz", headers) == 421


async def test_the_plain_host_leads_people_to_the_console(world: World) -> None:
    """People type `http://localhost:8080`."""
    assert await status(world, "GET", world.url, NAVIGATION) == 302
    assert await status(world, "GET", f"{world.url}/api/state", CLIENT) == 404


async def test_health_is_for_everyone_on_our_hosts(world: World) -> None:
    """A load balancer sends no header of ours."""
    assert await status(world, "GET", f"{world.url}/healthz", {}) == 200
    assert await status(world, "GET", f"{world.url}/readyz", {}) == 200


async def test_changes_need_the_consoles_own_token(world: World) -> None:
    """The right origin alone neither answers an approval nor gets a ticket."""
    headers = {**OWN, "origin": world.console, **JSON}
    assert await status(world, "POST", f"{world.console}/bridge/tickets", headers) == 403
    wrong = {**headers, "webmcp-gateway-csrf": "0" * 64}
    assert await status(world, "POST", f"{world.console}/api/approvals/x", wrong) == 403


async def test_the_sandbox_serves_only_signed_policies(world: World) -> None:
    """A client cannot make a proxy page with a policy of its own."""
    frame = {**NAVIGATION, "sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"}
    async with world.client() as client:
        async with client.get(f"{world.console}/api/state", headers=OWN) as answer:
            url = (await answer.json())["apps"][0]["sandbox_url"]
        async with client.get(url, headers=frame) as answer:
            assert answer.status == 200
            streams = f"http://sandbox.localhost:{world.gateway.port}/streams/"
            assert f"connect-src {streams};" in answer.headers["content-security-policy"]
            assert f"frame-ancestors {world.console}" in answer.headers["content-security-policy"]
        async with client.get(url.replace("connect-src", "connect-sr"), headers=frame) as answer:
            assert answer.status == 403


async def test_a_link_of_another_site_leads_to_pages_not_to_the_api(world: World) -> None:
    """A GET with an effect would otherwise run with the gateway's credential."""
    link = {**NAVIGATION, "sec-fetch-site": "cross-site"}
    assert await status(world, "GET", f"{world.site}/", link) == 200
    assert await status(world, "GET", f"{world.site}/api/cart", link) == 403
    assert world.arrived() == []


@pytest.mark.parametrize("path", ["/mcp/../api/cart", "/healthz", "/readyz", "/mcp"])
async def test_paths_of_other_sites_open_nothing_on_the_apps(world: World, path: str) -> None:
    """The checks depend on the route that serves the request, not on its path alone."""
    assert await status(world, "GET", world.site + path, {}) == 403
    assert await status(world, "GET", world.site + path, {"origin": "http://evil.example"}) == 403


@pytest.mark.parametrize(
    ("path", "status", "more"),
    [("/mcp", 400, {}), ("/mcp/cart", 400, {}), ("/nowhere", 404, {}), ("/nowhere", 404, CLIENT)],
)
async def test_a_body_that_is_not_coded_as_it_says_is_refused(
    world: World, caplog: pytest.LogCaptureFixture, path: str, status: int, more: dict[str, str]
) -> None:
    """It is the client's error, not the gateway's; the rest of the body is not read."""
    headers = {"content-encoding": "gzip", "accept": "application/json, text/event-stream", **JSON, **more}
    async with world.client() as client:
        async with client.post(world.url + path, data=b"no gzip", headers=headers) as answer:
            assert (answer.status, answer.headers.get("connection")) == (status, "close")
            if status == 400:
                assert (await answer.json(content_type=None))["title"] == "bad request"
        async with client.get(f"{world.url}/healthz"):  # by now the rest would have been read
            assert "aiohttp.server" not in {record.name for record in caplog.records}


NO_SERVERS = ["/mcp/", "/mcp/cart/", "/mcp/cart/more", "/mcp/nothing/", "/mcp//", "/mcp/cart/?a=1", "/sse", "/MCP"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
@pytest.mark.parametrize("path", NO_SERVERS)
async def test_a_path_without_a_server_is_not_found(world: World, path: str, method: str) -> None:
    """The answer names the endpoints for MCP clients by the path requested, and never suggests a browser."""
    async with local_client() as http, http.request(method, world.url + path, data=b"{}") as answer:
        told = await answer.json()
        assert (answer.status, told["type"]) == (404, "urn:webmcp-gateway:unknown-endpoint")
        plain = path.partition("?")[0]
        remedy = f"Write {plain.rstrip('/')}, without the slash at the end."
        assert told["detail"].endswith(remedy) is plain.endswith("/")


@pytest.mark.parametrize("path", NO_SERVERS)
async def test_pages_of_other_sites_are_refused_where_there_is_no_server(world: World, path: str) -> None:
    """As at every other path of MCP."""
    for fields in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        async with local_client() as http, http.post(world.url + path, headers=fields) as answer:
            assert answer.status == 403


@pytest.mark.parametrize("address", ["{console}/nothing", "{site}/api/nothing", "{url}/mcp"])
async def test_an_error_is_a_page_for_a_person_only(world: World, address: str) -> None:
    """A program's request gets the same status, and the rest of the head, but no HTML."""
    url = address.format(console=world.console, site=world.site, url=world.url)
    async with (
        world.client() as client,
        client.get(url, headers=NAVIGATION) as page,
        client.get(url, headers=CLIENT) as plain,
    ):
        assert page.content_type == "text/html"
        assert "<h1>" in await page.text()
        assert plain.content_type != "text/html"
        if url.startswith(world.site):
            assert page.status == plain.status
            assert page.headers["gateway-reason"] == plain.headers["gateway-reason"] == "policy-denied"


def test_an_error_of_the_backend_is_its_own() -> None:
    """A navigation to it gets the backend's answer, also if that is a problem document."""
    request = make_mocked_request("GET", "/api/products/7", headers=NAVIGATION)
    answer = web.Response(status=404, body=b'{"detail": "no such product"}', content_type="application/problem+json")
    assert readable(request, answer) is answer

"""The origin of one app's frames for one person: what it serves, to whom, and how often."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
import yaml
from mcp import Client

from gateway import mux
from gateway.config import Origins
from gateway.crypto import SigningKeys
from gateway.doors.dedicated import EACH, WHOLE, DedicatedDoor
from gateway.doors.sandbox import SandboxDoor
from gateway.errors import Refusal
from gateway.model import LOCAL, Channel
from tests.doors.bridge.test_bridge import LOCAL_OTHER, Host, connected, console
from tests.doors.upstream_view import HTML, UI, opened
from tests.world import Loopback, World, read_config, running

FRAME = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
"""The fields that browsers send when the proxy navigates its frame."""


@pytest.fixture(scope="module")
async def dedicated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A gateway whose cart has origins of its own."""
    async with running(tmp_path_factory.mktemp("dedicated"), sandbox="dedicated") as world:
        yield world


async def read(host: Host, view: mux.Opened, **meta: Any) -> dict[str, Any]:
    """Read the page of a view, as the host page does."""
    host.number += 1
    params: dict[str, Any] = {"uri": view.resource, "_meta": meta}
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": host.number, "method": "resources/read", "params": params}
    await host.say(mux.Message(view.view, Channel.UI, message))
    while True:
        frame = await host.hear()
        if isinstance(frame, mux.Message) and frame.message.get("id") == host.number:
            result: Any = frame.message["result"]
            if "$body" in result:
                async with host.client.get(f"{host.world.console}/bridge/bodies/{result['$body']}") as body:
                    result = await body.json()
            found: dict[str, Any] = result
            return found


async def shown(world: World) -> dict[str, Any]:
    """What the host page is told to show."""
    async with console(world) as client, connected(world, client) as host:
        result = await read(host, await host.open(), **{"webmcp-gateway/show": True})
        assert result["contents"][0]["text"] == ""
        found: dict[str, Any] = result["_meta"]["webmcp-gateway/shown"]
        return found


async def fetch(world: World, url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of the answer to a browser's navigation."""
    async with world.client() as client, client.get(url, headers={**FRAME, **headers}) as answer:
        return answer.status, await answer.text(), {name.lower(): value for name, value in answer.headers.items()}


async def test_a_document_is_served_once_to_the_frame_of_its_proxy(dedicated: World) -> None:
    """Its policy, its headers, and nothing of a second request."""
    said = await shown(dedicated)
    url = said["document"]
    frame = url.split("/?")[0]
    assert frame.startswith("http://0")
    status, html, headers = await fetch(dedicated, url)
    assert status == 200
    assert "webmcp-gateway" in html
    assert f'data-proxy="http://sandbox.localhost:{dedicated.gateway.port}"' in html
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    port = dedicated.gateway.port
    assert policy["frame-ancestors"] == f"http://sandbox.localhost:{port} http://gateway.localhost:{port}"
    assert (policy["worker-src"], policy["frame-src"]) == ("blob:", "blob:")
    assert policy["connect-src"] == f"http://sandbox.localhost:{port}/streams/"
    assert headers["origin-agent-cluster"] == "?1"
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "strict-origin")
    assert "set-cookie" not in headers
    again, body, headers = await fetch(dedicated, url)
    assert (again, headers["content-type"]) == (403, "application/problem+json")
    assert "was used" in body


async def test_the_proxy_of_a_frame_loads_nothing_else(dedicated: World) -> None:
    """Its signed policy names the frame's origin; another one is refused."""
    said = await shown(dedicated)
    frame = said["document"].split("/?")[0]
    query = parse_qs(urlsplit(said["sandbox"]).query)
    assert query["frame"] == [frame]
    assert f"frame-src {frame};" in query["csp"][0]
    assert (await fetch(dedicated, said["sandbox"]))[0] == 200
    for forged in (
        said["sandbox"].replace(f"&frame={frame.replace('://', '%3A%2F%2F').replace(':', '%3A')}", ""),
        said["sandbox"].replace("frame=http", "frame=https"),
        f"{said['sandbox']}&frame=http%3A%2F%2Fevil.test",
    ):
        assert forged != said["sandbox"]
        assert (await fetch(dedicated, forged))[0] == 403, forged


async def test_the_page_itself_and_other_clients_read_the_app_as_ever(dedicated: World) -> None:
    """Only the host page that shows it gets an address, in place of the HTML."""
    async with console(dedicated) as client, connected(dedicated, client) as host:
        result = await read(host, await host.open())
    assert result["contents"][0]["text"].startswith("<!")
    assert "_meta" not in result or "webmcp-gateway/shown" not in result["_meta"]


REQUESTS: dict[str, tuple[dict[str, str], str]] = {
    "a tab": ({"sec-fetch-dest": "document"}, "/"),
    "a tab's address bar": ({"sec-fetch-dest": "document", "sec-fetch-site": "none"}, "/"),
    "a script": ({"sec-fetch-dest": "script", "sec-fetch-mode": "no-cors"}, "/"),
    "a fetch of another site": (
        {"sec-fetch-dest": "empty", "sec-fetch-mode": "cors", "origin": "https://evil.test"},
        "/",
    ),
    "an embed": ({"sec-fetch-dest": "embed"}, "/"),
    "a service worker": ({"service-worker": "script", "sec-fetch-dest": "serviceworker"}, "/"),
    "a service worker in a frame": ({"service-worker": "script"}, "/"),
    "another path": ({}, "/other"),
    "the console's API": ({}, "/api/state"),
    "the bridge": ({}, "/bridge"),
    "an MCP server": ({}, "/mcp"),
    "the proxy": ({}, "/proxy.html"),
}


@pytest.mark.parametrize("who", REQUESTS)
async def test_nothing_but_the_frame_gets_the_document(dedicated: World, who: str) -> None:
    """Each other request is refused, with no HTML, and takes nothing from the frame."""
    headers, path = REQUESTS[who]
    url = (await shown(dedicated))["document"]
    status, body, answered = await fetch(dedicated, url.replace("/?", f"{path}?"), **headers)
    assert status in (403, 404), body
    assert "text/html" not in answered["content-type"]
    assert "<html" not in body
    assert "set-cookie" not in answered
    assert (await fetch(dedicated, url))[0] == 200


async def test_the_host_is_part_of_the_address(dedicated: World) -> None:
    """At any other host the document does not exist, however that host is written."""
    url = urlsplit((await shown(dedicated))["document"])
    host, port, query = str(url.hostname), dedicated.gateway.port, url.query
    other = host[:3] + ("a" if host[3] != "a" else "b") + host[4:]
    hosts = {
        f"{other}:{port}": 403,
        f"sandbox.localhost:{port}": 404,
        f"gateway.localhost:{port}": 403,
        f"cart.localhost:{port}": 403,
        f"{host}.:{port}": 421,
        f"{host}:1": 421,
        host: 421,
        f"x.{host}:{port}": 421,
        f"{host}.evil.test:{port}": 421,
        f"{host[:-10]}:{port}": 421,
        f"x@{host}:{port}": 421,
        f"0{'1' * 32}.localhost:{port}": 421,
    }
    async with aiohttp.ClientSession() as client:
        for name, expected in hosts.items():
            asked = f"http://127.0.0.1:{port}/?{query}"
            async with client.get(asked, headers={**FRAME, "host": name}, allow_redirects=False) as answer:
                text = await answer.text()
                assert answer.status in (expected, 403, 400), (name, answer.status)
                assert "data-proxy" not in text, name
        upper = {**FRAME, "host": f"{host.upper()}:{port}"}
        async with client.get(f"http://127.0.0.1:{port}/?{query}", headers=upper) as answer:
            assert answer.status == 200  # the same host: names have no case (RFC 9110, 4.2.3)


async def test_two_values_are_none(dedicated: World) -> None:
    """A repeated or malformed parameter names no document."""
    url = (await shown(dedicated))["document"]
    once = url.partition("=")[2]
    for wrong in (f"{url}&webmcp-gateway={once}", f"{url}x", url.replace(once, ""), url.replace(once, "%00"), url[:-1]):
        assert (await fetch(dedicated, wrong))[0] == 403, wrong
    assert (await fetch(dedicated, url))[0] == 200


async def test_an_upstreams_page_has_an_origin_of_its_own_too(tmp_path: Path) -> None:
    """With what its server declares, and the script that the host page otherwise puts first."""
    async with opened(tmp_path, keys=", sandbox: dedicated") as view:
        result = await view.result("resources/read", uri=UI, _meta={"webmcp-gateway/show": True})
        said = result["_meta"]["webmcp-gateway/shown"]
        assert result["contents"][0]["text"] == ""
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback())) as browser,
            browser.get(said["document"], headers=FRAME) as answer,
        ):
            html, policy = await answer.text(), answer.headers["content-security-policy"]
        assert html.startswith("<!doctype html><html><head><script data-proxy=")
        assert html.endswith(HTML.partition("<head>")[2])
        assert "connect-src https://api.example.com;" in policy
        assert "frame-src blob: https://frames.example.org;" in policy
        plain = await view.result("resources/read", uri=UI)
        assert plain["contents"][0]["text"] == HTML


async def test_a_logout_names_where_stored_data_is_deleted(dedicated: World) -> None:
    """Its signed address deletes what this origin stored, at this origin alone."""
    frame = (await shown(dedicated))["document"].split("/?")[0]
    async with console(dedicated) as client, client.post(f"{dedicated.console}/api/logout", json={}) as answer:
        [url] = (await answer.json())["clear"]
    assert url.startswith(f"{frame}/.well-known/webmcp-gateway/clear?")
    status, body, headers = await fetch(dedicated, url)
    assert (status, body) == (200, "")
    assert headers["clear-site-data"] == '"cache", "cookies", "storage"'
    assert headers["content-security-policy"].endswith(f"frame-ancestors {dedicated.console}")
    other = url.replace(frame[9:12], "aaa" if frame[9:12] != "aaa" else "bbb", 1)
    for wrong in (other, url.replace("until=1", "until=2"), url[:-1]):
        status, _, headers = await fetch(dedicated, wrong)
        assert (status, "clear-site-data" in headers) == (403, False), wrong


@pytest.mark.parametrize("held", ["", "x" * 8])
async def test_a_logout_clears_what_the_origin_stored(dedicated: World, held: str) -> None:
    """At a signed address alone; any other is refused."""
    async with console(dedicated) as client, client.get(f"{dedicated.console}/api/state") as answer:
        policy = answer.headers["content-security-policy"]
    port = dedicated.gateway.port
    assert f"frame-src http://sandbox.localhost:{port} http://*.localhost:{port};" in policy
    frame = (await shown(dedicated))["document"].split("/?")[0]
    url = f"{frame}/.well-known/webmcp-gateway/clear?until=99999999999&sig={held}"
    status, _, headers = await fetch(dedicated, url)
    assert (status, "clear-site-data" in headers) == (403, False)


async def test_other_hosts_are_asked_for_the_configured_domain(tmp_path: Path) -> None:
    """In what is listed and in what is read, and for an app whose frames our own host gives an origin; else none is."""
    async with running(tmp_path, sandbox="dedicated") as world:
        assert await domains(world) == {None}
        file = tmp_path / "gateway.yaml"
        written = yaml.safe_load(file.read_text("utf-8"))
        written["apps"]["cart"]["domain"] = "a904794854a047f6.example-content.com"
        file.write_text(yaml.safe_dump(written), "utf-8")
        await world.gateway.stop()
        world.config = read_config(tmp_path)
        await world.start_gateway()
        assert await domains(world) == {"a904794854a047f6.example-content.com"}


async def domains(world: World) -> set[str | None]:
    """The domains in `_meta.ui` of the app's resource, as listed and as read."""
    async with Client(f"{world.url}/mcp", mode="2026-07-28") as client:
        (listed,) = (one for one in (await client.list_resources()).resources if "cart" in str(one.uri))
        (read_one,) = (await client.read_resource(str(listed.uri))).contents
    return {(one.meta or {})["ui"].get("domain") for one in (listed, read_one)}


def door(clock: list[float], *, admitted: bool = True) -> DedicatedDoor:
    """A door without a server."""
    keys = SigningKeys((b"k" * 32,))
    sandbox = SandboxDoor(Path(__file__).parents[2] / "gateway/static/sandbox", "https://sandbox.test", keys)
    origins = Origins(
        "https://console.test", "https://{app}.apps.test", "https://sandbox.test", "https://{id}.views.test"
    )
    return DedicatedDoor(
        origins,
        keys,
        sandbox,
        apps=lambda: ["one"],
        admits=lambda _, __: admitted,
        script="",
        clock=lambda: clock[0],
    )


def test_each_app_and_person_has_an_origin_of_its_own() -> None:
    """The same at any time, and with no other key."""
    made = door([0.0])
    origins = {made.origin(who, app) for who in (LOCAL, LOCAL_OTHER) for app in ("one", "two")}
    assert len(origins) == 4
    assert all(len(origin.removeprefix("https://").split(".")[0]) == 33 for origin in origins)
    assert made.origin(LOCAL, "one") == door([9.0]).origin(LOCAL, "one")


@pytest.mark.bound("documents for dedicated origins that no browser has fetched yet")
def test_documents_that_nobody_fetches_are_bounded() -> None:
    """Of one person the oldest goes, and of the largest holder when all are too large; time frees them."""
    clock = [0.0]
    made = door(clock)
    show = made.show("one")
    for _ in range(EACH + 5):
        show(LOCAL, "x", {})
    assert len(made._waiting) == EACH
    with pytest.raises(Refusal):
        show(LOCAL_OTHER, "x" * (WHOLE + 1), {})
    large = WHOLE // 8
    for _ in range(EACH):
        show(LOCAL_OTHER, "x" * large, {})
    show(LOCAL, "é" * large, {})
    held = [(one.principal, len(one.html)) for one in made._waiting.values()]
    assert held == [(LOCAL, 1)] * (EACH - 1) + [(LOCAL_OTHER, large)] * 6 + [(LOCAL, large)]
    clock[0] = 61.0
    show(LOCAL_OTHER, "x", {})
    assert len(made._waiting) == 1


def test_a_page_begins_with_the_script_of_its_origin() -> None:
    """Behind what must come before it, and before anything that runs."""
    made = door([0.0])
    for before in ("", "<!doctype html>", "<!-- a --><!DOCTYPE html>\n<html lang=en><head class='x'>", "\ufeff<head>"):
        page = made._with_script(f"{before}<script>theirs</script>")
        assert page.startswith(f'{before}<script data-proxy="https://sandbox.test">'), json.dumps(page)

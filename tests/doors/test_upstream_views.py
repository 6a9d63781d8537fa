"""The view of an upstream's app on the bridge: where its calls go, and how its page is shown."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mcp_types as types
import pytest
from mcp.server import Server as McpServer
from mcp.shared.exceptions import MCPError

from gateway import mux
from gateway.config import load_config
from gateway.doors.bridge.host_page import CHECKS
from gateway.errors import DocumentError
from gateway.jsontext.writing import SIZE, compact_portable
from gateway.mcp.results import BYTES
from gateway.mcp.view_server import SHOWN
from gateway.model import Channel, Json
from tests.doors.upstream_view import ERAS, HTML, META, UI, opened, shop
from tests.interop.probe import Probe


@ERAS
async def test_the_page_is_shown_as_its_upstream_wrote_it(tmp_path: Path, era: str) -> None:
    """Byte for byte, `_meta` too; valid origins that it declares are in the signed URL of the sandbox."""
    async with opened(tmp_path, era) as view:
        read = await view.result("resources/read", uri=UI)
        [content] = read["contents"]
        assert (content["text"], content["_meta"]) == (HTML, META)
        shown = read["_meta"][SHOWN]
        policy = parse_qs(urlsplit(shown["sandbox"]).query)["csp"][0]
        assert "connect-src https://api.example.com;" in policy
        assert "frame-src https://frames.example.org;" in policy
        assert shown["ui"]["permissions"] == {"camera": {}}


@pytest.mark.parametrize(("tool", "runs"), [("both", True), ("page", True), ("model", False), ("http_request", True)])
@ERAS
async def test_a_view_reaches_the_tools_that_are_for_apps(tmp_path: Path, era: str, tool: str, runs: bool) -> None:
    """The default is model and app; a name of a gateway tool means the upstream's tool if its page has no runtime."""
    async with opened(tmp_path, era) as view:
        result = await view.result("tools/call", name=tool, arguments={"odd": [1, None]})
        assert result.get("isError", False) is not runs
        if runs:
            assert (result["content"][0]["text"], result["_meta"]["kept"]) == (f"{tool} ran", True)


@ERAS
async def test_a_view_reaches_resources_and_prompts_of_its_upstream(tmp_path: Path, era: str) -> None:
    """Lists, templates and prompts."""
    async with opened(tmp_path, era) as view:
        assert [one["uri"] for one in (await view.result("resources/list"))["resources"]] == [UI]
        templates = (await view.result("resources/templates/list"))["resourceTemplates"]
        assert [one["uriTemplate"] for one in templates] == ["shop://item/{id}"]
        assert [one["name"] for one in (await view.result("prompts/list"))["prompts"]] == ["greet"]
        said = await view.result("prompts/get", name="greet")
        assert said["messages"][0]["content"]["text"] == "hello from greet of shop"
        assert await view.result("ping") == {}


def sha256(html: str) -> str:
    """The digest that a host page sends with the HTML that it has."""
    return hashlib.sha256(html.encode()).hexdigest()


GONE, CLOSED = "There is no upstream shop any more.", "This view is closed."


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("resource", [UI, "mcp-app://shop/app"])
async def test_an_app_of_an_upstream_needs_no_entry(tmp_path: Path, resource: str, era: str) -> None:
    """Its tools under the upstream's policy and visibility, its resources, and its page with the digest of its HTML."""
    opening = mux.Open("r1", upstream="shop", resource=resource, sha256=sha256(HTML))
    ran: list[str] = []
    policy = "version: 1\ntools:\n  both: {deny: not now}\n  page: {}\n  model: {}\n  http_request: {}\n"
    async with opened(
        tmp_path, era, server=shop(ran.append), policy=policy, resource=resource, opening=opening
    ) as view:
        for tool in ("both", "page", "model", "http_request", "webmcp_attach"):
            answer = await view.ask("tools/call", name=tool, arguments={})
            assert ("error" in answer or answer["result"].get("isError", False)) is (tool not in ran)
        assert ran == ["page", "http_request"]
        listed = [one["name"] for one in (await view.result("tools/list"))["tools"]]
        assert listed == ["page", "http_request"]
        assert await view.result("ping") == {}
        read = await view.result("resources/read", uri=resource)
        assert (read["contents"][0]["text"], read["contents"][0]["_meta"]) == (HTML, META)
        assert (
            "connect-src https://api.example.com;"
            in parse_qs(urlsplit(read["_meta"][SHOWN]["sandbox"]).query)["csp"][0]
        )
        settings = view.folder / "gateway.yaml"
        for change, said in ((("  shop:", "  till:"), GONE), (("  till:", "  shop:"), CLOSED)):
            settings.write_text(settings.read_text().replace(*change))
            view.reload()
            async with asyncio.timeout(60):
                while (await view.ask("resources/list")).get("error", {}).get("message") != said:
                    await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("opening", "code"),
    [
        (mux.Open("r1", upstream="shop", resource=UI, sha256=sha256(f"{HTML} ")), "html-differs"),
        (mux.Open("r1", upstream="shop", resource="ui://shop/none", sha256=sha256(HTML)), "backend-unavailable"),
        (mux.Open("r1", upstream="other", resource=UI), "unknown-app"),
        (mux.Open("r1", app="shop"), "unknown-app"),
    ],
)
async def test_another_page_of_an_upstream_is_not_opened(tmp_path: Path, opening: mux.Open, code: str) -> None:
    """Other HTML than the upstream's own, no resource of it, and a name that is no upstream, or no app."""

    async def read(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        if params.uri != UI:
            raise MCPError(types.INVALID_PARAMS, "There is no such page.")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=UI, text=HTML)])

    async with opened(tmp_path, server=McpServer("shop", on_read_resource=read), opening=opening) as view:
        assert view.refused == code


@pytest.mark.bound("comparisons of an app's HTML with that of a host page")
async def test_a_host_page_that_has_many_pages_compared_is_told_to_wait(tmp_path: Path) -> None:
    """The reading of an upstream's page delays no other frame, so that there may be several; beyond them it is busy."""
    held = asyncio.Event()

    async def read(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        await held.wait()
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=UI, text=HTML)])

    server: McpServer[Any] = McpServer("shop", on_read_resource=read)
    async with opened(tmp_path, server=server, opening=mux.Open("r1", upstream="shop", resource=UI)) as view:
        for number in range(CHECKS + 1):
            view.connection.send(mux.Open(f"c{number}", upstream="shop", resource=UI, sha256=sha256(HTML)))
        for text in view.connection.pending_output():
            await view.socket.send_str(text)
        frames: list[mux.Frame] = []
        while len(frames) < CHECKS + 1:
            came = view.connection.receive_data(await view.socket.receive_str(timeout=60))
            frames += [frame for frame in came if not isinstance(frame, mux.Message)]
            if frames:
                held.set()
        assert isinstance(frames[0], mux.ErrorFrame)
        assert (frames[0].code, frames[0].ref) == ("busy", f"c{CHECKS}")
        assert all(isinstance(frame, mux.Opened) for frame in frames[1:])


async def test_a_large_result_is_written_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces: other tasks run meanwhile."""
    large = "a\u00e9" * 1_000_000
    sizes: dict[bool, list[int]] = {True: [0], False: [0]}

    def counted(value: object) -> str:
        said = compact_portable(value)
        sizes[threading.current_thread() is threading.main_thread()].append(len(said))
        return said

    monkeypatch.setattr("gateway.mux.detached_bodies.compact_portable", counted)
    async with opened(tmp_path, server=shop(who=large)) as view:
        result = await view.result("tools/call", name="both", arguments={})
        url = f"{view.mcp.replace('//localhost', '//gateway.localhost').removesuffix('/mcp')}/bridge/bodies/"
        async with view.http.get(f"{url}{result['$body']}") as answer:
            assert (await answer.json())["_meta"]["who"] == large
    assert max(sizes[True]) <= SIZE
    assert SIZE // 2 < max(sizes[False]) <= 2 * SIZE


def twin() -> McpServer[Any]:
    """A server with identical names."""
    return shop(who="twin")


@ERAS
async def test_a_view_reaches_its_own_upstream_where_another_has_the_same_names(tmp_path: Path, era: str) -> None:
    """Each of its requests, although the other upstream comes first."""
    beside = '  twin: {server: "tests.doors.test_upstream_views:twin"}\n'
    async with opened(tmp_path, era, beside=beside) as view:
        assert (await view.result("tools/call", name="both", arguments={}))["_meta"]["who"] == "shop"
        assert (await view.result("resources/read", uri=UI))["_meta"]["who"] == "shop"
        for kind, method in (
            ("resources", "resources/list"),
            ("resourceTemplates", "resources/templates/list"),
            ("prompts", "prompts/list"),
        ):
            assert [one["title"] for one in (await view.result(method))[kind]] == ["shop"]
        said = await view.result("prompts/get", name="greet")
        assert said["messages"][0]["content"]["text"] == "hello from greet of shop"


@ERAS
async def test_a_view_asks_its_upstream_to_complete(tmp_path: Path, era: str) -> None:
    """An argument of a prompt."""
    async with opened(tmp_path, era) as view:
        wanted = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "city", "value": "Pa"}}
        assert (await view.result("completion/complete", **wanted))["completion"]["values"] == ["Paris"]


@pytest.mark.parametrize(("level", "heard"), [("debug", ["at debug", "at error"]), ("warning", ["at error"])])
@ERAS
async def test_a_view_hears_what_its_upstream_logs_of_its_call(
    tmp_path: Path, era: str, level: str, heard: list[str]
) -> None:
    """From the level that its call names, and before the answer."""
    async with opened(tmp_path, era) as view:
        meta = {"io.modelcontextprotocol/logLevel": level}
        await view.result("tools/call", name="both", arguments={}, _meta=meta)
        assert [one["params"]["data"] for one in view.told if one["method"] == "notifications/message"] == heard


@ERAS
async def test_a_view_hears_how_far_its_call_is(tmp_path: Path, era: str) -> None:
    """With the token that it named."""
    async with opened(tmp_path, era) as view:
        await view.result("tools/call", name="both", arguments={}, _meta={"progressToken": "mine"})
        told = [one["params"] for one in view.told if one["method"] == "notifications/progress"]
    assert [(one["progressToken"], one["progress"]) for one in told] == [("mine", 0.5)]


@ERAS
async def test_a_call_that_a_view_gives_up_ends_at_its_upstream(tmp_path: Path, era: str) -> None:
    """The upstream's own handler is cancelled."""
    probe = Probe()
    async with (
        opened(tmp_path, era, server=probe.server, policy="version: 1\ntools:\n  hold: {}\n") as view,
        asyncio.timeout(60),
    ):
        calling = asyncio.ensure_future(view.ask("tools/call", name="hold", arguments={}))
        await probe.held.wait()
        cancel: dict[str, Json] = {"requestId": view.number}
        gone: dict[str, Json] = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel}
        view.connection.send(mux.Message(view.id, Channel.UI, gone))
        for text in view.connection.pending_output():
            await view.socket.send_str(text)
        await probe.given_up.wait()
        calling.cancel()


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_trace_of_a_view_s_call_goes_on_to_its_upstream(tmp_path: Path, era: str) -> None:
    """As a child of the gateway's own span, with the rest of `_meta`."""
    probe = Probe()
    async with opened(tmp_path, era, server=probe.server, policy="version: 1\ntools:\n  plain: {}\n") as view:
        trace = "0af7651916cd43dd8448eb211c80319c"
        meta = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "tracestate": "a=b", "example.org/kept": [1, None]}
        await view.result("tools/call", name="plain", arguments={}, _meta=meta)
    found = probe.seen[-1]["meta"]
    assert found["traceparent"].split("-")[1] == trace
    assert found["traceparent"] != meta["traceparent"]
    assert (found["tracestate"], found["example.org/kept"]) == ("a=b", [1, None])


@ERAS
async def test_a_view_reads_lists_page_by_page(tmp_path: Path, era: str) -> None:
    """The upstream's cursor passes unchanged in both directions."""
    asked: list[str | None] = []

    async def list_resources(_: Any, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        cursor = params.cursor if params is not None else None
        asked.append(cursor)
        after = {None: "odd \u00e9/+=", "odd \u00e9/+=": None}[cursor]
        return types.ListResourcesResult(resources=[types.Resource(uri=UI, name="app")], next_cursor=after)

    server: McpServer[Any] = McpServer("shop", on_list_resources=list_resources)
    async with opened(tmp_path, era, server=server) as view:
        first = await view.result("resources/list")
        second = await view.result("resources/list", cursor=first["nextCursor"])
    assert (asked, second.get("nextCursor")) == ([None, "odd \u00e9/+="], None)


@ERAS
async def test_what_a_view_says_wrongly_fails_alone(tmp_path: Path, era: str) -> None:
    """Malformed parameters, and a tool that is in no policy."""
    async with opened(tmp_path, era) as view:
        for method, params, field in (
            ("tools/call", {"name": 7}, "name"),
            ("tools/call", {"name": "both", "arguments": []}, "arguments"),
            ("resources/read", {}, "uri"),
            ("prompts/get", {"name": {}}, "name"),
        ):
            error = (await view.ask(method, **params))["error"]
            assert (error["code"], error["message"]) == (-32602, f"{method}: `{field}` is missing or wrong.")
        refused = await view.result("tools/call", name="unlisted", arguments={})
        assert refused["structuredContent"]["reason"] == "policy-denied"


@ERAS
async def test_a_view_s_call_stands_in_the_record_as_its_own(tmp_path: Path, era: str) -> None:
    """With its app, its door and its view."""
    async with opened(tmp_path, era) as view:
        await view.result("tools/call", name="both", arguments={})
        lines = [
            json.loads(line)["fields"] for line in (view.folder / "gateway.journal").read_text("utf-8").splitlines()
        ]
        call = next(line for line in lines if line.get("tool") == "both")
        assert (call["app"], call["door"], call["view"]) == ("shown", "bridge", view.id)


async def test_a_page_with_the_runtime_reaches_the_gateway_s_own_tools(tmp_path: Path) -> None:
    """`runtime: true`: the runtime comes first in the page's head, and its requests follow the app's policy."""
    async with opened(tmp_path, more=", runtime: true") as view:
        [content] = (await view.result("resources/read", uri=UI))["contents"]
        before, _, after = content["text"].partition("<script>")
        assert before == HTML.partition("<head>")[0] + "<head>"
        assert after.endswith("</script>" + HTML.partition("<head>")[2])
        assert content["_meta"] == META
        answer = await view.result("tools/call", name="http_request", arguments={"url": "/api/x"})
        assert answer["structuredContent"]["status"] == 403
        assert (await view.result("tools/call", name="both", arguments={}))["content"][0]["text"] == "both ran"


@ERAS
async def test_an_upstream_does_not_speak_as_the_gateway(tmp_path: Path, era: str) -> None:
    """Our host page would fetch the body that an answer names, as the person, and give it to the upstream's page."""
    async with opened(tmp_path, era) as view:
        called = await view.result("tools/call", name="both", arguments={})
        assert (called["_meta"]["kept"], BYTES in called["_meta"]) == (True, False)
        listed = await view.result("prompts/list")
        assert BYTES not in listed.get("_meta", {})


async def test_an_app_at_an_address_of_earlier_drafts_is_shown(tmp_path: Path) -> None:
    """The bridge carries it like any other."""
    older = "mcp-app://shop/app.html"
    async with opened(tmp_path, resource=older) as view:
        [content] = (await view.result("resources/read", uri=older))["contents"]
        assert (content["uri"], content["text"]) == (older, HTML)


async def test_what_a_page_declares_in_the_list_alone_counts_too(tmp_path: Path) -> None:
    """Some servers declare it in the list, some with the content."""
    declared = {"ui": {"csp": {"connectDomains": ["https://listed.example"]}}}

    async def list_resources(_: Any, __: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=[types.Resource(uri=UI, name="app", _meta=declared)])

    async def read_resource(_: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=HTML)])

    server: McpServer[Any] = McpServer("shop", on_list_resources=list_resources, on_read_resource=read_resource)
    async with opened(tmp_path, server=server) as view:
        shown = (await view.result("resources/read", uri=UI))["_meta"][SHOWN]
        policy = parse_qs(urlsplit(shown["sandbox"]).query)["csp"][0]
        assert "connect-src https://listed.example;" in policy


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{upstream: shpo, resource: 'ui://a/b'}", "'shpo' is not under upstreams"),
        ("{upstream: shop, resource: 'https://a/b'}", "write the address of an app"),
        ("{upstream: shop, resource: 'ui://a b'}", "write the address of an app"),
        ("{upstream: shop, resource: 'mcp-app://ü'}", "write the address of an app"),
        ("{upstream: shop}", "resource"),
        ("{upstream: shop, resource: 'ui://a/b', tol: x}", "tol"),
        ("{upstream: shop, resource: 'ui://a/b'}, permissions: [camera]", "an upstream declares these"),
    ],
)
def test_a_source_that_cannot_be_meant_is_named(tmp_path: Path, source: str, problem: str) -> None:
    """With its line, before anything starts."""
    (tmp_path / "app.yaml").write_text("version: 1\n", "utf-8")
    (tmp_path / "gateway.yaml").write_text(
        "upstreams: {shop: {url: 'https://a.example/mcp'}}\n"
        f"apps:\n  shown: {{source: {source}, policy: app.yaml}}\n",
        "utf-8",
    )
    with pytest.raises(DocumentError, match=problem) as raised:
        load_config(tmp_path / "gateway.yaml", {})
    assert raised.value.problems[0].line == 3

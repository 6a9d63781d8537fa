"""A running gateway reloads apps and their files, while the rest stays in service."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner
from mcp import Client
from mcp.client import advertise
from mcp.shared.exceptions import MCPError

from gateway.app import build_app
from gateway.cli import main
from gateway.config import load_config, read_config
from gateway.errors import DocumentError
from tests.assembly.files import replace_file, until
from tests.doors.bridge.test_bridge import connected, console
from tests.world import Server, World

UI = [advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})]
CLIENT = {"webmcp-gateway-client": "1"}


@asynccontextmanager
async def two_apps(folder: Path) -> AsyncIterator[int]:
    """A gateway of two apps whose policies allow nothing, `one` and `two`; its port."""
    server = Server()
    (folder / "index.html").write_text("<!doctype html><title>page</title>")
    for name in ("one", "two"):
        (folder / f"{name}.yaml").write_text(f"version: 1\n# {name}\n")
    apps = ", ".join(f"{name}: {{source: index.html, policy: {name}.yaml}}" for name in ("one", "two"))
    (folder / "gateway.yaml").write_text(f"server: {{listen: 127.0.0.1:{server.port}}}\napps: {{{apps}}}\n")
    file = folder / "gateway.yaml"
    try:
        await server.start(build_app(load_config(file, {}), lambda: read_config(file, {})))
        yield server.port
    finally:
        await server.stop()


async def titles(client: aiohttp.ClientSession, port: int) -> list[str]:
    """The titles of the apps on the console."""
    async with client.get(f"http://127.0.0.1:{port}/api/state", headers={"host": f"gateway.localhost:{port}"}) as state:
        return [app["title"] for app in (await state.json())["apps"]]


async def page(client: aiohttp.ClientSession, port: int, app: str) -> tuple[int, str]:
    """Status and text of an app's page on its site."""
    async with client.get(f"http://127.0.0.1:{port}/", headers={"host": f"{app}.localhost:{port}"}) as answer:
        return answer.status, await answer.text()


async def test_apps_come_and_go_while_others_go_on(tmp_path: Path) -> None:
    """A new app has a site, a mount and an entry in the list; a removed one has none of them."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        one, both = f"http://127.0.0.1:{port}/mcp/one", f"http://127.0.0.1:{port}/mcp"
        async with (
            Client(one, extensions=UI, mode="legacy") as of_one,
            Client(both, extensions=UI, mode="legacy") as of_all,
        ):
            assert {"open_one", "open_two"} <= {tool.name for tool in (await of_all.list_tools()).tools}
            text = (tmp_path / "gateway.yaml").read_text("utf-8")
            replace_file(tmp_path / "gateway.yaml", text.replace("two: {", "three: {title: Third, "))

            async def changed() -> bool:
                return await titles(client, port) == ["One", "Third"]

            await until(changed)
            assert (await page(client, port, "one"))[0] == 200
            assert (await page(client, port, "two"))[0] == 421
            status, html = await page(client, port, "three")
            assert (status, "<title>page</title>" in html) == (200, True)
            names = {tool.name for tool in (await of_all.list_tools()).tools}
            assert {"open_one", "open_three"} <= names
            assert "open_two" not in names
            assert "open_one" in {tool.name for tool in (await of_one.list_tools()).tools}
        async with Client(f"http://127.0.0.1:{port}/mcp/three", extensions=UI) as of_three:
            assert "open_three" in {tool.name for tool in (await of_three.list_tools()).tools}
        async with client.post(f"http://127.0.0.1:{port}/mcp/two", json={}) as answer:
            assert answer.status == 404


async def test_another_source_and_title_take_effect(tmp_path: Path) -> None:
    """The change is visible on the app's site, in its packed page, and in the tool descriptions."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        (tmp_path / "other.html").write_text("<!doctype html><title>other</title>")
        async with Client(f"http://127.0.0.1:{port}/mcp/one", extensions=UI, mode="legacy") as model:
            text = (tmp_path / "gateway.yaml").read_text("utf-8")
            replace_file(
                tmp_path / "gateway.yaml", text.replace("source: index.html", "source: other.html, title: Other", 1)
            )

            async def changed() -> bool:
                return await titles(client, port) == ["Other", "Two"]

            await until(changed)
            assert "<title>other</title>" in (await page(client, port, "one"))[1]
            (resource,) = (await model.list_resources()).resources
            assert "<title>other</title>" in str((await model.read_resource(resource.uri)).contents)


async def test_an_app_that_cannot_be_packed_is_not_taken(tmp_path: Path) -> None:
    """The problem of its files is reported with its place, and the previous configuration stays in effect."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        (tmp_path / "empty").mkdir()
        text = (tmp_path / "gateway.yaml").read_text("utf-8")
        replace_file(tmp_path / "gateway.yaml", text.replace("two: {source: index.html", "three: {source: empty"))
        headers = {"host": f"gateway.localhost:{port}"}

        async def told() -> bool:
            async with client.get(f"http://127.0.0.1:{port}/api/state", headers=headers) as state:
                listed = (await state.json())["problems"]
            return any("an app is a folder with an index.html" in problem["message"] for problem in listed)

        await until(told)
        assert await titles(client, port) == ["One", "Two"]
        assert (await page(client, port, "two"))[0] == 200


async def test_an_app_that_cannot_be_packed_holds_up_no_other_one(tmp_path: Path) -> None:
    """A changed policy of another app and a new app take effect; the app itself stays as it was."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        (tmp_path / "empty").mkdir()
        replace_file(tmp_path / "two.yaml", 'version: 1\nroutes: [{path: "/**", deny: "not today"}]\n')
        text = (tmp_path / "gateway.yaml").read_text("utf-8")
        replace_file(
            tmp_path / "gateway.yaml",
            text.replace("one: {source: index.html", "one: {source: empty").replace(
                "apps: {", "apps: {new: {source: index.html, policy: one.yaml}, "
            ),
        )

        async def taken() -> bool:
            headers = {"host": f"two.localhost:{port}"}
            async with client.get(f"http://127.0.0.1:{port}/api/x", headers=headers) as answer:
                return "not today" in await answer.text() and "New" in await titles(client, port)

        await until(taken)
        assert sorted(await titles(client, port)) == ["New", "One", "Two"]
        assert await page(client, port, "one") == await page(client, port, "new")


async def test_a_broken_app_stops_no_other_one_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The console and `/readyz` name its problem, and it is served once its page is there."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "index.html").write_text("<!doctype html><title>page</title>")
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "index.html").write_text(f"<!doctype html><title>large</title><p>{'long ' * 4_000_000}")
    (tmp_path / "p.yaml").write_text("version: 1\n")
    server = Server()
    apps = ", ".join(f"{name}: {{source: {name}, policy: p.yaml}}" for name in ("empty", "gone", "good", "large"))
    file = tmp_path / "gateway.yaml"
    file.write_text(f"server: {{listen: 127.0.0.1:{server.port}}}\napps: {{{apps}}}\n")
    reading = read_config(file, {})
    assert reading.config is not None
    assert [problem.line for problem in reading.problems] == [2]
    gateway = build_app(reading.config, lambda: read_config(file, {}), problems=reading.problems)
    async with aiohttp.ClientSession(headers=CLIENT) as client:
        try:
            await server.start(gateway)
            assert await titles(client, server.port) == ["Good", "Large"]
            assert (await page(client, server.port, "good"))[0] == 200
            status, whole = await page(client, server.port, "large")
            assert (status, len(whole)) == (200, (tmp_path / "large" / "index.html").stat().st_size)
            async with Client(f"http://127.0.0.1:{server.port}/mcp/large", extensions=UI) as model:
                (resource,) = (await model.list_resources()).resources
                shown = str((await model.read_resource(resource.uri)).contents)
            assert "On its own site it works. In a view it does not: the packed page is too large: 20," in shown
            async with client.get(
                f"http://127.0.0.1:{server.port}/api/state", headers={"host": f"gateway.localhost:{server.port}"}
            ) as state:
                told = " ".join(problem["message"] for problem in (await state.json())["problems"])
            assert "an app is a folder with an index.html" in told
            assert "there is no file or folder" in told
            assert re.search("the packed page is too large: 20,[0-9,]+ bytes as JSON, and a view gets 15,728,640", told)
            assert "move data, pictures and fonts out of the HTML" in told
            logged = [str(one.getMessage()) for one in caplog.records if one.levelname == "WARNING"]
            assert any("large/index.html:1:1: the packed page is too large: 20," in line for line in logged)
            async with client.get(f"http://127.0.0.1:{server.port}/readyz") as ready:
                assert (ready.status, (await ready.json())["broken_apps"]) == (200, ["gone", "empty"])
                assert (await ready.json())["configuration"] == {"broken": 2, "view": 1}
            (tmp_path / "empty" / "index.html").write_text("<!doctype html><title>mended</title>")
            (tmp_path / "large" / "index.html").write_text("<!doctype html><title>small</title>")
            (tmp_path / "gone").mkdir()
            (tmp_path / "gone" / "index.html").write_text("<!doctype html><title>back</title>")

            async def served() -> bool:
                return sorted(await titles(client, server.port)) == ["Empty", "Gone", "Good", "Large"]

            await until(served)

            async def shown_again() -> bool:
                async with client.get(f"http://127.0.0.1:{server.port}/readyz") as ready:
                    return "view" not in (await ready.json())["configuration"]

            await until(shown_again)
            assert "mended" in (await page(client, server.port, "empty"))[1]
        finally:
            await server.stop()


async def test_each_broken_app_is_named_and_stops_no_other(tmp_path: Path) -> None:
    """On the console, at `/readyz` and by `doctor`, as soon as it is known; folders with loops of links are served."""
    (tmp_path / "p.yaml").write_text("version: 1\n")
    (tmp_path / "wrong.yaml").write_text("version: 1\nrouts: []\n")
    for name in ("good", "folder", "pipe", "itself", "loop", "huge"):
        (tmp_path / name).mkdir()
    for name in ("good", "loop"):
        (tmp_path / name / "index.html").write_text(f"<!doctype html><title>{name}</title>")
    (tmp_path / "huge" / "index.html").write_text("<!doctype html><title>huge</title>" + "<p>x" * 100_000)
    (tmp_path / "folder" / "index.html").mkdir()
    os.mkfifo(tmp_path / "pipe" / "index.html")
    (tmp_path / "itself" / "index.html").symlink_to("index.html")
    (tmp_path / "loop" / "here").symlink_to(".")
    (tmp_path / "loop" / "self").symlink_to("self")
    server = Server()
    sources = {name: name for name in ("good", "folder", "pipe", "itself", "loop", "huge", "nothing")}
    apps = ", ".join(f"{name}: {{source: {source}, policy: p.yaml}}" for name, source in sources.items())
    wrong = ", ".join(f"{name}: {{source: good, policy: {name}.yaml}}" for name in ("wrong", "absent"))
    file = tmp_path / "gateway.yaml"
    shared = "shared: {source: good, policy: wrong.yaml}"
    file.write_text(f"server: {{listen: 127.0.0.1:{server.port}}}\napps: {{{apps}, {wrong}, {shared}}}\n")
    reading = read_config(file, {})
    assert reading.config is not None
    gateway = build_app(reading.config, lambda: read_config(file, {}), problems=reading.problems)
    broken = {"folder", "pipe", "itself", "nothing", "wrong", "absent", "shared"}
    async with aiohttp.ClientSession(headers=CLIENT) as client:
        try:
            await server.start(gateway)

            async def named() -> bool:
                async with client.get(f"http://127.0.0.1:{server.port}/readyz") as ready:
                    return ready.status == 200 and set((await ready.json())["broken_apps"]) == broken

            async def served() -> bool:
                return sorted(await titles(client, server.port)) == ["Good", "Huge", "Loop"]

            await until(named)
            await until(served)
            console = {"host": f"gateway.localhost:{server.port}"}
            async with client.get(f"http://127.0.0.1:{server.port}/api/state", headers=console) as state:
                told = " ".join(problem["message"] for problem in (await state.json())["problems"])
        finally:
            await server.stop()
    told = told.replace(f"{tmp_path}/", "")
    assert all(
        words in told for words in ("an app is a folder with", "no file or folder", "did you mean", "no file absent")
    )
    result = await asyncio.to_thread(CliRunner().invoke, main, ["doctor", "--config", str(file)])
    lines = [line for line in result.output.splitlines() if "index.html:1:1: there is no such file" in line]
    assert (result.exit_code, len(lines), "did you mean" in result.output) == (1, 3, True)


def test_if_no_app_can_be_served_there_is_no_gateway(tmp_path: Path) -> None:
    """The error is that of the apps."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "p.yaml").write_text("version: 1\n")
    (tmp_path / "gateway.yaml").write_text("apps: {a: {source: empty, policy: p.yaml}}\n")
    with pytest.raises(DocumentError, match="an app is a folder with an index"):
        build_app(load_config(tmp_path / "gateway.yaml", {}))


async def test_changed_files_of_an_app_take_effect(tmp_path: Path) -> None:
    """Clients read the new packed page from now on, and the console's page is notified."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers=CLIENT) as client:
        headers = {"host": f"gateway.localhost:{port}"}
        async with (
            Client(f"http://127.0.0.1:{port}/mcp/one", extensions=UI) as model,
            client.get(f"http://127.0.0.1:{port}/api/events", headers=headers) as events,
        ):
            (before,) = (await model.list_resources()).resources
            replace_file(tmp_path / "index.html", "<!doctype html><title>changed</title>")

            async def changed() -> bool:
                return (await model.list_resources()).resources[0].uri != before.uri

            await until(changed)
            (resource,) = (await model.list_resources()).resources
            assert "<title>changed</title>" in str((await model.read_resource(resource.uri)).contents)
            async for line in events.content:
                if line == b"event: apps\n":
                    break
            assert resource.uri in (await events.content.readline()).decode()


async def test_changed_files_beside_the_page_of_an_app_take_effect(tmp_path: Path) -> None:
    """The files that are packed into the page are watched, if the app is a single file."""
    (tmp_path / "css").mkdir()
    (tmp_path / "css" / "a.css").write_text("p { color: red }", "utf-8")
    async with two_apps(tmp_path) as port, Client(f"http://127.0.0.1:{port}/mcp/one", extensions=UI) as model:

        async def shows(text: str) -> bool:
            (resource,) = (await model.list_resources()).resources
            try:
                return text in str((await model.read_resource(resource.uri)).contents)
            except MCPError:  # the resource changed in between
                return False

        replace_file(tmp_path / "index.html", "<!doctype html><link rel=stylesheet href=css/a.css>")
        await until(lambda: shows("color: red"))
        replace_file(tmp_path / "css" / "a.css", "p { color: tan }")
        await until(lambda: shows("color: tan"))


async def test_a_view_of_an_app_that_is_gone_is_closed(world: World) -> None:
    """Its socket stays open; its requests and its launch value are refused."""
    file = world.folder / "gateway.yaml"
    async with console(world) as person, connected(world, person) as host:
        view = (await host.open()).view
        async with Client(f"{world.url}/mcp", extensions=UI) as model:
            opened = await model.call_tool("open_cart", {})
            replace_file(file, file.read_text("utf-8").replace("  cart:", "  till:"))

            async def refused() -> bool:
                answer = await host.call(view, url="/api/products")
                return bool(answer.get("headers", {}).get("gateway-reason") == "view-unproven" or "error" in answer)

            await until(refused)
            launch = (opened.meta or {})["webmcp-gateway/launch"]
            attached = await model.call_tool("webmcp_attach", {"launch": launch})
            assert attached.is_error
            assert "view-unproven" in str(attached.content)
        records = [line["fields"] for line in world.records() if line["fields"].get("kind") == "policy"]
        assert {fields["app"] for fields in records} == {"cart", "till"}


async def test_a_broken_policy_does_not_hold_up_that_of_another_app(tmp_path: Path) -> None:
    """Each app has its newest valid policy."""
    async with two_apps(tmp_path) as port, aiohttp.ClientSession(headers={"webmcp-gateway-client": "1"}) as client:
        replace_file(tmp_path / "one.yaml", "version: 2\n")
        replace_file(tmp_path / "two.yaml", 'version: 1\nroutes: [{path: "/**", deny: "not today"}]\n')

        async def denied() -> bool:
            async with client.get(
                f"http://127.0.0.1:{port}/api/x", headers={"host": f"two.localhost:{port}"}
            ) as answer:
                return "not today" in await answer.text()

        await until(denied)
        async with client.get(
            f"http://127.0.0.1:{port}/api/state", headers={"host": f"gateway.localhost:{port}"}
        ) as state:
            (problem,) = (await state.json())["problems"]
        assert (Path(problem["file"]).name, problem["line"]) == ("one.yaml", 1)


async def test_the_log_says_when_nothing_is_wrong_any_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The line is logged once, also if the files are restored: the author sees that they were read."""
    caplog.set_level("INFO", "gateway.assembly.reload")
    async with two_apps(tmp_path):
        text = (tmp_path / "gateway.yaml").read_text("utf-8")
        for written in (text.replace("apps:", "appz:"), text):
            heard = len(caplog.messages)
            replace_file(tmp_path / "gateway.yaml", written)

            async def said(heard: int = heard) -> bool:
                return len(caplog.messages) > heard

            await until(said)
        told = [record.getMessage() for record in caplog.records if record.name == "gateway.assembly.reload"]
    assert told[-1] == "nothing is wrong any more: the files are in effect as they are"
    assert told[-2] == "until this is corrected, the configuration and the policies from before stay in effect"
    assert 'unknown key "appz"' in told[-3]

"""`connect`: the members that each host needs, and its file after it was written, or was not."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from gateway.app import build_app
from gateway.cli import lock, main
from gateway.cli.connect import HOSTS, Members, write_members
from gateway.cli.group import Unusable
from gateway.config import load_config
from gateway.jsontext.editing import read_jsonc
from tests.world import Server, free_port

HOME = Path("/home/ada")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home folder with a configured gateway."""
    for name in ("XDG_CONFIG_HOME", "APPDATA", "WEBMCP_GATEWAY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.platform", "linux")
    configure(tmp_path)
    return tmp_path


def configure(folder: Path, auth: str = "[none]", port: int = 18080) -> None:
    """Write the gateway's configuration."""
    (folder / "page.html").write_text("<!doctype html><title>x</title>")
    (folder / "policy.yaml").write_text("version: 1\n")
    apps = "apps: {cart: {source: page.html, policy: policy.yaml}}"
    (folder / "gateway.yaml").write_text(f"server: {{listen: 127.0.0.1:{port}}}\nauth: {auth}\n{apps}\n")


def connect(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(main, ["connect", *arguments])


PLACES = {
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        "Library/Application Support/Claude/claude_desktop_config.json",
        "Roaming/Claude/claude_desktop_config.json",
    ),
    "claude-code": (".claude.json",) * 3,
    "vscode": (
        ".config/Code/User/mcp.json",
        "Library/Application Support/Code/User/mcp.json",
        "Roaming/Code/User/mcp.json",
    ),
    "cursor": (".cursor/mcp.json",) * 3,
    "goose": (".config/goose/config.yaml", ".config/goose/config.yaml", "Roaming/Block/goose/config/config.yaml"),
}


def test_each_host_has_its_file_where_its_system_keeps_it() -> None:
    """Linux, macOS and Windows; ChatGPT has none."""
    for host, places in PLACES.items():
        for system, place in zip(("linux", "darwin", "win32"), places, strict=True):
            where = HOSTS[host].place
            assert where is not None
            assert where(system, HOME, {"APPDATA": str(HOME / "Roaming")}) == HOME / place
    assert HOSTS["chatgpt"].place is None


def test_a_file_is_made_once_and_then_stays(home: Path) -> None:
    """Readable by its owner alone; a second run changes nothing, and makes no backup."""
    for host, (place, *_) in PLACES.items():
        shown = connect(host)
        assert shown.exit_code == 0, shown.output
        for expected in (f"added webmcp-gateway to {home / place}", f"{home / place} has it already"):
            done = connect(host, "--write")
            assert (done.exit_code, done.output.splitlines()[0]) == (0, expected)
        assert stat.S_IMODE((home / place).stat().st_mode) == 0o600
        assert (home / place).read_text() == shown.stdout
        assert [one.name for one in (home / place).parent.iterdir() if "backup" in one.name] == []
    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["webmcp-gateway"]
    assert entry == {"url": "http://localhost:18080/mcp"}


VSCODE = '{\n\t// mine\n\t"servers": {\n\t\t"a": {"url": "http://a"}, // first\n\t},\n}\n'
GOOSE = "# mine\nGOOSE_MODEL: x  # the best\nextensions:\n  # built in\n  developer:\n    enabled: true\n\nlast: 1\n"


def test_what_is_in_a_file_stays_and_is_kept_beside_it(home: Path) -> None:
    """Comments, order, mode, and a link to the file; the former content is in a backup with the same mode."""
    real = home / "real.json"
    real.write_text(VSCODE)
    real.chmod(0o640)
    place = home / ".config/Code/User/mcp.json"
    place.parent.mkdir(parents=True)
    place.symlink_to(real)
    done = connect("vscode", "--write", "--app", "cart")
    assert done.exit_code == 0, done.output
    now = real.read_text()
    assert place.is_symlink()
    assert "// mine" in now
    assert "// first" in now
    assert read_jsonc(now) == {
        "servers": {"a": {"url": "http://a"}, "cart": {"type": "http", "url": "http://localhost:18080/mcp/cart"}}
    }
    [backup] = home.glob("real.json.*.backup")
    assert backup.read_text() == VSCODE
    assert {stat.S_IMODE(one.stat().st_mode) for one in (real, backup)} == {0o640}
    goose = home / "goose.yaml"
    goose.write_text(GOOSE)
    for app in ("cart", "cart"):
        assert connect("goose", "--write", "--file", str(goose), "--app", app, "--name", "shop").exit_code == 0
    lines = iter(goose.read_text().splitlines())
    assert all(line in lines for line in GOOSE.splitlines())  # in this order
    found = yaml.safe_load(goose.read_text())
    assert found["extensions"]["shop"]["uri"] == "http://localhost:18080/mcp/cart"
    assert (found["extensions"]["developer"], found["last"]) == ({"enabled": True}, 1)
    assert connect("goose", "--write", "--file", str(goose), "--name", "shop").exit_code == 0
    found = yaml.safe_load(goose.read_text())
    assert found["extensions"]["shop"]["uri"] == "http://localhost:18080/mcp"
    assert list(found["extensions"]) == ["shop", "developer"]
    assert len(list(home.glob("goose.yaml.*.backup"))) == 2


BAD = {
    "not JSON": b'{"mcpServers": {',
    "a list": b"[]",
    "another value": b'{"mcpServers": []}',
    "not UTF-8": b'{"a": "\xff"}',
    "too large": b" " * (2**26),
}


@pytest.mark.parametrize("content", BAD.values(), ids=list(BAD))
def test_a_bad_file_is_named_and_left_as_it_is(home: Path, content: bytes) -> None:
    """With no backup, and no other file."""
    place = home / ".cursor/mcp.json"
    place.parent.mkdir()
    place.write_bytes(content)
    done = connect("cursor", "--write")
    assert done.exit_code == 2
    assert str(place) in done.output
    assert place.read_bytes() == content
    assert list(place.parent.iterdir()) == [place]


def test_a_file_that_cannot_be_edited_is_left_as_it_is(home: Path) -> None:
    """A folder in its place, YAML in one line or that is no mapping."""
    for text in ("{a: 1}\n", "~\n", "extensions:\n  ? q\n  : 1\n", "- 1\n", "a: [\n", "extensions: [1]\n"):
        (home / "goose.yaml").write_text(text)
        done = connect("goose", "--write", "--file", str(home / "goose.yaml"))
        assert (done.exit_code, (home / "goose.yaml").read_text()) == (2, text), done.output
    (home / "folder").mkdir()
    assert connect("cursor", "--write", "--file", str(home / "folder")).exit_code == 2


FORMS = {
    "line ends of Windows": "a: 1\r\nextensions:\r\n  q: {b: 1}\r\nz: 2\r\n",
    "in one line": "extensions: {q: {b: 1}} # mine\nz: 1\n",
    "in one line over several": "extensions: {\n  q: {b: 1},\n  r: 2}\nz: 1\n",
    "empty over two lines": "extensions: {\n}\nz: 3\n",
    "empty with a quoted name": "'extensions':\nb: 2\n",
    "null with a comment": "extensions: ~ # none\n  # a comment\nz: 1\n",
    "the end of a document": "a: 1\n...\n",
    "everything indented": "  a: 1\n  b: 2\n",
    "no last line end": "extensions:\n  q: 1",
    "a list at the indentation of its name": "extensions:\n  cart:\n  - a\n  - b\n  q: 1\n",
    "a comment that is not indented": "extensions:\n  cart:\n    a: 1\n# x\n    b: 2\n\n  # of q\n  q: 1\nz: 1\n",
    "one that ends at its indentation": "extensions:\n  cart: {a: 1,\n  b: 2}\n  q: 1\n",
    "the same names in a text": "t: |\n  extensions:\n    cart: 1\nextensions:\n  q: |\n    cart: 2\n  cart: 1\n",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=list(FORMS))
def test_yaml_of_any_form_means_the_same_afterwards_with_the_entry(home: Path, text: str) -> None:
    """Whatever the form: the other values stay, the line ends too, and a second run changes nothing."""
    file = home / "goose.yaml"
    file.write_bytes(text.encode())
    assert connect("goose", "--write", "--file", str(file), "--app", "cart").exit_code == 0
    now = file.read_bytes().decode()
    before, after = yaml.safe_load(text), yaml.safe_load(now)
    entry = after["extensions"].pop("cart")
    assert entry["uri"] == "http://localhost:18080/mcp/cart"
    others = {name: value for name, value in (before.get("extensions") or {}).items() if name != "cart"}
    assert after == {**before, "extensions": others}
    assert now.count("\n") == now.count("\r\n") or "\r" not in now
    assert ("# of q" in text) == ("# of q" in now)
    assert connect("goose", "--write", "--file", str(file), "--app", "cart").output.splitlines()[0].endswith("already")
    assert file.read_bytes().decode() == now


def test_a_host_is_told_how_to_identify_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference to the token where the host has them; the token itself only in a file that a process needs."""
    configure(home, "[token]")
    for host, reference in (("claude-code", "${W}"), ("vscode", "${env:W}"), ("cursor", "${env:W}"), ("goose", "${W}")):
        shown = connect(host)
        assert f"Bearer {reference.replace('W', 'WEBMCP_GATEWAY_TOKEN')}" in shown.stdout
        assert "token create" in shown.stderr
    assert connect("claude-desktop", "--write").exit_code == 2
    monkeypatch.setenv("WEBMCP_GATEWAY_TOKEN", "wmg_secret")
    assert connect("claude-desktop", "--write").exit_code == 0
    place = home / PLACES["claude-desktop"][0]
    assert json.loads(place.read_text())["mcpServers"]["webmcp-gateway"]["env"] == {
        "WEBMCP_GATEWAY_TOKEN": "wmg_secret"
    }
    monkeypatch.delenv("WEBMCP_GATEWAY_TOKEN")
    configure(home, "[{type: oauth, issuer: 'http://localhost:9', network: private}]")
    assert "Bearer" not in connect("cursor").stdout
    assert "Add custom connector" in connect("claude-desktop").output
    assert connect("claude-desktop", "--write").exit_code == 2
    chat = connect("chatgpt").output
    assert "OAuth" in chat
    assert "public https" in chat
    for wrong in (["nothing"], ["cursor", "--app", "x"], ["cursor", "--name", "a b"], ["chatgpt", "--write"]):
        assert connect(*wrong).exit_code == 2
    assert connect("cursor", "--url", "ftp://x").exit_code == 2
    assert "https://g.example/mcp/cart" in connect("cursor", "--url", "https://g.example/mcp/", "--app", "cart").stdout


async def test_the_written_process_serves_the_gateway(home: Path) -> None:
    """As Claude Desktop starts it, with nothing of the shell's environment."""
    configure(home, port=free_port())
    assert connect("claude-desktop", "--write").exit_code == 0
    entry = json.loads((home / PLACES["claude-desktop"][0]).read_text())["mcpServers"]["webmcp-gateway"]
    parameters = StdioServerParameters(command=entry["command"], args=entry["args"], cwd="/")
    with open(os.devnull, "w") as silent:
        async with Client(stdio_client(parameters, errlog=silent)) as client:
            assert "open_cart" in {tool.name for tool in (await client.list_tools()).tools}
    process = lock.process(home)
    assert process is not None
    os.kill(process, signal.SIGTERM)
    while lock.running_url(home) is not None:
        await asyncio.sleep(0.05)


CLIENTS = {
    "claude-code": lambda entry: entry["mcpServers"],
    "vscode": lambda entry: entry["servers"],
    "cursor": lambda entry: entry["mcpServers"],
    "goose": lambda entry: entry["extensions"],
    "inspector": lambda entry: entry["mcpServers"],
}
"""The entries of each host that connects by URL, in its file."""


@pytest.mark.parametrize("host", list(CLIENTS))
async def test_each_written_address_serves_the_gateway(home: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A client reads the host's own file, fills in the token as that host does, and lists the tools."""
    server = Server()
    configure(home, "[token]", server.port)
    made = await asyncio.to_thread(CliRunner().invoke, main, ["token", "create", "ada", "--can", "mcp", "--json"])
    assert made.exit_code == 0, made.output
    monkeypatch.setenv("WEBMCP_GATEWAY_TOKEN", json.loads(made.stdout)["token"])
    assert connect(host, "--write").exit_code == 0
    file = home / PLACES.get(host, ("inspector.json",))[0]
    text = file.read_text("utf-8")
    file.unlink()  # some hosts keep the token itself there
    (entry,) = CLIENTS[host](yaml.safe_load(text) if HOSTS[host].is_yaml else json.loads(text)).values()
    headers = {name: fill_in(value) for name, value in entry["headers"].items()}
    await server.start(build_app(load_config(home / "gateway.yaml", {})))
    try:
        async with create_mcp_http_client(headers=headers) as http:
            reached = streamable_http_client(entry.get("url") or entry["uri"], http_client=http)
            async with Client(reached) as client:
                assert "open_cart" in {tool.name for tool in (await client.list_tools()).tools}
    finally:
        await server.stop()


def fill_in(value: str) -> str:
    """The value with the variables of the environment that a host's file refers to: `${NAME}` or `${env:NAME}`."""
    return re.sub(r"\$\{(?:env:)?(\w+)\}", lambda found: os.environ[found[1]], value)


def test_a_file_that_is_read_only_stays_as_it_is(tmp_path: Path) -> None:
    """Its folder would let it be replaced, also behind a link; one that needs no change is no error."""
    file, link = tmp_path / "mcp.json", tmp_path / "link.json"
    file.write_text("{}", "utf-8")
    link.symlink_to(file)
    file.chmod(0o444)
    members: Members = {("servers", "shop"): {"url": "http://localhost:8080/mcp"}}
    with pytest.raises(Unusable, match="it is read-only; it was not changed"):
        write_members(link, members)
    assert (file.read_text("utf-8"), sorted(tmp_path.iterdir())) == ("{}", [link, file])
    file.chmod(0o644)
    assert write_members(link, members) is not None
    file.chmod(0o444)
    assert write_members(link, members) is None
    assert link.is_symlink()

"""Upstreams in gateway.yaml: every mistake with its place and remedy."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway.config import load_config
from gateway.errors import DocumentError

ONE = f"command: [{sys.executable}]"

MISTAKES = [
    ("[a]", "1:12: upstreams: must be a mapping, not a list"),
    ("{a: {lazy: true}}", "1:16: say how it is reached, by one of command, url, sse, websocket, server"),
    (
        f"{{a: {{{ONE}, url: 'https://x.example/mcp'}}}}",
        "by one of command, url, sse, websocket, server, not by",
    ),
    (f"{{a: {{{ONE}, lazzy: true}}}}", 'unknown key "lazzy", did you mean "lazy"?'),
    (f"{{a: {{{ONE}}}, a: {{{ONE}}}}}", 'duplicate key "a": it is already on line 1, column 13'),
    (f"{{a b: {{{ONE}}}}}", "the name 'a b' must be a lower-case letter, then up to 23 of a-z, 0-9 and -"),
    ("{a: {command: npx}}", "command: name a program and its arguments, as in [npx, -y, some-mcp-server]"),
    ("{a: {command: []}}", "command: name a program and its arguments, as in [npx, -y, some-mcp-server]"),
    ("{a: {command: [no-such-program]}}", "command: there is no program 'no-such-program': install it, or write its"),
    (f"{{a: {{{ONE}, cwd: nowhere}}}}", "cwd: there is no folder"),
    (f"{{a: {{{ONE}, env: [A]}}}}", "must be a mapping, not a list"),
    (f"{{a: {{{ONE}, env: {{A: 1}}}}}}", "A: must be text, not the number 1; put it in quotes"),
    (f'{{a: {{{ONE}, env: {{A: "${{env:NOPE}}"}}}}}}', "A: the environment variable NOPE is not set: export it before"),
    ("{a: {url: 7}}", "url: must be text, not the number 7; put it in quotes"),
    ("{a: {url: 'ftp://x.example/mcp'}}", 'url: "ftp://x.example/mcp" is not an http or https URL'),
    ("{a: {url: mcp.example.com/mcp}}", "without query and fragment, such as https://api.example.com"),
    ("{a: {url: 'http://x.example/mcp'}}", "url: write https: secrets go over this connection"),
    ("{a: {url: 'HTTP://x.example/mcp?a=1'}}", "url: write https: http is for this machine alone"),
    ("{a: {url: 'https://u:s3cret@x.example/mcp'}}", 'url: "https://…@x.example/mcp" has a user or a password: leave'),
    ("{a: {url: 'https://u:s3cret@x.example/mcp?a=1'}}", "url: leave out the user and the password, and name a"),
    ("{a: {websocket: 'wss://u:s3cret@x.example'}}", "websocket: leave out the user and the password, and name a"),
    ("{a: {websocket: 'wss://u:s3cret@[::1'}}", "websocket: its host or port is not valid"),
    ("{a: {websocket: 'wss://x.example:99999/mcp'}}", "websocket: its host or port is not valid"),
    ("{a: {url: 'https://u:s3cret@[::1/?a=b'}}", "url: its host or port is not valid"),
    ("{a: {sse: 'https://x.example:0/?a=b'}}", "sse: its host or port is not valid"),
    ("{a: {websocket: 'https://x.example/mcp'}}", "websocket: write a WebSocket's URL, such as wss://mcp.example.com/"),
    ("{a: {server: nothing}}", 'server: write "module:object", an object of the MCP SDK, or a function that'),
    ("{a: {server: 'no_such_module:x'}}", "server: there is no module no_such_module: install it beside the gateway"),
    ("{a: {url: 'https://x.example/mcp', cwd: .}}", "cwd: is for a command alone"),
    ("{a: {url: 'https://x.example/mcp', replicas: one}}", "replicas: is for a command alone: each node connects"),
    (f"{{a: {{{ONE}, replicas: two}}}}", "replicas: write one, one process for all nodes, or each"),
    (f"{{a: {{{ONE}, replicas: 2}}}}", "replicas: must be text, not the number 2"),
    ("{a: {url: 'https://x.example/mcp', credential: nope}}", 'the credential "nope" is not under credentials (none'),
    (f"{{a: {{{ONE}, network: private}}}}", "network: is for an upstream at a URL"),
    ("{a: {url: 'https://x.example/mcp', network: all}}", 'network: "all" is not public, private, or a block such as'),
    (f"{{a: {{{ONE}, prefix: a b}}}}", "prefix: must be a letter, then up to 23 letters, digits, - and _; or null for"),
    (f"{{a: {{{ONE}, prefix: ''}}}}", "prefix: must not be empty"),
    (f"{{a: {{{ONE}, trust: [b]}}}}", "trust: must be text, not a list"),
    (f'{{a: {{{ONE}, include: "*"}}}}', 'include: must be a list, not the text "*"'),
    (f"{{a: {{{ONE}, timeout: -1s}}}}", 'timeout: "-1s" is not a duration: write a positive number with a unit'),
    (f"{{a: {{{ONE}, start: soon}}}}", 'start: "soon" is not a duration: write a positive number with a unit'),
    (f"{{a: {{{ONE}, message: lots}}}}", 'message: "lots" is not a size: write a whole number with a unit'),
    (f"{{a: {{{ONE}, calls: 0}}}}", "calls: must be a whole number from 1"),
    (f'{{a: {{{ONE}, runtime: "yes"}}}}', 'runtime: must be true or false, not the text "yes"'),
    (f"{{a: {{{ONE}, policy: none.yaml}}}}", "policy: there is no file"),
]


@pytest.mark.parametrize(("upstreams", "message"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_has_its_place_and_remedy(tmp_path: Path, upstreams: str, message: str) -> None:
    """It is reported once, and without a password in the value."""
    file = tmp_path / "gateway.yaml"
    file.write_text(f"upstreams: {upstreams}\n", "utf-8")
    with pytest.raises(DocumentError) as raised:
        load_config(file, {})
    said = [str(problem).removeprefix(f"{file}:").removeprefix(f"{tmp_path}/") for problem in raised.value.problems]
    assert any(message in one for one in said), said
    assert len(said) == len({one.split(": ")[0] for one in said}), said
    assert "s3cret" not in str(said)


def test_a_command_has_longer_to_start(tmp_path: Path) -> None:
    """It may have to be downloaded first."""
    config = tmp_path / "gateway.yaml"
    there = "url: 'https://x.example/mcp'"
    config.write_text(f"upstreams: {{a: {{{ONE}}}, b: {{{there}}}, c: {{{there}, start: 5s}}}}", "utf-8")
    found = load_config(config, {}).upstreams
    assert [found[name].start for name in "abc"] == [120, 30, 5]

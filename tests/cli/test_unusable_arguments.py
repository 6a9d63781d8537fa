"""Arguments that no command can use: links in a loop, names that are too long, invalid addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main

POLICY = """version: 1
backends: {b: {url: "http://127.0.0.1:1", network: private}}
routes: [{path: /x, methods: [POST], body: {schema: loop}}]
"""
LONG = "x" * 300


@pytest.mark.parametrize(
    "command",
    [
        "token list -c loop",
        "audit verify -c loop",
        "doctor -c loop",
        "policy check policy.yaml",
        f"policy check {LONG}",
        f"policy check -c {LONG}",
        f"pack {LONG} --app a",
    ],
)
def test_each_is_named_without_a_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A command ends with 2, or with 1 if a check failed, and one line that names the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "policy.yaml").write_text(POLICY, "utf-8")
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code in (1, 2), done.exception
    (line,) = done.output.splitlines()
    assert "loop" in line or LONG in line


@pytest.mark.parametrize("url", ["", "http://[::1", "http://localhost:99999/mcp", "http://", "ftp://localhost/mcp"])
def test_an_address_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """No gateway is started in its place."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["stdio", "--url", url])
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert f"--url {url!r} is not a URL such as" in done.output

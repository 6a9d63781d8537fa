"""Arguments that no command can use: links in a loop, names that are too long, invalid addresses."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_a_name_that_is_no_text_is_printed(tmp_path: Path) -> None:
    """Bytes of a file name that are not UTF-8 are shown as escapes."""
    config = tmp_path / os.fsdecode(b"\xff.yaml")
    config.write_text("apps: {}\n", "utf-8")
    config.chmod(0o666)
    command = [sys.executable, "-m", "gateway", "doctor", "-c", str(config)]
    environ = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    assert b"\\udcff.yaml" in done.stdout

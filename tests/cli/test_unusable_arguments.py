"""Arguments that no command can use: links in a loop, names that are too long, invalid addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
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


@pytest.mark.parametrize(
    ("command", "urls"),
    [
        ("init URL", ["http://[", "http://", "http://a:99999/", "ftp://a/"]),
        ("init folder --backend URL", ["http://[", "http://", "http://a:99999/", "ftp://a/", "//a/"]),
        ("connect vscode --url URL", ["http://[", "http://", "http://a:99999/", "ftp://a/", "//a/"]),
        ("stdio --url URL", ["http://[", "http://", "http://a:99999/", "ftp://a/", "//a/"]),
        ("attack URL", ["http://[", "http://", "http://a:99999/", "ftp://a/", "//a/"]),
        ("pack folder --base URL", ["http://[", "//["]),
        ("pack folder --start URL", ["http://[", "//["]),
    ],
)
def test_a_url_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, urls: list[str]
) -> None:
    """A command ends with 2 and one line that names it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/index.html").write_text("<!doctype html><title>x</title>", "utf-8")
    for url in urls:
        done = CliRunner().invoke(main, command.replace("URL", url).split())
        assert done.exit_code == 2, (url, done.exception)
        (line,) = done.output.splitlines()
        assert url.removesuffix("/") in line


@pytest.mark.parametrize("command", ["stdio", "stdio --url http://a/mcp", "connect vscode --url http://a/mcp --name x"])
@pytest.mark.parametrize("app", ["", " ", "a/b", "A", "..", "mcp\n"])
def test_an_id_that_no_app_can_have_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, app: str
) -> None:
    """No gateway is started, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*command.split(), "--app", app])
    assert done.exit_code == 2, done.exception
    assert done.output.startswith(f"--app: the app id {app!r}")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with an endless device, a pipe that nobody writes, and a file of 64 GiB."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(64 * 2**30)
    (tmp_path / "policy.yaml").write_text("version: 1\nbackends: {b: {url: 'https://b.test'}}\n", "utf-8")
    (tmp_path / "gateway.journal").write_bytes(b"")
    yield tmp_path
    for name in ("endless", "pipe", "large"):  # all files of the tests are searched for secrets at the end
        (tmp_path / name).unlink()


FILES = (
    "policy learn FILE",
    "policy learn FILE --into policy.yaml",
    "policy learn policy.yaml --into FILE",
    "policy replay FILE --policy policy.yaml",
    "policy check FILE",
    "policy test FILE",
    "policy diff FILE policy.yaml",
    "policy explain GET /x --policy FILE",
    "pack FILE --app a",
    "doctor -c FILE",
    "token list -c FILE",
    "audit verify --record gateway.journal --key FILE",
)
RECORDS = tuple(f"audit {command} --record FILE" for command in ("verify --any-key", "query", "export", "tail"))
"""These may be large."""


@pytest.mark.parametrize(
    ("command", "file"),
    [*product(FILES, ("endless", "pipe", "large")), *product(RECORDS, ("endless", "pipe"))],
)
def test_a_file_that_has_no_end_is_named(unusable: Path, command: str, file: str) -> None:
    """A command neither reads it until the memory is full, nor waits for it forever."""
    done = CliRunner().invoke(main, command.replace("FILE", file).split())
    assert done.exit_code in (1, 2), done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert file in done.output


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

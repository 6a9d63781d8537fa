"""`doctor`: files that others can change, keys that others can read."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli.doctor import changed_by
from tests.cli.test_serve import wait_exit
from tests.cli.test_state_dir import UNUSABLE, mounted
from tests.interop.probe import Probe
from tests.interop.serving import over_http


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of an installation that has run."""
    texts = {
        "gateway.yaml": "apps: {page: {source: index.html, policy: policy.yaml}}\n",
        "policy.yaml": "version: 1\n",
        "index.html": "<!doctype html>",
        "gateway.journal": "",
        "gateway.journal.key": "k",
        "gateway.journal.keys": "p",
        "gateway.db": "",
    }
    tmp_path.chmod(0o700)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return tmp_path


def run(folder: Path) -> Result:
    """Run the command in the folder."""
    return CliRunner().invoke(main, ["doctor", "--config", str(folder / "gateway.yaml")])


def test_nothing_is_wrong(folder: Path) -> None:
    """The gateway's own files pass."""
    result = run(folder)
    assert result.exit_code == 0, result.output
    assert "no problem found" in result.output


@pytest.mark.parametrize("name", ["gateway.yaml", "policy.yaml", "index.html", "gateway.journal", "gateway.db", "."])
def test_what_others_may_change(folder: Path, name: str) -> None:
    """Configuration, policy, page, record, database, and the folder, where files could be replaced, are checked."""
    (folder / name).chmod(0o722)
    result = run(folder)
    assert result.exit_code == 1
    assert f"{(folder / name).resolve()}: everybody may write there" in result.output


def test_an_app_without_a_page_is_named(folder: Path) -> None:
    """The start would leave it out."""
    (folder / "empty").mkdir(mode=0o700)
    (folder / "gateway.yaml").write_text("apps: {page: {source: empty, policy: policy.yaml}}\n")
    result = run(folder)
    assert (result.exit_code, "an app is a folder with an index.html" in result.output) == (1, True)


def test_a_key_that_others_may_read(folder: Path) -> None:
    """The message has the remedy."""
    (folder / "gateway.journal.key").chmod(0o640)
    result = run(folder)
    assert result.exit_code == 1
    assert f"chmod 600 {folder / 'gateway.journal.key'}" in result.output


@pytest.mark.parametrize(
    "name",
    [
        *("gateway.journal", "gateway.journal.keys", "gateway.journal.000000000000017", "gateway.journal.otlp"),
        *("gateway.journal.torn-17-0a0b0c0d", "gateway.db", "gateway.db-wal", "gateway.db-shm", "gateway.lock"),
        "gateway.log",
    ],
)
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_what_the_gateway_made_that_others_may_read(folder: Path, name: str, mode: int) -> None:
    """An older version or a person may have set the mode; the message has the remedy."""
    (folder / name).touch()
    (folder / name).chmod(mode)
    result = run(folder)
    assert result.exit_code == 1
    assert f"{folder / name}: others may read it: chmod 600 {folder / name}\n" in result.output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_belongs_to_another(folder: Path) -> None:
    """The owner could grant themselves write access."""
    os.chown(folder / "policy.yaml", 12345, -1)
    assert next(changed_by(folder / "policy.yaml")).endswith("chown it to the gateway's user")
    assert run(folder).exit_code == 1


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    """Its problems are reported first."""
    (tmp_path / "gateway.yaml").write_text("appz: {}\n")
    result = run(tmp_path)
    assert result.exit_code == 1
    assert "appz" in result.output


def test_an_upstream_that_cannot_be_reached_is_named_with_the_reason(folder: Path) -> None:
    """Each has one line, with or without a credential; a reachable one is not listed."""

    async def run() -> tuple[Result, int]:
        async with over_http(Probe().server) as url:
            (folder / "gateway.yaml").write_text(
                "credentials: {key: {type: header, header: x-key, value: abcdefgh12345678}}\n"
                "upstreams:\n"
                f"  well: {{url: '{url}', network: private}}\n"
                f"  denied: {{url: '{url}'}}\n"
                "  closed: {url: 'http://127.0.0.1:1', network: private}\n"
                "  keyed: {url: 'http://127.0.0.1:1/mcp', network: private, credential: key}\n"
                "  socket: {websocket: 'ws://127.0.0.1:1/mcp', network: private}\n"
            )
            arguments = ["doctor", "--config", str(folder / "gateway.yaml")]
            return await asyncio.to_thread(CliRunner().invoke, main, arguments), int(url.split(":")[2].split("/")[0])

    result, port = asyncio.run(run())
    assert result.exit_code == 1
    refused = "cannot be reached: 127.0.0.1:1: no connection: connection refused."
    assert result.output.splitlines() == [
        f"The upstream denied cannot be reached: localhost:{port} is at an address that its `network` does not allow. "
        "If it may be there, write `network: private` at `upstreams.denied`.",
        f"The upstream closed {refused}",
        f"The upstream keyed {refused}",
        f"The upstream socket {refused}",
    ]


def set_state(folder: Path, state: Path) -> None:
    """Name a state folder in the configuration."""
    file = folder / "gateway.yaml"
    file.write_text(f"server: {{state_dir: {state}}}\n{file.read_text()}")


def test_a_state_folder_that_the_start_will_create_is_no_problem(tmp_path: Path, folder: Path) -> None:
    """It is named; neither command creates it. One that cannot be created is a problem."""
    for left in ("gateway.db", "gateway.journal", "gateway.journal.key", "gateway.journal.keys"):
        (folder / left).unlink()
    set_state(folder, tmp_path / "new")
    result = run(folder)
    assert result.exit_code == 0, result.output
    assert f"the state folder {tmp_path / 'new'} does not exist yet: `serve` will create it\n" in result.output
    checked = CliRunner().invoke(main, ["storage", "check", "--config", str(folder / "gateway.yaml")])
    assert checked.exit_code == 1
    assert checked.output == f"{tmp_path / 'new'}: there is no state yet: `webmcp-gateway serve` creates the folder\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("options", [*UNUSABLE, "created"])
async def test_an_unusable_state_folder_is_found_as_at_the_start(folder: Path, options: str) -> None:
    """A full one, a read-only one, and one that cannot be created."""
    state = folder / "state"
    state.mkdir()
    for left in ("gateway.db", "gateway.journal", "gateway.journal.key", "gateway.journal.keys"):
        (folder / left).unlink()
    mount = f"mount -t tmpfs -o {'ro' if options == 'created' else options},mode=700 tmpfs {state}"
    set_state(folder, state / "new" if options == "created" else state)
    async with mounted(folder, mount, command="doctor") as running:
        code, output = await wait_exit(running)
    assert code == 1, output
    why = UNUSABLE.get(options, "")
    assert (f"the state folder {state}: {why}" if why else f"the state folder {state}/new cannot be created") in output
    assert "name another folder in server.state_dir" in output
    assert "no problem found" not in output

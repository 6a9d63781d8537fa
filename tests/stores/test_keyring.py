"""The key of stored tokens in the system's keyring: the package `keyring` with a backend that uses a file."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import keyring
import pytest
from keyrings.alt.file import PlaintextKeyring

from tests.credentials.house import SECRET, House, house
from tests.leaks.watch import environment

FILES = "keyrings.alt.file.PlaintextKeyring"
NONE = "keyring.backends.fail.Keyring"


async def command(home: House, *arguments: str, backend: str = FILES) -> tuple[int, str, str]:
    """Run `webmcp-gateway credential …` as a process; return exit code, stdout, stderr."""
    config = str(home.folder / "gateway.yaml")
    program = (
        sys.executable,
        "-c",
        "from gateway.cli import main; main()",
        "credential",
        *arguments,
        "--config",
        config,
    )
    environ = {**environment(), **home.environ, "PYTHON_KEYRING_BACKEND": backend}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*program, stdout=pipe, stderr=pipe, env=environ)
    out, said = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), said.decode()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the file of the keyring, for this process and for commands."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "keyring"))
    monkeypatch.setattr(keyring.core, "_keyring_backend", PlaintextKeyring())
    return tmp_path / "keyring"


async def restart_with_keyring(home: House) -> None:
    """Restart the gateway with its key in the keyring."""
    file = home.folder / "gateway.yaml"
    file.write_text(f"{file.read_text()}stores: {{encryption_key: keyring}}\n")
    await home.gateway.stop()
    (home.folder / "gateway.key").unlink()
    await home.start()


async def test_tokens_are_sealed_with_a_key_of_the_keyring(tmp_path: Path, files: Path) -> None:
    """It is generated at the first use, found again after a restart, and is in no other file."""
    async with house(tmp_path) as home:
        await restart_with_keyring(home)
        assert (await home.connect())[0] == 200
        await home.restart()
        assert (await home.get("person"))[0] == 200
        (shown,) = {fields["authorization"].removeprefix("Bearer ") for fields in home.resource.seen}
    kept = keyring.get_password("webmcp-gateway", str(tmp_path))
    assert kept is not None
    places = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(files)]
    assert places
    assert not [path for path in places if kept.encode() in path.read_bytes() or shown.encode() in path.read_bytes()]
    assert not (tmp_path / "gateway.key").exists()


async def test_the_key_is_changed_while_the_gateway_runs(tmp_path: Path, files: Path) -> None:
    """By a command in another process: the gateway loads the new key when it finds a token encrypted with it."""
    async with house(tmp_path) as home:
        await restart_with_keyring(home)
        await home.connect()
        before = keyring.get_password("webmcp-gateway", str(tmp_path))
        code, out, said = await command(home, "rotate-key", "--json")
        assert code == 0, said
        assert json.loads(out)["sealed"] == 1
        after = keyring.get_password("webmcp-gateway", str(tmp_path))
        assert before is not None
        assert after is not None
        assert after.split()[1:] == before.split()[:1]
        assert (await home.get("person"))[0] == 200
        _, listed, _ = await command(home, "list", "--json")
        (person,) = [one for one in json.loads(listed) if one["name"] == "person"]
        assert [token["readable"] for token in person["tokens"]] == [True]


async def test_a_keyring_that_cannot_be_used_stops_the_start(tmp_path: Path, files: Path) -> None:
    """The error names the cause; nothing is stored unencrypted."""
    async with house(tmp_path) as home:
        await restart_with_keyring(home)
        code, _, said = await command(home, "list", backend=NONE)
        assert code == 2
        assert "the system's keyring cannot be used: NoKeyringError" in said
        assert SECRET not in said


async def test_a_keyring_that_lost_its_key_asks_people_to_connect_again(tmp_path: Path, files: Path) -> None:
    """A token that no key decrypts counts as no account."""
    async with house(tmp_path) as home:
        await restart_with_keyring(home)
        await home.connect()
        await home.gateway.stop()
        keyring.delete_password("webmcp-gateway", str(tmp_path))
        await home.start()
        status, told = await home.get("person")
        assert (status, told["title"]) == (401, "Credential needed")
        assert (await home.connect())[0] == 200
        assert (await home.get("person"))[0] == 200

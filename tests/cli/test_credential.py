"""Tests of `credential`: on the files of a running gateway, with real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.credentials.house import SECRET, House, house


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as running:
        yield running


async def call(home: House, *arguments: str) -> tuple[int, Any]:
    """Run a command with `--json`; return its exit code and output."""
    words = ["credential", *arguments, "--config", str(home.folder / "gateway.yaml"), "--json"]
    result = await asyncio.to_thread(CliRunner(env=dict(home.environ)).invoke, main, words)
    assert SECRET not in result.output
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("name", ["secret", "post", "key", "bound", "header", "basic"])
async def test_a_credential_is_tried(home: House, name: str) -> None:
    """Every kind is tried, without showing it."""
    code, told = await call(home, "test", name)
    assert (code, told["ok"]) == (0, True)


async def test_one_that_fails_says_why(home: House) -> None:
    """The reason is a dead server, or an account that is not connected."""
    await home.provider.set_down(True)
    code, told = await call(home, "test", "secret")
    assert (code, told["reason"]) == (1, "credential-failed")
    code, told = await call(home, "test", "person")
    assert (code, told["reason"]) == (1, "credential-needed")


async def test_connections_are_listed_and_revoked(home: House) -> None:
    """The account is listed, not the token; the server is notified, and the gateway requires a new connection."""
    await home.connect("alice")
    _, told = await call(home, "connect", "person")
    assert told["connect_url"] == f"{home.console}/connect/person"
    _, listed = await call(home, "list")
    (token,) = next(one for one in listed if one["name"] == "person")["tokens"]
    assert (token["person"], token["account"], token["readable"]) == ("local|local", "alice@example.com", True)
    code, told = await call(home, "revoke", "person")
    assert (code, told) == (0, {"forgotten": [{"person": "local|local", "revoked": True}]})
    await home.restart()
    assert (await home.get("person"))[0] == 401


async def test_the_key_rotates_while_the_gateway_runs(home: House) -> None:
    """Stored tokens stay valid under the new key, in the running gateway and after a restart."""
    await home.connect()
    before = (home.folder / "gateway.key").read_text()
    code, told = await call(home, "rotate-key")
    assert (code, told["sealed"], told["unreadable"]) == (0, 1, 0)
    assert (home.folder / "gateway.key").read_text().split()[1] == before.strip()
    assert (await home.get("person"))[0] == 200
    await home.restart()
    assert (await home.get("person"))[0] == 200
    _, listed = await call(home, "list")
    assert {token["key"] for one in listed for token in one["tokens"]} == {told["key"]}


async def test_without_its_key_a_token_is_worth_nothing(home: House) -> None:
    """The person must connect again; the gateway's own token is fetched again."""
    await home.connect()
    assert (await home.get("secret"))[0] == 200
    (home.folder / "gateway.key").unlink()
    await home.restart()
    assert (await home.get("person"))[0] == 401
    assert (await home.get("secret"))[0] == 200
    assert (await home.connect())[0] == 200
    assert (await home.get("person"))[0] == 200


async def test_a_key_that_others_can_read_is_refused(home: House) -> None:
    """The message has the remedy."""
    (home.folder / "gateway.key").chmod(0o644)
    words = ["credential", "list", "--config", str(home.folder / "gateway.yaml")]
    result = await asyncio.to_thread(CliRunner(env=dict(home.environ)).invoke, main, words)
    assert result.exit_code == 2
    assert "chmod 600" in result.output

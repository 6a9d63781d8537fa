"""Tests of `storage`: stored values of pages are listed, deleted, and re-encrypted with a new key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.stores.page_storage import PageStorage
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A gateway whose pages store something for two people."""
    (tmp_path / "index.html").write_text("<p>page", "utf-8")
    (tmp_path / "policy.yaml").write_text("version: 1\n", "utf-8")
    app = "{source: index.html, policy: policy.yaml, storage: gateway}"
    (tmp_path / "gateway.yaml").write_text(f"apps:\n  cart: {app}\n  board: {app}\n", "utf-8")
    async with Database(f"sqlite:///{tmp_path}/gateway.db") as database:
        storage = PageStorage(database, KeyRing(KeyFile(tmp_path / "gateway.key")))
        for person, app in (("local|ann", "cart"), ("local|ann", "board"), ("local|bob", "cart")):
            assert await storage.save(person, app, {"secret": "value"}, now=1.0)
    return tmp_path


async def call(folder: Path, *words: str) -> tuple[int, Any]:
    """Run a command with `--json`; return its exit code and output."""
    given = [*words, "--config", str(folder / "gateway.yaml"), "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, main, given)
    assert "secret" not in result.output
    return result.exit_code, json.loads(result.stdout) if result.stdout else None


async def test_it_is_listed_and_forgotten(folder: Path) -> None:
    """Deletion is by app, by person, or of everything."""
    row = {"characters": 11, "changed": 1.0}
    assert await call(folder, "storage", "list") == (
        0,
        [
            {"app": "board", "person": "local|ann", **row},
            {"app": "cart", "person": "local|ann", **row},
            {"app": "cart", "person": "local|bob", **row},
        ],
    )
    assert await call(folder, "storage", "delete", "--app", "cart", "--person", "local|bob") == (0, {"deleted": 1})
    assert await call(folder, "storage", "delete", "--person", "local|ann") == (0, {"deleted": 2})
    assert await call(folder, "storage", "delete", "--all") == (0, {"deleted": 0})
    assert await call(folder, "storage", "list") == (0, [])


@pytest.mark.parametrize("words", [[], ["--all", "--app", "cart"]])
async def test_what_is_meant_must_be_said(folder: Path, words: list[str]) -> None:
    """Nothing is deleted by mistake."""
    assert (await call(folder, "storage", "delete", *words))[0] == 2
    assert len((await call(folder, "storage", "list"))[1]) == 3


async def test_a_new_key_seals_it_anew(folder: Path) -> None:
    """The previous key can then be deleted."""
    code, told = await call(folder, "credential", "rotate-key")
    assert (code, told["pages"], told["unreadable_pages"]) == (0, 3, 0)
    key = folder / "gateway.key"
    key.write_text(key.read_text().split()[0])
    async with Database(f"sqlite:///{folder}/gateway.db") as database:
        assert await PageStorage(database, KeyRing(KeyFile(key))).load("local|bob", "cart") == {"secret": "value"}

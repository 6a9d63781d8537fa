"""`policy diff`: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main

OLD = (
    "version: 1\nbackends: {shop: {url: https://shop.example.com}}\nroutes: [{path: /api/cart, methods: [GET, PUT]}]\n"
)
NEW = OLD.replace("GET, PUT", "GET, POST") + "tools: {get_cart: {}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two policies to compare."""
    (tmp_path / "old.yaml").write_text(OLD)
    (tmp_path / "new.yaml").write_text(NEW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["policy", "diff", *arguments])


def test_what_is_opened_comes_first(folder: Path) -> None:
    """The line in the new file, and a count at the end, are printed."""
    result = run("old.yaml", "new.yaml")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "opened  POST /api/cart: allowed (line 3)",
        "opened  tool get_cart: models may call it (line 4)",
        "closed  PUT /api/cart: no rule allows it any more (line 3)",
        "2 opened, 1 closed, 0 changed",
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["old.yaml", "new.yaml", "--fail-on", "opened"], 1),
        (["new.yaml", "old.yaml", "--fail-on", "opened"], 1),
        (["old.yaml", "old.yaml", "--fail-on", "changed"], 0),
        (["old.yaml", "new.yaml", "--fail-on", "changed"], 1),
    ],
)
def test_the_exit_code_is_for_build_machines(folder: Path, arguments: list[str], code: int) -> None:
    """The exit code is 1 if changes of that kind exist."""
    assert run(*arguments).exit_code == code
    assert run(*arguments, "--json").exit_code == code


def test_closing_alone_opens_nothing(folder: Path) -> None:
    """A stricter policy passes."""
    (folder / "new.yaml").write_text(OLD.replace("GET, PUT", "GET"))
    assert run("old.yaml", "new.yaml", "--fail-on", "opened").exit_code == 0
    assert run("old.yaml", "new.yaml", "--fail-on", "changed").exit_code == 1


def test_diff_writes_json(folder: Path) -> None:
    """The changes and both versions are written."""
    found = json.loads(run("old.yaml", "new.yaml", "--json").stdout)
    assert [change["turn"] for change in found["changes"]] == ["opened", "opened", "closed"]
    assert found["old"] != found["new"]


@pytest.mark.parametrize("order", [["old.yaml", "bad.yaml"], ["bad.yaml", "old.yaml"]])
def test_a_policy_that_cannot_be_used_ends_with_2(folder: Path, order: list[str]) -> None:
    """The problem is written as text and as JSON, with its place."""
    (folder / "bad.yaml").write_text("version: 1\nnonsense: 1\n")
    result = run(*order)
    assert result.exit_code == 2
    assert result.output.startswith("bad.yaml:2:1: ")
    told = run(*order, "--json")
    assert told.exit_code == 2
    assert json.loads(told.stdout)["problems"][0]["line"] == 2

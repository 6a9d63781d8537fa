"""The policy commands with included parts, an organisation's policy, and access rules: each names file and line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main

CONFIG = """
auth: [{type: oauth, issuer: https://login.example.com}]
policy: {organisation: policies/organisation.yaml}
apps:
  shop: {source: web, policy: policies/shop.yaml, access: {roles: [buyer]}}
"""
SHOP = """version: 1
include: [shared/read.yaml]
backends: {shop: {url: "https://shop.example.com"}}
routes: [{path: /api/cart, methods: [POST]}]
tests: [{request: POST /api/cart, expect: confirm}]
"""
READ = 'routes: [{path: "/api/**", methods: [GET]}]\n'
ABOVE = """version: 1
routes:
  - {path: "/api/**", methods: [POST], confirm: always}
  - {path: "/api/admin/**", deny: "not for apps"}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a configuration, in the current folder."""
    for name, text in {
        "gateway.yaml": CONFIG,
        "web/index.html": "<!doctype html>",
        "policies/shop.yaml": SHOP,
        "policies/shared/read.yaml": READ,
        "policies/organisation.yaml": ABOVE,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["policy", *arguments])


@pytest.mark.parametrize("files", [[], ["policies"], ["policies/shop.yaml"]])
def test_check_also_checks_the_parts_alone(files: list[str]) -> None:
    """With the policies of gateway.yaml, with a folder, and with one policy."""
    result = run("check", *files)
    assert result.exit_code == 0, result.output
    assert "shared/read.yaml: ok, a part: routes 1, tools 0" in result.output
    assert "organisation.yaml: ok, an organisation's policy: routes 2, tools 0" in result.output


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("shared/read.yaml", READ.replace("/api/**", "api"), "read.yaml:1:"),
        ("organisation.yaml", ABOVE.replace("confirm", "confrm"), "organisation.yaml:3:"),
    ],
)
def test_check_names_the_file_that_is_wrong(folder: Path, name: str, text: str, place: str) -> None:
    """A part that is given alone, and one of a policy."""
    (folder / "policies" / name).write_text(text, "utf-8")
    for files in ([f"policies/{name}"], ["policies/shop.yaml"], []):
        result = run("check", *files)
        assert (result.exit_code, place in result.output) == (2, True), result.output


def test_tests_run_under_the_organisation() -> None:
    """Its question counts, and a route of a part that no test tries is named with its file."""
    result = run("test", "policies/shop.yaml", "--coverage")
    assert result.exit_code == 0, result.output
    assert "read.yaml:1  route GET /api/**" in result.output


def test_explain_says_who_let_the_caller_in() -> None:
    """The access rule with its place, the organisation's rule, and the part that allows."""
    result = run("explain", "GET", "/api/x", "--role", "buyer")
    assert result.exit_code == 0, result.output
    assert "gateway.yaml:5: admitted (one of the roles buyer)" in result.output
    assert "shared/read.yaml, line 1" in result.output
    result = run("explain", "GET", "/api/x", "--json")
    [access] = json.loads(result.output)["access"]
    assert (result.exit_code, access["admitted"], access["line"]) == (1, False, 5)
    denied = run("explain", "GET", "/api/admin/x", "--role", "buyer")
    assert "organisation.yaml, line 4" in denied.output


def test_diff_names_the_part(folder: Path) -> None:
    """The file and the line of what differs."""
    (folder / "policies" / "new.yaml").write_text(SHOP.replace("read.yaml", "more.yaml"), "utf-8")
    more = f"# a comment\n{READ.replace('GET', 'GET, PUT')}"
    (folder / "policies" / "shared" / "more.yaml").write_text(more, "utf-8")
    result = run("diff", "policies/shop.yaml", "policies/new.yaml", "--json")
    [change] = json.loads(result.output)["changes"]
    assert (change["turn"], change["file"], change["line"]) == ("opened", "policies/shared/more.yaml", 2)

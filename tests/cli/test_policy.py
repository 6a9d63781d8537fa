"""`policy check`, `policy test`, `policy explain`: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main

POLICY = """\
version: 1
backends: {shop: {url: https://shop.example.com, credential: service}}
routes:
  - {path: /api/cart, methods: [GET, POST]}
  - {path: "/api/cart/{item}", methods: [DELETE], confirm: {when: model, message: "Remove {params.item}?"}}
  - {path: "/api/admin/**", deny: "The admin API is not for apps"}
tests:
  - {request: GET /api/cart, expect: allow}
  - {request: DELETE /api/cart/7, initiator: model, expect: confirm}
"""

CONFIG = """\
apps: {cart: {source: ., policy: cart.yaml}}
credentials:
  service: {type: client_credentials, issuer: https://login.example.com, client_id: x, client_secret: "${env:NOT_SET}"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy and a configuration, to work in."""
    (tmp_path / "cart.yaml").write_text(POLICY)
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["policy", *arguments])


@pytest.mark.parametrize("arguments", [["cart.yaml"], [], ["--config", "gateway.yaml"]])
def test_a_right_policy_passes(folder: Path, arguments: list[str]) -> None:
    """By name, or as gateway.yaml names it; a secret need not be there for it."""
    result = run("check", *arguments)
    assert result.exit_code == 0, result.output
    assert "cart.yaml" in result.output


def test_a_wrong_policy_ends_with_2_and_every_place(folder: Path) -> None:
    """All problems of all files, each with file, line and column, and no traceback."""
    (folder / "a.yaml").write_text("version: 2\nbackend: {}\n")
    (folder / "b.yaml").write_text("version: 1\nroutes: [{path: api}]\n")
    result = run("check", "a.yaml", "b.yaml", "cart.yaml")
    assert result.exit_code == 2
    places = [line.split(": ")[0] for line in result.output.splitlines()]
    assert places[:2] == ["a.yaml:1:10", "a.yaml:2:1"]
    assert any(place.startswith("b.yaml:2:") for place in places)
    assert "Traceback" not in result.output


def test_check_writes_json(folder: Path) -> None:
    """For editors and build machines."""
    assert json.loads(run("check", "cart.yaml", "--json").stdout)["ok"] is True
    (folder / "cart.yaml").write_text("version: 1\nnonsense: 1\n")
    result = run("check", "cart.yaml", "--json")
    assert result.exit_code == 2
    problem = json.loads(result.stdout)["problems"][0]
    assert (problem["file"], problem["line"], problem["column"]) == ("cart.yaml", 2, 1)


def test_without_any_policy_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is neither a file nor a gateway.yaml."""
    monkeypatch.chdir(tmp_path)
    result = run("check")
    assert result.exit_code == 2
    assert "name a policy file" in result.output


def test_tests_that_pass_end_with_0(folder: Path) -> None:
    """Each is listed."""
    result = run("test")
    assert result.exit_code == 0
    assert "2 passed, 0 failed" in result.output


def test_a_test_that_fails_ends_with_1_and_says_why(folder: Path) -> None:
    """The line of the expectation, what came out, and the reason."""
    (folder / "cart.yaml").write_text(POLICY + "  - {request: GET /api/admin/x, expect: allow}\n")
    result = run("test", "cart.yaml")
    assert result.exit_code == 1
    failed = next(line for line in result.output.splitlines() if line.startswith("FAILED"))
    assert "cart.yaml:10" in failed
    assert "deny, not allow: The admin API is not for apps" in failed
    assert "2 passed, 1 failed" in result.output


def test_a_policy_without_tests_ends_with_1(folder: Path) -> None:
    """Nothing tested is not the same as all passed."""
    (folder / "cart.yaml").write_text(POLICY.partition("tests:")[0])
    result = run("test", "cart.yaml")
    assert result.exit_code == 1
    assert "has no tests" in result.output


def test_test_writes_json(folder: Path) -> None:
    """One entry for each expectation."""
    found = json.loads(run("test", "--json").stdout)
    assert found["ok"] is True
    assert [test["outcome"] for test in found["policies"][0]["tests"]] == ["allow", "confirm"]


@pytest.mark.parametrize(
    ("arguments", "code", "outcome"),
    [
        (["GET", "/api/cart"], 0, "allow"),
        (["get", "/api/./cart?x=1"], 0, "allow"),
        (["POST", "/api/cart", "--body", '{"a": 1}'], 0, "allow"),
        (["DELETE", "/api/cart/7", "--initiator", "model"], 0, "confirm"),
        (["DELETE", "/api/cart/7", "--initiator", "person"], 0, "allow"),
        (["POST", "/api/cart", "--unproven"], 0, "confirm"),
        (["DELETE", "/api/cart"], 1, "deny"),
        (["GET", "/api/%2e%2e/admin"], 1, "deny"),
        (["GET", "/api/cart%2f7"], 1, "deny"),
        (["BREW", "/api/cart"], 1, "deny"),
    ],
)
def test_explain_says_the_outcome(folder: Path, arguments: list[str], code: int, outcome: str) -> None:
    """0 where it is allowed or asked, 1 where it is denied; the same in JSON."""
    result = run("explain", *arguments)
    assert result.exit_code == code, result.output
    rows = [line.split(maxsplit=1) for line in result.output.splitlines()]
    assert ["outcome", outcome] in rows
    assert json.loads(run("explain", *arguments, "--json").stdout)["outcome"] == outcome


def test_explain_shows_the_question_and_the_remedy(folder: Path) -> None:
    """What a person would be asked; what would have to change."""
    assert "Remove 7?" in run("explain", "DELETE", "/api/cart/7", "--initiator", "model").output
    assert "add DELETE to `methods` of /api/cart" in run("explain", "DELETE", "/api/cart").output


def test_explain_asks_for_the_app_where_there_are_several(folder: Path) -> None:
    """The apps are named."""
    (folder / "gateway.yaml").write_text(
        CONFIG.replace("cart.yaml}", "cart.yaml}, till: {source: ., policy: cart.yaml}")
    )
    result = run("explain", "GET", "/api/cart")
    assert result.exit_code == 2
    assert "--app: cart, till" in result.output
    assert run("explain", "GET", "/api/cart", "--app", "till").exit_code == 0

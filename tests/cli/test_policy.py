"""`policy check`, `policy test`, `policy explain`, `policy schema`: output and exit codes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

import gateway
from gateway.cli import main

ROOT = Path(gateway.__file__).parent.parent

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
apps: {cart: {source: web, policy: cart.yaml}}
credentials:
  service: {type: client_credentials, issuer: https://login.example.com, client_id: x, client_secret: "${env:NOT_SET}"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy and a configuration, which is the current one."""
    (tmp_path / "web").mkdir()
    (tmp_path / "cart.yaml").write_text(POLICY)
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["policy", *arguments])


@pytest.mark.parametrize("arguments", [["cart.yaml"], [], ["--config", "gateway.yaml"]])
def test_a_right_policy_passes(folder: Path, arguments: list[str]) -> None:
    """It is given by file, or found by gateway.yaml; secrets need not be set."""
    result = run("check", *arguments)
    assert result.exit_code == 0, result.output
    assert "cart.yaml" in result.output


def test_a_wrong_policy_ends_with_2_and_every_place(folder: Path) -> None:
    """All problems of all files are listed, each with file, line and column, and without a traceback."""
    (folder / "a.yaml").write_text("version: 2\nbackend: {}\n")
    (folder / "b.yaml").write_text("version: 1\nroutes: [{path: api}]\n")
    result = run("check", "a.yaml", "b.yaml", "cart.yaml")
    assert result.exit_code == 2
    places = [line.split(": ")[0] for line in result.output.splitlines()]
    assert places[:2] == ["a.yaml:1:10", "a.yaml:2:1"]
    assert any(place.startswith("b.yaml:2:") for place in places)
    assert "Traceback" not in result.output


def test_check_writes_json(folder: Path) -> None:
    """The output is for editors and CI."""
    assert json.loads(run("check", "cart.yaml", "--json").stdout)["ok"] is True
    (folder / "cart.yaml").write_text("version: 1\nnonsense: 1\n")
    result = run("check", "cart.yaml", "--json")
    assert result.exit_code == 2
    problem = json.loads(result.stdout)["problems"][0]
    assert (problem["file"], problem["line"], problem["column"]) == ("cart.yaml", 2, 1)


def test_check_warns_of_routes_that_never_decide(folder: Path) -> None:
    """Their place is printed; only --strict makes that a failure."""
    (folder / "cart.yaml").write_text(POLICY.replace("tests:", "  - {path: /api/cart, methods: [GET]}\ntests:"))
    result = run("check", "cart.yaml")
    assert result.exit_code == 0
    assert result.output.startswith("cart.yaml:7:1: warning: /api/cart never decides: line 4 ")
    assert run("check", "cart.yaml", "--strict").exit_code == 1
    told = run("check", "cart.yaml", "--strict", "--json")
    assert told.exit_code == 1
    assert json.loads(told.stdout)["warnings"][0]["line"] == 7


def test_a_folder_stands_for_all_its_policies(folder: Path) -> None:
    """Subfolders are included; hidden files, gateway.yaml and tests are not."""
    (folder / "below").mkdir()
    for name in ("a.yaml", "below/b.yml", ".hidden.yaml"):
        (folder / name).write_text("version: 1\n")
    (folder / "cart.test.yaml").write_text("tests: [{request: GET /api/cart, expect: allow}]\n")
    found = json.loads(run("check", ".", "--json").stdout)["policies"]
    assert [(one["file"], one["tests"]) for one in found] == [("a.yaml", 0), ("below/b.yml", 0), ("cart.yaml", 3)]
    (folder / "below" / "b.yml").write_text("version: 2\n")
    assert run("check", ".").exit_code == 2


def test_a_folder_without_policies_ends_with_2(folder: Path) -> None:
    """A wrong path does not pass the check."""
    (folder / "empty").mkdir()
    assert run("test", "empty").exit_code == 2
    assert run("check", "gone").exit_code == 2


def test_without_any_policy_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file nor a gateway.yaml is given."""
    monkeypatch.chdir(tmp_path)
    result = run("check")
    assert result.exit_code == 2
    assert "name a policy file" in result.output


def test_tests_that_pass_end_with_0(folder: Path) -> None:
    """Each test is listed."""
    result = run("test")
    assert result.exit_code == 0
    assert "2 passed, 0 failed" in result.output


def test_a_test_that_fails_ends_with_1_and_says_why(folder: Path) -> None:
    """The line of the expectation, the outcome and the reason are printed."""
    (folder / "cart.yaml").write_text(POLICY + "  - {request: GET /api/admin/x, expect: allow}\n")
    result = run("test", "cart.yaml")
    assert result.exit_code == 1
    failed = next(line for line in result.output.splitlines() if line.startswith("FAILED"))
    assert "cart.yaml:10" in failed
    assert "deny, not allow: The admin API is not for apps" in failed
    assert "2 passed, 1 failed" in result.output


def test_a_policy_without_tests_ends_with_1(folder: Path) -> None:
    """A policy without tests does not count as passed."""
    (folder / "cart.yaml").write_text(POLICY.partition("tests:")[0])
    result = run("test", "cart.yaml")
    assert result.exit_code == 1
    assert "has no tests" in result.output


def test_test_writes_json(folder: Path) -> None:
    """The output has an entry for each expectation."""
    found = json.loads(run("test", "--json").stdout)
    assert found["ok"] is True
    assert [test["outcome"] for test in found["policies"][0]["tests"]] == ["allow", "confirm"]


def test_tests_beside_a_policy_are_run_with_it(folder: Path) -> None:
    """They are found by file name or by the policy that they name; a test file can be run alone."""
    (folder / "cart.test.yaml").write_text("tests: [{request: GET /api/cart, expect: allow}]\n")
    (folder / "more.test.yaml").write_text("policy: cart.yaml\ntests: [{request: GET /api/admin/x, expect: allow}]\n")
    result = run("test", "cart.yaml")
    assert result.exit_code == 1
    assert "3 passed, 1 failed" in result.output
    assert "FAILED  more.test.yaml:2  GET /api/admin/x" in result.output
    assert "1 passed, 0 failed" in run("test", "cart.test.yaml").output
    assert "3 passed, 1 failed" in run("test", ".").output


def test_tests_of_a_policy_that_is_not_there_end_with_2(folder: Path) -> None:
    """The message names the file of the tests."""
    (folder / "gone.test.yaml").write_text("tests: [{request: GET /, expect: deny}]\n")
    result = run("test", "gone.test.yaml")
    assert result.exit_code == 2
    assert result.output.startswith("gone.test.yaml:1:1: its policy gone.yaml is not there")


def test_coverage_names_what_no_test_tries(folder: Path) -> None:
    """Routes and tools are listed; --fail-under makes it a failure."""
    (folder / "cart.yaml").write_text(POLICY + "tools: {get_cart: {}}\n")
    result = run("test", "cart.yaml", "--coverage")
    assert result.exit_code == 0
    assert "no test cart.yaml:6  route any method /api/admin/**" in result.output
    assert "no test cart.yaml:10  tool get_cart" in result.output
    assert "2 passed, 0 failed, 66.7 % of the routes covered" in result.output
    assert run("test", "cart.yaml", "--fail-under", "66").exit_code == 0
    failed = run("test", "cart.yaml", "--fail-under", "67")
    assert failed.exit_code == 1
    assert "route coverage is 66.7 %, less than 67 %" in failed.output
    told = json.loads(run("test", "cart.yaml", "--json").stdout)
    assert told["coverage"] == 66.67
    assert [one["line"] for one in told["policies"][0]["coverage"]["missed_routes"]] == [6]


def test_a_junit_report_is_written(folder: Path) -> None:
    """Each test is a case, with the reasons of a failure; characters that XML cannot hold are replaced."""
    odd = '  - {request: "GET /api/admin/\\u0001", expect: allow}\n'
    (folder / "cart.yaml").write_text(POLICY + odd)
    (folder / "empty.yaml").write_text("version: 1\n")
    umask = os.umask(0)
    try:
        assert run("test", "cart.yaml", "empty.yaml", "--junit", "out.xml").exit_code == 1
    finally:
        os.umask(umask)
    assert stat.S_IMODE((folder / "out.xml").stat().st_mode) == 0o600
    root = ElementTree.parse(folder / "out.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("4", "2")
    cart, empty = root.findall("testsuite")
    failure = cart.findall("testcase")[2].find("failure")
    assert failure is not None
    assert failure.get("message") == "deny, not allow"
    assert failure.text is not None
    assert failure.text.startswith("cart.yaml:10: ")
    assert [case.get("name") for case in empty.findall("testcase")] == ["has tests"]
    assert run("test", "cart.yaml", "--junit", "no/folder.xml").exit_code == 2


def test_the_shipped_policies_pass_with_every_route_covered() -> None:
    """The documentation promises that."""
    result = run("test", str(ROOT / "policies"), "--fail-under", "100")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", ["check", "test"])
def test_problems_are_written_as_json(folder: Path, command: str) -> None:
    """The exit code is the same."""
    (folder / "cart.yaml").write_text("version: 1\nnonsense: 1\n")
    result = run(command, "cart.yaml", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"][0]["line"] == 2


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
    """The exit code is 0 if it is allowed or confirmed, 1 if it is denied; the JSON is equivalent."""
    result = run("explain", *arguments)
    assert result.exit_code == code, result.output
    rows = [line.split(maxsplit=1) for line in result.output.splitlines()]
    assert ["outcome", outcome] in rows
    assert json.loads(run("explain", *arguments, "--json").stdout)["outcome"] == outcome


def test_explain_shows_the_question_and_the_remedy(folder: Path) -> None:
    """The output has the question to a person, or the change that would allow the request."""
    assert "Remove 7?" in run("explain", "DELETE", "/api/cart/7", "--initiator", "model").output
    assert "add DELETE to `methods` of /api/cart" in run("explain", "DELETE", "/api/cart").output


RULED = """\
version: 1
backends: {shop: {url: https://shop.example.com}}
routes:
  - {path: /api/checkout, methods: [POST], when: 'request.body.total < 9 && "buyer" in principal.roles'}
  - {path: /api/tenant, methods: [GET], when: principal.claims.tenant == 7}
tools:
  add: {when: arguments.count < 3}
  wipe: {confirm: always}
"""


@pytest.mark.parametrize(
    ("arguments", "code", "seen"),
    [
        (["POST", "/api/checkout", "--role", "buyer", "--body", '{"total": 5}'], 0, "request.body.total: 5"),
        (["POST", "/api/checkout", "--body", '{"total": 5}'], 1, "it is false"),
        (["GET", "/api/tenant", "--claim", "tenant=7"], 0, "principal.claims.tenant: 7"),
        (["GET", "/api/tenant", "--claim", "tenant=seven"], 1, 'principal.claims.tenant: "seven"'),
        (["--tool", "add", "--arguments", '{"count": 2}'], 0, "arguments.count: 2"),
        (["--tool", "add"], 1, "arguments.count"),
        (["--tool", "wipe"], 0, "Run wipe?"),
        (["--tool", "other"], 1, "add to `tools`: other: {}"),
    ],
)
def test_explain_shows_what_conditions_saw(folder: Path, arguments: list[str], code: int, seen: str) -> None:
    """Requests and tools are covered."""
    (folder / "ruled.yaml").write_text(RULED)
    result = run("explain", *arguments, "--policy", "ruled.yaml")
    assert result.exit_code == code, result.output
    assert seen in result.output
    assert run("explain", *arguments, "--policy", "ruled.yaml", "--json").exit_code == code


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["GET"],
        ["GET", "/", "--tool", "x"],
        ["GET", "/", "--arguments", "{}"],
        ["--tool", "x", "--arguments", "["],
        ["--tool", "x", "--arguments", "[]"],
        ["GET", "/api/cart", "--body", "{a"],
        ["GET", "/", "--claim", "x"],
        ["GET", "/", "--header", "x"],
    ],
)
def test_explain_refuses_what_makes_no_sense(folder: Path, arguments: list[str]) -> None:
    """The exit code is 2, without a traceback."""
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_explain_prints_each_step_of_a_path_in_disguise(folder: Path) -> None:
    """The encoded dots and their resolution are shown."""
    lines = run("explain", "GET", "/api/%2e%2e/admin").output.splitlines()
    steps = [line.split("  ")[-1].strip() for line in lines[1:7]]
    assert steps[-3:] == ["/api/../admin", "/admin", "GET /admin to shop"]


def test_the_schema_is_json_schema(folder: Path) -> None:
    """The policy of these tests is valid under it, an invalid one is not."""
    schema = json.loads(run("schema").stdout)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert validator.is_valid(yaml.safe_load(POLICY))
    assert not validator.is_valid({"version": 1, "route": []})


def test_explain_asks_for_the_app_where_there_are_several(folder: Path) -> None:
    """The message lists the apps."""
    (folder / "gateway.yaml").write_text(
        CONFIG.replace("cart.yaml}", "cart.yaml}, till: {source: web, policy: cart.yaml}")
    )
    result = run("explain", "GET", "/api/cart")
    assert result.exit_code == 2
    assert "--app: cart, till" in result.output
    assert run("explain", "GET", "/api/cart", "--app", "till").exit_code == 0


def test_policies_of_upstreams_are_those_of_the_configuration_too(folder: Path) -> None:
    """They are checked, tested and explained by the name of the upstream."""
    (folder / "tools.yaml").write_text(
        "version: 1\ntools: {buy: {when: arguments.total <= 50}}\n"
        "tests: [{tool: buy, arguments: {total: 51}, expect: deny}]\n"
    )
    (folder / "gateway.yaml").write_text(
        'upstreams:\n  free: {command: ["true"]}\n  shop: {command: ["true"], policy: tools.yaml}\n'
    )
    assert "tools.yaml (shop): ok" in run("check").output
    assert "1 passed" in run("test").output
    assert run("explain", "--tool", "buy", "--arguments", '{"total": 51}').exit_code == 1
    assert "--app: shop" in run("explain", "--tool", "buy", "--app", "free").output

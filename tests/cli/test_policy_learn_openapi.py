"""`policy learn` from OpenAPI: additions, omissions, and the preserved text of a policy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli.policy.proposals import singular
from gateway.policy import load_policy, parse_policy
from tests.cli.learning import BACKEND, learn, run
from tests.cli.recorded import journal, request

OPENAPI = """\
openapi: 3.0.3
info: {title: Shop, version: 1.0.0}
servers: [{url: https://shop.example.com/v2}]
paths:
  /products/{product-id}:
    get: {operationId: getProduct, responses: {200: {description: ok}}}
  /cart:
    get: {responses: {200: {description: ok}}}
    post:
      operationId: addToCart
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: '#/components/schemas/NewItem'}}}
      responses: {201: {description: ok}}
  /cart/{item}:
    delete: {operationId: removeItem, responses: {204: {description: ok}}}
    trace: {responses: {200: {description: ok}}}
  /export/{name}.csv:
    get: {responses: {200: {description: ok}}}
  /old:
    get: {deprecated: true, responses: {200: {description: ok}}}
components:
  schemas:
    NewItem:
      type: object
      required: [id, item]
      properties:
        id: {type: string, readOnly: true}
        item: {type: string, format: slug}
        count: {type: integer, minimum: 0, exclusiveMinimum: true, nullable: true}
        of: {$ref: '#/components/schemas/NewItem'}
      additionalProperties: false
"""

POLICY = """\
# Mine.
version: 1
backends:
  shop: {url: https://shop.example.com/v2}   # the shop

routes:
  - path: "/cart/{item}"        # one line of it
    methods: [DELETE]
    confirm: always
  - {path: '/admin/**', deny: "The admin API is not for apps"}   # never

tools:
  get_cart: {}                  # for models
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an API and a policy, to work in."""
    (tmp_path / "api.yaml").write_text(OPENAPI)
    (tmp_path / "policy.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ── from OpenAPI ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_api_becomes_a_policy_whose_tests_pass(folder: Path) -> None:
    """Paths, methods and body schemas are read; the first server is the backend."""
    result = run("api.yaml", "--into", "new.yaml")
    assert result.exit_code == 0, result.output
    policy = load_policy(folder / "new.yaml")
    assert policy.backends["app"].url == "https://shop.example.com/v2"
    assert [(sorted(route.methods or ()), route.template.text) for route in policy.routes.all] == [
        (["GET"], "/cart"),
        (["POST"], "/cart"),
        (["DELETE"], "/cart/{item}"),
        (["GET"], "/products/{product_id}"),
    ]
    tested = CliRunner().invoke(main, ["policy", "test", "new.yaml", "--fail-under", "100"])
    assert tested.exit_code == 0, tested.output
    for place in ("api.yaml:17:12: TRACE", "api.yaml:19:5: /export/{name}.csv", "api.yaml:21:10: GET /old"):
        assert f"left out  {place}" in result.output
    assert "format slug in body schemas" in result.output


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ('{"item": "mug"}', "allow"),
        ('{"item": "mug", "count": null, "of": {"item": "bowl", "count": 1}}', "allow"),
        ('{"item": "mug", "count": 0}', "deny"),
        ('{"count": 1}', "deny"),
        ('{"item": "mug", "price": 0}', "deny"),
        ('{"item": "mug", "of": {}}', "deny"),
    ],
)
def test_schemas_of_openapi_hold_bodies(folder: Path, body: str, outcome: str) -> None:
    """Nullable, exclusive bounds of 3.0, references, and read-only properties are applied."""
    run("api.yaml", "--into", "new.yaml")
    explained = CliRunner().invoke(
        main, ["policy", "explain", "POST", "/cart", "--policy", "new.yaml", "--body", body, "--json"]
    )
    assert json.loads(explained.stdout)["outcome"] == outcome


def test_a_server_below_the_backend_is_a_prefix(folder: Path) -> None:
    """Paths of a policy are relative to the URL of its backend."""
    (folder / "policy.yaml").write_text(POLICY.replace("/v2", ""))
    assert learn("api.yaml", "--into", "policy.yaml", "--dry-run")[0][0] == "GET /v2/cart"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("swagger: '2.0'\n", "api.yaml:1:1: is not OpenAPI 3.x"),
        ("openapi: 3.1.0\npaths: {\n", "api.yaml:3:1: not YAML"),
        ("openapi: 3.1.0\na: &x {}\nb: *x\n", "api.yaml:2:4: used by an alias"),
        ("openapi: 3.1.0\nopenapi: 3.1.0\n", 'api.yaml:2:1: duplicate key "openapi"'),
        ("openapi: 3.1.0\na: " + "[" * 300 + "]" * 300, "api.yaml:2:20"),
        ("\x00", "api.yaml:1:1: not YAML"),
    ],
)
def test_what_is_no_openapi_ends_with_2(folder: Path, text: str, problem: str) -> None:
    """The problem has its place, as text and as JSON."""
    (folder / "api.yaml").write_text(text)
    result = run("api.yaml", *BACKEND)
    assert result.exit_code == 2
    assert result.output.startswith(problem), result.output
    assert json.loads(run("api.yaml", *BACKEND, "--json").stdout)["problems"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (
            "{application/json: {schema: {$ref: 'other.yaml#/x'}}}",
            "which is not in the file",
        ),
        ("{application/json: {schema: {}}, text/plain: {}}", "it may be text/plain too"),
        ("{application/json: {schema: true}}", "it takes everything, or nothing"),
        ("{application/json: {schema: {type: [1]}}}", "not a JSON Schema"),
        ("{application/json: {schema: {weird: 1}}}", "weird is not a keyword"),
    ],
)
def test_a_schema_that_no_policy_can_take_is_left_out(folder: Path, content: str, why: str) -> None:
    """The route is learned without it, which is reported with its place."""
    (folder / "api.yaml").write_text(
        f"openapi: 3.1.0\nservers: [{{url: https://a.example}}]\n"
        f"paths:\n  /a:\n    post:\n      requestBody:\n        content: {content}\n"
    )
    result = run("api.yaml", "--into", "new.yaml")
    assert result.exit_code == 0, result.output
    assert re.search(rf"left out  api\.yaml:\d+:\d+: the body schema of POST /a: .*{re.escape(why)}", result.output)
    assert "added     POST /a" in result.output


def test_without_a_file_to_write_schemas_are_left_out(folder: Path) -> None:
    """The policy is written to standard output, notes to standard error."""
    result = run("api.yaml")
    assert parse_policy(result.stdout, "stdout").routes.find("POST", "/cart", None) is not None
    assert "the body schema of POST /cart: it needs a file: use --into" in result.stderr


# ── into a policy ────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_stands_in_the_policy_stays(folder: Path) -> None:
    """Lines, comments and quotes stay; additions are at the ends of the lists."""
    assert run("api.yaml", "--into", "policy.yaml").exit_code == 0
    new = (folder / "policy.yaml").read_text().splitlines()
    assert [line for line in new if line in POLICY.splitlines()] == POLICY.splitlines()
    added = [line for line in new if line not in POLICY.splitlines()]
    assert added[0] == "  # Learned from api.yaml:"
    route = next(line for line in added if "product_id" in line)
    assert re.fullmatch(r'  - \{path: "/products/\{product_id\}", methods: \[GET\]\} +# operation getProduct', route)


def test_rules_that_are_there_go_first(folder: Path) -> None:
    """Requests that they allow are not added again, those that they deny not at all."""
    (folder / "api.yaml").write_text(OPENAPI.replace("/old:", "/admin/users:").replace("deprecated: true, ", ""))
    result = run("api.yaml", "--into", "policy.yaml")
    assert "left out  DELETE /cart/{item}: line 7 allows it already" in result.output
    assert "left out  GET /admin/users: line 10 denies it on purpose: The admin API is not for apps" in result.output
    again = run("api.yaml", "--into", "policy.yaml")
    assert "routes added (nothing is written): 0;" in again.output


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\nbackends: {shop: {url: https://shop.example.com/v2}}\n",
        "version: 1\nbackends: {shop: {url: https://shop.example.com/v2}}\nroutes: []\ntests: []\n",
        "version: 1\nbackends: {shop: {url: https://shop.example.com/v2}}\nroutes: [{path: /a, methods: [GET]}]\n",
        "version: 1\nbackends:\n    shop:\n        url: https://shop.example.com/v2\n"
        "routes:\n- path: /a\n  methods: [GET]\n",
        '{"version": 1, "backends": {"shop": {"url": "https://shop.example.com/v2"}}, "routes": []}\n',
    ],
)
def test_every_way_of_writing_a_policy_can_be_extended(folder: Path, text: str) -> None:
    """Lists may be missing, empty, in one line, or indented differently."""
    (folder / "policy.yaml").write_text(text)
    result = run("api.yaml", "--into", "policy.yaml")
    assert result.exit_code == 0, result.output
    policy = load_policy(folder / "policy.yaml")
    assert policy.routes.find("GET", "/products/7", None) is not None
    tested = CliRunner().invoke(main, ["policy", "test", "policy.yaml"])
    assert tested.exit_code == 0, tested.output


def test_a_policy_with_several_backends_needs_a_name(folder: Path) -> None:
    """Each added route then names it."""
    (folder / "policy.yaml").write_text(
        "version: 1\nbackends:\n  a: {url: https://a.example}\n  b: {url: https://b.example}\n"
    )
    result = run("api.yaml", "--into", "policy.yaml")
    assert result.exit_code == 2
    assert "--backend: a, b" in result.output
    assert run("api.yaml", "--into", "policy.yaml", "--backend", "c").exit_code == 2
    assert run("api.yaml", "--into", "policy.yaml", "--backend", "b").exit_code == 0
    assert {route.backend for route in load_policy(folder / "policy.yaml").routes.all} == {"b"}


def test_nothing_is_written_for_a_check_or_a_dry_run(folder: Path) -> None:
    """The exit code of --check reports whether there is something to add."""
    before: dict[str, Any] = {file.name: file.read_text() for file in folder.iterdir()}
    assert run("api.yaml", "--into", "policy.yaml", "--dry-run").exit_code == 0
    assert run("api.yaml", "--into", "policy.yaml", "--check").exit_code == 1
    assert {file.name: file.read_text() for file in folder.iterdir()} == before
    run("api.yaml", "--into", "policy.yaml")
    assert run("api.yaml", "--into", "policy.yaml", "--check").exit_code == 0


def test_without_any_backend_the_remedy_is_named(folder: Path) -> None:
    """A record does not contain the URL of the API."""
    journal(folder / "day.journal", [request("GET", "/a")])
    result = run("day.journal")
    assert result.exit_code == 2
    assert "name it, such as --backend https://api.example.com" in result.output


def test_a_broken_policy_is_not_extended(folder: Path) -> None:
    """Its problems are listed with their places."""
    (folder / "policy.yaml").write_text("version: 1\nnonsense: 1\n")
    result = run("api.yaml", "--into", "policy.yaml")
    assert result.exit_code == 2
    assert result.output.startswith("policy.yaml:2:1: ")


@pytest.mark.parametrize(
    ("word", "one"),
    [("orders", "order"), ("categories", "category"), ("boxes", "box"), ("classes", "class"), ("address", "address"),
     ("s", "s"), ("my-things", "my_thing"), ("2fa", "id"), ("", "id")],
)  # fmt: skip
def test_a_parameter_is_named_after_what_it_is_one_of(word: str, one: str) -> None:
    """Common English plurals are covered."""
    assert singular(word) == one


def test_a_server_that_is_not_a_url_is_left_out(tmp_path: Path) -> None:
    """The paths alone become routes."""
    file = tmp_path / "openapi.yaml"
    file.write_text(OPENAPI.replace("https://shop.example.com/v2", "'http://['"), "utf-8")
    added, left_out = learn(str(file), *BACKEND)
    assert "POST /cart" in added
    assert ("the server http://[", 1) in left_out


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000, "[" * 201 + "]" * 201])
def test_a_description_that_is_nested_too_deep_is_refused(tmp_path: Path, text: str) -> None:
    """Before it is composed on the stack, which would end the process."""
    file = tmp_path / "openapi.yaml"
    file.write_text(text, "utf-8")
    done = run(str(file))
    assert done.exit_code == 2, done.exception
    assert re.search(r"openapi.yaml:1:\d+: nested deeper than 200 levels", done.output)

"""`policy replay`: changed decisions, undecidable requests, and speed."""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.stores.records import Records
from gateway.stores.sql import Database
from tests.cli.recorded import database, journal, request, tool
from tests.world import World

POLICY = """\
version: 1
backends: {shop: {url: https://shop.example.com}}
routes:
  - {path: /api/cart, methods: [GET]}
  - {path: "/api/cart/{item}", methods: [PUT, DELETE], confirm: {when: model}}
  - {path: /api/checkout, methods: [POST], when: request.body.total < 500}
  - {path: /api/staff, methods: [GET], when: '"staff" in principal.roles'}
  - {path: /api/beta, methods: [GET], when: 'request.headers["x-beta"] == "1"'}
tools:
  get_cart: {}
  add: {when: arguments.count < 5}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a policy, to work in."""
    (tmp_path / "new.yaml").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


MOST_CALLS = 300
"""Function calls for each replayed request."""


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(main, ["policy", "replay", *arguments])


def run_replay(*arguments: str) -> dict[str, Any]:
    """The JSON output of the command."""
    result = run(*arguments, "--policy", "new.yaml", "--json")
    assert result.exit_code in (0, 1), result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def change(told: dict[str, Any]) -> list[tuple[str, str, str, int]]:
    """The changes in a short form."""
    return [(one["was"], one["would"], one["method"], one["count"]) for one in told["changes"]]


def test_what_goes_as_before_ends_with_0(folder: Path) -> None:
    """Requests and tool calls, of people and models, are replayed."""
    asked = request("DELETE", "/api/cart/7", initiator="model", approval="q1", route="/api/cart/{item}", status=202)
    journal(folder / "day.journal", [request("GET", "/api/cart?full=1"), asked, tool("get_cart", arguments={})])
    result = run("day.journal", "--policy", "new.yaml")
    assert result.exit_code == 0, result.output
    assert result.output == "3 replayed, 0 would change, 3 would not, 0 cannot be replayed\n"


def test_each_way_of_a_change_is_told(folder: Path) -> None:
    """Each has a count, its initiator, an example and the reason."""
    refused = {"decision": "deny", "reason": "policy-denied", "status": 403, "route": None}
    journal(
        folder / "day.journal",
        [
            request("GET", "/api/orders"),
            request("GET", "/api/orders", initiator="page"),
            request("GET", "/api/cart", **refused),
            request("DELETE", "/api/cart/7", initiator="model", route="/api/cart/{item}"),
            tool("clear_cart"),
        ],
    )
    told = run_replay("day.journal")
    assert sorted(change(told)) == [
        ("allow", "confirm", "DELETE", 1),
        ("allow", "deny", "GET", 2),
        ("allow", "deny", "tools/call", 1),
        ("deny", "allow", "GET", 1),
    ]
    orders = next(one for one in told["changes"] if one["count"] == 2)
    assert orders["initiators"] == {"person": 1, "page": 1}
    assert orders["examples"] == ["/api/orders"]
    assert orders["reasons"][0].startswith("no route allows GET /api/orders")
    text = run("day.journal", "--policy", "new.yaml").output
    assert "allow -> deny  GET /api/orders: 1 by the person, 1 by the page" in text
    assert "such as /api/orders" in text


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        (request("POST", "/api/checkout", request_size=20), "the body"),
        (request("GET", "/api/staff"), "roles and claims of the caller"),
        (request("GET", "/api/beta"), "the headers"),
        (tool("add", arguments="9000 bytes"), "the arguments of the tool"),
        (tool("add", arguments={"count": "[redacted]"}), "the arguments of the tool"),
        (request("GET", "[redacted]"), "the whole URL"),
    ],
)
def test_what_the_record_does_not_hold_is_said_and_counted(folder: Path, fields: dict[str, Any], lacks: str) -> None:
    """Such a request counts neither as changed nor as unchanged."""
    journal(folder / "day.journal", [fields, fields])
    told = run_replay("day.journal")
    assert (told["replayed"], told["changed"], told["ok"]) == (0, 0, True)
    assert [(one["lacks"], one["count"]) for one in told["not_replayed"]] == [(lacks, 2)]
    text = run("day.journal", "--policy", "new.yaml").output
    assert f"the rule asks for {lacks}, which the record does not hold" in text or lacks == "the whole URL"
    assert text.endswith("2 cannot be replayed\n")


def test_arguments_of_tools_are_replayed(folder: Path) -> None:
    """Short arguments are in the record."""
    journal(folder / "day.journal", [tool("add", arguments={"count": 2}), tool("add", arguments={"count": 9})])
    assert change(run_replay("day.journal")) == [("allow", "deny", "tools/call", 1)]


def test_a_request_that_a_person_answered_counts_once(folder: Path) -> None:
    """The record has it twice: with its question, and with its outcome."""
    asked = request("DELETE", "/api/cart/7", initiator="model", approval="q1", route="/api/cart/{item}", status=202)
    journal(folder / "day.journal", [asked, {**asked, "answered_by": "local|local|local", "status": 200}])
    assert run_replay("day.journal")["replayed"] == 1


def test_what_report_mode_let_through_and_a_rule_allows_now_is_counted(folder: Path) -> None:
    """This is the purpose of report mode; a request that still matches no rule would be refused."""
    one, other = (request("GET", url, reported=["no route"], route=None) for url in ("/api/cart", "/api/else"))
    journal(folder / "day.journal", [one, other])
    told = run_replay("day.journal")
    assert (told["covered_reports"], change(told)) == (1, [("reported", "deny", "GET", 1)])


def test_doors_that_refused_before_any_policy_are_left_out(folder: Path) -> None:
    """Approvals and changes of policies are left out, too."""
    door = request("GET", "/api/cart", reason="view-unproven", status=403)
    del door["policy_version"]
    journal(folder / "day.journal", [door, {"kind": "policy", "app": "cart"}, {"kind": "approval", "app": "cart"}])
    assert run_replay("day.journal")["replayed"] == 0


def test_an_unproven_call_of_the_model_is_asked_about(folder: Path) -> None:
    """The gateway would require approval, too, whatever the rule declares."""
    fields = request("PUT", "/api/cart/7", initiator="page", evidence="no-view-proof", view=None)
    journal(folder / "day.journal", [{**fields, "initiator": "model"}])
    assert change(run_replay("day.journal")) == [("allow", "confirm", "PUT", 1)]


def test_a_damaged_line_is_counted(folder: Path) -> None:
    """The other lines are replayed."""
    file = journal(folder / "day.journal", [request("GET", "/api/cart")] * 2)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:3], lines[3].replace(b"/api/cart", b"/api/cArt")]))
    told = run_replay("day.journal")
    assert (told["replayed"], told["damaged"]) == (1, 1)
    assert "1 damaged lines" in run("day.journal", "--policy", "new.yaml").output


def test_several_apps_must_be_told_apart(folder: Path) -> None:
    """A policy is for one app."""
    journal(folder / "day.journal", [request("GET", "/api/cart"), request("GET", "/x", app="till")])
    result = run("day.journal", "--policy", "new.yaml")
    assert result.exit_code == 2
    assert "--app" in result.output
    assert run_replay("day.journal", "--app", "till")["replayed"] == 1


@pytest.mark.parametrize(
    ("fail_on", "url", "code"),
    [
        ("changed", "/x", 1),
        ("denied", "/x", 1),
        ("never", "/x", 0),
        ("denied", "/api/cart", 0),
        ("changed", "/api/cart", 0),
    ],
)
def test_the_exit_code_is_for_build_machines(folder: Path, fail_on: str, url: str, code: int) -> None:
    """`--fail-on` selects the outcomes that count."""
    journal(folder / "day.journal", [request("GET", url)])
    assert run("day.journal", "--policy", "new.yaml", "--fail-on", fail_on).exit_code == code


@pytest.mark.parametrize("text", ["hello\n", "version: 1\n", "{}\n"])
def test_what_is_no_record_ends_with_2(folder: Path, text: str) -> None:
    """It is not mistaken for an empty record."""
    (folder / "day.journal").write_text(text)
    result = run("day.journal", "--policy", "new.yaml")
    assert result.exit_code == 2
    assert "neither a journal" in result.output


def test_files_that_are_not_there_end_with_2(folder: Path) -> None:
    """The record and the policy are checked."""
    assert run("gone.journal", "--policy", "new.yaml").exit_code == 2
    journal(folder / "day.journal", [])
    result = run("day.journal", "--policy", "gone.yaml", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["problems"][0]["file"] == "gone.yaml"


def test_the_database_gives_the_same_as_its_journal(folder: Path) -> None:
    """Either can be used."""
    file = journal(folder / "day.journal", [request("GET", "/api/cart"), request("GET", "/api/orders")])
    database(folder / "day.db", file)
    assert run_replay("day.db") == run_replay("day.journal")


@pytest.fixture
async def served(world: World) -> World:
    """A gateway that has served one request and refused one."""
    async with world.client(headers={"webmcp-gateway-client": "1"}) as client:
        for path in ("/api/products", "/api/admin/users"):
            async with client.get(world.site + path) as answer:
                await answer.read()
    return world


async def test_the_record_of_a_running_gateway_is_replayed(served: World, folder: Path) -> None:
    """Its journal and its real database are replayed; the example's own policy changes nothing."""
    policy = str(served.folder / "policy.yaml")
    async with Database(served.config.database.reveal()) as shown:
        async with asyncio.timeout(60):
            while len([one for one in await Records(shown).query(10) if one.ended_at is not None]) < 2:
                await asyncio.sleep(0.05)
    for record in (served.config.journal, Path(served.config.database.reveal().removeprefix("sqlite:///"))):
        result = run(str(record), "--policy", policy, "--json")
        told = json.loads(result.stdout)
        assert (result.exit_code, told["replayed"], told["changed"]) == (0, 2, 0), result.output


def orders(folder: Path, count: int) -> str:
    """Return the name of a journal of so many requests, all of one kind."""
    journal(
        folder / "day.journal", (request("GET", f"/api/orders/{n}", route="/api/orders/{id}") for n in range(count))
    )
    return "day.journal"


def calls_for(folder: Path, count: int) -> int:
    """Return how many functions are called to replay so many requests."""
    name, calls = orders(folder, count), 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        run_replay(name)
    finally:
        sys.setprofile(None)
    return calls


def test_each_request_is_replayed_with_little_work(folder: Path) -> None:
    """The same for each, however many there are: a day of 100,000 takes well under a minute."""
    calls_for(folder, 100)  # imports, and fills caches
    few, many, more = (calls_for(folder, count) for count in (500, 1500, 3500))
    assert 0.9 < (more - many) / (many - few) / 2 < 1.1
    assert (more - many) / 2000 < MOST_CALLS


def test_thousands_of_requests_are_replayed_in_little_memory(folder: Path) -> None:
    """The requests are not kept in memory."""
    count = 6_000
    told = run_replay(orders(folder, count))
    assert (told["replayed"], len(told["changes"]), len(told["changes"][0]["examples"])) == (count, 1, 3)
    tracemalloc.start()
    run_replay("day.journal")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 1024 * 1024  # the reader of the policy file takes 8 of them


def test_changes_of_too_many_kinds_are_counted_only(folder: Path) -> None:
    """The first 1,000 kinds of changes are listed, the others counted."""
    journal(folder / "day.journal", (request("GET", f"/api/{n}") for n in range(1100)))
    told = run_replay("day.journal")
    assert (told["changed"], len(told["changes"]), told["not_told"]) == (1100, 1000, 100)

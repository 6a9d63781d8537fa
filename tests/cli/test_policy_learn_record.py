"""`policy learn` from a record: which requests of people become rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli import main
from gateway.cli.policy.proposals import path_problem
from gateway.cli.policy.traffic import generalise
from gateway.policy import parse_policy
from tests.cli.learning import BACKEND, learn, run
from tests.cli.recorded import database, journal, request


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_only_what_persons_did_and_what_worked_is_learned(folder: Path) -> None:
    """Models, pages, denials and failures are ignored, and counted."""
    day = [
        request("GET", "/api/cart?full=1"),
        request("GET", "/api/cart", reported=["no route"], route=None),
        request("GET", "/api/page", initiator="page"),
        request("GET", "/api/model", initiator="model"),
        request("GET", "/api/denied", decision="deny", reason="policy-denied", status=403),
        request("GET", "/api/missing", status=404),
        request("GET", "/api/down", status=502, reason="backend-unreachable"),
        {"kind": "tool", "app": "cart", "initiator": "person", "tool": "x"},
    ]
    journal(folder / "day.journal", day)
    added, left = learn("day.journal", *BACKEND)
    assert added == ["GET /api/cart"]
    assert dict(left) == {
        "requests caused by the page": 1,
        "requests caused by the model": 1,
        "requests that were denied": 1,
        "requests answered with 404": 1,
        "requests that ended with backend-unreachable": 1,
    }


@pytest.mark.parametrize("kind", ["journal", "database"])
def test_a_websocket_that_is_still_open_is_learned(folder: Path, kind: str) -> None:
    """It has no outcome yet, while one learns with the app open; one that failed has, and is left out."""
    opened = request("WEBSOCKET", "/live", initiator="page", reported=["no route"], route=None)
    failed = request("WEBSOCKET", "/broken", initiator="page", status=502, reason="backend-unreachable")
    day = journal(folder / "day.journal", [failed, opened])
    lines = day.read_bytes().splitlines(keepends=True)
    day.write_bytes(b"".join(lines[:-1]))
    if kind == "database":
        day = database(folder / "day.db", day)
    result = run(day.name, *BACKEND)
    assert "- {path: /live, methods: [GET], websocket: true}" in result.output
    assert "/broken" not in result.output


def test_what_a_page_posts_beside_its_websocket_is_learned(folder: Path) -> None:
    """As socket.io does, at the path of the WebSocket alone."""
    page = {"initiator": "page", "reported": ["no route"], "route": None}
    day = [request("POST", "/socket.io/?a=1", **page), request("POST", "/other", **page)]
    day += [request("WEBSOCKET", "/socket.io/?a=2", **page), request("POST", "/socket.io/?a=3", **page)]
    journal(folder / "day.journal", day)
    result = run("day.journal", *BACKEND)
    assert "{path: /socket.io/, methods: [POST], confirm: {when: model}}" in result.output
    assert "{path: /socket.io/, methods: [GET], websocket: true}" in result.output
    assert "/other" not in result.output
    assert "requests caused by the page that change something" in result.output


def test_a_request_that_a_person_approved_counts_once(folder: Path) -> None:
    """Its outcome counts, not its question."""
    asked = request("PUT", "/api/cart/7", approval="q", status=202)
    journal(folder / "day.journal", [asked, {**asked, "answered_by": "x", "status": 200}])
    result = run("day.journal", *BACKEND)
    assert '- {path: "/api/cart/{cart}", methods: [PUT], confirm: {when: model}}  # once' in result.output


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/orders/17", "/api/orders/{order}"),
        ("/api/orders/17/items/3", "/api/orders/{order}/items/{item}"),
        ("/api/categories/8f14e45f-ceea-467f-8f3a-1234567890ab", "/api/categories/{category}"),
        ("/api/users/ann@example.com", "/api/users/{user}"),
        ("/api/files/a%2Fb.txt", "/api/files/{file:encoded}"),
        ("/api/files/a%20b.txt", "/api/files/{file}"),
        ("/api/days/2026-01-31", "/api/days/{day}"),
        ("/api/17/18", "/api/{api}/{id}"),
        ("/v2/oauth2/me", "/v2/oauth2/me"),
        ("/api/customers/cus_9s6XKzkNRiz8i3", "/api/customers/{customer}"),
        ("/api/cart/teapot", "/api/cart/teapot"),
        ("/17", "/{id}"),
        ("/", "/"),
    ],
)
def test_values_in_paths_become_parameters(path: str, expected: str) -> None:
    """Numbers, ids, dates and encoded text become parameters; words stay."""
    assert generalise(path) == expected


@given(st.lists(st.from_regex(r"\A(?:[a-z]{1,8}|\d{1,4}|[A-Za-z0-9_@%.-]{1,20})\Z"), min_size=1, max_size=6))
def test_a_path_that_is_learned_takes_the_path_that_was_seen(segments: list[str]) -> None:
    """Any segments match, if a route can have them."""
    path = "/" + "/".join(segments)
    template = generalise(path)
    if path_problem(template) is None and re.search("%(?![0-9A-F]{2})", path) is None:
        text = f'version: 1\nbackends: {{a: {{url: "http://a"}}}}\nroutes: [{{path: "{template}", methods: [GET]}}]\n'
        assert parse_policy(text, "p").routes.find("GET", path, None) is not None


def test_no_route_ends_in_a_rest(folder: Path) -> None:
    """No number of paths with a common prefix leads to `**`."""
    journal(
        folder / "day.journal", (request("POST", f"/api/x/{word}/{n}/y") for word in "abcdefghijkl" for n in range(3))
    )
    text = run("day.journal", *BACKEND).output
    assert "**" not in text
    assert text.count("methods: [POST]") == 12


def test_many_words_in_one_place_are_values_where_something_is_read(folder: Path) -> None:
    """For changes each word stays a route, and that is reported."""
    names = ["teapot", "mug", "bowl", "honey", "oil", "apron", "candle", "board", "tea"]
    journal(
        folder / "day.journal", (request(method, f"/api/items/{name}") for name in names for method in ("GET", "PUT"))
    )
    added, left = learn("day.journal", *BACKEND)
    assert added[-1] == "GET /api/items/{item}"
    assert added[:-1] == [f"PUT /api/items/{name}" for name in sorted(names)]
    assert left == [("PUT /api/items/…, one route for 9 words", 1)]


def test_what_is_learned_is_a_policy_whose_tests_pass(folder: Path) -> None:
    """Every route is covered by a test; the policy contains no value of the record."""
    day = [request(method, "/api/secret-cart/4711") for method in ("GET", "HEAD", "DELETE")]
    journal(folder / "day.journal", [*day, request("POST", "/api/cart")])
    assert run("day.journal", "--into", "new.yaml", *BACKEND).exit_code == 0
    assert "4711" not in (folder / "new.yaml").read_text()
    assert (folder / "new.yaml").stat().st_mode & 0o777 == 0o600
    tested = CliRunner().invoke(main, ["policy", "test", "new.yaml", "--fail-under", "100"])
    assert tested.exit_code == 0, tested.output


def test_a_database_teaches_the_same(folder: Path) -> None:
    """The result is that of its journal."""
    file = journal(folder / "day.journal", [request("GET", "/api/cart"), request("GET", "/api/cart/7")])
    database(folder / "day.db", file)
    assert learn("day.db", *BACKEND) == learn("day.journal", *BACKEND)


def test_a_record_of_several_apps_needs_a_name(folder: Path) -> None:
    """A policy is for one app."""
    journal(folder / "day.journal", [request("GET", "/a"), request("GET", "/b", app="till")])
    assert run("day.journal", *BACKEND).exit_code == 2
    assert learn("day.journal", *BACKEND, "--app", "till")[0] == ["GET /b"]


def test_a_record_does_not_say_where_the_api_is(folder: Path) -> None:
    """The policy in effect contains the URL of each backend; without a policy it must be given."""
    journal(folder / "day.journal", [request("GET", "/api/cart")])
    result = run("day.journal")
    assert result.exit_code == 2
    assert "day.journal does not say the API's URL: use --into with a policy that contains it" in result.stderr
    (folder / "p.yaml").write_text('version: 1\nbackends: {shop: {url: "https://shop.example.com"}}\n')
    assert learn("day.journal", "--into", "p.yaml")[0] == ["GET /api/cart"]

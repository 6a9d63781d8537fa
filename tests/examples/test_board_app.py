"""The board without the gateway: its backend, and its build as one file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from examples.board_app import board
from gateway.apps import pack
from gateway.config import load_config
from tests.board import EXAMPLE, build_board


class Scripts(HTMLParser):
    """Collects the types of a page's script elements, and not of those that its scripts write about."""

    def __init__(self) -> None:
        super().__init__()
        self.types: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.types.append(dict(attrs).get("type"))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]  # its arguments are private
    """Yield a client of a new board."""
    async with TestClient(TestServer(board.build_app(tmp_path / "board.json"))) as client:
        yield client


async def columns(client: TestClient) -> dict[str, list[str]]:  # type: ignore[type-arg]  # as above
    """Return the ids of the cards by column."""
    found = await (await client.get("/api/board")).json()
    return {column["id"]: [card["id"] for card in column["cards"]] for column in found["columns"]}


async def test_cards_are_added_changed_moved_and_thrown_away(
    client: TestClient,  # type: ignore[type-arg]  # as above
    tmp_path: Path,
) -> None:
    """The remaining cards are there after a restart."""
    added = await (await client.post("/api/cards", json={"title": " New ", "column": "done"})).json()
    assert (added["title"], added["note"], added["files"]) == ("New", "", [])
    moved = await client.patch(f"/api/cards/{added['id']}", json={"column": "doing", "position": 1, "title": "Newer"})
    assert (await moved.json())["title"] == "Newer"
    assert (await columns(client))["doing"] == ["card-1", added["id"], "card-2"]
    assert (await client.delete("/api/cards/card-1")).status == 204
    assert (await columns(client))["doing"] == [added["id"], "card-2"]
    again = board.Board(tmp_path / "board.json")
    again.read()
    assert [card.title for card in again.cards if card.column == "doing"] == ["Newer", "Labels for the winter tins"]


async def test_files_of_cards(client: TestClient) -> None:  # type: ignore[type-arg]  # as above
    """They come back byte for byte under their names; only pictures are shown in the browser."""
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", b"<script>", filename="a b.html", content_type="text/html")
    card = await (await client.post("/api/cards/card-1/files", data=form)).json()
    answer = await client.get(f"/api/cards/card-1/files/{card['files'][0]['id']}")
    assert (await answer.read(), answer.headers["content-disposition"]) == (
        b"<script>",
        "attachment; filename*=UTF-8''a%20b.html",
    )


async def test_changes_are_told(client: TestClient) -> None:  # type: ignore[type-arg]  # as above
    """The current revision first, and the next one at a change."""
    async with client.get("/api/events") as events:
        assert (await events.content.readuntil(b"\n\n")).startswith(b"id: 1\n")
        await client.delete("/api/cards/card-1")
        assert (await events.content.readuntil(b"\n\n")).startswith(b"id: 2\n")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "cards", {"title": " "}, 400),
        ("POST", "cards", {"title": "x" * 121}, 400),
        ("POST", "cards", {"title": "x", "column": "later"}, 400),
        ("POST", "cards", {"title": "x", "note": 1}, 400),
        ("POST", "cards", [], 400),
        ("PATCH", "cards/card-1", {"position": "1"}, 400),
        ("PATCH", "cards/none", {}, 404),
        ("DELETE", "cards/none", None, 404),
        ("GET", "cards/card-1/files/none", None, 404),
        ("POST", "cards/card-1/files", None, 400),
    ],
)
async def test_wrong_requests(
    client: TestClient,  # type: ignore[type-arg]  # as above
    method: str,
    path: str,
    body: object,
    status: int,
) -> None:
    """Each answer names the error."""
    answer = await client.request(method, f"/api/{path}", json=body)
    assert (answer.status, bool((await answer.json())["error"])) == (status, True)


def test_the_readme_names_the_gateways_own_port() -> None:
    """It differs from the other example's, so that both can run."""
    build_board()  # the configuration names the folder
    mine = load_config(EXAMPLE / "gateway.yaml", {}).server
    readme = (EXAMPLE / "README.md").read_text("utf-8")
    other = EXAMPLE.parent / "cart_app" / "gateway.yaml"
    assert (mine.public_url in readme, f":{mine.port}\n" in other.read_text("utf-8")) == (True, False)


def test_the_build_is_packed_whole() -> None:
    """An ordinary build of Vite and React; the packed file loads nothing else."""
    page = pack(build_board(), app="board", title="Tea board", runtime="").html
    scripts = Scripts()
    scripts.feed(page)
    assert scripts.types == [None, "module"]
    assert "/assets/" not in page
    assert json.dumps("move_card")[1:-1] in page

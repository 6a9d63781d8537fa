"""The board: columns of cards with files, in memory or in one JSON file, and a stream of what changes."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

COLUMNS = {"ideas": "Ideas", "doing": "Doing", "done": "Done"}
TITLE = 120
NOTE = 2000
FILE = 2 * 1024 * 1024
CARDS = 200

FIRST = [
    ("doing", "Taste the new blends", "Three oolongs, two greens. Notes go into the shared sheet."),
    ("doing", "Labels for the winter tins", "Printer needs the artwork by Thursday."),
    ("ideas", "Open house in December", "Tea, cake, and the roastery next door."),
    ("ideas", "A jar you can send back", ""),
    ("done", "Repair the scales", "Calibrated to half a gram."),
]


@dataclass(slots=True)
class File:
    """A file of a card; the board's JSON omits `content`."""

    id: str
    name: str
    type: str
    content: bytes


@dataclass(slots=True)
class Card:
    """One card in one column."""

    id: str
    title: str
    note: str
    column: str
    files: list[File] = field(default_factory=list)


class Wrong(Exception):
    """A request that cannot be fulfilled; the message is for people."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Board:
    """The cards in order, and the listeners for changes. `place` is the file that stores titles and columns."""

    place: Path | None = None
    cards: list[Card] = field(default_factory=list)
    revision: int = 1
    listeners: set[asyncio.Event] = field(default_factory=set)

    def read(self) -> None:
        """Load the stored cards, or the initial ones."""
        kept = json.loads(self.place.read_text("utf-8")) if self.place is not None and self.place.exists() else None
        if kept is None:
            kept = [{"title": title, "note": note, "column": column} for column, title, note in FIRST]
        self.cards = [Card(f"card-{n}", one["title"], one["note"], one["column"]) for n, one in enumerate(kept, 1)]

    def shown(self) -> dict[str, Any]:
        """Return the whole board as JSON."""
        cards = [_shown(card) for card in self.cards]
        columns = [
            {"id": id, "title": title, "cards": [card for card in cards if card["column"] == id]}
            for id, title in COLUMNS.items()
        ]
        return {"revision": self.revision, "columns": columns}

    def find(self, id: str) -> Card:
        """Return a card by id. Raises `Wrong`."""
        card = next((card for card in self.cards if card.id == id), None)
        if card is None:
            raise Wrong(404, f"There is no card {id[:40]}.")
        return card

    def changed(self) -> None:
        """Notify listeners, and store the board."""
        self.revision += 1
        for listener in self.listeners:
            listener.set()
        if self.place is not None:
            kept = [{"title": card.title, "note": card.note, "column": card.column} for card in self.cards]
            self.place.write_text(json.dumps(kept, ensure_ascii=False), "utf-8")

    def move(self, card: Card, column: str, position: int | None) -> None:
        """Move a card to `position` of a column, by default its end."""
        self.cards.remove(card)
        card.column = column
        others = [other for other in self.cards if other.column == column]
        if position is None or position >= len(others):
            self.cards.append(card)
        else:
            self.cards.insert(self.cards.index(others[max(position, 0)]), card)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Event]:
        """Yield an event that is set at each change."""
        changed = asyncio.Event()
        self.listeners.add(changed)
        try:
            yield changed
        finally:
            self.listeners.discard(changed)


BOARD: web.AppKey[Board] = web.AppKey("board", Board)

routes = web.RouteTableDef()


@routes.get("/api/board")
async def get_board(request: web.Request) -> web.Response:
    """Return the whole board."""
    return web.json_response(request.app[BOARD].shown())


@routes.get("/api/events")
async def get_events(request: web.Request) -> web.StreamResponse:
    """Stream the board's revision, now and at each change (server-sent events)."""
    board = request.app[BOARD]
    stream = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-store"})
    await stream.prepare(request)
    async with board.listening() as changed:
        while True:
            await stream.write(f"id: {board.revision}\nevent: changed\ndata: {board.revision}\n\n".encode())
            changed.clear()
            try:
                await asyncio.wait_for(changed.wait(), 15)
            except TimeoutError:
                await stream.write(b": here\n\n")


@routes.post("/api/cards")
async def add_card(request: web.Request) -> web.Response:
    """Add a card: `{title, note?, column?}`."""
    board, asked = request.app[BOARD], await _json(request)
    if len(board.cards) >= CARDS:
        raise Wrong(409, f"A board has {CARDS} cards at most.")
    card = Card(f"card-{secrets.token_hex(4)}", _title(asked), _note(asked), _column(asked, "ideas"))
    board.cards.append(card)
    board.changed()
    return web.json_response(_shown(card), status=201)


@routes.patch("/api/cards/{id}")
async def change_card(request: web.Request) -> web.Response:
    """Change a card's text or position: `{title?, note?, column?, position?}`."""
    board, asked = request.app[BOARD], await _json(request)
    card = board.find(request.match_info["id"])
    if "title" in asked:
        card.title = _title(asked)
    if "note" in asked:
        card.note = _note(asked)
    if "column" in asked or "position" in asked:
        position = asked.get("position")
        if position is not None and (not isinstance(position, int) or isinstance(position, bool)):
            raise Wrong(400, "position: a whole number.")
        board.move(card, _column(asked, card.column), position)
    board.changed()
    return web.json_response(_shown(card))


@routes.delete("/api/cards/{id}")
async def delete_card(request: web.Request) -> web.Response:
    """Delete a card and its files."""
    board = request.app[BOARD]
    board.cards.remove(board.find(request.match_info["id"]))
    board.changed()
    return web.Response(status=204)


@routes.post("/api/cards/{id}/files")
async def add_file(request: web.Request) -> web.Response:
    """Add a file: a form with the field `file`."""
    board = request.app[BOARD]
    card = board.find(request.match_info["id"])
    sent = (await request.post()).get("file")
    if not isinstance(sent, web.FileField):
        raise Wrong(400, "file: a file.")
    file = File(secrets.token_hex(8), sent.filename[:TITLE] or "file", sent.content_type, sent.file.read())
    card.files.append(file)
    board.changed()
    return web.json_response(_shown(card), status=201)


@routes.get("/api/cards/{id}/files/{file}")
async def get_file(request: web.Request) -> web.Response:
    """Return a file of a card as a download; images may be shown inline."""
    card = request.app[BOARD].find(request.match_info["id"])
    file = next((file for file in card.files if file.id == request.match_info["file"]), None)
    if file is None:
        raise Wrong(404, "There is no such file.")
    shown = file.type in ("image/png", "image/jpeg", "image/gif", "image/webp")
    disposition = f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{quote(file.name)}"
    headers = {"content-disposition": disposition, "x-content-type-options": "nosniff"}
    return web.Response(body=file.content, content_type=file.type, headers=headers)


def _shown(card: Card) -> dict[str, Any]:
    files = [{"id": file.id, "name": file.name, "type": file.type, "size": len(file.content)} for file in card.files]
    return {**{key: value for key, value in asdict(card).items() if key != "files"}, "files": files}


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise Wrong(400, "The body must be JSON.") from error
    if not isinstance(body, dict):
        raise Wrong(400, "The body must be a JSON object.")
    return body


def _title(asked: dict[str, Any]) -> str:
    title = asked.get("title")
    if not isinstance(title, str) or not 0 < len(title.strip()) <= TITLE:
        raise Wrong(400, f"title: a text of 1 to {TITLE} characters.")
    return title.strip()


def _note(asked: dict[str, Any]) -> str:
    note = asked.get("note", "")
    if not isinstance(note, str) or len(note) > NOTE:
        raise Wrong(400, f"note: a text of at most {NOTE} characters.")
    return note


def _column(asked: dict[str, Any], default: str) -> str:
    column = asked.get("column", default)
    if column not in COLUMNS:
        raise Wrong(400, f"column: one of {', '.join(COLUMNS)}.")
    return str(column)


@web.middleware
async def _errors(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        response: web.StreamResponse = await handler(request)
    except Wrong as wrong:
        return web.json_response({"error": str(wrong)}, status=wrong.status)
    return response


def build_app(place: Path | None = None) -> web.Application:
    """Return the board as an application; `place` stores its cards, without files."""
    app = web.Application(middlewares=[_errors], client_max_size=FILE)
    board = Board(place)
    board.read()
    app[BOARD] = board
    app.router.add_routes(routes)
    return app


def main() -> None:
    """`python board.py`: serve the board on loopback."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=9402)
    parser.add_argument("--data", type=Path, help="a JSON file that keeps the cards")
    arguments = parser.parse_args()
    web.run_app(build_app(arguments.data), host="127.0.0.1", port=arguments.port)


if __name__ == "__main__":
    main()

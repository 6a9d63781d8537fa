"""Conversations: a list of items each, stored in a file, whose changes are sent to the pages that show it."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from examples.chat_host.items import Failure, Item, Message, ToolUse, read_items, read_partial, write_items

ID = re.compile(r"[A-Za-z0-9_-]{22}")
MOST_CHANGES = 4096
"""Changes that wait for one page; a page that is further behind begins anew."""

Change = dict[str, Any]


@dataclass(slots=True, eq=False)
class Conversation:
    """One conversation. At most one turn of the model runs in it, as `turn`."""

    id: str
    path: Path
    items: dict[str, Item] = field(default_factory=dict)
    turn: asyncio.Task[None] | None = None
    skip: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by a page that did not open the app of the last call, whose tools will not come."""
    _pages: set[asyncio.Queue[Change | None]] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        """Whether the model is at work."""
        return self.turn is not None and not self.turn.done()

    @property
    def is_shown(self) -> bool:
        """Whether a page shows it."""
        return bool(self._pages)

    def put(self, item: Item) -> None:
        """Add an item, or replace the one with its id; it is stored unless it is still being written."""
        self.items[item.id] = item
        self._publish({"item": item})
        if not (isinstance(item, Message | ToolUse) and item.state == "writing"):
            self.save()

    def append(self, item: Message | ToolUse, more: str) -> Message | ToolUse:
        """Add text to an item that is being written; pages receive only the addition."""
        changed: Message | ToolUse
        if isinstance(item, Message):
            changed = msgspec.structs.replace(item, text=item.text + more)
        else:
            changed = msgspec.structs.replace(item, written=item.written + more)
        self.items[item.id] = changed
        addition: Change = {"id": item.id, "text": more}
        if isinstance(changed, ToolUse) and changed.app is not None:
            addition["partial"] = read_partial(changed.written)
        self._publish({"append": addition})
        return changed

    def remove(self, id: str) -> None:
        """Remove an item, if it is there."""
        if self.items.pop(id, None) is not None:
            self._publish({"removed": id})

    def remove_failures(self) -> None:
        """Remove what is said about an answer that did not come, as the next one is tried."""
        for id in [id for id, item in self.items.items() if isinstance(item, Failure)]:
            self.remove(id)

    def notify(self, change: Change) -> None:
        """Send pages something that is not stored."""
        self._publish(change)

    def save(self) -> None:
        """Write the file, in one step."""
        aside = self.path.with_suffix(".new")
        aside.write_bytes(write_items(self.items.values()))
        aside.replace(self.path)

    @contextmanager
    def _subscription(self) -> Iterator[asyncio.Queue[Change | None]]:
        queue: asyncio.Queue[Change | None] = asyncio.Queue(MOST_CHANGES)
        self._pages.add(queue)
        try:
            yield queue
        finally:
            self._pages.discard(queue)

    async def changes(self, quiet: float) -> AsyncGenerator[bytes]:
        """Yield all items first, then each change, as JSON; nothing at all after each `quiet` seconds without one."""
        with self._subscription() as queue:
            yield msgspec.json.encode({"items": list(self.items.values()), "busy": self.is_busy})
            while queue in self._pages:
                try:
                    async with asyncio.timeout(quiet):
                        change = await queue.get()
                except TimeoutError:
                    yield b""
                else:
                    if change is None:
                        return
                    yield msgspec.json.encode(change)

    def close(self) -> None:
        """End the streams of all pages, as the server ends."""
        self._publish(None)

    def _publish(self, change: Change | None) -> None:
        for queue in list(self._pages):
            try:
                queue.put_nowait(change)
            except asyncio.QueueFull:
                self._pages.discard(queue)


@dataclass(slots=True)
class Conversations:
    """All conversations of a folder; one is read when it is first asked for."""

    folder: Path
    _open: dict[str, Conversation] = field(default_factory=dict)

    def create(self) -> Conversation:
        """Return a new, empty conversation. Its id is as unguessable as a session's."""
        id = secrets.token_urlsafe(16)
        self._open[id] = made = Conversation(id, self.folder / f"{id}.json")
        made.save()
        return made

    def find(self, id: str) -> Conversation | None:
        """Return a conversation, or None."""
        if not ID.fullmatch(id):
            return None
        known = self._open.get(id)
        path = self.folder / f"{id}.json"
        if known is None and path.is_file():
            items = [_stopped(item) for item in read_items(path.read_bytes())]
            self._open[id] = known = Conversation(id, path, {item.id: item for item in items})
        return known

    def all(self) -> list[Conversation]:
        """Return the conversations that are in memory."""
        return list(self._open.values())


def _stopped(item: Item) -> Item:
    """Return the item as it stands when nothing writes or runs any more."""
    if isinstance(item, Message) and item.state == "writing":
        return msgspec.structs.replace(item, state="stopped")
    if isinstance(item, ToolUse) and item.state in ("writing", "running", "waiting"):
        return msgspec.structs.replace(item, state="stopped", approval=None)
    return item


def stop_all(conversation: Conversation) -> None:
    """Mark everything that was being written or run as stopped."""
    for item in list(conversation.items.values()):
        if (stopped := _stopped(item)) is not item:
            conversation.put(stopped)

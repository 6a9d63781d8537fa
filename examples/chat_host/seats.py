"""Who is at the chat: each browser that is signed in has a seat, with its person's conversations and connection."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
from aiohttp import web

from examples.chat_host.conversation import Conversation, Conversations, stop_all
from examples.chat_host.gateway_client import Gateway
from examples.chat_host.items import Failure
from examples.chat_host.login import Person
from examples.chat_host.models.base import Model
from examples.chat_host.page_token import PageTokens
from examples.chat_host.settings import Settings
from examples.chat_host.turn import Turn, new_id

MOST_SEATS = 256
"""Browsers that are signed in at the same time: the one that signed in first has to do so again."""

LONGEST_SESSION = 12 * 3600.0
LOCAL = ""
"""The key of the only seat of a chat without a login."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Seat:
    """One browser's place. `person` is the name of who sits there, empty in a chat without a login."""

    settings: Settings
    conversations: Conversations
    gateway: Gateway
    model: Model
    tokens: PageTokens
    person: str = ""
    has_ended: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self) -> None:
        """Connect to the gateway."""
        self.gateway.on_change = self.tell_status
        self._tasks.add(asyncio.create_task(self.gateway.run()))

    def status(self) -> dict[str, Any]:
        """Return what the page shows of person, model and gateway."""
        return {
            "person": self.person,
            "model": self.model.label,
            "provider": self.settings.provider,
            "gateway": self.settings.console,
            "connected": self.gateway.is_connected,
            "tools": len(self.gateway.tools),
        }

    def tell_status(self) -> None:
        """Tell every page of the person that the gateway came, went, or has other tools."""
        for conversation in self.conversations.all():
            conversation.notify({"status": self.status()})

    def begin(self, conversation: Conversation) -> None:
        """Let the model answer, unless it is at work already."""
        if conversation.is_busy:
            raise web.HTTPConflict(text="The model is still at work: stop it first.")
        conversation.remove_failures()
        conversation.turn = turn = asyncio.create_task(self._run(conversation))
        self._tasks.add(turn)
        turn.add_done_callback(self._tasks.discard)
        turn.add_done_callback(partial(_report, conversation))

    async def _run(self, conversation: Conversation) -> None:
        conversation.notify({"busy": True})
        try:
            await Turn(conversation, self.model, self.gateway, self.settings.display_modes).run()
        finally:
            stop_all(conversation)
            conversation.turn = None
            conversation.notify({"busy": False})

    async def end(self) -> None:
        """Stop what the model does for this browser, disconnect it from the gateway, and end its streams."""
        self.has_ended = self.gateway.is_closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for conversation in self.conversations.all():
            conversation.notify({})  # every stream looks whether its seat has ended


def _report(conversation: Conversation, turn: asyncio.Task[None]) -> None:
    """Tell the person of a fault of the chat itself, so that they do not wait."""
    if not turn.cancelled() and (error := turn.exception()) is not None:
        log.error("A turn failed.", exc_info=error)
        conversation.put(Failure(new_id(), "fault", "The chat itself has failed. Its log has the reason."))


@dataclass(slots=True)
class Seats:
    """All seats, by the hash of the secret in the browser's cookie. A chat without a login has one for everybody."""

    settings: Settings
    http: aiohttp.ClientSession
    model: Model
    _seats: dict[str, Seat] = field(default_factory=dict)
    _timers: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    _conversations: dict[str, Conversations] = field(default_factory=dict)
    _leaving: set[asyncio.Task[None]] = field(default_factory=set)

    def open_local(self) -> None:
        """Open the seat of a chat without a login."""
        self._open(LOCAL, self.settings.gateway_token, "", "")

    def open(self, person: Person) -> str:
        """Return the secret of a new session, which ends with the person's token."""
        secret = secrets.token_urlsafe(32)
        key = _key(secret)
        if len(self._seats) >= MOST_SEATS:
            self._leave_soon(next(iter(self._seats)))
        self._open(key, person.token, person.subject, person.name)
        wait = min(person.seconds, LONGEST_SESSION)
        self._timers[key] = asyncio.get_running_loop().call_later(wait, self._leave_soon, key)
        return secret

    def _open(self, key: str, token: str | None, subject: str, name: str) -> None:
        settings = self.settings
        folder = settings.data
        if key != LOCAL:  # what one person has said is in a folder that no other person's requests reach
            folder /= hashlib.sha256(f"{settings.issuer}|{subject}".encode()).hexdigest()[:32]
        folder.mkdir(parents=True, exist_ok=True)
        conversations = self._conversations.setdefault(folder.name, Conversations(folder))
        gateway = Gateway(f"{settings.gateway}/mcp", settings.console, token)
        tokens = PageTokens(self.http, settings, token)
        self._seats[key] = seat = Seat(settings, conversations, gateway, self.model, tokens, name)
        seat.start()

    def find(self, secret: str) -> Seat | None:
        """Return the seat of a browser's cookie, or None if nobody is signed in there."""
        return self._seats.get(_key(secret) if self.settings.issuer else LOCAL)

    async def leave(self, secret: str) -> None:
        """End a session, if it is one."""
        await self._leave(_key(secret))

    async def _leave(self, key: str) -> None:
        seat, timer = self._seats.pop(key, None), self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if seat is not None:
            await seat.end()

    def _leave_soon(self, key: str) -> None:
        task = asyncio.get_running_loop().create_task(self._leave(key))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def close_streams(self) -> None:
        """End the streams of all pages, as the server ends."""
        for conversations in self._conversations.values():
            for conversation in conversations.all():
                conversation.close()

    async def close(self) -> None:
        """End everything."""
        for key in list(self._seats):
            await self._leave(key)
        await asyncio.gather(*self._leaving, return_exceptions=True)


def _key(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()

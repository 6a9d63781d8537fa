"""The back end of the chat: its page, its conversations and the stream of what changes in them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from examples.chat_host.conversation import Conversation, Conversations, stop_all
from examples.chat_host.gateway_client import Gateway
from examples.chat_host.items import AppContext, Failure, Message
from examples.chat_host.models.base import Model
from examples.chat_host.page_token import PageTokens, TokenError
from examples.chat_host.settings import Settings, SettingsError, read_settings
from examples.chat_host.turn import Turn, new_id

WEB = Path(__file__).parent / "web"
LARGEST_BODY = 256 * 1024
LONGEST_MESSAGE = 32_000
QUIET = 15.0
"""Seconds after which a silent stream says that it is still there."""

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Chat:
    """The state that the handlers share."""

    settings: Settings
    conversations: Conversations
    gateway: Gateway
    model: Model
    tokens: PageTokens

    def status(self) -> dict[str, Any]:
        """Return what the page shows of model and gateway."""
        return {
            "model": self.model.label,
            "provider": self.settings.provider,
            "gateway": self.settings.console,
            "connected": self.gateway.is_connected,
            "tools": len(self.gateway.tools),
        }

    def tell_status(self) -> None:
        """Tell every page that the gateway came, went, or has other tools."""
        for conversation in self.conversations.all():
            conversation.notify({"status": self.status()})

    def begin(self, conversation: Conversation) -> None:
        """Let the model answer, unless it is at work already."""
        if conversation.is_busy:
            raise web.HTTPConflict(text="The model is still at work: stop it first.")
        conversation.remove_failures()
        conversation.turn = turn = asyncio.create_task(self._run(conversation))
        turn.add_done_callback(partial(_report, conversation))

    async def _run(self, conversation: Conversation) -> None:
        conversation.notify({"busy": True})
        try:
            await Turn(conversation, self.model, self.gateway, self.settings.display_modes).run()
        finally:
            stop_all(conversation)
            conversation.turn = None
            conversation.notify({"busy": False})


def _report(conversation: Conversation, turn: asyncio.Task[None]) -> None:
    """Tell the person of a fault of the chat itself, so that they do not wait."""
    if not turn.cancelled() and (error := turn.exception()) is not None:
        log.error("A turn failed.", exc_info=error)
        conversation.put(Failure(new_id(), "fault", "The chat itself has failed. Its log has the reason."))


CHAT = web.AppKey("chat", Chat)


def build_app(settings: Settings) -> web.Application:
    """Return the application; it connects to the gateway when it starts."""
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_guard(settings)])
    app.on_response_prepare.append(_secure(settings))
    app.on_shutdown.append(_end_streams)
    app.cleanup_ctx.append(lambda app: _chat(app, settings))
    one = "/api/conversations/{id}"
    app.add_routes(
        [
            web.get("/", show_page),
            web.get("/healthz", get_health),
            web.post("/api/token", get_token),
            web.post("/api/conversations", create_conversation),
            web.get(f"{one}/events", stream_changes),
            web.post(f"{one}/messages", send_message),
            web.post(f"{one}/context", set_context),
            web.post(f"{one}/skip", skip_app),
            web.post(f"{one}/stop", stop_turn),
            web.post(f"{one}/retry", retry_turn),
            web.get("/{file}", show_file),
        ]
    )
    return app


async def _chat(app: web.Application, settings: Settings) -> AsyncIterator[None]:
    settings.data.mkdir(parents=True, exist_ok=True)
    gateway = Gateway(f"{settings.gateway}/mcp", settings.console, settings.gateway_token)
    async with aiohttp.ClientSession() as http:
        chat = Chat(
            settings, Conversations(settings.data), gateway, settings.build_model(http), PageTokens(http, settings)
        )
        gateway.on_change = chat.tell_status
        app[CHAT] = chat
        connection = asyncio.create_task(gateway.run())
        try:
            yield
        finally:
            turns = [one.turn for one in chat.conversations.all() if one.turn is not None]
            for task in (*turns, connection):
                task.cancel()
            await asyncio.gather(*turns, connection, return_exceptions=True)


async def _end_streams(app: web.Application) -> None:
    """The server waits for its handlers when it ends, and these would wait for ever."""
    for conversation in app[CHAT].conversations.all():
        conversation.close()


# ── handlers ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def show_page(request: web.Request) -> web.StreamResponse:
    """The page; it is the same for everybody."""
    return _file("index.html")


async def show_file(request: web.Request) -> web.StreamResponse:
    """A script or a style sheet of the page."""
    name = request.match_info["file"]
    if name not in {path.name for path in WEB.iterdir()}:
        raise web.HTTPNotFound(text="There is no such file.")
    return _file(name)


async def get_health(request: web.Request) -> web.StreamResponse:
    """The chat is up; the gateway may come later."""
    return web.Response(text="ok")


async def get_token(request: web.Request) -> web.StreamResponse:
    """A token of the gateway for this page; empty if the gateway asks for none."""
    try:
        return web.json_response({"token": await request.app[CHAT].tokens.get()}, headers={"cache-control": "no-store"})
    except TokenError as error:
        raise web.HTTPBadGateway(text=str(error)) from error


async def create_conversation(request: web.Request) -> web.StreamResponse:
    """A new, empty conversation."""
    return web.json_response({"id": request.app[CHAT].conversations.create().id}, status=201)


async def stream_changes(request: web.Request) -> web.StreamResponse:
    """All items of a conversation, then every change, as server-sent events. A page that connects again starts anew."""
    chat, conversation = request.app[CHAT], _conversation(request)
    headers = {"cache-control": "no-store", "content-type": "text/event-stream", "x-accel-buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(b"data: %s\n\n" % json.dumps({"status": chat.status()}).encode())
    changes = conversation.changes(QUIET)
    with contextlib.suppress(ConnectionError):
        async with contextlib.aclosing(changes):
            async for change in changes:
                await response.write(b"data: %s\n\n" % change if change else b":\n\n")
    return response


async def send_message(request: web.Request) -> web.StreamResponse:
    """The person's next message, or one that an app composed and the person agreed to send."""
    chat, conversation, body = request.app[CHAT], _conversation(request), await _json(request)
    text, app = _text(body, "text"), body.get("app")
    if conversation.is_busy:
        raise web.HTTPConflict(text="The model is still at work: stop it first.")
    conversation.remove_failures()
    conversation.put(Message(new_id(), "user", text, app=str(app)[:80] if app else None))
    chat.begin(conversation)
    return web.json_response({}, status=202)


async def set_context(request: web.Request) -> web.StreamResponse:
    """An app's context for the model; it is read with the person's next message."""
    conversation, body = _conversation(request), await _json(request)
    app, text = str(body.get("app") or "An app")[:80], body.get("text")
    id = f"context-{app}"
    conversation.remove(id)
    if isinstance(text, str) and text.strip():
        conversation.put(AppContext(id, app, text[:LONGEST_MESSAGE]))
    return web.json_response({}, status=202)


async def skip_app(request: web.Request) -> web.StreamResponse:
    """The page did not open the app of the last call: the model need not wait for its tools."""
    _conversation(request).skip.set()
    return web.json_response({})


async def stop_turn(request: web.Request) -> web.StreamResponse:
    """Stop the model: its stream is closed, and a running call is cancelled."""
    turn = _conversation(request).turn
    if turn is not None:
        turn.cancel()
        await asyncio.wait({turn})
    return web.json_response({})


async def retry_turn(request: web.Request) -> web.StreamResponse:
    """Let the model answer again."""
    request.app[CHAT].begin(_conversation(request))
    return web.json_response({}, status=202)


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _guard(settings: Settings) -> Any:
    """Answer only this origin's own page: other sites may neither read conversations nor write into them."""
    host = urlsplit(settings.url).netloc

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.host != host and request.path != "/healthz":
            raise web.HTTPMisdirectedRequest(text=f"This is {settings.url}.")
        if request.path.startswith("/api/"):
            foreign = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
            if foreign or request.headers.get("origin", settings.url) != settings.url:
                raise web.HTTPForbidden(text="Only the chat's own page may do this.")
            if request.method == "POST" and request.content_type != "application/json":
                raise web.HTTPUnsupportedMediaType(text="The body must be JSON.")
        return await handler(request)

    return guard


def _secure(settings: Settings) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    async def secure(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["content-security-policy"] = content_security_policy(settings)
        response.headers["referrer-policy"] = "no-referrer"
        response.headers["x-content-type-options"] = "nosniff"

    return secure


def content_security_policy(settings: Settings) -> str:
    """Scripts of the chat and of the gateway's element; frames and connections of the gateway; nothing else."""
    gateway, console = urlsplit(settings.gateway), urlsplit(settings.console)
    sockets = f"{'wss' if console.scheme == 'https' else 'ws'}://{console.netloc}"
    frames = settings.frames or f"{gateway.scheme}://*.{gateway.netloc}"
    return (
        f"default-src 'none'; script-src 'self' {settings.console}; style-src 'self'; img-src 'self' data:; "
        f"connect-src 'self' {settings.console} {sockets}; frame-src {frames}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _file(name: str) -> web.Response:
    return web.Response(
        body=(WEB / name).read_bytes(),
        content_type=TYPES.get(Path(name).suffix, "application/octet-stream"),
        charset="utf-8",
        headers={"cache-control": "no-cache"},
    )


def _conversation(request: web.Request) -> Conversation:
    found = request.app[CHAT].conversations.find(request.match_info["id"])
    if found is None:
        raise web.HTTPNotFound(text="There is no such conversation.")
    return found


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise web.HTTPBadRequest(text="The body is not JSON.") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="The body must be a JSON object.")
    return body


def _text(body: dict[str, Any], name: str) -> str:
    text = body.get(name)
    if not isinstance(text, str) or not text.strip():
        raise web.HTTPBadRequest(text=f"`{name}` is missing.")
    if len(text) > LONGEST_MESSAGE:
        raise web.HTTPRequestEntityTooLarge(LONGEST_MESSAGE, len(text))
    return text


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description="Serve the chat; see README.md for the environment variables.")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="where conversations are stored")
    try:
        settings = read_settings(os.environ, parser.parse_args().data)
    except SettingsError as error:
        sys.exit(str(error))
    port = urlsplit(settings.url).port or 80
    web.run_app(build_app(settings), host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main()

"""The back end of the chat: its page, its conversations and the stream of what changes in them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import html
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from examples.chat_host.conversation import Conversation
from examples.chat_host.items import AppContext, Message
from examples.chat_host.login import ATTEMPT_LIVES, BACK, Login, LoginError
from examples.chat_host.page_token import TokenError
from examples.chat_host.seats import Seat, Seats
from examples.chat_host.settings import Settings, SettingsError, read_settings
from examples.chat_host.turn import new_id

WEB = Path(__file__).parent / "web"
LARGEST_BODY = 256 * 1024
LONGEST_MESSAGE = 32_000
QUIET = 15.0
"""Seconds after which a silent stream says that it is still there."""

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SEATS = web.AppKey("seats", Seats)
LOGIN = web.AppKey("login", Login)
SESSION_COOKIE, ATTEMPT_COOKIE = "parlour", "parlour-sign-in"


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
            web.get("/sign-in", begin_login),
            web.get(BACK, finish_login),
            web.post("/api/sign-out", sign_out),
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
    async with aiohttp.ClientSession() as http:
        app[SEATS] = seats = Seats(settings, http, settings.build_model(http))
        app[LOGIN] = Login(http, settings)
        if not settings.issuer:
            seats.open_local()
        try:
            yield
        finally:
            await seats.close()


async def _end_streams(app: web.Application) -> None:
    """The server waits for its handlers when it ends, and these would wait for ever."""
    app[SEATS].close_streams()


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


async def begin_login(request: web.Request) -> web.StreamResponse:
    """Lead the browser to the issuer, and remember in it that it began there."""
    login = request.app[LOGIN]
    if not login.settings.issuer:
        raise web.HTTPNotFound(text="This chat has no login.")
    try:
        secret, address = await login.begin()
    except LoginError as error:
        return _problem(str(error), 502)
    response = web.Response(status=303, headers={"location": address, "cache-control": "no-store"})
    # Lax: the issuer, another site, leads back here.
    _set_cookie(response, login.settings, ATTEMPT_COOKIE, secret, samesite="Lax", max_age=int(ATTEMPT_LIVES))
    return response


async def finish_login(request: web.Request) -> web.StreamResponse:
    """Take the issuer's answer; the browser gets a new session, whatever it had before."""
    login, seats = request.app[LOGIN], request.app[SEATS]
    name = cookie_name(login.settings, ATTEMPT_COOKIE)
    try:
        person = await login.finish(request.cookies.get(name, ""), dict(request.query))
    except LoginError as error:
        return _problem(str(error), 400)
    await seats.leave(request.cookies.get(cookie_name(login.settings), ""))
    response = web.Response(status=303, headers={"location": "/", "cache-control": "no-store"})
    _set_cookie(response, login.settings, SESSION_COOKIE, seats.open(person), samesite="Strict")
    response.del_cookie(name, path="/")
    return response


async def sign_out(request: web.Request) -> web.StreamResponse:
    """End the session of this browser: its streams, its connection to the gateway, and what the model does for it."""
    seats = request.app[SEATS]
    name = cookie_name(seats.settings)
    await seats.leave(request.cookies.get(name, ""))
    response = web.json_response({})
    response.del_cookie(name, path="/")
    return response


async def get_token(request: web.Request) -> web.StreamResponse:
    """A token of the gateway for this page; empty if the gateway asks for none."""
    try:
        return web.json_response({"token": await _seat(request).tokens.get()}, headers={"cache-control": "no-store"})
    except TokenError as error:
        raise web.HTTPBadGateway(text=str(error)) from error


async def create_conversation(request: web.Request) -> web.StreamResponse:
    """A new, empty conversation."""
    return web.json_response({"id": _seat(request).conversations.create().id}, status=201)


async def stream_changes(request: web.Request) -> web.StreamResponse:
    """All items of a conversation, then every change, as server-sent events. A page that connects again starts anew."""
    seat, conversation = _seat(request), _conversation(request)
    headers = {"cache-control": "no-store", "content-type": "text/event-stream", "x-accel-buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    await response.write(b"data: %s\n\n" % json.dumps({"status": seat.status()}).encode())
    changes = conversation.changes(QUIET)
    with contextlib.suppress(ConnectionError):
        async with contextlib.aclosing(changes):
            async for change in changes:
                if seat.has_ended:
                    break
                await response.write(b"data: %s\n\n" % change if change else b":\n\n")
    return response


async def send_message(request: web.Request) -> web.StreamResponse:
    """The person's next message, or one that an app composed and the person agreed to send."""
    body = await _json(request)
    seat, conversation = _seat(request), _conversation(request)
    text, app = _text(body, "text"), body.get("app")
    if conversation.is_busy:
        raise web.HTTPConflict(text="The model is still at work: stop it first.")
    conversation.remove_failures()
    conversation.put(Message(new_id(), "user", text, app=str(app)[:80] if app else None))
    seat.begin(conversation)
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
    _seat(request).begin(_conversation(request))
    return web.json_response({}, status=202)


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _guard(settings: Settings) -> Any:
    """Answer only this origin's own page, of a person who is signed in: others neither read nor write anything."""
    host, name = urlsplit(settings.url).netloc, cookie_name(settings)

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
            if request.app[SEATS].find(request.cookies.get(name, "")) is None:
                raise web.HTTPUnauthorized(text="Nobody is signed in here.")
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


def cookie_name(settings: Settings, name: str = SESSION_COOKIE) -> str:
    """Return the name of a cookie; over https it is one that no other host can set."""
    return f"__Host-{name}" if settings.url.startswith("https:") else name


def _set_cookie(response: web.Response, settings: Settings, name: str, value: str, **more: Any) -> None:
    secure = settings.url.startswith("https:")
    response.set_cookie(cookie_name(settings, name), value, path="/", httponly=True, secure=secure, **more)


def _problem(text: str, status: int) -> web.Response:
    """A page for a sign-in that went wrong."""
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Parlour</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="chat.css">'
        f'<main><section class="welcome"><h2>You are not signed in</h2><p>{html.escape(text)}</p>'
        '<p><a class="button primary" href="/sign-in">Try again</a></p></section></main></html>'
    )
    return web.Response(text=page, content_type="text/html", status=status, headers={"cache-control": "no-store"})


def _seat(request: web.Request) -> Seat:
    """The seat of this browser, which the guard has found. Raises 401 if its session has ended since."""
    seats = request.app[SEATS]
    seat = seats.find(request.cookies.get(cookie_name(seats.settings), ""))
    if seat is None:
        raise web.HTTPUnauthorized(text="Nobody is signed in here.")
    return seat


def _conversation(request: web.Request) -> Conversation:
    found = _seat(request).conversations.find(request.match_info["id"])
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

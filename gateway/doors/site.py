"""An app as an ordinary web site on a separate origin: static files, and a reverse proxy for everything else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import StreamWriter
from msgspec.structs import replace
from yarl import URL

from gateway.apps import INDEX, media_type
from gateway.arriving import NoRoom, reserve_room, whole
from gateway.bounds import Shares
from gateway.callers.entitlements import Admits, admit_all
from gateway.doors.access import VISIT
from gateway.doors.authorization import refuse_without
from gateway.doors.client_connection import received_headers
from gateway.doors.guard import PRINCIPAL
from gateway.doors.responses import SECURE, no_websocket, opens_websocket, refusal_response
from gateway.doors.site_socket import carry
from gateway.errors import Reason, Refusal
from gateway.event_stream import unbuffered_headers
from gateway.eventloop.fair_share import RoundRobin
from gateway.exchange.approval_step import AS_LONG_AS_IT_IS_OPEN
from gateway.exchange.page_tokens import FIELD as AUTHORIZATION
from gateway.exchange.pages import COOKIES, POLICY, browser_cookies, page_of_browser, with_meant_method
from gateway.exchange.pipeline import Exchange
from gateway.exchange.sockets import OpenSocket
from gateway.exchange.streams import Stream
from gateway.model import (
    WEBSOCKET,
    BodyType,
    Caller,
    Door,
    FolderSite,
    Headers,
    Initiator,
    Principal,
    Request,
    Response,
)
from gateway.policy import asked_protocols, without

Answer = TypeVar("Answer", bound=web.StreamResponse)

ANY_PATH = r"/{path:[\s\S]*}"
"""The route of a site: its files and its API share one tree."""

_ICON: Final = "/favicon.ico"
_ELSEWHERE: Final = ("cross-site", "same-site")

_SECURE: Final = {**SECURE, "referrer-policy": "same-origin"}
"""Those of an app's pages: with `no-referrer` browsers post their forms with `Origin: null` (Fetch, 3.2)."""

_SHOWN: Final = {POLICY: "content-security-policy"}
"""The names of fields that a view gets under others."""

PAGE_POLICY = "frame-ancestors 'self'"


class SiteFiles:
    """The files of an app. `source` is its folder, or one HTML file; `folder` is where they are on its site."""

    def __init__(self, source: Path, folder: FolderSite | None = None) -> None:
        is_folder = source.is_dir()
        self._folder = (source if is_folder else source.parent).resolve()
        self._root = str(self._folder)
        self._index = INDEX if is_folder else source.name
        self._only = None if is_folder else source.resolve()
        self.prefix = folder.prefix if folder is not None else "/"
        self._page = folder.page if folder is not None else None

    @property
    def first_page(self) -> Path | None:
        """The page that the app's own router begins with."""
        return self._page or self.find("/")

    @property
    def root_is_empty(self) -> bool:
        """Whether the root of the site has no page of its own."""
        return self.find("/") in (None, self._page)

    def may_have(self, path: str) -> bool:
        """Return False if there is surely no file: this is cheaper than `find`."""
        return os.access(f"{self._root}{path}", os.F_OK)

    def find(self, path: str) -> Path | None:
        """Return the file that `path` names, if there is one; never one outside the app's folder, or a hidden one."""
        place = self._find_below(path)
        if place is None and self.prefix != "/" and path.startswith(self.prefix):
            return self._find_below(path[len(self.prefix) - 1 :])
        return place

    def _find_below(self, path: str) -> Path | None:
        relative = path.lstrip("/") or self._index
        if relative.endswith("/"):
            relative += INDEX
        if any(part.startswith(".") for part in relative.split("/")) or "\\" in relative or "\0" in relative:
            return None
        path_below = os.path.join(self._root, relative)
        if not os.path.isfile(path_below):
            return None
        file = Path(path_below).resolve()
        return file if file.is_relative_to(self._folder) and file == (self._only or file) else None


class SiteDoor:
    """The site of one app with `files`; None if a backend renders its pages.

    `largest` returns the current limit of a body in bytes; a larger one is not read. `ruled` tells whether a rule
    matches the beginning of a path: other paths belong to the page's own router, and a browser that navigates to one
    gets the page. `start` is where the app begins. `secure`: the site is at https.
    `room` limits the bytes of large bodies together with those of other doors, and
    `in_turn` lets connections read frames in turn. `admits` are the access rules.
    """

    def __init__(
        self,
        app: str,
        files: SiteFiles | None,
        exchange: Exchange,
        *,
        start: str = "/",
        secure: bool = False,
        largest: Callable[[], int],
        ruled: Callable[[str], bool],
        room: Shares,
        in_turn: RoundRobin | None = None,
        admits: Admits = admit_all,
    ) -> None:
        self.app = app
        self._files = files
        self._secure = secure
        self._start = start
        self._exchange = exchange
        self._largest = largest
        self._ruled = ruled
        self._room = room
        self._in_turn = in_turn or RoundRobin()
        self._admits = admits

    def admits(self, principal: Principal) -> bool:
        """Return whether the caller may use the app."""
        return principal.may("app", self.app) and self._admits(principal, self.app)

    def largest(self) -> int:
        """Return the current limit of a body in bytes."""
        return self._largest()

    def is_plain_call(self, method: str, path: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request is plainly for the backend: neither a navigation nor for a file of the site.

        `path` has no percent-encoding.
        """
        if headers.get("sec-fetch-mode") == "navigate" or headers.get("sec-fetch-site") in _ELSEWHERE:
            return False
        if path in (_ICON, VISIT):
            return False
        files = self._files
        if files is None:
            return True
        if files.prefix != "/" and path.startswith(files.prefix):
            return False
        if method != "GET" or not files.may_have(path):
            return True
        return files.find(path) is None and not self._is_folder(files, path, navigates=False)

    async def open(self, request: Request, principal: Principal) -> Response | Stream:
        """Run a request of the page. An answer 205 has no content (RFC 9110, 15.3.6), and browsers read none."""
        if self._files is None:
            request = replace(with_meant_method(request), page=page_of_browser(request.headers))
        request, caller = _without_token(request, principal), self._caller(principal)
        if request.method.upper() == WEBSOCKET:  # the exchange's own name, which no client may send as a method
            refusal = Refusal(Reason.BAD_REQUEST, "A WebSocket is opened by a GET with `Upgrade` (RFC 6455, 4.1).")
            return await self._exchange.refuse(refusal, caller, request.method, request.url)
        outcome = await self._exchange.open(request, caller, wait=AS_LONG_AS_IT_IS_OPEN)
        head = outcome.head if isinstance(outcome, Stream) else outcome
        if (visible := head.header(COOKIES)) is not None:
            fields = browser_cookies(request.headers, visible, secure=self._secure)
            head = replace(head, headers=head.headers + fields)
            if isinstance(outcome, Stream):
                outcome.head = head
            else:
                outcome = head
        if head.status != HTTPStatus.RESET_CONTENT:
            return outcome
        if isinstance(outcome, Stream):
            await outcome.aclose()
        return replace(head, body=b"", length=0)

    def _caller(self, principal: Principal) -> Caller:
        return Caller(principal, self.app, Door.SITE, Initiator.PAGE, "app-origin", proven=True)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve every method and path, as an aiohttp handler."""
        refusal = refuse_without(request, "app", self.app)
        if refusal is not None:
            return refusal
        if not self._admits(request[PRINCIPAL], self.app):
            return refusal_response(403, "not-allowed", "This app is not for this person: its `access` excludes them.")
        if _is_upgrade(request):
            return await self._open_socket(request)
        if self._files is not None and (answer := self._answer_by_file(self._files, request)) is not None:
            return answer
        if request.path == _ICON and self._files is not None:  # browsers request one from every site
            return refusal_response(404, "no-icon", "This app has no icon at this address.")
        if request.headers.get("sec-fetch-site") in _ELSEWHERE and not (self._files is None and _visits(request)):
            return refusal_response(
                403, "foreign-page", "A link of another site leads to the app's pages, not to its API."
            )
        return await self._forward(request)

    async def _open_socket(self, request: web.Request) -> web.StreamResponse:
        """Carry a WebSocket; the guard has checked that the page is the site's own."""
        if not opens_websocket(request):
            return no_websocket("This is no valid opening of a WebSocket (RFC 6455, 4.1).")
        caller = self._caller(request[PRINCIPAL])
        opening = _without_token(_read_opening(request), caller.principal)
        outcome = await self._exchange.open(opening, caller, wait=AS_LONG_AS_IT_IS_OPEN)
        if not isinstance(outcome, OpenSocket):
            response = outcome if isinstance(outcome, Response) else outcome.head
            return _set_headers(_Whole(status=response.status, body=response.body or None), response)
        try:
            return await carry(request, outcome, caller, self._in_turn)
        finally:
            await outcome.aclose()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        with reserve_room(self._room, request[PRINCIPAL].id) as on_bytes:
            return await self._forward_whole(request, on_bytes)

    async def _forward_whole(self, request: web.Request, on_bytes: Callable[[int], None]) -> web.StreamResponse:
        largest = self._largest()
        principal = request[PRINCIPAL]
        try:
            site_request = _read_request(request, await whole(request, largest, on_taken=on_bytes))
        except (web.RequestPayloadError, web.HTTPException, NoRoom) as error:
            refusal = _refuse_unread(error, largest)
            response = await self._exchange.refuse(refusal, self._caller(principal), request.method, request.raw_path)
        else:
            outcome = await self.open(site_request, principal)
            if isinstance(outcome, Stream):
                return await _stream(request, outcome)
            response = outcome
        answer = _Whole(status=response.status, body=response.body or None, reason=response.reason_phrase)
        if not request.content.at_eof():
            answer.force_close()  # the rest of the body is not read
        return _set_headers(answer, response)

    def _answer_by_file(self, files: SiteFiles, request: web.Request) -> web.StreamResponse | None:
        """Return the file that the request names, or the page to which a person navigates; None for the backend.

        Raises the redirects `HTTPFound` and `HTTPMovedPermanently`.
        """
        if request.method not in ("GET", "HEAD"):
            return None
        file = None
        if "%2f" not in request.rel_url.raw_path.lower():  # an encoded slash separates no folders (RFC 3986 2.2)
            file = files.find(request.path)
            if request.path == "/" and self._start != "/" and files.root_is_empty:
                raise web.HTTPFound(URL(self._start, encoded=True), headers=SECURE)
            navigates = request.headers.get("sec-fetch-mode") == "navigate"
            # The page's relative URLs need the slash.
            if file is None and self._is_folder(files, request.path, navigates=navigates):
                raise web.HTTPMovedPermanently(_with_slash(request.rel_url), headers=SECURE)
        if file is None and self._is_routed(request):
            file = files.first_page
        return _serve(file) if file is not None else None

    def _is_folder(self, files: SiteFiles, path: str, *, navigates: bool) -> bool:
        """Return whether the path is a page's folder without its slash, and not a script's request to the API."""
        if not navigates and self._ruled(path):
            return False
        return files.find(f"{path}/") is not None

    def _is_routed(self, request: web.Request) -> bool:
        """Return whether a person navigates to a path of the page's router: by a reload, a bookmark or a link."""
        to_a_page = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
        if to_a_page != ("navigate", "document") or "." in request.path.rpartition("/")[2]:
            return False
        return not self._ruled(request.path)


class _File(web.FileResponse):
    """A file response that closes its file even if the client disconnects.
    aiohttp opens files in a thread, and leaks the file if the handler is cancelled meanwhile.
    """

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        sent = asyncio.ensure_future(super().prepare(request))
        # Marks the exception as retrieved, since a cancelled handler does not await it.
        sent.add_done_callback(lambda _: sent.cancelled() or sent.exception())
        return await asyncio.shield(sent)


class _Exact(web.StreamResponse):
    """An answer whose head is the backend's byte for byte, each character one (Fetch, "isomorphic encode").
    aiohttp would write UTF-8, and add a missing content type.
    """

    _send_headers_immediately = False

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        if self.prepared:
            return await super().prepare(request)
        typed = hdrs.CONTENT_TYPE in self.headers
        writer = await super().prepare(request)
        if not typed:
            self.headers.popall(hdrs.CONTENT_TYPE, None)
        if isinstance(writer, StreamWriter):
            start = f"HTTP/{request.version.major}.{request.version.minor} {self.status} {self.reason}"
            lines = (start, *(f"{name}: {value}" for name, value in self.headers.items()), "", "")
            writer._headers_buf = "\r\n".join(lines).encode("latin-1")
        return writer


class _Whole(_Exact, web.Response):
    """The same, with its body."""


def _refuse_unread(error: Exception, largest: int) -> Refusal:
    """Return the refusal of a request whose body was not read to its end."""
    match error:
        case web.HTTPRequestEntityTooLarge():
            return Refusal(Reason.REQUEST_TOO_LARGE, f"A body may have {largest} bytes at most.")
        case web.HTTPRequestTimeout():
            return Refusal(Reason.BAD_REQUEST, "The body did not arrive, or arrived too slowly.", status=408)
        case NoRoom():
            detail = "Too many large bodies are under way. Try again."
            return Refusal(Reason.RATE_LIMITED, detail, status=503, headers=(("retry-after", "1"),))
        case _:
            return Refusal(Reason.BAD_REQUEST, "The body does not arrive as its headers say.")


def _with_slash(url: URL) -> URL:
    """Return the relative URL from `url` to the same path with a trailing slash."""
    return URL(f"./{url.raw_name}/{'?' if url.raw_query_string else ''}{url.raw_query_string}", encoded=True)


def _serve(file: Path) -> web.FileResponse:
    headers = {
        **_SECURE,
        "content-type": media_type(file),
        "cache-control": "no-cache",
        "content-security-policy": PAGE_POLICY,
    }
    return _File(file, headers=headers)


def streamed_head(head: Response) -> Response:
    """Return the head of a streamed answer, without its length; no proxy may buffer an event stream."""
    if head.says_by_and_by():
        return replace(head, length=None, headers=tuple(unbuffered_headers(head.headers)))
    return replace(head, length=None)


async def _stream(request: web.Request, stream: Stream) -> web.StreamResponse:
    """Send each part as it comes, with the browser's backpressure."""
    # Redaction may change the length of the body, which a browser would reject.
    head = streamed_head(stream.head)
    if request.method == "HEAD":
        head = replace(head, length=stream.head.length)
    answer = _set_headers(_Exact(status=head.status, reason=head.reason_phrase), head)
    try:
        writer = await answer.prepare(request)
        if writer is not None:
            writer.send_headers()
        async for part in stream:
            await answer.write(part)
        await answer.write_eof()
    except Refusal:
        if request.transport is not None:
            request.transport.abort()  # the browser must not take a truncated body for a whole one
    finally:
        await stream.aclose()
    return answer


def _set_headers(answer: Answer, response: Response) -> Answer:
    answer.headers.clear()
    for name, value in site_headers(response.headers, response.length):
        answer.headers.add(name, value)
    return answer


def site_headers(headers: Headers, length: int | None) -> list[tuple[str, str]]:
    """Return the header fields of an answer at the site: those of the backend, and the gateway's own."""
    own = {**_SECURE, "content-length": str(length)} if length is not None else _SECURE
    fields = ((_SHOWN.get(name, name), value) for name, value in headers if name != COOKIES)
    return [*((name, value) for name, value in fields if name not in own), *own.items()]


def _visits(request: web.Request) -> bool:
    """Return whether a person comes to a page, such as by a link of another site."""
    to_a_page = (request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest"))
    return request.method == "GET" and to_a_page == ("navigate", "document")


def _is_upgrade(request: web.Request) -> bool:
    return request.method == "GET" and request.headers.get("upgrade", "").strip().lower() == "websocket"


def _without_token(request: Request, principal: Principal) -> Request:
    """Return the request without the token that identified its caller: it is for this gateway alone."""
    if principal.session:
        return request
    return replace(request, headers=without(request.headers, (AUTHORIZATION,)))


def _read_opening(request: web.Request) -> Request:
    headers = received_headers(request.raw_headers)
    return Request(WEBSOCKET, request.raw_path, headers, protocols=asked_protocols(headers))


def _read_request(request: web.Request, body: bytes) -> Request:
    return Request(
        method=request.method,
        url=request.raw_path,
        headers=received_headers(request.raw_headers),
        body=body if request.method not in ("GET", "HEAD") else b"",
        body_type=BodyType.BASE64 if body else BodyType.NONE,
        stream=True,
        leads=True,
    )

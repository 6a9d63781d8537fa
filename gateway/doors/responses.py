"""JSON requests and answers of doors, and their own refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler

from gateway.arriving import whole
from gateway.backends.websocket_frames import MaskedFrames
from gateway.bounds import Area, Bound, size
from gateway.errors import Reason
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json
from gateway.model import Json

NAME: Final = "webmcp-gateway"


async def name_server(_: web.Request, answer: web.StreamResponse) -> None:
    """Handle `on_response_prepare`: replace aiohttp's name and version, and Python's."""
    answer.headers[hdrs.SERVER] = NAME


class NamelessHandler(RequestHandler):
    """aiohttp's protocol, with the gateway's name in answers to requests that its parser rejects, and a WebSocket's
    frames only if they are masked.
    """

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer as aiohttp does, without its name."""
        answer = super().handle_error(request, status, exc, message)
        answer.headers[hdrs.SERVER] = NAME
        return answer

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        """Begin a WebSocket, also with the frames that came with its opening request."""
        checked: Any = MaskedFrames(parser)  # it has the two methods that are called
        super().set_parser(checked, data_received_cb)


def nameless(handler: RequestHandler, kind: type[NamelessHandler] = NamelessHandler) -> RequestHandler:
    """Make a connection's protocol hide aiohttp's name."""
    handler.__class__ = kind  # aiohttp offers no other place for a subclass
    return handler


SECURE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""Header fields of every page and file that the gateway serves."""


SMALL: Final = 64 * 1024
"""Bytes of the largest request to the console's REST API."""

SOON: Final = 10.0
"""Seconds in which it must arrive."""

BOUNDS: Final = (
    Bound(
        Area.BRIDGE,
        "requests to the console's REST API",
        f"{size(SMALL)} in {SOON:g} s",
        "413, 408",
    ),
)

(_REST,) = BOUNDS


_WEBSOCKET: Final = "13"
"""The version of the protocol (RFC 6455, 4.1); aiohttp also opens those of two drafts."""


def opens_websocket(request: web.Request, protocol: str = "") -> bool:
    """Return whether a request opens a WebSocket, and offers `protocol`, if that is not empty."""
    fields = request.headers.getall("sec-websocket-protocol", [])
    media_types = [one.strip() for one in ",".join(fields).split(",")]
    if request.headers.get("sec-websocket-version") != _WEBSOCKET or (protocol and protocol not in media_types):
        return False
    # aiohttp logs those that it does not know.
    return web.WebSocketResponse(protocols=media_types).can_prepare(request).ok


def no_websocket(detail: str) -> web.Response:
    """Return the refusal of an invalid opening handshake (RFC 6455, 4.4)."""
    return refusal_response(
        426, "websocket-needed", detail, {"upgrade": "websocket", "sec-websocket-version": _WEBSOCKET}
    )


class RefusedResponse(web.Response):
    """The refusal of a door; `code` is machine-readable, `detail` is for developers."""

    def __init__(self, code: str, detail: str, **fields: Any) -> None:
        super().__init__(**fields)
        self.code = code
        self.detail = detail


def refusal_response(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> RefusedResponse:
    """Return a `problem+json` answer (RFC 9457) of a door; `code` is its machine-readable type."""
    body = {"type": f"urn:webmcp-gateway:{code}", "title": code.replace("-", " "), "status": status, "detail": detail}
    return RefusedResponse(
        code,
        detail,
        status=status,
        body=plain_json(body).encode(),
        content_type="application/problem+json",
        headers={**SECURE, "cache-control": "no-store", **(headers or {})},
    )


def state_refusal(what: str) -> RefusedResponse:
    """Return the refusal of a request for which the shared state cannot be reached."""
    detail = f"{what}: the gateway's database does not answer. Try again."
    return refusal_response(503, Reason.STATE_UNAVAILABLE, detail, {"retry-after": "5"})


def fresh(value: Json) -> web.Response:
    """Return JSON that must not be cached."""
    return web.json_response(value, headers={"cache-control": "no-store"})


async def json_of(request: web.Request) -> Json:
    """Return the JSON value in a request. Raises ValueError, RecursionError, and the errors of `whole`."""
    try:
        value: Json = parse_json(await whole(request, SMALL, within=SOON, bound=_REST))
    except web.HTTPRequestEntityTooLarge:
        _REST.report()
        raise
    return value


async def object_of(request: web.Request) -> dict[str, Json]:
    """Return the JSON object in a request; raises as `json_of` does."""
    body = await json_of(request)
    if not isinstance(body, dict):
        raise ValueError("no object")
    return body


def no_endpoint(request: web.Request) -> web.StreamResponse:
    """Return a 404 answer that names the paths of MCP servers."""
    path = request.raw_path.partition("?")[0]
    plain = f" Write {path.rstrip('/')[:80]}, without the slash at the end." if path[1:].endswith("/") else ""
    detail = (
        f"There is nothing at this path. MCP servers are at /mcp, and at /mcp/<name> for each app and upstream.{plain}"
    )
    return refusal_response(404, "unknown-endpoint", detail)

"""The doors at which every request case is tried. A door that is added here gets the whole corpus."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from gateway.contract.arguments import encode_body
from gateway.model import BodyType
from tests.attacks.bridge_door import bridge_door
from tests.attacks.calls import Answer, AttackedDoor, Place, request_of
from tests.attacks.mcp_doors import HttpDoor, http_door, stdio_door
from tests.attacks.wire import WireAnswer, exchange

MOVED = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 20
"""The limit of Fetch."""


@dataclass(slots=True)
class SiteDoor:
    """The app's site over a raw socket, for requests that HTTP clients cannot send."""

    world: Place

    async def ask(self, case: dict[str, Any]) -> Answer:
        said = case.get("site", {})
        given = request_of(case)
        body, media_type = _encode(given)
        if "body" in said:
            body = said["body"].encode("utf-8", "surrogateescape")
        fields = [(name, value) for name, value in given.get("headers", {}).items()]
        fields += [(name, value) for name, value in said.get("headers", [])]
        if media_type is not None and not any(name.lower() == "content-type" for name, _ in fields):
            fields.append(("content-type", media_type))
        host = self.world.hosts["app"]
        own = [("host", host), ("origin", f"http://{host}"), ("sec-fetch-site", "same-origin")]
        method, target = said.get("method", given.get("method", "GET")), said.get("target", given.get("url", "/"))
        answer = await exchange(self.world.port, method, target, [*own, *fields], body)
        for _ in range(MOST_REDIRECTS):  # as a browser does: the gateway redirects to other paths of the site
            if answer.status not in MOVED or "location" not in answer.headers:
                break
            if method != "HEAD" and (answer.status == 303 or (answer.status < 303 and method == "POST")):
                method, body = "GET", b""
                fields = [pair for pair in fields if not pair[0].lower().startswith("content-")]
            answer = await exchange(self.world.port, method, answer.headers["location"], [*own, *fields], body)
        return _of_wire(answer)


def _encode(given: dict[str, Any]) -> tuple[bytes, str | None]:
    if given.get("body") is None:
        return b"", None
    default = BodyType.TEXT if isinstance(given["body"], str) else BodyType.JSON
    encoded = encode_body(BodyType(given.get("bodyType", default)), given["body"])
    return encoded.data, encoded.content_type


def _of_wire(answer: WireAnswer) -> Answer:
    return Answer(answer.status, answer.headers.get("gateway-reason"), answer.headers, answer.text, answer.raw)


@asynccontextmanager
async def site_door(world: Place) -> AsyncIterator[SiteDoor]:
    """A browser on the app's site."""
    yield SiteDoor(world)


@asynccontextmanager
async def _modern(world: Place) -> AsyncIterator[HttpDoor]:
    async with http_door(world, modern=True) as door:
        yield door


@asynccontextmanager
async def _modern_sdk(world: Place) -> AsyncIterator[HttpDoor]:
    """The modern door with a header field that the fast path does not handle."""
    async with http_door(world, modern=True) as door:
        door.more = {"last-event-id": "0"}
        yield door


@asynccontextmanager
async def _legacy(world: Place) -> AsyncIterator[HttpDoor]:
    async with http_door(world, modern=False) as door:
        yield door


DOORS: dict[str, Callable[[Place], AbstractAsyncContextManager[AttackedDoor]]] = {
    "modern": _modern,
    "modern-sdk": _modern_sdk,
    "legacy": _legacy,
    "stdio": stdio_door,
    "bridge": bridge_door,
    "site": site_door,
}
"""All doors; `modern` takes the fast path where possible, `modern-sdk` never."""

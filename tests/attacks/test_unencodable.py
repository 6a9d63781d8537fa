"""Text without an encoding, wherever a caller sends a secret or a name, is refused without a server error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from gateway.doors.identify import SessionCookies
from tests.attacks.world import CSRF, AttackWorld, running_world
from tests.callers.issuer import issuer
from tests.doors.test_same_everywhere import EXTRA, POLICY

TEXTS = {"latin-1": (b"\xe9", b"%E9"), "surrogate": (b"\xed\xa0\x80", b"%ED%A0%80"), "half": (b'"\xff', b"%22%FF")}
COOKIES = ("session", "state", "login", "connecting")
QUERY = ("app", "state", "code", "to", "issuer", "csp", "host", "sig", "for", "iss", "before", "limit", "error")
FIELDS = ("for", "secret", "code", "state", "answer", "apps", "token", "link", "name", "id", "callback", "given")


def routes(app: web.Application) -> Iterator[tuple[str, str]]:
    """Method and path of each route of `app` and of its sub-applications."""
    for resource in app.router.resources():
        inner = getattr(resource, "_app", None)
        if inner is not None:
            yield from routes(inner)
        for route in resource:
            if resource.canonical.startswith("/"):
                yield route.method, resource.canonical


def request(world: AttackWorld, site: str, method: str, path: str, text: str) -> bytes:
    """One request with `text` in every place that a caller controls."""
    raw, escaped = TEXTS[text]
    host = world.hosts[site]
    cookies = SessionCookies(f"http://{host}")
    derived = b".".join([b"a", b"1", b"0", b"1", raw, raw])
    shown = [f"{cookies.name(what)}=".encode() + (derived if what == "login" else raw) for what in COOKIES]
    body = b"{%s}" % b",".join(b'"%s":"\\ud83d"' % name.encode() for name in FIELDS)
    named = path.replace("{", "\0").replace("}", "\0").split("\0")
    target = b"".join(part.encode() if at % 2 == 0 else escaped for at, part in enumerate(named))
    query = b"&".join(name.encode() + b"=" + escaped for name in QUERY)
    lines = [
        b"%s %s?%s HTTP/1.1" % (method.replace("*", "GET").encode(), target, query),
        b"host: " + host.encode(),
        b"cookie: " + b"; ".join(shown),
        CSRF.encode() + b": " + raw,
        b"webmcp-gateway-client: 1",
        b"origin: http://" + host.encode(),
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"connection: close",
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def response_status(port: int, said: bytes) -> int:
    """The status of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(said)
        async with asyncio.timeout(60):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


@pytest.mark.parametrize("text", TEXTS)
async def test_no_route_fails_on_text_without_an_encoding(tmp_path: Path, text: str) -> None:
    """Each method of each route is tried at each site, with and without a token that has no encoding either."""
    async with issuer() as there, running_world(tmp_path, POLICY, EXTRA.format(issuer=there.url)) as world:
        found = {one for one in routes(world.app) if one[0] != "OPTIONS"}
        assert len(found) > 40
        wrong = []
        for site in ("plain", "console", "sandbox", "app"):
            for method, path in sorted(found):
                said = request(world, site, method, path, text)
                bearer = said.replace(b"\r\ncookie:", b"\r\nauthorization: Bearer " + TEXTS[text][0] + b"\r\nx-c:")
                for one in (said, bearer):
                    status = await response_status(world.port, one)
                    if status >= 500 and status not in (502, 503):
                        wrong.append(f"{site} {method} {path}: {status}")
        assert (wrong, world.take_errors()) == ([], [])

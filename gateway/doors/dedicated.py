"""The origins of frames of single apps and principals: each serves one document, at a URL that works once."""

from __future__ import annotations

import base64
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from aiohttp import web

from gateway.bounds import Area, Bound, size
from gateway.callers.entitlements import Admits
from gateway.config import Origins
from gateway.crypto import SigningKeys, base64url, digest
from gateway.doors.responses import SECURE, refusal_response
from gateway.doors.sandbox import OWN_FRAMES, SandboxDoor, connections, content_policy, declared_policy
from gateway.errors import Reason, Refusal
from gateway.model import ExternalSites, Json, Principal

T = TypeVar("T")

ANY_LABEL: Final = "0*"
"""The first labels of all these hosts, as a pattern: no id of an app begins with a digit."""

_LABEL: Final = re.compile("0[a-z2-7]{32}", re.ASCII)

ONCE: Final = "webmcp-gateway"
"""The query parameter with the secret of a document."""

CLEAR: Final = "/.well-known/webmcp-gateway/clear"
"""The path at which browsers delete what the origin stored."""

LIFETIME: Final = 60.0
"""Seconds in which a document must be fetched, and stored data deleted."""

EACH: Final = 32
"""Documents of one principal that may wait."""

WHOLE: Final = 256 * 1024 * 1024
"""Bytes of all that wait."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "documents for dedicated origins that no browser has fetched yet",
        f"{EACH} per principal, {size(WHOLE)} in all, each for {LIFETIME:g} s",
        "the oldest of that principal, or of the largest holder, is dropped; `-32000` for a larger one",
    ),
)

(_WAITING,) = BOUNDS

_ALLOW: Final = ("blob-workers", "wasm", OWN_FRAMES)

_START: Final = re.compile(
    r"\ufeff?(?:\s|<!--.*?-->)*(?:<!doctype[^>]*>)?(?:\s|<!--.*?-->)*(?:<html[^>]*>)?(?:\s|<!--.*?-->)*"
    r"(?:<head(?:\s[^>]*)?>)?",
    re.IGNORECASE | re.DOTALL,
)
"""The beginning of a page, behind which its first script is put."""


class WithFrames(Mapping[str, T], Generic[T]):
    """A mapping by hosts, with those of the dedicated origins `pattern` beside `others`."""

    def __init__(self, pattern: str, others: Mapping[str, T], take: Callable[[str], T]) -> None:
        self._suffix = urlsplit(pattern).netloc.removeprefix("{id}")
        self._others = others
        self._take = take

    def __getitem__(self, host: str) -> T:
        if host in self._others:
            return self._others[host]
        label = host.removesuffix(self._suffix) if self._suffix and host.endswith(self._suffix) else ""
        if _LABEL.fullmatch(label) is None:
            raise KeyError(host)
        return self._take(label)

    def __iter__(self) -> Iterator[str]:
        return iter(self._others)

    def __len__(self) -> int:
        return len(self._others)


@dataclass(frozen=True, slots=True)
class Document:
    """The page of `app` for `principal`, at the origin with `label`, until `ends` on the steady clock."""

    principal: Principal
    app: str
    label: str
    html: str
    policy: str
    ends: float

    @property
    def size(self) -> int:
        """The memory that the page takes, in bytes."""
        return sys.getsizeof(self.html)


class PreparePage(Protocol):
    """Puts a page with this `_meta.ui` at an address of its own, in the host page at the origin `page`."""

    def __call__(
        self, principal: Principal, html: str, ui: Mapping[str, Any], page: str | None = None, /
    ) -> dict[str, Json]:
        """Return the members of `SHOWN`. Raises `Refusal`."""
        ...


class DedicatedDoor:
    """Serves the documents. `keys` derive the labels of origins, `sandbox` is the proxy around each frame.

    `new_id` makes the secrets in addresses; `fetch` returns the page for one, and a host, that another process holds.
    `script` runs first in each document. `apps` returns those that have such origins, `admits` are the access rules.
    """

    def __init__(
        self,
        origins: Origins,
        keys: SigningKeys,
        sandbox: SandboxDoor,
        *,
        apps: Callable[[], Collection[str]],
        admits: Admits,
        script: str,
        clock: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: base64url(secrets.token_bytes(32)),
        fetch: Callable[[str, str], Awaitable[tuple[str, str] | None]] | None = None,
    ) -> None:
        self._new_id = new_id
        self._fetch = fetch
        self._origins = origins
        self._keys = keys
        self._sandbox = sandbox
        self._apps = apps
        self._admits = admits
        self._script = script
        self._clock = clock
        self._waiting: dict[bytes, Document] = {}

    def origin(self, principal: Principal, app: str) -> str:
        """Return the origin of the frames of `app` that `principal` opens."""
        return self._origins.frame(self._label(principal, app))

    def _label(self, principal: Principal, app: str) -> str:
        secret = self._keys.secrets("frame", app, principal.id)[0]
        return "0" + base64.b32encode(secret[:20]).decode().lower()

    def show(self, app: str, external: ExternalSites | None = None) -> PreparePage:
        """Return a function that puts a page of `app` with this `_meta.ui` at an address of its own for a principal.
        Its last argument is the origin of the host page around it, None for the console.

        It returns the address, which works once, and that of the proxy around it; raises `Refusal`.
        """

        def policy(ui: Mapping[str, Any], around: str) -> str:
            return content_policy(ui.get("csp") or {}, around, _ALLOW, external, streams=self._sandbox.streams)

        return self._show(app, policy)

    def show_declared(self, app: str, allow: Callable[[], Collection[str]]) -> PreparePage:
        """Return the same for an upstream's app; `allow` returns what the configuration permits it."""

        def policy(ui: Mapping[str, Any], around: str) -> str:
            return declared_policy(ui, around, {*_ALLOW, *allow()})

        return self._show(app, policy)

    def _show(self, app: str, policy: Callable[[Mapping[str, Any], str], str]) -> PreparePage:
        def prepare(principal: Principal, html: str, ui: Mapping[str, Any], page: str | None = None) -> dict[str, Json]:
            label = self._label(principal, app)
            frame, host = self._origins.frame(label), page or self._origins.console
            ends = self._clock() + LIFETIME
            document = Document(principal, app, label, html, policy(ui, f"{self._origins.sandbox} {host}"), ends)
            once = self._keep(document)
            return {
                "sandbox": self._sandbox.url_for_frame(host, frame),
                "document": f"{frame}/?{ONCE}={once}",
            }

        return prepare

    def _keep(self, document: Document) -> str:
        self._forget_expired()
        owner = document.principal.id
        if document.size > WHOLE:
            _WAITING.report(owner)
            raise Refusal(Reason.RATE_LIMITED, "The page is too large to be shown.")
        mine = [key for key, one in self._waiting.items() if one.principal.id == owner]
        if len(mine) >= EACH:
            _WAITING.report(owner)
            del self._waiting[mine[0]]
        counts = Counter[str]()
        for one in self._waiting.values():
            counts[one.principal.id] += one.size
        counts[owner] += document.size
        while counts.total() > WHOLE:
            _WAITING.report(owner)
            self._drop_oldest(counts)
        once = self._new_id()
        self._waiting[digest(once)] = document
        return once

    def _drop_oldest(self, counts: Counter[str]) -> None:
        """Drop the oldest document of the largest holder with any."""
        owners = {one.principal.id for one in self._waiting.values()}
        largest = max(owners, key=lambda owner: counts[owner])
        oldest = next(key for key, one in self._waiting.items() if one.principal.id == largest)
        counts[largest] -= self._waiting.pop(oldest).size

    def _forget_expired(self) -> None:
        now = self._clock()
        for key in [key for key, one in self._waiting.items() if one.ends <= now]:
            del self._waiting[key]

    def patterns(self) -> list[str]:
        """Return the source (CSP) of all these origins, if an app has one now."""
        return [self._origins.frame("*")] if self._apps() else []

    def clearing(self, principal: Principal) -> list[str]:
        """Return the URLs at which a browser deletes what the frames of each app stored for `principal`."""
        labels, until = [self._label(principal, app) for app in self._apps()], str(int(time.time() + LIFETIME))
        return [
            f"{self._origins.frame(label)}{CLEAR}?until={until}&sig={self._keys.sign('clear', label, until)}"
            for label in labels
        ]

    def application(self) -> web.Application:
        """Return the aiohttp application of these hosts."""
        app = web.Application()
        app.router.add_get(CLEAR, self._clear)
        app.router.add_get("/", self._document)
        app.on_response_prepare.append(_secure)
        return app

    async def _document(self, request: web.Request) -> web.StreamResponse:
        if "service-worker" in request.headers:
            return refusal_response(403, "not-allowed", "There are no service workers on the origin of an app's frame.")
        values = request.query.getall(ONCE, [])
        in_frame = request.headers.get("sec-fetch-dest", "iframe") == "iframe" and len(values) == 1
        host = request.headers.get("host", "").lower()
        page = self.take(values[0], host) if in_frame else None
        if page is None and in_frame and self._fetch is not None:
            try:
                page = await self._fetch(values[0], host)
            except Refusal as refusal:
                return refusal_response(refusal.status, refusal.reason, refusal.detail, dict(refusal.headers))
        if page is None:
            return refusal_response(403, "not-allowed", "This address was used, has expired, or is for another frame.")
        headers = {
            "content-security-policy": page[1],
            "connection-allowlist": connections(page[1]),
            "cache-control": "no-store",
        }
        html = self._with_script(page[0])
        return web.Response(text=html, content_type="text/html", charset="utf-8", headers=headers)

    def take(self, once: str, host: str) -> tuple[str, str] | None:
        """Return the page with this secret and its policy, for the one time that it is served, at its own host."""
        self._forget_expired()
        document = self._waiting.get(digest(once))
        if document is None or host != _netloc(self._origins.frame(document.label)):
            return None
        del self._waiting[digest(once)]
        return (document.html, document.policy) if self._admits(document.principal, document.app) else None

    def _with_script(self, html: str) -> str:
        start = _START.match(html)
        at = start.end() if start is not None else 0
        proxy = escape(self._origins.sandbox, quote=True)
        return f'{html[:at]}<script data-proxy="{proxy}">{self._script}</script>{html[at:]}'

    async def _clear(self, request: web.Request) -> web.StreamResponse:
        label = request.headers.get("host", "").lower().partition(".")[0]
        until, signature = request.query.get("until", ""), request.query.get("sig", "")
        signed = self._keys.verify(signature, "clear", label, until) and int(until) >= time.time()
        if not signed or "service-worker" in request.headers:
            return refusal_response(403, "bad-signature", "This address was not made by this gateway, or has expired.")
        headers = {
            "clear-site-data": '"cache", "cookies", "storage"',
            "content-security-policy": f"default-src 'none'; frame-ancestors {self._origins.console}",
            "cache-control": "no-store",
        }
        return web.Response(text="", headers=headers)


def _netloc(origin: str) -> str:
    return urlsplit(origin).netloc


async def _secure(_: web.Request, response: web.StreamResponse) -> None:
    """Add the header fields of all answers; the referrer is the origin, by which services restrict keys of apps."""
    for name, value in {**SECURE, "referrer-policy": "strict-origin", "origin-agent-cluster": "?1"}.items():
        response.headers[name] = value

"""The shared data types of the gateway, and the protocols of a backend and an approver."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.errors import Problem

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields in order, names in lower case; repeated fields stay separate."""

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
"""A JSON value."""

WEBSOCKET: Final = "WEBSOCKET"
"""The method of a request that opens a WebSocket, in `http_request`, in the record and in tests of policies.

It is sent as a GET with `Upgrade` (RFC 6455, 4.1).
"""

LARGEST_BODY: Final = 64 * 1024 * 1024
"""Bytes of the largest request body at any door; policies set lower limits."""


class Door(StrEnum):
    """The door through which a request came in, by its name in the record and the metrics."""

    MCP = "mcp"
    """`/mcp`: models, also over stdio."""
    BRIDGE = "bridge"
    """`/bridge`: the views in a host page."""
    SITE = "site"
    """An app's own web site."""
    CONSOLE = "console"
    """The console's pages and REST API, which the command line uses too."""
    WEBHOOK = "webhook"
    """Signed answers to questions."""
    SANDBOX = "sandbox"
    """The proxy pages of the frames of apps."""
    METRICS = "metrics"
    """The scraped metrics."""
    PLAIN = "plain"
    """The other paths of the plain address, such as the probes."""
    UNKNOWN = "unknown"
    """A foreign `Host`, or a request that could not be read."""
    SNAPSHOT = "snapshot"
    """The gateway itself, which reads what it packs into a page."""
    PLUGIN = "plugin"
    """An approver of a plugin, which answers within the gateway."""


class Channel(StrEnum):
    """One of the two separate message streams of a view."""

    UI = "ui"
    WEBMCP = "webmcp"


class Initiator(StrEnum):
    """The cause of a request."""

    PERSON = "person"
    PAGE = "page"
    MODEL = "model"


class Effect(StrEnum):
    """The result of a policy for a request."""

    ALLOW = "allow"
    DENY = "deny"


class BodyType(StrEnum):
    """The encoding of a body in `http_request` arguments and results."""

    NONE = "none"
    JSON = "json"
    TEXT = "text"
    FORM_DATA = "formData"
    URL_ENCODED = "urlEncoded"
    BASE64 = "base64"


class Redirect(StrEnum):
    """The redirect mode of a request, as in Fetch."""

    FOLLOW = "follow"
    ERROR = "error"
    MANUAL = "manual"


class Secret:
    """A secret string: `repr` and `str` hide it, `reveal()` returns it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller: (issuer, client, subject); its other fields may change between calls.

    `shared` means that it belongs to no person, `session` that it is a person's browser with a console login.
    `expires` is the end of its credential, in seconds since the epoch; `proof` names what can be revoked earlier.
    """

    issuer: str
    client: str
    subject: str
    roles: frozenset[str] = field(default=frozenset(), compare=False)
    capabilities: frozenset[str] = field(default=frozenset(), compare=False)
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False)
    shared: bool = field(default=False, compare=False)
    session: bool = field(default=False, compare=False)
    expires: float | None = field(default=None, compare=False)
    proof: str = field(default="", compare=False)

    @property
    def id(self) -> str:
        """A unique name of this person at this client."""
        return _id(self.issuer, self.client, self.subject)

    @property
    def person(self) -> str:
        """A name of the person, the same at every client; for a shared principal its `id`."""
        return self.id if self.shared else person_of(self.id)

    def may(self, capability: str, app: str | None = None) -> bool:
        """Return whether it has `capability`, for all apps or for `app`.

        One of `mcp`, `bridge`, `app`, `approve`, `audit:read`, `admin`.
        """
        return capability in self.capabilities or (app is not None and f"{capability}:{app}" in self.capabilities)


@lru_cache(maxsize=4096)
def person_of(principal: str) -> str:
    """Return the person of a principal id that is not shared: issuer and subject, without the client."""
    issuer, _, rest = principal.partition("|")
    return f"{issuer}|{rest.partition('|')[2]}"


@lru_cache(maxsize=4096)
def _id(issuer: str, client: str, subject: str) -> str:
    return f"{_escape(issuer)}|{_escape(client)}|{subject}"


def _escape(part: str) -> str:
    return part.replace("%", "%25").replace("|", "%7C")


LOCAL = Principal(
    issuer="local",
    client="local",
    subject="local",
    capabilities=frozenset({"mcp", "bridge", "app", "approve", "audit:read", "admin"}),
    session=True,
)
"""The only principal of a gateway on loopback without authentication."""


class Caller(Struct, frozen=True):
    """The origin of one request or tool call, as established by the door and the view.

    `view` is the id of a live view, or None. `proven` means that the view itself made the call. `cause` is the audit id
    of the tool call, or the id of the gesture, that the record shows as its cause. The gateway has no `door` when it
    acts by itself, as after a change of a file.
    """

    principal: Principal
    app: str
    door: Door | None
    initiator: Initiator
    evidence: str
    view: str | None = None
    proven: bool = False
    cause: str | None = None


class PageContext(Struct, frozen=True):
    """The page of a backend that makes a request: its path and query, empty for the first page; how, and for what.

    `cookies` are those that its scripts have set since the last request, as written. `user` means that a person acted.
    `site` is `cross-site` or `same-site` if a page of another origin led here, as in `Sec-Fetch-Site`.
    `shares_cookies`: its scripts may read the jar's cookies that are not `HttpOnly`.
    """

    path: str = ""
    mode: str = "cors"
    destination: str = "empty"
    user: bool = False
    cookies: tuple[str, ...] = ()
    site: str = ""
    shares_cookies: bool = True


class Request(Struct, frozen=True):
    """A request of an app as the door decoded it, before any decision.

    `url` is unchanged: path and query, or absolute. `body` is the exact bytes. `timeout` is in seconds. `anonymous`
    omits the backend's credential. `exact` asks for the bytes of a body as `stream` does, in one part. `leads` says
    that the client itself follows redirects back to this door.
    `protocols` are the subprotocols that a WebSocket may have; `once` makes each WebSocket a call of its own, so that
    two callers never share one after an approval. `page` is set for apps whose pages a backend renders.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    body_type: BodyType = BodyType.NONE
    redirect: Redirect = Redirect.FOLLOW
    send_cookies: bool = True
    timeout: float | None = None
    stream: bool = False
    exact: bool = False
    anonymous: bool = False
    leads: bool = False
    protocols: tuple[str, ...] = ()
    once: str = ""
    page: PageContext | None = None


class CanonicalRequest(Struct, frozen=True):
    """A request in canonical form: the bytes that are decided on are the bytes that are sent.

    `path` is percent-encoded and absolute; `query` has no `?`; `backend` is its name in the policy. `json` is the
    parsed body if a rule reads it; `body` is then its serialisation. `protocols` are the subprotocols of a WebSocket
    that is to be opened; None for an ordinary request.
    """

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes
    body_type: BodyType
    backend: str
    redirect: Redirect = Redirect.FOLLOW
    timeout: float | None = None
    json: Json = None
    protocols: tuple[str, ...] | None = None
    once: str = ""

    @property
    def opens_socket(self) -> bool:
        """True if the request opens a WebSocket."""
        return self.protocols is not None

    @property
    def shown_method(self) -> str:
        """The method as people read it: `WEBSOCKET` for the GET that opens one."""
        return self.method if self.protocols is None else WEBSOCKET

    @property
    def url(self) -> str:
        """Path and query, relative to the app."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def digest(self) -> str:
        """SHA-256 in hex over backend, method, URL, headers and body, each prefixed by its length."""
        sha = hashlib.sha256()
        parts = [self.backend, self.method, self.url, *(part for pair in self.headers for part in pair)]
        if self.protocols is not None:
            parts += [WEBSOCKET, self.once, *self.protocols]
        for part in (*(text.encode() for text in parts), self.body):
            sha.update(b"%d:" % len(part))
            sha.update(part)
        return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class Part:
    """Marks a body as a part of the stream `stream`; `last` if it is the final one."""

    stream: str
    last: bool


_NO_PATH: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+(?![^?#])")
"""Scheme and host of a URL without a path."""

_SAYINGS: Final = frozenset({"text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq"})
"""Media types whose parts are delivered one by one."""


class Response(Struct, frozen=True):
    """A response, from a backend or from the gateway. It is complete unless `part` is set.

    `url` is relative to the app. `length` is the declared length in bytes of a body that follows, that an answer to
    HEAD omits, or that is empty.
    """

    status: int
    headers: Headers = ()
    body: bytes = b""
    url: str = ""
    redirected: bool = False
    reason_phrase: str = ""
    part: Part | None = None
    length: int | None = None

    def header(self, name: str) -> str | None:
        """Return the first value of the header `name` (lower case)."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def says_by_and_by(self) -> bool:
        """Return whether the body is a stream of separate events, delivered as they happen."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower() in _SAYINGS


def with_path(url: str) -> str:
    """Return an absolute URL with the path `/` if it has none: both are equivalent (RFC 9110, 4.2.3)."""
    return _NO_PATH.sub(r"\g<0>/", url)


class Outbound(Struct, frozen=True):
    """A request to a backend or to a token endpoint.

    `url` is absolute and already percent-encoded. `timeout` is in seconds for the whole answer; `response_limit` in
    bytes after decompression.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    timeout: float = 10.0
    response_limit: int = 5 * 1024 * 1024


class Backend(Protocol):
    """The destination of requests. Redirects are not followed; `Refusal` gives the reason for a missing answer."""

    async def send(self, request: Outbound) -> Response:
        """Return the whole answer. Raises `Refusal` (`backend-*`, `address-denied`, `response-too-large`)."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


@dataclass(frozen=True, slots=True)
class Arriving:
    """An answer whose head has arrived: `head` has no body, `parts` yields it, decompressed, as it arrives.

    `parts` raises `Refusal` if the rest fails, or exceeds the limit.
    """

    head: Response
    parts: AsyncIterator[bytes]


@runtime_checkable
class StreamingBackend(Protocol):
    """A backend that can also stream an answer; `send` returns it whole."""

    def stream(self, request: Outbound) -> AbstractAsyncContextManager[Arriving]:
        """Yield the answer until the context ends. `timeout` applies to the head, then to each wait for a part.

        A body for which `says_by_and_by` is true may be silent for longer.
        """
        ...


@dataclass(frozen=True, slots=True)
class SocketEnd:
    """The end of a WebSocket as a page sees it: `code` and `reason` of its close frame (RFC 6455, 7.1.5).

    `clean` is false if the connection ended without one.
    """

    code: int
    reason: str = ""
    clean: bool = True


class BackendSocket(Protocol):
    """An open WebSocket to a backend. One task receives at a time, and one sends."""

    @property
    def protocol(self) -> str:
        """The subprotocol that the backend has chosen, empty without one."""
        ...

    async def receive(self) -> str | bytes | SocketEnd:
        """Return the next message; after the last one, each call returns the end."""
        ...

    async def send(self, message: str | bytes) -> None:
        """Send a message; return once there is room for another. Raises ConnectionError after the end."""
        ...

    async def close(self, code: int | None, reason: str) -> None:
        """Begin the closing handshake; without `code` the close frame is empty. `receive` returns how it ends."""
        ...

    def abort(self) -> None:
        """End the connection now; `receive` returns."""
        ...


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The answer to the opening request of a WebSocket: `socket` is None if the backend refused it."""

    head: Response
    socket: BackendSocket | None = None


@runtime_checkable
class SocketBackend(Protocol):
    """A backend that also opens WebSockets."""

    def upgrade(
        self, request: Outbound, protocols: Sequence[str], message: int
    ) -> AbstractAsyncContextManager[Upgraded]:
        """Open a WebSocket until the context ends; a message of the backend has at most `message` bytes.

        Raises `Refusal` as `Backend.send` does.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person before a call runs: a message, and the raw call.

    `body` is its text, of `size` bytes in all; `expires` is in seconds since the epoch. `cause` is the audit id of the
    model's call that led to it. `grant` is how many seconds the policy lets a person allow all calls under `rule`, None
    if each call needs a question.
    """

    id: str
    principal: str
    app: str
    view: str | None
    message: str
    method: str
    target: str
    headers: Headers
    body: str
    size: int
    digest: str
    policy_version: str
    initiator: Initiator
    evidence: str
    created: float
    expires: float
    cause: str | None = None
    grant: float | None = None
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Visit:
    """A console page that a person is asked to open, for a call that waits for it.

    `id` is of the waiting question or link, `message` describes it. `typed` means that a trusted client may also ask
    the question itself, answered by a code that the person types; `over` that the visit is no longer needed.
    """

    id: str
    url: str
    message: str
    typed: bool = False
    over: bool = False


Tell: TypeAlias = Callable[[Visit], None]
"""Notifies the client of a call that a person should open a page; the call keeps waiting."""


@dataclass(frozen=True, slots=True)
class ViewTool:
    """A tool that a page registered, as the model sees it: `name` is the model's, `page_name` the page's own."""

    name: str
    page_name: str
    title: str
    description: str
    input_schema: Mapping[str, Any]
    annotations: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None


class AuditRecord(Struct, frozen=True):
    """One line of the record, for plugins and sinks: `phase` is `intent` or `outcome`, `fields` its content."""

    id: str
    phase: str
    time: float
    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class FolderSite:
    """The URL path at which an app's folder is served on its site, and the file of its first page."""

    prefix: str
    page: Path


class ExternalSites(Protocol):
    """Other sites that a page may use: origins by kind, and the URLs of scripts."""

    @property
    def origins(self) -> Mapping[str, tuple[str, ...]]: ...

    @property
    def scripts(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Resource:
    """A packed app: one HTML file as `ui://` resource, with its `_meta.ui`.

    The gateway's additions to the page begin at character `head`. `unread` are the scripts that a browser could not
    parse, if they were checked. `warnings` are what could not be packed, and does without. `external` is what
    the page may load from other sites, by kind, where `meta` has one list for all files. `folder` is
    where the files of its folder are on its site; None if there is no folder.
    `foreign` are the files of other sites that are left out, each with its kind, and `starts` the paths before files
    that are in the folder without them. `allow` is what its scripts need of our host beyond the policy of MCP Apps.
    `unshown` is why no view gets the app's own page; `html` then says so.
    """

    uri: str
    html: str
    meta: Mapping[str, Any]
    notes: Sequence[str] = ()
    head: int = 0
    unread: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    external: ExternalSites | None = None
    folder: FolderSite | None = None
    foreign: Sequence[tuple[str, str]] = ()
    starts: Sequence[str] = ()
    allow: Sequence[str] = ()
    unshown: Problem | None = None

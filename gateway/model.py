"""The nouns that all rooms of the gateway share, and the protocols of a backend and an approver."""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.errors import Problem

Headers: TypeAlias = tuple[tuple[str, str], ...]
"""Header fields in order, names in lower case, repeated names kept apart."""

Json: TypeAlias = dict[str, "Json"] | list["Json"] | str | int | float | bool | None
"""A JSON value."""

LARGEST_BODY: Final = 64 * 1024 * 1024
"""Bytes of the largest body of a request that any door takes; policies set lower limits."""


class Door(StrEnum):
    """The way by which something came in."""

    MCP = "mcp"
    BRIDGE = "bridge"
    SITE = "site"
    SNAPSHOT = "snapshot"


class Channel(StrEnum):
    """One of the two conversations with a view; they never mix."""

    UI = "ui"
    WEBMCP = "webmcp"


class Initiator(StrEnum):
    """Who caused a request."""

    PERSON = "person"
    PAGE = "page"
    MODEL = "model"


class Effect(StrEnum):
    """What a policy says of a request."""

    ALLOW = "allow"
    DENY = "deny"


class BodyType(StrEnum):
    """How a body is written in `http_request` arguments and results."""

    NONE = "none"
    JSON = "json"
    TEXT = "text"
    FORM_DATA = "formData"
    URL_ENCODED = "urlEncoded"
    BASE64 = "base64"


class Redirect(StrEnum):
    """What to do with a redirect, as in Fetch."""

    FOLLOW = "follow"
    ERROR = "error"
    MANUAL = "manual"


class Secret:
    """A text that must not show: `repr` and `str` hide it, `reveal()` gives it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The hidden text."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls: (issuer, client, subject); what else is known of it may change from one call to the next.

    `shared` means that no person stands behind it, `session` that a person's own browser does, logged in to the
    console. `expires` is when the proof of it ends, in seconds since the epoch; `proof` names what can end before.
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
        """A name that is the same for the same person at the same client, and for nobody else."""
        return _id(self.issuer, self.client, self.subject)

    @property
    def person(self) -> str:
        """A name that is the same for the same person at every client; of a shared principal its own alone."""
        return self.id if self.shared else person_of(self.id)

    def may(self, capability: str, app: str | None = None) -> bool:
        """Whether it has `capability` (`mcp`, `bridge`, `app`, `approve`, `audit:read`, `admin`), or that of `app`."""
        return capability in self.capabilities or (app is not None and f"{capability}:{app}" in self.capabilities)


def person_of(principal: str) -> str:
    """The person behind the id of a principal that is not shared: issuer and subject, without the client."""
    issuer, _, rest = principal.partition("|")
    return f"{issuer}|{rest.partition('|')[2]}"


@lru_cache(maxsize=4096)
def _id(issuer: str, client: str, subject: str) -> str:
    return f"{_escaped(issuer)}|{_escaped(client)}|{subject}"


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("|", "%7C")


LOCAL = Principal(
    issuer="local",
    client="local",
    subject="local",
    capabilities=frozenset({"mcp", "bridge", "app", "approve", "audit:read", "admin"}),
    session=True,
)
"""The one principal of a gateway on loopback without authentication."""


class Caller(Struct, frozen=True):
    """Who and what stands behind one request or tool call, as the door and the view found it.

    `view` is the id of a live view, None where there is none. `proven` says that the view itself made the call.
    `cause` is the audit id of the tool call, or the id of the gesture, under which it is shown.
    """

    principal: Principal
    app: str
    door: Door
    initiator: Initiator
    evidence: str
    view: str | None = None
    proven: bool = False
    cause: str | None = None


class Request(Struct, frozen=True):
    """What an app asks for, decoded by a door; nothing of it is decided.

    `url` is what the app gave: path and query, or absolute. `body` is the exact bytes. `timeout` is in seconds.
    `anonymous` leaves the backend's credential out.
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
    anonymous: bool = False


class CanonicalRequest(Struct, frozen=True):
    """A request in its one form: what is decided on is byte for byte what is sent.

    `path` is percent-encoded and absolute; `query` has no `?`; `backend` is the policy's name of it.
    `json` is the parsed body where a rule reads it (and there is one), whose bytes `body` then are.
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

    @property
    def url(self) -> str:
        """Path and query, relative to the app."""
        return f"{self.path}?{self.query}" if self.query else self.path

    @property
    def digest(self) -> str:
        """SHA-256 in hex over method, URL, headers and body, each with its length before it."""
        sha = hashlib.sha256()
        parts = [self.backend, self.method, self.url, *(part for pair in self.headers for part in pair)]
        for part in (*(text.encode() for text in parts), self.body):
            sha.update(b"%d:" % len(part))
            sha.update(part)
        return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class Part:
    """Says that a body is a part of the stream `stream`; `last` that no other follows."""

    stream: str
    last: bool


_NO_PATH: Final = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*://[^/?#]+(?![^?#])")
"""The scheme and the host of a URL behind which no path begins."""

_SAYINGS: Final = frozenset({"text/event-stream", "application/x-ndjson", "application/jsonl", "application/json-seq"})
"""Media types whose parts stand for themselves."""


class Response(Struct, frozen=True):
    """An answer: of a backend, or made by the gateway. It is whole but where `part` says otherwise.

    `url` is relative to the app. `length` is what the head says of a body that is still to come, that an
    answer to HEAD leaves out, or that is empty, in bytes.
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
        """The first value of the header `name` (lower case)."""
        for key, value in self.headers:
            if key == name:
                return value
        return None

    def says_by_and_by(self) -> bool:
        """Whether each part of the body stands for itself, as in an event stream: it comes when there is one."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower() in _SAYINGS


def with_path(url: str) -> str:
    """An absolute URL with the path `/` where it has none: an empty path means that one (RFC 9110, 4.2.3)."""
    return _NO_PATH.sub(r"\g<0>/", url)


class Outbound(Struct, frozen=True):
    """A request as it goes out: to a backend, or to a token endpoint.

    `url` is absolute and percent-encoded already. `timeout` is in seconds for the whole answer;
    `response_limit` in bytes after decompression.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    timeout: float = 10.0
    response_limit: int = 5 * 1024 * 1024


class Backend(Protocol):
    """Where requests go. Redirects are not followed; `Refusal` says why there is no answer."""

    async def send(self, request: Outbound) -> Response:
        """The backend's answer, whole. Raises `Refusal` (`backend-*`, `address-denied`, `response-too-large`)."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


@dataclass(frozen=True, slots=True)
class Arriving:
    """An answer whose head is there: `head` has no body, `parts` gives it, decompressed, as it comes.

    `parts` raises `Refusal` where the rest does not come, or grows beyond the limit.
    """

    head: Response
    parts: AsyncIterator[bytes]


@runtime_checkable
class StreamingBackend(Protocol):
    """A backend that can give an answer while it arrives; `send` is there for those that are wanted whole."""

    def stream(self, request: Outbound) -> AbstractAsyncContextManager[Arriving]:
        """The answer, until the context ends. `timeout` holds for the head, then for each wait between two parts.

        A body that `says_by_and_by` may be silent for longer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked before a call runs: in words, and the raw call.

    `body` is its text, of `size` bytes in all; `expires` is in seconds since the epoch. `cause` is the audit id of the
    model's call that led to it. `grant` says for how many seconds the policy lets a person allow all calls under
    `rule`, None where each one is asked about.
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


class Approver(Protocol):
    """One way to ask a person; the first answer of all of them wins."""

    async def ask(self, question: Question) -> bool | None:
        """True for yes, False for no, None where this way has no answer. Cancelled when the question is over."""
        ...


@dataclass(frozen=True, slots=True)
class Visit:
    """A page of the console that a person is asked to open, for a call that waits for that.

    `id` is of what waits there, `message` says what it is. `typed` says that it is a yes or no which a client that the
    configuration trusts may also ask for itself, by a code that the person types; `over` that nobody needs to go there
    any more.
    """

    id: str
    url: str
    message: str
    typed: bool = False
    over: bool = False


Tell: TypeAlias = Callable[[Visit], None]
"""Tells the client of a call that a person has a page to open; the call goes on waiting."""


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
    """One line of the record, for plugins and sinks: `phase` is `intent` or `outcome`, `fields` what it says."""

    id: str
    phase: str
    time: float
    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Resource:
    """A packed app: one HTML file as `ui://` resource, with the `_meta.ui` that goes with it.

    What the gateway put into the page begins at the character `head` of it. `unread` are the scripts that no browser
    can read, where they were looked at.
    """

    uri: str
    html: str
    meta: Mapping[str, Any]
    notes: Sequence[str] = ()
    head: int = 0
    unread: Sequence[Problem] = ()

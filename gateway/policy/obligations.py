"""The obligations of an allowed call: its limits, how it is sent, and which parts of the answer the app receives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, TypeVar

from gateway.documents import Section
from gateway.errors import Reason
from gateway.model import Caller
from gateway.policy.headers import DEFAULT_RESPONSE
from gateway.policy.masks import JsonPath
from gateway.token_buckets import Rate

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
REPEATABLE_METHODS: Final = SAFE_METHODS | {"PUT", "DELETE"}
"""Idempotent methods (RFC 9110, section 9.2.2)."""


class Per(StrEnum):
    """The scope in which a rate or a quota counts requests."""

    VIEW = "view"
    PRINCIPAL = "principal"
    APP = "app"
    ROUTE = "route"


_VIEW: Final = Per.VIEW  # looking up an enum member costs more than its use
_PRINCIPAL: Final = Per.PRINCIPAL


class Window(StrEnum):
    """The calendar window of a quota, in UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Cookies(StrEnum):
    """True if cookies of a backend are stored for a caller."""

    JAR = "jar"
    NONE = "none"


class AppAuthorization(StrEnum):
    """The treatment of an `Authorization` field that a page sets itself, after its app's own login."""

    DROP = "drop"
    """It is dropped."""
    PASS = "pass"  # noqa: S105  no password
    """It is sent to its backend as it is."""
    VAULT = "vault"
    """The page has handles of its tokens, for which they are put into the field."""


class Redirects(StrEnum):
    """The redirects that are followed: none, those that become a safe request, or also 307 and 308 of unsafe ones."""

    NONE = "none"
    SAFE = "safe"
    SAME_ROUTE = "same-route"


@dataclass(frozen=True, slots=True)
class Limit:
    """A rate and the scope in which it counts; `scope` names the rule that sets it, "" for the defaults."""

    rate: Rate
    per: Per
    scope: str = ""
    _name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_name", f"{self.scope}\n{self.rate.count}/{self.rate.period:g}")

    def key(self, caller: Caller) -> tuple[str, ...]:
        """Return the key of the bucket for `caller`. A limit per view counts per principal without a proven view."""
        return (caller.app, self._name, *_subject(self.per, caller))


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `count` in each calendar window; `scope` names the rule that sets it, "" for the defaults.

    A policy change of `count` does not reset the use.
    """

    count: int
    window: Window
    per: Per
    scope: str = ""

    def key(self, caller: Caller, now: float) -> str:
        """Return the bucket's key for `caller` at `now` (seconds since the epoch), with its window, as 2026-07-31."""
        started_at = datetime.fromtimestamp(now, UTC).strftime(_STARTED[self.window])
        return "\n".join((caller.app, self.scope, self.window, *_subject(self.per, caller), started_at))

    def resets(self, now: float) -> float:
        """Return the seconds from `now` until the next window."""
        return self.ends(now) - now

    def ends(self, now: float) -> float:
        """Return the end of the window of `now`, in seconds since the epoch."""
        today = datetime.fromtimestamp(now, UTC).replace(minute=0, second=0, microsecond=0)
        match self.window:
            case Window.HOUR:
                following = today + timedelta(hours=1)
            case Window.DAY:
                following = today.replace(hour=0) + timedelta(days=1)
            case Window.MONTH:
                following = (today.replace(day=1, hour=0) + timedelta(days=32)).replace(day=1)
        return following.timestamp()


@dataclass(frozen=True, slots=True)
class Retry:
    """Retries: at most `attempts` in all, with pauses that start at `backoff` seconds and double each time.

    `on` are the statuses and reasons to retry; `methods` those that may be repeated here.
    """

    attempts: int
    on: frozenset[int | Reason]
    backoff: float
    methods: frozenset[str] = REPEATABLE_METHODS


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit breaker: after `failures` in a row the backend gets no request for `reset` seconds, then one probe."""

    failures: int
    reset: float


SOCKET_MESSAGE: Final = 1024 * 1024
"""Bytes of the largest message of a WebSocket, if its route does not say otherwise."""

LARGEST_MESSAGE: Final = 16 * 1024 * 1024
"""Bytes of the largest message that a route may allow: it is held in memory."""

_PROTOCOL = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}", re.ASCII)


def is_protocol(text: str) -> bool:
    """Return whether a text is a subprotocol of WebSockets (RFC 6455, 4.1)."""
    return _PROTOCOL.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class SocketRule:
    """The permissions of a route's WebSockets: `protocols` None allows any subprotocol, or none.

    `message`: the bytes of the largest message, in either direction. `limits`: the rates of messages of the page, which
    wait. `model`: messages may be sent while the page's requests count as the model's.
    """

    protocols: tuple[str, ...] | None = None
    message: int = SOCKET_MESSAGE
    limits: tuple[Limit, ...] = ()
    model: bool = False


@dataclass(frozen=True, slots=True)
class Obligations:
    """The obligations of an allowed call.

    `confirm`: the question to a person; None if none is needed.
    `grant`: the seconds for which that person may allow all calls under the rule; None for this call only.
    `question_timeout`: the seconds for which the question stays open; None for the configured time.
    `timeout`: in seconds. `request_limit`, `response_limit`: in bytes.
    `no_store`: the answer must not be cached, since the rule asks for an approval of some calls.
    `retry`: the retries; they apply to the methods that it names.
    `mask`: the values of a JSON answer that are redacted.
    `vault`: the values of a JSON answer that are replaced by handles, and whose handles a request's body may contain;
    None if neither is done.
    `secret`: the request's body is shown to no person or model.
    `reads_body`: the request's body was parsed and must be buffered.
    `report`: report mode is on: exceeded limits and quotas are recorded, not refused.
    `reported`: only report mode allows this call; the reasons contain the denial.
    `socket`: what WebSockets of the route may do; None if it carries none.
    """

    confirm: str | None = None
    grant: float | None = None
    question_timeout: float | None = None
    limits: tuple[Limit, ...] = ()
    quotas: tuple[Quota, ...] = ()
    timeout: float = 10.0
    request_limit: int = 1024 * 1024
    response_limit: int = 5 * 1024 * 1024
    response_headers: frozenset[str] = DEFAULT_RESPONSE
    no_store: bool = False
    description: str | None = None
    idempotent: bool = False
    retry: Retry | None = None
    circuit: Circuit | None = None
    cookies: Cookies = Cookies.NONE
    redirects: Redirects = Redirects.SAFE
    stream: bool = False
    mask: tuple[JsonPath, ...] = ()
    vault: tuple[JsonPath, ...] | None = None
    secret: bool = False
    reads_body: bool = False
    report: bool = False
    reported: bool = False
    socket: SocketRule | None = None


NO_OBLIGATIONS: Final = Obligations()

_STARTED: Final = {Window.HOUR: "%Y-%m-%dT%H", Window.DAY: "%Y-%m-%d", Window.MONTH: "%Y-%m"}


def _subject(per: Per, caller: Caller) -> tuple[str, str]:
    if per is _VIEW and caller.proven and caller.view:
        return per, caller.view
    if per is _VIEW or per is _PRINCIPAL:
        return _PRINCIPAL, caller.principal.id
    return per, ""


T = TypeVar("T")

RATE = re.compile(r"([1-9][0-9]{0,8})/(second|minute|hour|day) per (view|principal|app|route)", re.ASCII)
QUOTA = re.compile(r"([1-9][0-9]{0,11})/(hour|day|month) per (view|principal|app|route)", re.ASCII)
_EXAMPLES: Final = {"rate": "30/minute per principal", "quota": "5/day per principal"}
_PERIODS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


def read_rates(section: Section, scope: str) -> tuple[Limit, ...]:
    """Read the limits under `rate`, one or a list; `scope` names the rule, "" for the defaults."""
    return _each(section, "rate", lambda text: _limit(text, scope))


def read_quotas(section: Section, scope: str) -> tuple[Quota, ...]:
    """Read the quotas under `quota`, one or a list; of those with the same window and subject, the smallest."""
    smallest: dict[tuple[Window, Per], Quota] = {}
    for quota in _each(section, "quota", lambda text: _quota(text, scope)):
        known = smallest.setdefault((quota.window, quota.per), quota)
        if quota.count < known.count:
            smallest[quota.window, quota.per] = quota
    return tuple(smallest.values())


def parse_text(section: Section, key: str, parse: Callable[[str], T], text: str) -> T | None:
    """Parse a text, None if it is empty; a ValueError becomes a problem at `key`."""
    try:
        return parse(text) if text else None
    except ValueError as error:
        section.problem(str(error), key)
        return None


def _each(section: Section, key: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    node = section.get(key)
    if node is not None and not isinstance(node.value, str | tuple):
        section.problem(f"must be text such as {_EXAMPLES[key]}, or a list of such, not {node.kind}", key)
        return ()
    texts = (node.value,) if node is not None and isinstance(node.value, str) else section.texts(key)
    return tuple(one for text in texts if (one := parse_text(section, key, parse, text)) is not None)


def _limit(text: str, scope: str) -> Limit:
    match = RATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f'"{text}" is not a rate: write one such as "30/minute per principal" (second, minute, hour, '
            "day; per view, principal, app, route)"
        )
    return Limit(Rate(int(match[1]), _PERIODS[match[2]]), Per(match[3]), scope)


def _quota(text: str, scope: str) -> Quota:
    match = QUOTA.fullmatch(text)
    if match is None:
        raise ValueError(
            f'"{text}" is not a quota: write one such as "20/day per principal" (hour, day, month; per view, '
            "principal, app, route)"
        )
    return Quota(int(match[1]), Window(match[2]), Per(match[3]), scope)

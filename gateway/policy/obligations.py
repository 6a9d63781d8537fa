"""What must be done for an allowed call: what it counts against, how it is carried, what of its answer is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from gateway.errors import Reason
from gateway.model import Caller
from gateway.policy.gcra import Rate
from gateway.policy.headers import DEFAULT_RESPONSE
from gateway.policy.masks import JsonPath

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
REPEATABLE_METHODS: Final = SAFE_METHODS | {"PUT", "DELETE"}
"""Methods that a server takes twice like once (RFC 9110, section 9.2.2)."""


class Per(StrEnum):
    """Whose requests count together under a rate or a quota."""

    VIEW = "view"
    PRINCIPAL = "principal"
    APP = "app"
    ROUTE = "route"


_VIEW: Final = Per.VIEW  # to look a member up costs more than all that is done with it
_PRINCIPAL: Final = Per.PRINCIPAL


class Window(StrEnum):
    """The calendar window of a quota, in UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class Cookies(StrEnum):
    """Whether cookies of a backend are kept for a caller."""

    JAR = "jar"
    NONE = "none"


class Redirects(StrEnum):
    """Which redirects are followed: none, those that become a safe request, or also 307 and 308 of unsafe ones."""

    NONE = "none"
    SAFE = "safe"
    SAME_ROUTE = "same-route"


@dataclass(frozen=True, slots=True)
class Limit:
    """A rate and whose requests count together; `scope` names the rule that sets it, "" for the defaults."""

    rate: Rate
    per: Per
    scope: str = ""
    _named: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_named", f"{self.scope}\n{self.rate.count}/{self.rate.period:g}")

    def key(self, caller: Caller) -> tuple[str, ...]:
        """The name of the bucket for `caller`. Per view without a proven view counts per principal."""
        return (caller.app, self._named, *_subject(self.per, caller))


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `count` in each calendar window; `scope` names the rule that sets it, "" for the defaults.

    What was used stays used when a policy changes `count`.
    """

    count: int
    window: Window
    per: Per
    scope: str = ""

    def key(self, caller: Caller, now: float) -> str:
        """The name of the bucket of `caller` at `now` (seconds since the epoch), with its window such as 2026-07-31."""
        started = datetime.fromtimestamp(now, UTC).strftime(_STARTED[self.window])
        return "\n".join((caller.app, self.scope, self.window, *_subject(self.per, caller), started))

    def resets(self, now: float) -> float:
        """Seconds from `now` until the next window."""
        return self.ends(now) - now

    def ends(self, now: float) -> float:
        """When the window of `now` ends, in seconds since the epoch."""
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
    """Try again: at most `attempts` times in all, with pauses from `backoff` seconds on, doubled each time.

    `on` holds the statuses and the reasons that are worth another attempt; `methods` those that may be repeated here.
    """

    attempts: int
    on: frozenset[int | Reason]
    backoff: float
    methods: frozenset[str] = REPEATABLE_METHODS


@dataclass(frozen=True, slots=True)
class Circuit:
    """After `failures` in a row a backend is left alone for `reset` seconds, then tried with one request."""

    failures: int
    reset: float


@dataclass(frozen=True, slots=True)
class Obligations:
    """What must be done for an allowed call. `confirm` is the question to a person, None where none is needed.

    `grant` is for how many seconds that person may allow all calls under the rule, None where for this one alone;
    `patience` for how many they are waited for, None where that is as the configuration says.
    `timeout` is in seconds, the other limits are in bytes. `no_store` says that its rule may ask for approval.
    `retry` holds for the methods it names. `reads_body` says that the request's body was parsed and must be buffered;
    `mask` hides values of a JSON answer. `report` says that report mode is on: limits and quotas that are exceeded are
    recorded, not refused; `reported` that this very call is let through by it, with what denies it in the reasons.
    """

    confirm: str | None = None
    grant: float | None = None
    patience: float | None = None
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
    reads_body: bool = False
    report: bool = False
    reported: bool = False


NO_OBLIGATIONS: Final = Obligations()

_STARTED: Final = {Window.HOUR: "%Y-%m-%dT%H", Window.DAY: "%Y-%m-%d", Window.MONTH: "%Y-%m"}


def _subject(per: Per, caller: Caller) -> tuple[str, str]:
    if per is _VIEW and caller.proven and caller.view:
        return per, caller.view
    if per is _VIEW or per is _PRINCIPAL:
        return _PRINCIPAL, caller.principal.id
    return per, ""

"""Sessions: the protocols of browsers' sessions and one-time codes, of API tokens, and of MCP clients' sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from gateway.callers.tokens import TokenGrant
from gateway.model import Json, Principal, Secret

HINT_FIELD: Final = "hint"
"""The field of a session's `more` with the sealed ID token of its login."""


class SessionKind(StrEnum):
    """The kind of an entry: a browser's session on the console or on an app's site, or a one-time code for one."""

    CONSOLE = "console"
    SITE = "site"
    LINK = "link"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session or code: its principal, expiry (seconds since the epoch), and extra values.

    Entries with the same `family` end together at a logout.
    """

    principal: Principal
    family: str
    expires: float
    more: Mapping[str, str]


class Sessions(Protocol):
    """The sessions and codes of a gateway, which outlive the process. Times are in seconds since the epoch.

    What a method returned is true for every process that asks afterwards. Each method raises OSError while the store is
    down: nobody is logged in then.
    """

    async def secret(self) -> bytes:
        """Return the secret for login states: created once, the same for all processes, and after a restart."""
        ...

    async def put(
        self, kind: SessionKind, principal: Principal, *, now: float, life: float, family: str = "", **more: str
    ) -> Secret:
        """Store a session or code for `life` seconds, and return its bearer value, which is stored nowhere itself.

        Without `family` it begins one. Logins are bounded per person, sites' sessions and codes per family: beyond
        that, the oldest end, a login with its whole family.
        """
        ...

    async def find(self, kind: SessionKind, secret: str, now: float) -> StoredSession | None:
        """Return the session of the bearer value `secret`, if it is of this kind and has not ended."""
        ...

    async def take(self, kind: SessionKind, secret: str, now: float) -> StoredSession | None:
        """Return and delete it: of concurrent callers in any process, one gets it."""
        ...

    async def lives(self, family: str, now: float) -> bool:
        """Return whether an entry of this family has not ended."""
        ...

    async def end(self, family: str) -> None:
        """End all entries of a family: a logout, or a revocation."""
        ...


class OneTimeValues(Protocol):
    """Values that are used once, in whichever process. Each method raises OSError while the store is down.

    An implementation for several processes stores keys as hashes, and accepts no value that it has not stored itself.
    """

    async def put(self, kind: str, key: str, value: str, *, owner: str, life: float, each: int, most: int) -> bool:
        """Store a value for `life` seconds, in place of an earlier one of this kind and key.

        Beyond `each` of an owner its oldest are evicted, beyond `most` in this process those of the largest holder;
        return whether any was.
        """
        ...

    async def take(self, kind: str, key: str) -> str | None:
        """Return and delete the value, if it has not expired: of concurrent callers in any process, one gets it."""
        ...

    async def claim(self, kind: str, key: str, *, owner: str, life: float, each: int) -> bool | None:
        """Return True to one caller within `life` seconds, False to the others, None beyond `each` of an owner."""
        ...

    async def drop(self, kind: str) -> None:
        """Delete all values of a kind."""
        ...


class LogoutHints(Protocol):
    """Seals the ID tokens of logins, which the issuer is sent at a logout. Raises `StartError` without keys."""

    def seal(self, token: Secret) -> str:
        """Return the sealed token for the field `HINT_FIELD`."""
        ...

    def open(self, more: Mapping[str, str]) -> str | None:
        """Return the token; None if none was stored, or its key is missing."""
        ...


class ApiTokens(Protocol):
    """The API tokens that the gateway issued. Raises OSError while the store is down."""

    async def find(self, id: str) -> TokenGrant | None:
        """Return the grant of the token `id`, valid or not: a revocation counts from its return on."""
        ...


class TooManySessions(Exception):
    """There is no room for another session: `most` are open, of its principal or `of_all`."""

    def __init__(self, most: int, *, of_all: bool) -> None:
        super().__init__(most)
        self.most = most
        self.of_all = of_all


@dataclass(frozen=True, slots=True)
class McpClientState:
    """The state of one client's session that outlives its process: what `initialize` declared, and later settings.

    `version` is the negotiated protocol version, `level` the log level, `subscriptions` the URIs of resources. Rights
    are not part of it: each request brings its own.
    """

    version: str
    info: Mapping[str, Json] = field(default_factory=dict)
    capabilities: Mapping[str, Json] = field(default_factory=dict)
    level: str | None = None
    subscriptions: tuple[str, ...] = ()


class McpSessions(Protocol):
    """The sessions of MCP clients with a handshake, at all mounts. What runs a session stays in its process.

    A session belongs to one principal and one mount. An implementation that stores ids stores their hashes only. A
    session that its process left without `end` can be adopted, until it has been idle for too long.
    """

    async def open(
        self, id: str, principal: Principal, mount: str, state: McpClientState, lost: Callable[[], None]
    ) -> None:
        """Register a new session of the principal with this id, before its client receives the id.

        `lost` is called if another process adopts the session, or it ends outside this process. Raises
        `TooManySessions`, and registers nothing, if the principal or all together have too many at this mount, in
        whichever process: the check and the registration are one atomic step. While the store is down, the session is
        registered in this process alone, and stored later.
        """
        ...

    async def adopt(self, id: str, principal: Principal, mount: str, lost: Callable[[], None]) -> McpClientState | None:
        """Take over a session that this process does not run, by compare-and-set: its former process loses it.

        None for an unknown, expired or altered one, for one of another principal or mount, and for one that another
        process runs, as far as that is known to live. Raises OSError while the store is down.
        """
        ...

    async def process_of(self, id: str, principal: Principal, mount: str) -> str | None:
        """Return the process that runs a session, or ran it last; None for one that `adopt` does not know.

        Raises OSError while the store is down.
        """
        ...

    def use(self, id: str) -> AbstractContextManager[None]:
        """Count the session as used within the block: its idle time begins when the last one ends."""
        ...

    async def change(self, id: str, change: Callable[[McpClientState], McpClientState]) -> None:
        """Store the changed state of a session of this process; others are ignored."""
        ...

    async def end(self, id: str) -> None:
        """End a session: from the return on it can be adopted nowhere. An unknown one is ignored."""
        ...

    def leave(self, id: str) -> None:
        """Forget a session of this process without ending it, so that it can be adopted."""
        ...

"""Views: the protocols of launch values, of the directory of live views, and of the taints that outlive views."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from gateway.model import Principal, Secret, ViewTool

MOVES_WITHIN: Final = 20.0
"""Seconds for which a model's call waits for a view that moves: a page notices with its next poll, which is as long."""

TaintKey: TypeAlias = tuple[str, str]
"""The id of a principal, and the app."""


@dataclass(frozen=True, slots=True)
class OpenedView:
    """A view that a host may show now: its handle, and the launch value that proves it."""

    view: str
    launch: Secret


@dataclass(frozen=True, slots=True)
class Launch:
    """The view that a launch value was issued for; `chosen` if a model chose its content.

    `unsure`: its page was attached in a process that ended without storing whether a model had called it.
    """

    view: str
    app: str
    chosen: bool
    unsure: bool = False


class LaunchValues(Protocol):
    """The issued launch values of a gateway, each valid for a day, also after a restart.

    A value is not single-use: hosts show an old result again. Of the pages that attach with one value the newest is the
    view. While the store is down, values are valid in their process alone.
    """

    async def give(self, principal: Principal, app: str, *, chosen: bool) -> OpenedView:
        """Issue a launch value for a view of `app`; beyond a number per principal its oldest is evicted."""
        ...

    async def find(self, value: str, principal: Principal, apps: Container[str]) -> Launch:
        """Return the launch of `value` if it was issued to `principal` for one of `apps`.

        Raises `Refusal` (`view-unproven`) if it is unknown, another principal's or app's, or has expired.
        """
        ...

    async def attach(self, value: str) -> int:
        """Count that a page attaches with `value`, which `find` returned; return the number, from 1, by
        compare-and-set: the newest attachment is the view. 0 for a value that has ended.
        """
        ...

    async def attachment(self, view: str, principal: Principal) -> int | None:
        """Return the number of the latest attachment of a view of an earlier process; None for any other view."""
        ...

    async def is_awaited(self, view: str, principal: Principal, app: str | None) -> bool:
        """Return whether a value was issued to this principal for `view`, and no page has attached with it yet."""
        ...

    async def is_chosen(self, principal: Principal, app: str) -> bool:
        """Return whether a model chose the content of a view of `app` that no page has attached as yet."""
        ...

    async def settle(self, tainted_keys: Container[TaintKey]) -> None:
        """Store at the end of the process that the views of other principals and apps are not tainted."""
        ...


@dataclass(frozen=True, slots=True)
class StoredLaunch:
    """A launch value's row: its view, the principal's id, the app, and `left`, the seconds that it is still valid.

    `attached` counts the attachments. `clean`: since the latest of them, no model has called a view of this principal
    and app, as its process stored when it ended.
    """

    view: str
    principal: str
    app: str
    chosen: bool
    left: float
    attached: int = 0
    clean: bool = False


class LaunchStore(Protocol):
    """The launch values that outlive the process, by their hashes. Each method raises OSError while it is down."""

    async def put(self, value: str, launch: StoredLaunch, most: int) -> None:
        """Store a new value; of its principal's, the oldest beyond `most` are evicted."""
        ...

    async def find(self, value: str, principal: str) -> StoredLaunch | None:
        """Return the launch of a valid value of this principal; None for an altered row."""
        ...

    async def of_view(self, view: str, principal: str) -> StoredLaunch | None:
        """Return the launch of a view of this principal; None for an altered row."""
        ...

    async def replace(self, launches: Mapping[str, StoredLaunch], before: Mapping[str, int]) -> set[str]:
        """Store changed launches by their values, each if it still has as many attachments as `before` says.

        Return the values that were stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class LiveView:
    """A live view as a model or the console sees it; `opened_at` is in seconds since the epoch.

    `owner` is the incarnation of the process that has it; empty for a view of this process.
    """

    id: str
    app: str
    title: str
    opened_at: float
    tools: tuple[ViewTool, ...]
    owner: str = ""


class ViewDirectory(Protocol):
    """The live views of all principals, with their tools.

    It is read at each call, so it answers from memory: an implementation that several processes share keeps a copy of
    what concerns the principals of its own connections. Views of other processes may be missing while that copy cannot
    be renewed; those of this process never are.
    """

    def put(self, principal: Principal, view: LiveView) -> None:
        """Add a view of this process, or replace it at its place."""
        ...

    def remove(self, principal: Principal, id: str) -> None:
        """Remove a view of this process; an unknown one is ignored."""
        ...

    def of(self, principal: Principal, app: str | None = None) -> tuple[LiveView, ...]:
        """Return the live views of `principal`, of one app or all, oldest first."""
        ...

    def all(self) -> Iterable[tuple[Principal, LiveView]]:
        """Return the live views of all principals, oldest first."""
        ...

    def vanished(self, principal: Principal) -> list[LiveView]:
        """Return views that other processes had until a moment ago, and their tools, as they were last."""
        ...

    def watch(self, callback: Callable[[Principal], None]) -> Callable[[], None]:
        """Call `callback` after each change of a principal's views or tools; the returned function unregisters it."""
        ...

    def learn(self, principal: Principal) -> Awaitable[None] | None:
        """Return None if the views of `principal` at other processes are known; else an awaitable, which ends when they
        are, or soon if they cannot be.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredTaint:
    """The evidence, and the id of the model's call if there was one."""

    evidence: str
    call: str | None


class TaintStore(Protocol):
    """The taints of closed views, which outlive the process. Each method raises OSError while the store is down."""

    async def all(self, most: int) -> dict[TaintKey, StoredTaint]:
        """Return up to `most` taints."""
        ...

    async def find(self, key: TaintKey) -> StoredTaint | None:
        """Return one taint."""
        ...

    async def put(self, taints: Mapping[TaintKey, StoredTaint]) -> None:
        """Store these, all of them or none; each replaces an earlier one."""
        ...

    async def remove(self, calls: Mapping[TaintKey, str | None]) -> None:
        """Delete these, after a person acted: each unless another process has stored another call meanwhile."""
        ...


@dataclass(frozen=True, slots=True)
class MovedView:
    """The state of a view that came here from another process.

    `known`: that process has answered. Then `taint` is what a model's call, or its choice of the content, has left.
    """

    known: bool
    taint: StoredTaint | None = None


class TaintGroup(StrEnum):
    """The views of a principal and an app that share one taint."""

    LAUNCHED = "launched"
    """Those that attach with launch values: several may belong to one page."""

    DEDICATED = "dedicated"
    """Those on a dedicated origin, whose pages can script each other."""

    ALONE = "alone"
    """A view that shares its taint with no other live one."""


class OtherTaints(Protocol):
    """The taints of views at other processes, with which those of this one may share theirs."""

    async def tell(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Taint the views of a group at other processes. Raises `Refusal` if one of these cannot be told."""
        ...

    def tell_soon(self, key: TaintKey, group: TaintGroup, taint: StoredTaint) -> None:
        """Do the same in the background, as far as possible."""
        ...

    def ended(self, key: TaintKey, after: Callable[[], Awaitable[object]]) -> None:
        """Let other processes know that a person acted in a view, in the background: once `after` has ended."""
        ...

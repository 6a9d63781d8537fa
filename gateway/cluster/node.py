"""This process as a node: joins with a new incarnation, renews its lease, and knows the other nodes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.cluster.ids import incarnation as new_incarnation
from gateway.cluster.lease import ADOPT_AFTER, RENEW_EVERY, STOP_AFTER, Lease
from gateway.errors import Reason, Refusal, StartError
from gateway.ports.nodes import Announcement, NameTaken, NodeRow, NodeStore
from gateway.watchers import Watchers

RETRY: Final = 0.5
"""Seconds after which a failed renewal is repeated."""

NAME_FREE_AFTER: Final = ADOPT_AFTER + 2 * RENEW_EVERY
"""Seconds for which a start waits for the lease of an earlier process with its name."""

LOOK_AGAIN: Final = 0.2
"""Seconds between two look-ups of nodes that this one does not know yet."""

log = logging.getLogger(__name__)


class ClusterNode:
    """This node, and what it knows of the others. `announced` is its announcement with any incarnation.

    `clock` is steady, `sleep` waits on it, `random` returns random bytes. While the lease does not hold, `check`
    refuses and `lapsed` is notified once; the node then joins again with a new incarnation, and `joined` is notified.
    `lost_views` is notified of each view that another node took, `gone` of each incarnation whose lease has ended.
    """

    def __init__(
        self,
        store: NodeStore,
        announced: Announcement,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        random: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._clock = clock
        self._sleep = sleep
        self._random = random
        self.announced = announced
        self.lease = Lease(clock)
        self.draining = False
        self.left = False
        """True once its lease has ended in the database, while what runs here may end."""
        self.owns: Callable[[], Mapping[str, int]] = dict
        """Returns how many live objects of each kind this node has."""
        self.before_renewal: Callable[[], None] = lambda: None
        """Is called before each renewal, such as to `announce` a changed configuration."""
        self.lapsed = Watchers[[]]()
        self.joined = Watchers[[]]()
        self.renewed = Watchers[[float]]()
        """Is notified of each renewal: the time on this node's clock until which the lease then holds."""
        self.lost_views = Watchers[[str]]()
        self.gone = Watchers[[str]]()
        self._living: set[str] = set()
        self._rows: dict[str, NodeRow] = {}
        self._read_at = float("-inf")
        self._offset = 0.0
        self._lapse_told = True

    @property
    def incarnation(self) -> str:
        """The id of this start of the node, or of its latest joining."""
        return self.announced.incarnation

    def now(self) -> float:
        """Return the time of the database, in seconds since the epoch, as of the latest renewal and this clock."""
        return self._clock() + self._offset

    def check(self) -> None:
        """Raise `Refusal` (`state-unavailable`) if this node may not act: others may have taken over what it owned."""
        if not self.lease.holds:
            raise Refusal(
                Reason.STATE_UNAVAILABLE,
                "This process of the gateway could not renew its lease in time. Try again in a moment.",
                headers=[("retry-after", "2")],
            )

    async def join(self) -> None:
        """Join with a new incarnation. Raises `StartError` if another node has this name, or other keys; OSError."""
        end = self._clock() + NAME_FREE_AFTER
        while True:
            self.announced = replace(self.announced, incarnation=new_incarnation(self._random))
            began = self._clock()
            try:
                await self._store.join(self.announced)
                break
            except NameTaken:
                if self._clock() >= end:
                    raise StartError(
                        f"another process of this gateway runs with the name {self.announced.name}: give each a name "
                        "of its own in cluster.name"
                    ) from None
                await self._sleep(RENEW_EVERY)
        self.lease.renewed(began)
        await self._renew()
        known = set(self.announced.keys.split())
        strangers = [row for row in self.others() if not known.intersection(row.announced.keys.split())]
        if strangers:
            names = ", ".join(sorted(row.announced.name for row in strangers))
            await self._store.leave(self.incarnation)
            self.lease.end()
            raise StartError(
                f"the nodes {names} have another stores.encryption_key: all nodes need the same keys, since they share "
                "what is encrypted with them"
            )
        self._lapse_told = self.left = False
        self.joined.notify()

    async def run(self) -> None:
        """Renew the lease, and join again after it was lost, until cancelled."""
        while True:
            await self._sleep(min(RENEW_EVERY, self.lease.left) if self.lease.holds else RETRY)
            try:
                if self.lease.holds:
                    await self._renew()
                else:
                    self._tell_lapse()
                    await self.join()
            except OSError as error:
                log.warning("the lease of this node is not renewed: %s", error)
                await self._sleep(min(RETRY, self.lease.left or RETRY))
            except StartError as error:  # such as another process that took the name meanwhile
                log.error("this node cannot join again: %s", error)
                await self._sleep(STOP_AFTER)

    def announce(self, digest: str, policies: Mapping[str, str]) -> None:
        """Announce another configuration, with the next renewal."""
        self.announced = replace(self.announced, digest=digest, policies=policies)

    async def renew_now(self) -> None:
        """Renew the lease now, so that other nodes see a changed announcement at once."""
        if self.lease.holds:
            try:
                await self._renew()
            except OSError as error:
                log.warning("the lease of this node is not renewed: %s", error)

    async def step_down(self) -> None:
        """Let others take over at once; what runs here may end meanwhile, until `leave`. Nothing new may begin."""
        self._lapse_told = True
        if self.lease.holds:
            try:
                await self._store.leave(self.incarnation)
            except OSError as error:
                log.warning("the lease of this node ends in %g s only: %s", ADOPT_AFTER, error)
        self.left = True

    async def leave(self) -> None:
        """End the lease."""
        if not self.left:
            await self.step_down()
        self.lease.end()

    def others(self) -> list[NodeRow]:
        """Return the other nodes that live, as of the latest reading."""
        return [
            row for row in self._rows.values() if self._lives(row) and row.announced.incarnation != self.incarnation
        ]

    def rows(self) -> list[NodeRow]:
        """Return all nodes with a row, this one and ended ones among them, each as old as it is now."""
        passed = self._clock() - self._read_at
        return [replace(row, age=row.age + passed, life=row.life + passed) for row in self._rows.values()]

    async def find(self, incarnation: str) -> NodeRow | None:
        """Return the other node with this incarnation if it lives; an unknown one is looked up. Raises OSError."""
        row = self._rows.get(incarnation)
        if row is None and self._clock() - self._read_at >= LOOK_AGAIN:
            self._note(await self._store.nodes())
            row = self._rows.get(incarnation)
        return row if row is not None and self._lives(row) and incarnation != self.incarnation else None

    def has_just_ended(self, incarnation: str, seconds: float) -> bool:
        """Return whether the lease of another node ended within so many seconds, as of the latest reading."""
        row = self._rows.get(incarnation)
        if row is None or incarnation == self.incarnation:
            return False
        return 0 <= row.age + (self._clock() - self._read_at) - ADOPT_AFTER < seconds

    async def read_again(self, incarnation: str) -> NodeRow | None:
        """Return the other node with this incarnation as `find` does, read anew unless that was done just now."""
        if self._clock() - self._read_at >= LOOK_AGAIN:
            self._note(await self._store.nodes())
        return await self.find(incarnation)

    async def lives(self, incarnation: str) -> bool:
        """Return whether a node may still act: only if not, may others take over what it owned. Raises OSError."""
        if incarnation == self.incarnation:
            return True
        row = self._rows.get(incarnation)
        if row is None or not self._lives(row):  # read it again before anything is taken
            self._note(await self._store.nodes())
            row = self._rows.get(incarnation)
        return row is not None and self._lives(row)

    async def lives_now(self, incarnation: str) -> bool:
        """Return whether another node lives, by its row as it is now. Raises OSError."""
        self._note(await self._store.nodes())
        row = self._rows.get(incarnation)
        return row is not None and self._lives(row)

    def suits(self, row: NodeRow) -> str | None:
        """Return why this node and another do not forward to each other; None if they do."""
        return difference(self.announced, row)

    async def _renew(self) -> None:
        self.before_renewal()
        began = self._clock()
        renewal = await self._store.renew(self.announced, draining=self.draining, owns=self.owns())
        self._offset = renewal.now - (began + self._clock()) / 2
        self._note(renewal.nodes)
        if renewal.lost:
            self.lease.end()
            self._tell_lapse()
            return
        self.lease.renewed(began)
        self.renewed.notify(began + STOP_AFTER)
        for view in renewal.lost_views:
            self.lost_views.notify(view)

    def _tell_lapse(self) -> None:
        if not self._lapse_told:
            self._lapse_told = True
            log.error("the lease of this node has ended: it stops what it owns, and joins again")
            self.lapsed.notify()

    def _note(self, rows: Sequence[NodeRow]) -> None:
        self._read_at = self._clock()
        self._rows = {row.announced.incarnation: row for row in rows}
        living = {incarnation for incarnation, row in self._rows.items() if self._lives(row)}
        before, self._living = self._living, living
        for incarnation in before - living:
            self.gone.notify(incarnation)

    def _lives(self, row: NodeRow) -> bool:
        """Return whether the lease of a node has not ended, from its age at the reading and the time since then."""
        return row.age + (self._clock() - self._read_at) < ADOPT_AFTER


def difference(mine: Announcement, row: NodeRow) -> str | None:
    """Return why a node that announces `mine` forwards nothing to another; None if it does."""
    other = row.announced
    if not row.signed:
        return "its row is not signed with a key of this cluster"
    if other.version != mine.version:
        return f"it has version {other.version}, and this node {mine.version}"
    if other.digest != mine.digest:
        return "its configuration differs"
    return None

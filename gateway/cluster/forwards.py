"""Requests of this node to the owners of live objects: one hop, and one more try with the owner that is named."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from itertools import count
from typing import Final, Protocol

import msgspec

from gateway.cluster.envelope import HEADER, STREAM, Envelope, ForwardedCaller, body_digest, fields_digest, seal
from gateway.cluster.ids import ObjectIds, ObjectKind
from gateway.cluster.lease import LEFT_FOR
from gateway.cluster.messages import (
    FORMER,
    LARGEST_TAINT,
    MOVED,
    NOT_OWNER,
    OWNER,
    PING,
    Broken,
    Pong,
    read_taint,
)
from gateway.cluster.node import LOOK_AGAIN, ClusterNode
from gateway.crypto import SigningKeys
from gateway.errors import OwnerGone, Reason, Refusal, ViewMoves
from gateway.model import Principal
from gateway.ports.nodes import NodeAnswer, NodeRow, ViewOwners
from gateway.ports.views import MOVES_WITHIN, MovedView
from gateway.watchers import Watchers

KNOWN_OWNERS: Final = 65_536
"""Owners of views that are remembered; the least recently used is evicted."""

TOLD_WITHIN: Final = 1.0
"""Seconds in which the former owner of a view must have ended it, before the page's attachment is answered."""

ANSWERED_WITHIN: Final = 5.0
"""Seconds in which a node that drained has answered what it received before its lease ended, as in `exchange.drain`."""

RELOADED_WITHIN: Final = 2.0
"""Seconds that calls wait for a node whose configuration begins to differ: both may be reading the same files anew."""

NAMED: Final = -math.inf
"""In place of the time since when a node differs: the log names it already."""

REACHED_WITHIN: Final = 5.0
"""Seconds in which another node answers whether it can be reached."""

LARGEST_PONG: Final = 64 * 1024
"""Bytes of the longest answer to that question."""

NOBODY: Final = Principal("", "", "")
"""The caller of requests that a node makes for itself."""

LONGEST: Final = 3600.0
"""Seconds that a forwarded request may take; the limits of tools and approvals are lower."""

_PONGS: Final = msgspec.msgpack.Decoder(Pong)

log = logging.getLogger(__name__)


class Transport(Protocol):
    """The connections to other nodes."""

    def request(
        self,
        address: str,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes],
    ) -> AbstractAsyncContextManager[NodeAnswer]:
        """Send a request; leaving the block early cancels it at the other node.

        Raises OSError; ConnectionRefusedError if nothing was sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class ForwardedRequest:
    """A request for another node, made for `principal`; the fields are as in `Envelope`."""

    principal: Principal
    mount: str
    method: str
    target: str
    body: bytes | AsyncIterator[bytes]
    headers: Mapping[str, str]
    capabilities: tuple[str, ...] = ()
    client: str = ""
    trace: Mapping[str, str] | None = None


@dataclass(slots=True)
class _Attempt:
    """Whether the answer to a request has `begun`, and whether the node or the way to it `failed` since."""

    begun: bool = False
    failed: bool = False

    async def read(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the chunks of the answer, and note their failure."""
        try:
            async for chunk in chunks:
                yield chunk
        except Exception:
            self.failed = True
            raise


class Forwards:
    """Finds the owners of live objects, and sends them requests."""

    def __init__(
        self,
        node: ClusterNode,
        *,
        ids: ObjectIds,
        owners: ViewOwners,
        transport: Transport,
        keys: SigningKeys,
    ) -> None:
        self._node = node
        self._ids = ids
        self._owners = owners
        self._transport = transport
        self._keys = keys
        self._numbers: dict[str, Callable[[], int]] = {}
        self._known: OrderedDict[str, str] = OrderedDict()
        self._differing: dict[str, float] = {}
        """Since when each node differs, on the steady clock."""
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self.forwarded = Watchers[[str, float]]()
        """Is notified of each request to another node: its outcome, and the seconds until its answer began."""
        self.taken = Watchers[[str]]()
        """Is notified of each view that this node took over from another one."""
        node.gone.add(self._end_waiting)

    async def owner_of_view(self, view: str) -> NodeRow | None:
        """Return the other node that has a view; None for this one, and if the node that had it is gone.

        Raises `Refusal` (`state-unavailable`).
        """
        made_by = self._ids.incarnation_of(ObjectKind.VIEW, view)
        if made_by is None:
            return None
        known = self._known.get(view)
        if known is not None and (row := await self._node_of(known)) is not None:
            return row
        return await self._node_of(await self.read_owner(view) or made_by)

    async def owner_of(self, kind: ObjectKind, id: str) -> NodeRow | None:
        """Return the other node that has an object that cannot move. Raises `Refusal` (`state-unavailable`)."""
        made_by = self._ids.incarnation_of(kind, id)
        return await self._node_of(made_by) if made_by is not None else None

    def is_own(self, kind: ObjectKind, id: str) -> bool:
        """Return whether this node has made an object."""
        return self._ids.incarnation_of(kind, id) == self._node.incarnation

    async def read_owner(self, view: str) -> str | None:
        """Return the incarnation that has a view now, by its row or else its id; None for an id of no node.

        Raises `Refusal` (`state-unavailable`).
        """
        made_by = self._ids.incarnation_of(ObjectKind.VIEW, view)
        if made_by is None:
            return None
        try:
            row = await self._owners.find(view)
        except OSError as error:
            raise _unavailable() from error
        self._remember(view, incarnation := row.incarnation if row is not None else made_by)
        return incarnation

    async def take(self, view: str) -> MovedView | None:
        """Make this node the owner of a view, whose page has attached or connected here; None if it was already.

        Its former owner ends it, and says how tainted it was. Raises `Refusal` (`state-unavailable`).
        """
        made_by = self._ids.incarnation_of(ObjectKind.VIEW, view)
        if made_by is None:
            return None
        self._node.check()
        try:
            before = await self._owners.take(view, self._node.incarnation, made_by)
            former = await self._node.find(before.incarnation) if before is not None else None
        except OSError as error:
            raise _unavailable() from error
        self._remember(view, self._node.incarnation)
        if before is None:
            return None
        self.taken.notify(view)
        return await self._tell_former(former, view) if former is not None else MovedView(known=False)

    async def check_stays(self, view: str) -> None:
        """Raise `ViewMoves` if the node that had a view has just ended: its page attaches again, at another one.

        Raises `Refusal` (`state-unavailable`).
        """
        owner = await self.read_owner(view)
        if owner is not None and self._node.has_just_ended(owner, MOVES_WITHIN):
            raise ViewMoves

    async def is_leaving(self, incarnation: str) -> bool:
        """Return whether another node drains, or has just ended."""
        if any(row.draining and row.announced.incarnation == incarnation for row in self._node.others()):
            return True
        try:
            lives = await self._node.lives_now(incarnation)
        except OSError:
            return False
        return not lives and self._node.has_just_ended(incarnation, MOVES_WITHIN)

    async def _tell_former(self, former: NodeRow, view: str) -> MovedView:
        """Tell the former owner of a view that it has moved; without an answer, it notices with its next renewal."""
        body = view.encode()
        notice = ForwardedRequest(NOBODY, "", "POST", MOVED, body, {"content-type": "text/plain", "host": "node"})
        try:
            async with asyncio.timeout(TOLD_WITHIN), self.send_once(former, notice) as answer:
                if answer.status == 200:
                    return MovedView(True, read_taint(await answer.read(LARGEST_TAINT)))
        except (Refusal, OSError, Broken) as error:
            log.info("the node %s was not told of a view that moved: %s", former.announced.name, error)
        return MovedView(known=False)

    async def end_former(self, principal: Principal, app: str, former: str) -> None:
        """End the view that `former` proves at another node, because its page has attached as another view here.

        Its taint stays with its node, as that of a closed view. Where the node cannot be told, such as one with another
        version, the former view ends as a silent one.
        """
        headers = {"content-type": "text/plain", "host": "node"}
        notice = ForwardedRequest(principal, app, "POST", FORMER, former.encode(), headers)
        try:
            async with asyncio.timeout(TOLD_WITHIN):
                if (row := await self.owner_of_view(former.partition(".")[0])) is not None:
                    async with self.send_once(row, notice):
                        pass
        except (Refusal, OSError) as error:
            log.warning("the node of a page's former view was not told that it attached again: %s", error)

    async def ping(self, row: NodeRow) -> Pong:
        """Return the answer of another node to the question whether it can be reached. Raises OSError, `Refusal`."""
        question = ForwardedRequest(NOBODY, "", "POST", PING, b"", {"host": "node"})
        async with asyncio.timeout(REACHED_WITHIN), self._once(row, question) as answer:
            body = await answer.read(LARGEST_PONG)
            if answer.status == HTTPStatus.FORBIDDEN:
                raise ConnectionError(
                    f"it answers {answer.status}: its cluster.keys are others, or it has just started anew"
                )
            if answer.status != HTTPStatus.OK:
                raise ConnectionError(f"it answers {answer.status}: it may have another version")
            return _PONGS.decode(body)

    def forget(self, view: str) -> None:
        """Forget the owner of a view."""
        self._known.pop(view, None)

    @asynccontextmanager
    async def send(self, row: NodeRow, request: ForwardedRequest, view: str | None = None) -> AsyncIterator[NodeAnswer]:
        """Yield the answer of another node to a request for an object that it has.

        If it is `not-owner`, a request for a `view` is sent once more, to the owner that the answer names. Raises
        `Refusal` (`connection-lost`); an error of the block itself is raised as it is.
        """
        attempt = _Attempt()
        try:
            async with self._once(row, request, attempt) as answer:
                if answer.status != NOT_OWNER or not answer.has(OWNER):
                    yield answer
                    return
                named = answer.header(OWNER)
            if view is not None:
                self.forget(view)
            other = (
                await self._node_of(named) if view is not None and named and isinstance(request.body, bytes) else None
            )
            if not named and not await self._lives_now(row):
                raise OwnerGone
            if view is None or other is None or named == row.announced.incarnation:
                raise _lost("The process of the gateway that had this is gone, or has it no more.")
            self._remember(view, named)
            attempt = _Attempt()
            async with self._once(other, request, attempt) as answer:
                if answer.status == NOT_OWNER:
                    self.forget(view)
                    raise _lost("This moves from one process of the gateway to another. Try again.")
                yield answer
        except OSError as error:
            if attempt.begun and not attempt.failed:
                raise
            if view is not None:
                self.forget(view)
            raise await self._failed(error, row) from error

    async def read_again(self, row: NodeRow) -> None:
        """Read whether a node still lives, after it has answered that it does not have an object any more."""
        await self._lives_now(row)

    async def living(self, incarnation: str) -> NodeRow | None:
        """Return another node if it lives and suits. Raises `Refusal` (`state-unavailable`)."""
        return await self._node_of(incarnation)

    @asynccontextmanager
    async def send_once(self, row: NodeRow, request: ForwardedRequest) -> AsyncIterator[NodeAnswer]:
        """Yield the answer of another node, whatever it is. Raises `Refusal` (`connection-lost`)."""
        began = False
        try:
            async with self._once(row, request) as answer:
                began = True
                yield answer
        except OSError as error:
            if began:
                raise
            raise await self._failed(error, row) from error

    @asynccontextmanager
    async def _once(
        self, row: NodeRow, request: ForwardedRequest, attempt: _Attempt | None = None
    ) -> AsyncIterator[NodeAnswer]:
        self._node.check()
        attempt = attempt or _Attempt()
        receiver, now = row.announced.incarnation, self._node.now()
        number = self._numbers.setdefault(receiver, count(1).__next__)()
        body = request.body
        envelope = Envelope(
            sender=self._node.incarnation,
            receiver=receiver,
            mount=request.mount,
            method=request.method,
            target=request.target,
            caller=ForwardedCaller.of(request.principal),
            authenticated=now,
            capabilities=request.capabilities,
            client=request.client,
            trace=dict(request.trace or {}),
            deadline=now + LONGEST,
            fields=fields_digest(request.headers),
            body=body_digest(body) if isinstance(body, bytes) else STREAM,
            time=now,
            number=number,
        )
        headers = {**request.headers, HEADER: seal(envelope, self._keys)}
        address = row.announced.address
        began, outcome = self._node.now(), ""
        # The owner may be stopped, and its connection stay open: the call ends when its lease does.
        async with asyncio.timeout(None) as limit:
            ends = self._waiting.setdefault(receiver, set())
            ends.add(limit)
            try:
                async with self._transport.request(address, request.method, request.target, headers, body) as answer:
                    outcome = _outcome(answer)
                    self.forwarded.notify(outcome, self._node.now() - began)
                    attempt.begun = True
                    yield replace(answer, chunks=attempt.read(answer.chunks))
            except OSError:
                outcome = outcome or self._note_without_answer("unreachable", began)
                raise
            finally:
                ends.discard(limit)
                attempt.failed = attempt.failed or limit.expired()
                if not outcome:  # the caller left, or the lease of the other node ended
                    self._note_without_answer("ended", began)

    def _note_without_answer(self, outcome: str, began: float) -> str:
        self.forwarded.notify(outcome, self._node.now() - began)
        return outcome

    async def _node_of(self, incarnation: str) -> NodeRow | None:
        """Return another node that lives and suits. Raises `Refusal` (`state-unavailable`)."""
        try:
            row = await self._node.find(incarnation)
        except OSError as error:
            raise _unavailable() from error
        if row is None:
            return None
        while (why := self._node.suits(row)) is not None:
            since = self._differing.setdefault(incarnation, self._node.now())
            if self._node.now() - since > RELOADED_WITHIN:
                break
            await asyncio.sleep(LOOK_AGAIN)
            try:
                row = await self._node.read_again(incarnation)
            except OSError as error:
                raise _unavailable() from error
            if row is None:
                return None
        if why is None:
            self._differing.pop(incarnation, None)
            return row
        if self._differing[incarnation] != NAMED:
            self._differing[incarnation] = NAMED
            log.warning("nothing is forwarded to the node %s: %s", row.announced.name, why)
        raise Refusal(
            Reason.STATE_UNAVAILABLE,
            "Another process of the gateway has this, with another version or configuration. Try again in a moment.",
            headers=[("retry-after", "5")],
        )

    async def _failed(self, error: OSError, row: NodeRow) -> Refusal:
        """Return the refusal of a request to a node; `OwnerGone` if nothing was sent to it, and its lease has ended."""
        unsent = isinstance(error, ConnectionRefusedError)
        if unsent and not await self._lives_now(row):
            return OwnerGone()
        log.warning("a request to the node %s failed: %s", row.announced.name, error)
        effect = "Nothing was sent." if unsent else "It may have taken effect."
        return _lost(f"The process of the gateway that has this cannot be reached. {effect}")

    async def _lives_now(self, row: NodeRow) -> bool:
        """Return whether a node lives, by its row as it is now; True if that cannot be read."""
        try:
            return await self._node.lives_now(row.announced.incarnation)
        except OSError:
            return True

    def _end_waiting(self, incarnation: str) -> None:
        """End the requests to a node whose lease has ended; one that drained answers what it has first."""
        self._numbers.pop(incarnation, None)
        row = next((row for row in self._node.rows() if row.announced.incarnation == incarnation), None)
        drained = row is not None and row.draining
        until = asyncio.get_running_loop().time() + LEFT_FOR + ANSWERED_WITHIN if drained else 0
        for limit in self._waiting.pop(incarnation, ()):
            if not limit.expired():
                limit.reschedule(until)

    def _remember(self, view: str, incarnation: str) -> None:
        self._known[view] = incarnation
        self._known.move_to_end(view)
        if len(self._known) > KNOWN_OWNERS:
            self._known.popitem(last=False)


def _lost(detail: str) -> Refusal:
    return Refusal(Reason.CONNECTION_LOST, detail)


def _unavailable() -> Refusal:
    return Refusal(
        Reason.STATE_UNAVAILABLE,
        "The owner of this cannot be looked up now. Try again in a moment.",
        headers=[("retry-after", "2")],
    )


def _outcome(answer: NodeAnswer) -> str:
    """Return the label of an answer in the metrics."""
    if answer.status == NOT_OWNER:
        return "not-owner"
    return "answered" if answer.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE) else "refused"

"""The gateway with one of its checks removed: the simulation must find each of these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import and_

import gateway.stores.usage
from gateway.cluster.envelope import _Numbers
from gateway.cluster.forwards import Forwards
from gateway.cluster.node import ClusterNode
from gateway.cluster.taints import ClusterTaints
from gateway.doors.revocation import Revocations
from gateway.exchange.approval_step import RequestApprovals
from gateway.exchange.shared_approvals import DatabaseApprovals
from gateway.ports.approvals import ApprovalState
from gateway.ports.views import MovedView
from gateway.stores.mcp_sessions import DatabaseMcpSessions
from gateway.stores.nodes import DatabaseNodes
from gateway.views.initiator import Taints
from gateway.views.view import ViewKey


@dataclass(frozen=True)
class Mutant:
    """Checks that are removed, as (class or module, name, what is there instead), and what is to be found then.

    `faults` are the kinds of faults that it takes, all for None; `seconds` is the length of the runs.
    """

    finds: str
    removed: tuple[tuple[Any, str, Any], ...]
    faults: frozenset[str] | None = frozenset()
    seconds: float = 8.0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Remove the checks for as long as this is entered."""
        with ExitStack() as stack:
            for target, name, instead in self.removed:
                stack.enter_context(patch.object(target, name, instead))
            yield


async def _silent(*_: object) -> None:
    """Neither tell other processes, nor read what they know."""


async def _still(*_: object) -> bool:
    """Do not look up whether the credential was revoked."""
    return True


def _approve_nothing(self: RequestApprovals, *_: Any) -> Any:
    async def approve() -> None:
        return None

    return approve()


_change = DatabaseApprovals._change


async def _change_answered(self: DatabaseApprovals, place: Any, values: Mapping[str, Any]) -> bool:
    """Store an answer whether or not the question is still open."""
    if values.get("state") in (ApprovalState.APPROVED, ApprovalState.DECLINED) and "answer" in values:
        place = and_(*place.clauses[:-1])
    return await _change(self, place, values)


_count = gateway.stores.usage._count


async def _count_for_nothing(*arguments: Any) -> int:
    """Count, and allow every request."""
    await _count(*arguments)
    return 0


_renew = DatabaseNodes.renew


async def _renew_without_notices(self: DatabaseNodes, *arguments: Any, **options: Any) -> Any:
    """Do not read which views other nodes took."""
    return replace(await _renew(self, *arguments, **options), lost_views=())


async def _untold(*_: object) -> MovedView:
    """Do not tell the former owner of a view that it has moved."""
    return MovedView(known=False)


MUTANTS: Final[Mapping[str, Mutant]] = {
    "answers-once": Mutant("was answered by", ((DatabaseApprovals, "_change", _change_answered),)),
    "effects-once": Mutant(  # both: each of the two alone keeps a repeated request from its effect
        "was sent twice",
        ((_Numbers, "use", lambda *_: True), (ViewKey, "_use", lambda *_: True)),
        frozenset({"replay"}),
    ),
    "quota": Mutant("are allowed", ((gateway.stores.usage, "_count", _count_for_nothing),), seconds=20.0),
    "owner": Mutant(
        "for a view that has moved",
        (
            (Forwards, "_tell_former", _untold),
            (Forwards, "end_former", _silent),
            (DatabaseNodes, "renew", _renew_without_notices),
        ),
        seconds=25.0,
    ),
    "hang": Mutant("hangs since", ((Forwards, "_end_waiting", lambda *_: None),), frozenset({"vanish"}), 16.0),
    "sessions": Mutant("a stored session", ((DatabaseMcpSessions, "adopt", _silent),), frozenset({"kill"}), 16.0),
    "lease-check": Mutant("after its lease has ended", ((ClusterNode, "check", lambda _self: None),), None, 20.0),
    "taints": Mutant(
        "nobody has said yes", ((Taints, "learn", _silent), (ClusterTaints, "tell", _silent)), seconds=20.0
    ),
    "confirm": Mutant("nobody has said yes", ((RequestApprovals, "approve", _approve_nothing),)),
    "revocation": Mutant("after the revocation", ((Revocations, "still", _still),)),
}
"""By its name."""

"""The gateway with one of its checks removed: the simulation must find each of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from sqlalchemy import and_

from gateway.cluster import envelope
from gateway.cluster.lease import Lease
from gateway.cluster.node import ClusterNode
from gateway.cluster.taints import ClusterTaints
from gateway.doors.revocation import Revocations
from gateway.exchange import shared_approvals
from gateway.exchange.approval_step import RequestApprovals
from gateway.exchange.shared_approvals import DatabaseApprovals
from gateway.stores.schema import APPROVALS
from gateway.views.initiator import Taints


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _without(target: Any, name: str, instead: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(target, name, instead)


async def _silent(*_: object) -> None:
    """Neither tell other processes of a model's call, nor read what they know."""


async def _still(*_: object) -> bool:
    """Do not look up whether the credential was revoked."""
    return True


def _any_state(self: DatabaseApprovals, parked: Any, owned: Any) -> Any:
    """Dispatch whatever the row says."""
    return and_(APPROVALS.c.id == parked.question.id)


def _approve_nothing(self: RequestApprovals, *_: Any) -> Any:
    async def approve() -> None:
        return None

    return approve()


@contextmanager
def _shared_taints() -> Iterator[None]:
    with patch.object(Taints, "learn", _silent), patch.object(ClusterTaints, "tell", _silent):
        yield


MUTANTS: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    "": _nothing,
    "lease": _without(Lease, "holds", True),
    "lease-check": _without(ClusterNode, "check", lambda _self: None),
    "replay": _without(envelope._Numbers, "use", lambda _self, _number: True),
    "taints": _shared_taints,
    "confirm": _without(RequestApprovals, "approve", _approve_nothing),
    "revocation": _without(Revocations, "still", _still),
    "answer-state": _without(shared_approvals, "row_of", lambda id, _owner, _epoch: APPROVALS.c.id == id),
}
"""By its name, what removes a check for as long as it is entered."""

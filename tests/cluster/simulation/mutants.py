"""The gateway with one of its checks removed: the simulation must find each of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from gateway.cluster.node import ClusterNode
from gateway.cluster.taints import ClusterTaints
from gateway.doors.revocation import Revocations
from gateway.exchange.approval_step import RequestApprovals
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
    "lease-check": _without(ClusterNode, "check", lambda _self: None),
    "taints": _shared_taints,
    "confirm": _without(RequestApprovals, "approve", _approve_nothing),
    "revocation": _without(Revocations, "still", _still),
}
"""By its name, what removes a check for as long as it is entered."""

"""The views of other nodes, for a person who looks at them or closes one."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Final

from gateway.cluster.forwards import ForwardedRequest, Forwards
from gateway.cluster.messages import CLOSED, LARGEST, OFFERS, VIEWS
from gateway.cluster.node import ClusterNode
from gateway.errors import Reason, Refusal
from gateway.jsontext.reading import parse_json
from gateway.model import Principal
from gateway.ports.nodes import NodeRow

ANSWERED_WITHIN: Final = 1.0
"""Seconds in which other nodes list their views; those of a slower one are missing until the next time."""

log = logging.getLogger(__name__)


class NodeViews:
    """The port `ViewsElsewhere` of `gateway.doors.live_views`."""

    def __init__(self, node: ClusterNode, forwards: Forwards) -> None:
        self._node = node
        self._forwards = forwards

    @property
    def here(self) -> str:
        """The name of this node."""
        return self._node.announced.name

    async def read(self, principal: Principal) -> list[dict[str, Any]]:
        """Return the views of other nodes that a person may see; those of a node that does not answer are missing."""
        rows = [row for row in self._node.others() if self._node.suits(row) is None]
        lists = await asyncio.gather(*(self._read(row, principal) for row in rows))
        return [{**view, "node": row.announced.name} for row, views in zip(rows, lists, strict=True) for view in views]

    async def _read(self, row: NodeRow, principal: Principal) -> list[dict[str, Any]]:
        try:
            async with (
                asyncio.timeout(ANSWERED_WITHIN),
                self._forwards.send_once(row, _request(principal, VIEWS, b"")) as answer,
            ):
                if answer.status == HTTPStatus.OK:
                    views: list[dict[str, Any]] = parse_json(await answer.read(LARGEST))
                    return views
        except (Refusal, OSError, ValueError) as error:
            log.debug("the node %s does not list its views: %s", row.announced.name, error)
        return []

    async def offer(self, kind: str, view: str, body: bytes, principal: Principal) -> tuple[int, bytes] | None:
        """Return status and JSON of the node that has a view; None if that is this one, or none. Raises `Refusal`."""
        row = await self._forwards.owner_of_view(view)
        if row is None:
            return None
        async with self._forwards.send(row, _request(principal, f"{OFFERS}{kind}", body), view) as answer:
            if answer.status == HTTPStatus.NOT_FOUND:
                return None
            try:
                return answer.status, await answer.read(LARGEST)
            except OSError as error:
                raise _lost() from error

    async def close(self, principal: Principal, view: str) -> bool:
        """Close a view at its node; return False if the person may see no such view. Raises `Refusal`."""
        row = await self._forwards.owner_of_view(view)
        if row is None:
            return False
        async with self._forwards.send(row, _request(principal, CLOSED, view.encode()), view) as answer:
            if answer.status == HTTPStatus.NO_CONTENT:
                return True
            if answer.status == HTTPStatus.NOT_FOUND:
                return False
        raise _lost()


def _lost() -> Refusal:
    return Refusal(Reason.CONNECTION_LOST, "The process of the gateway that has this view did not answer.")


def _request(principal: Principal, path: str, body: bytes) -> ForwardedRequest:
    return ForwardedRequest(principal, "", "POST", path, body, {"content-type": "text/plain", "host": "node"})

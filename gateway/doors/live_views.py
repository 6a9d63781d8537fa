"""The live views of all nodes as a console shows them, and their end at a person's wish."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from gateway.callers.entitlements import Admits
from gateway.doors.authorization import sees_view
from gateway.model import Json, Principal
from gateway.ports.views import LiveView
from gateway.views.registry import Views
from gateway.views.view import View

EVERY: Final = 2.0
"""Seconds between two questions to other nodes for the views that an open console shows."""

log = logging.getLogger(__name__)


class ViewsElsewhere(Protocol):
    """The views of other nodes: `gateway.cluster.views`."""

    @property
    def here(self) -> str:
        """The name of this node."""
        ...

    async def read(self, principal: Principal) -> list[dict[str, Any]]:
        """Return the views of other nodes that a person may see; those of a node that does not answer are missing."""
        ...

    async def close(self, principal: Principal, view: str) -> bool:
        """Close a view at its node; return False if the person may see no such view. Raises `Refusal`."""
        ...


@dataclass(frozen=True, slots=True)
class ViewsDoor:
    """The views that a person may see; `close_view` ends one of this node. `elsewhere` is None for one process."""

    views: Views
    admits: Admits
    close_view: Callable[[View], None]
    elsewhere: ViewsElsewhere | None = None

    def here(self, principal: Principal) -> list[dict[str, Any]]:
        """Return the views of this node."""
        return [_view_json(view) for view in self._seen(principal) if not view.owner]

    async def read_elsewhere(self, principal: Principal) -> list[dict[str, Any]]:
        """Return the views of other nodes."""
        return await self.elsewhere.read(principal) if self.elsewhere is not None else []

    def all(self, principal: Principal, others: list[dict[str, Any]]) -> list[Json]:
        """Return the views of all nodes, the oldest first; `others` are those that other nodes have listed."""
        node = self.elsewhere.here if self.elsewhere is not None else None
        by_id: dict[str, dict[str, Any]] = {view.id: _view_json(view) for view in self._seen(principal) if view.owner}
        by_id |= {one["id"]: one for one in others}
        by_id |= {one["id"]: {**one, "node": node} for one in self.here(principal)}
        return sorted(by_id.values(), key=_opened)  # type: ignore[arg-type]  # JSON

    async def close(self, principal: Principal, view: str) -> bool:
        """Close a view at any node; return False if the person may see no such view. Raises `Refusal`."""
        return self.close_here(principal, view) or (
            self.elsewhere is not None and await self.elsewhere.close(principal, view)
        )

    def close_here(self, principal: Principal, id: str) -> bool:
        """Close a view of this node."""
        view = self.views.get(id)
        if view is None or not sees_view(principal, view.principal, view.app, admits=self.admits):
            return False
        log.info("%s closed the view %s of %s", principal.id, id, view.app)
        self.close_view(view)
        return True

    def _seen(self, principal: Principal) -> tuple[LiveView, ...]:
        return self.views.live_for(partial(sees_view, principal, admits=self.admits))


def _opened(view: Mapping[str, Any]) -> float:
    return float(view["opened"])


def _view_json(view: LiveView) -> dict[str, Any]:
    return {
        "id": view.id,
        "app": view.app,
        "opened": view.opened_at,
        "tools": [
            {
                "name": tool.name,
                "page_name": tool.page_name,
                "title": tool.title,
                "description": tool.description,
                "input_schema": dict(tool.input_schema),
                "annotations": dict(tool.annotations),
            }
            for tool in view.tools
        ],
    }

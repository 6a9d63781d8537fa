"""The tool by which a view stores its `localStorage` for its person, in apps configured for that."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final, Protocol

import mcp_types as types

from gateway.bounds import Area, Bound
from gateway.buckets import Buckets
from gateway.errors import Reason, Refusal
from gateway.mcp import arguments as read
from gateway.mcp.results import of_values
from gateway.mcp.tools import APP_ONLY
from gateway.model import Caller, Json
from gateway.policy.gcra import Rate, take
from gateway.stores.page_storage import QUOTA
from gateway.stores.sealing import SealBroken

ASKING = Rate(20, 1.0)
"""Rate limit of loads and saves by the pages of one app for one person: five times that of a normal page."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "loads and saves of a page's storage",
        f"{ASKING.count} in {ASKING.period:g} s per person and app; {QUOTA:,} characters per person and app",
        "`rate-limited`, `quota-exceeded`",
    ),
)

(_STORAGE,) = BOUNDS

_LONE = re.compile("[\ud800-\udfff]")

Arguments = Mapping[str, Json]


class Storage(Protocol):
    """The store: `gateway.stores.page_storage.PageStorage`."""

    async def load(self, person: str, app: str) -> Mapping[str, str]: ...

    async def save(
        self, person: str, app: str, changes: Mapping[str, str | None], *, clear: bool = False, now: float
    ) -> bool: ...


def storage_tool() -> types.Tool:
    """Return the tool's definition."""
    properties = {
        "_view": {"type": "string", "description": "The proof of a view that it makes the call itself."},
        "changes": {
            "type": "object",
            "additionalProperties": {"type": ["string", "null"]},
            "description": "Items to keep; null removes one. Left out: give what is kept.",
        },
        "clear": {"type": "boolean", "description": "Remove all items first."},
    }
    output = {
        "items": {"type": "object", "additionalProperties": {"type": "string"}},
        "quota": {"type": "integer", "description": "Characters of keys and values together."},
    }
    return types.Tool(
        name="webmcp_storage",
        title="Keep the page's storage",
        description="Gives what the app's page keeps for its person, or changes it.",
        input_schema={"type": "object", "properties": properties},
        output_schema={"type": "object", "properties": output, "required": ["quota"]},
        _meta=APP_ONLY,
    )


class StorageTool:
    """The implementation of the tool, shared by all mounts."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._asked = Buckets[tuple[str, str]]()

    async def serve(self, arguments: Arguments, caller: Caller) -> types.CallToolResult:
        """Return the result for the view of `caller`. Raises `Refusal`."""
        if not caller.proven:
            raise Refusal(Reason.VIEW_UNPROVEN, "Only a proven view has storage on the gateway.")
        if caller.principal.shared:
            raise Refusal(Reason.POLICY_DENIED, "A token that many share keeps no storage: it is kept for a person.")
        person, app = caller.principal.person, caller.app
        changes, clear = _changes(arguments), read.flag(arguments, "clear")
        self._spend(person, app)
        try:
            if changes is None and not clear:
                return of_values({"items": dict(await self._storage.load(person, app)), "quota": QUOTA})
            kept = await self._storage.save(person, app, changes or {}, clear=clear, now=time.time())
        except SealBroken as error:
            raise Refusal(Reason.INTERNAL, f"What is kept for this page cannot be opened: {error}.") from error
        except OSError as error:
            raise Refusal(Reason.BACKEND_UNAVAILABLE, "What pages keep cannot be reached now.") from error
        if not kept:
            _STORAGE.exceeded(person)
            raise Refusal(
                Reason.QUOTA_EXCEEDED, f"The pages of an app keep at most {QUOTA:,} characters for one person."
            )
        return of_values({"quota": QUOTA})

    def _spend(self, person: str, app: str) -> None:
        now = time.monotonic()
        taken = take(self._asked.tats.get((person, app), 0.0), now, ASKING)
        self._asked.put((person, app), taken.tat, now)
        if not taken.allowed:
            _STORAGE.exceeded(person)
            raise Refusal(
                Reason.RATE_LIMITED, f"The pages of an app may ask for what they keep {ASKING.count} times a second."
            )


def _changes(arguments: Arguments) -> dict[str, str | None] | None:
    if "changes" not in arguments:
        return None
    changes: dict[str, str | None] = {}
    for key, value in read.mapping(arguments, "changes").items():
        if value is not None and not isinstance(value, str):
            raise Refusal(Reason.BAD_REQUEST, f"`changes.{key[:64]}` must be a string or null.")
        if _LONE.search(key) or _LONE.search(value or ""):
            shown = _LONE.sub("\ufffd", key[:64])
            raise Refusal(Reason.BAD_REQUEST, f"`changes.{shown}` has a lone surrogate, which no answer could hold.")
        changes[key] = value
    return changes

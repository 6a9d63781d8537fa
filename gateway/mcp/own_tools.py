"""The gateway's own tools beside `http_request`: a view polls for the model's calls, and stores its `localStorage`."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import mcp_types as types
from msgspec.structs import replace

from gateway.bounds import Area, Bound
from gateway.errors import Reason, Refusal
from gateway.jsontext.writing import encodable
from gateway.mcp.mount_interfaces import MountClient, Views
from gateway.mcp.results import of_values
from gateway.mcp.tools import APP_ONLY
from gateway.model import Caller, Json, Response
from gateway.stores.page_storage import QUOTA
from gateway.stores.sealing import SealBroken
from gateway.token_buckets import Buckets, Rate
from gateway.views.relay import LONGEST_POLL, RelayEvent
from gateway.views.tools import Listing


def refuse_others(arguments: Mapping[str, Json], *known: str) -> None:
    """Raise `Refusal` (`bad-request`) for an argument that is not `known`."""
    if other := sorted(set(arguments) - set(known)):
        allowed = f"allowed: {', '.join(known)}" if known else "this tool takes none"
        raise _refusal(f"unknown argument {other[0][:64]!r}; {allowed}.")


def read_text(arguments: Mapping[str, Json], name: str) -> str:
    """Return a required, non-empty text. Raises `Refusal` (`bad-request`)."""
    value = read_optional_text(arguments, name)
    if not value:
        raise _refusal(f"`{name}` is missing; it must be a string.")
    return value


def read_optional_text(arguments: Mapping[str, Json], name: str) -> str | None:
    """Return a text, or None. Raises `Refusal` (`bad-request`)."""
    value = arguments.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _refusal(f"`{name}` must be a string.")


def read_flag(arguments: Mapping[str, Json], name: str) -> bool:
    """Return a boolean, by default False. Raises `Refusal` (`bad-request`)."""
    value = arguments.get(name, False)
    if isinstance(value, bool):
        return value
    raise _refusal(f"`{name}` must be true or false.")


def read_mapping(arguments: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    """Return an object, by default empty. Raises `Refusal` (`bad-request`)."""
    value = arguments.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise _refusal(f"`{name}` must be an object.")


def _refusal(detail: str) -> Refusal:
    return Refusal(Reason.BAD_REQUEST, detail)


POLL = "webmcp_poll"
RESULT = "webmcp_result"

CALLS = "gateway-calls"
"""The header that announces waiting calls to a proven view, so that it polls without a pause."""

_VIEW = {"type": "string", "description": "The proof of a view that it makes the call itself."}

Arguments = Mapping[str, Json]


def poll_tool() -> types.Tool:
    """Return the tool that delivers the model's calls to their view."""
    properties = {
        "_view": _VIEW,
        "after": {"type": "integer", "minimum": 0, "description": "The number of the last event that arrived."},
        "wait": {"type": "integer", "minimum": 0, "description": "Milliseconds to wait for an event."},
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "What the page offers, if that changed.",
        },
        "hidden": {"type": "boolean", "description": "The view is hidden: it may poll less often."},
        "closing": {"type": "boolean", "description": "The view is being closed."},
        "leaving": {
            "type": "boolean",
            "description": "Its page is being left or reloaded; if it stays, it polls again.",
        },
    }
    event = {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "call": {"type": "string"},
            "tool": {"type": "string", "description": "Absent: the call is cancelled."},
            "arguments": {"type": "object"},
        },
        "required": ["number", "call"],
    }
    output = {"events": {"type": "array", "items": event}, "overtaken": {"type": "boolean"}}
    return types.Tool(
        name=POLL,
        title="Ask for calls",
        description="Gives a view the calls of its page's tools, and takes the list of these.",
        input_schema={"type": "object", "properties": properties, "required": ["_view"]},
        output_schema={"type": "object", "properties": output, "required": ["events", "overtaken"]},
        _meta=APP_ONLY,
    )


def result_tool() -> types.Tool:
    """Return the tool that takes the answers of a page's tools."""
    properties = {
        "_view": _VIEW,
        "call": {"type": "string", "description": "The call, as webmcp_poll gave it."},
        "result": {"type": "object", "description": "The result of a tool as MCP writes it."},
    }
    return types.Tool(
        name=RESULT,
        title="Answer a call",
        description="Takes the answer of a page's tool.",
        input_schema={"type": "object", "properties": properties, "required": ["_view", "call", "result"]},
        output_schema={"type": "object", "properties": {"taken": {"type": "boolean"}}, "required": ["taken"]},
        _meta=APP_ONLY,
    )


class RelayTools:
    """The implementation of both tools, for the views of `app`, or of every app. Both raise `Refusal`."""

    def __init__(self, app: str | None, views: Views) -> None:
        self._app = app
        self._views = views

    async def poll(self, arguments: Arguments, client: MountClient) -> dict[str, Json]:
        """Wait for the view's next calls."""
        proof = _proof(arguments, client)
        after, wait = read_number(arguments, "after"), read_number(arguments, "wait")
        listing = _read_listing(arguments)
        closing, leaving = read_flag(arguments, "closing"), read_flag(arguments, "leaving")
        if closing or leaving:
            self._views.leave(client.principal, self._app, proof, for_good=closing)
            return {"events": [], "overtaken": True}
        relay = self._views.relay_of(client.principal, self._app, proof, may_move=True)
        relay.spend()
        if listing is not None:
            relay.list(listing)
        hidden = read_flag(arguments, "hidden")
        answer = await relay.poll(after, min(wait / 1000, LONGEST_POLL), hidden=hidden)
        return encodable({"events": [_event(event) for event in answer.events], "overtaken": answer.overtaken})

    async def result(self, arguments: Arguments, client: MountClient) -> dict[str, Json]:
        """End a call of the view with its result."""
        proof, call = _proof(arguments, client), read_text(arguments, "call")
        result = read_mapping(arguments, "result")
        relay = self._views.relay_of(client.principal, self._app, proof)
        relay.spend()
        relay.answer(call, result)
        return {"taken": True}

    def noting_calls(self, response: Response, caller: Caller) -> Response:
        """Return `response` with the header `gateway-calls` if calls wait for its proven view."""
        if not caller.proven or not self._views.waits(caller.view):
            return response
        return replace(response, headers=(*response.headers, (CALLS, "1")))


def _proof(arguments: Arguments, client: MountClient) -> str:
    if client.caller is not None:
        raise Refusal(Reason.BAD_REQUEST, "This view receives calls over its connection.")
    proof = read_optional_text(arguments, "_view")
    if proof is None:
        raise Refusal(Reason.VIEW_UNPROVEN, "Only an attached view can poll for calls: `_view` is missing.")
    return proof


def read_number(arguments: Arguments, name: str) -> int:
    value = arguments.get(name, 0)
    if type(value) is int and 0 <= value < 2**53:
        return value
    raise Refusal(Reason.BAD_REQUEST, f"`{name}` must be a whole number from 0 on.")


def _read_listing(arguments: Arguments) -> Sequence[types.Tool] | None:
    tools = arguments.get("tools")
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise Refusal(Reason.BAD_REQUEST, "`tools` must be a list.")
    listing = Listing()
    listing.add(tools)
    return listing.tools


def _event(event: RelayEvent) -> dict[str, Json]:
    call: dict[str, Json] = {"number": event.number, "call": event.call}
    return call if event.tool is None else {**call, "tool": event.tool, "arguments": dict(event.arguments)}


ASKING = Rate(20, 1.0)
"""Rate limit of loads and saves by the pages of one app for one person: five times that of a normal page."""

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "loads and saves of page storage",
        f"{ASKING.count} in {ASKING.period:g} s per person and app; {QUOTA:,} characters per person and app",
        "`rate-limited`, `quota-exceeded`",
    ),
)

(_STORAGE,) = BOUNDS

_LONE = re.compile("[\ud800-\udfff]")


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
            "description": "Items to store; null removes one. Without it, all stored items are returned.",
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
        self._buckets = Buckets[tuple[str, str]]()

    async def serve(self, arguments: Arguments, caller: Caller) -> types.CallToolResult:
        """Return the result for the view of `caller`. Raises `Refusal`."""
        if not caller.proven:
            raise Refusal(Reason.VIEW_UNPROVEN, "Only a proven view has storage on the gateway.")
        if caller.principal.shared:
            raise Refusal(Reason.POLICY_DENIED, "A token that many share keeps no storage: it is kept for a person.")
        person, app = caller.principal.person, caller.app
        changes, clear = _changes(arguments), read_flag(arguments, "clear")
        self._spend(person, app)
        try:
            if changes is None and not clear:
                return of_values({"items": dict(await self._storage.load(person, app)), "quota": QUOTA})
            saved = await self._storage.save(person, app, changes or {}, clear=clear, now=time.time())
        except SealBroken as error:
            raise Refusal(Reason.INTERNAL, f"The stored items of this page cannot be decrypted: {error}.") from error
        except OSError as error:
            raise Refusal(Reason.STATE_UNAVAILABLE, "What pages keep cannot be reached now.") from error
        if not saved:
            _STORAGE.report(person)
            raise Refusal(
                Reason.QUOTA_EXCEEDED, f"The pages of an app keep at most {QUOTA:,} characters for one person."
            )
        return of_values({"quota": QUOTA})

    def _spend(self, person: str, app: str) -> None:
        now = time.monotonic()
        result = self._buckets.take((person, app), now, ASKING)
        if not result.allowed:
            _STORAGE.report(person)
            raise Refusal(
                Reason.RATE_LIMITED, f"The pages of an app may ask for what they keep {ASKING.count} times a second."
            )


def _changes(arguments: Arguments) -> dict[str, str | None] | None:
    if "changes" not in arguments:
        return None
    changes: dict[str, str | None] = {}
    for key, value in read_mapping(arguments, "changes").items():
        if value is not None and not isinstance(value, str):
            raise Refusal(Reason.BAD_REQUEST, f"`changes.{key[:64]}` must be a string or null.")
        if _LONE.search(key) or _LONE.search(value or ""):
            text = _LONE.sub("\ufffd", key[:64])
            raise Refusal(Reason.BAD_REQUEST, f"`changes.{text}` has a lone surrogate, which no answer could hold.")
        changes[key] = value
    return changes

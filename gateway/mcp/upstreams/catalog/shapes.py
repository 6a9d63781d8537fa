"""Checks that a client's SDK can parse an upstream's result; other members are ignored."""

from __future__ import annotations

import asyncio
import logging
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, cast, get_args

import mcp_types as types
from mcp_types.methods import MONOLITH_RESULTS, SERVER_RESULTS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.eventloop.fair_share import by_turns
from gateway.mcp.upstreams.calls.client import INPUT_REQUIRED, legacy_tool, needs_input
from gateway.mcp.upstreams.catalog.listing import KEYS, is_printable
from gateway.mcp.upstreams.transport.conversation import Message

log = logging.getLogger(__name__)

_BLOCKS: Final[Mapping[object, type[BaseModel]]] = {
    "text": types.TextContent,
    "image": types.ImageContent,
    "audio": types.AudioContent,
    "resource_link": types.ResourceLink,
    "resource": types.EmbeddedResource,
}

MANY: Final = 2000
"""Size of a list in a result from which it is checked in a thread."""

Check = Callable[[object], str | None]
"""Returns the fault of a thing, or None if a client can parse it."""


_OPTIONAL: Final = frozenset(
    ("_meta", "annotations", "arguments", "description", "execution", "icons", "isError", "mimeType", "nextCursor",
     "outputSchema", "size", "title")
)  # fmt: skip
"""Optional members that several libraries wrongly write as null."""

_WITHIN: Final = ("content", "contents", "messages", "resource", "arguments")
"""Members whose values have such members themselves."""


async def read_result(method: str, result: Message, version: str, *, extended: bool) -> Message:
    """Return an answer that a client of this version can parse, checked in a thread if it is long.
    Raises ValueError with the text of `fault`.
    """
    if any(isinstance(parts, list) and len(parts) > MANY for parts in result.values()):
        return await asyncio.to_thread(_read, method, result, version, extended=extended)
    return _read(method, result, version, extended=extended)


def _read(method: str, result: Message, version: str, *, extended: bool) -> Message:
    result_now = without_nulls(result)
    if version not in MODERN_PROTOCOL_VERSIONS and result_now.get("structuredContent", result_now) is None:
        result_now = {name: value for name, value in result_now.items() if name != "structuredContent"}
    if (wrong := fault(method, result_now, version, extended=extended)) is not None:
        raise ValueError(wrong)
    return result_now


def without_nulls(item_check: Message, levels: int = 4) -> Message:
    """Return `item_check` without optional members that are null, at any level; the same object if there are none.
    The protocol nests no deeper than `levels`: the resource in the content of a message of a result.
    """
    changes: Message = {}
    for name in _WITHIN if levels else ():
        inner = item_check.get(name)
        if isinstance(inner, dict):
            made: object = without_nulls(inner, levels - 1)
        elif isinstance(inner, list):
            parts = [without_nulls(part, levels - 1) if isinstance(part, dict) else part for part in inner]
            made = inner if all(map(operator.is_, parts, inner)) else parts
        else:
            continue
        if made is not inner:
            changes[name] = made
    nulls = (
        {name for name in _OPTIONAL if item_check.get(name, item_check) is None}
        if None in item_check.values()
        else set()
    )
    if not changes and not nulls:
        return item_check
    return {name: changes.get(name, value) for name, value in item_check.items() if name not in nulls}


def fault(method: str, result: Message, version: str, *, extended: bool) -> str | None:
    """Return the fault of an answer to a client of this version, None if it can be parsed.
    An unknown `resultType` is accepted for a client that supports extensions (`extended`).
    """
    modern, kind, key = version in MODERN_PROTOCOL_VERSIONS, result.get("resultType", "complete"), KEYS.get(method)
    if key is not None and not isinstance(result.get(key), list):
        return f"{key}: no list"
    if not isinstance(result.get("_meta"), dict | None):
        return "_meta: no object"
    if modern and kind not in ("complete", INPUT_REQUIRED):
        return None if extended and isinstance(kind, str) else f"resultType: {str(kind)[:80]!r} is not known"
    model = SERVER_RESULTS.get((method, version))
    arms = _arms(model)  # the other arm is the result that requires input
    if modern and arms and needs_input(result):
        return _check(arms[1], result) or _check(types.InputRequiredResult, result)
    if method == "tools/call":
        return _of_call(result, structured=not modern)
    return _check(arms[0] if arms else model, result) if key is None and model is not None else None


def item_check(method: str, version: str) -> Check:
    """Return the check of the things that `method` lists to a client of this version."""
    models = _things(method, version)

    def check(one: object) -> str | None:
        wrong = next((wrong for model in models if (wrong := _check(model, one)) is not None), None)
        if wrong is None and method == "prompts/list" and isinstance(one, dict) and not is_printable(one["name"]):
            return "name: it has characters that are not shown"
        return wrong

    return check


async def readable(method: str, things: Iterable[object], version: str) -> list[Message]:
    """Return the entries of a list that a client of this version can parse: an invalid one would spoil all others."""
    check, good, left = item_check(method, version), list[Message](), list[str]()
    older = method == "tools/list" and version not in MODERN_PROTOCOL_VERSIONS
    async for one in by_turns(things):
        item = without_nulls(one) if isinstance(one, dict) else one
        item = legacy_tool(item) if older and isinstance(item, dict) else item
        if (wrong := check(item)) is None:
            good.append(cast(Message, item))
        else:
            left.append(wrong)
    if left:
        log.info("%s: left out %d that are not as the protocol has them: %s", method, len(left), left[0])
    return good


def _of_call(result: Message, *, structured: bool) -> str | None:
    content = result.get("content")
    if not isinstance(content, list):
        return "content: no list" if "content" in result else "content: it is missing"
    for number, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        model = _BLOCKS.get(kind) if isinstance(kind, str) else None
        wrong = _check(model, block) if model is not None else f"type: {str(kind)[:80]!r} is not known"
        if wrong is not None:
            return f"content[{number}].{wrong}"
    if not isinstance(result.get("isError", False), bool):
        return "isError: neither true nor false"
    unread = structured and not isinstance(result.get("structuredContent"), dict | None)
    return "structuredContent: no object" if unread else None


def _check(model: Any, value: object) -> str | None:
    """Return the place and message of the first value that `model` rejects, or None."""
    try:
        _adapter(model).validator.validate_python(value, by_name=False)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)
        deepest = max(wrong, key=lambda one: len(one["loc"]))  # in a union, the error of the best match
        return f"{_place(deepest['loc'])}: {deepest['msg'][:120]}"
    return None


def _place(path: tuple[int | str, ...]) -> str:
    """Return a path in a result, without the names of the models that were tried."""
    steps = (step for step in path if isinstance(step, int) or not step[:1].isupper())
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".")[:200]


_arms: Final = lru_cache(get_args)
"""Returns the models of which a result is one."""


@lru_cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


@lru_cache
def _things(method: str, version: str) -> tuple[Any, ...]:
    """Return the models of an entry of the list: a client parses it as one of its version, then as one of any."""
    problems = []
    for model in (SERVER_RESULTS[method, version], MONOLITH_RESULTS[method]):
        fields = cast(type[BaseModel], model).model_fields  # no list is a union
        [field] = [one for name, one in fields.items() if KEYS[method] in (name, one.alias)]
        problems.append(get_args(field.annotation)[0])
    return tuple(problems)

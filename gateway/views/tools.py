"""A page's tools: parsed, made fit for a model, and their arguments validated."""

from __future__ import annotations

import hashlib
import logging
import re
import time
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import mcp_types as mcp
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UnknownType
from mcp.shared.exceptions import MCPError
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from gateway.bounds import Area, Bound, size
from gateway.jsontext.sizes import MAX_DEPTH, nests_deeper
from gateway.jsontext.writing import plain_json, plain_within
from gateway.model import Principal, ViewTool
from gateway.policy import Policy, may_call_tool, tool_pin
from gateway.ports.views import LiveView

MOST_LISTED: Final = 200
"""Tools of one list that are parsed."""


ROOM: Final = 2 * 1024 * 1024
"""Bytes of the tools of one page: twice the size of the tools that a model may see."""

_VALUE: Final = 64
"""Approximate bytes of a value beside its characters."""


class Listing:
    """The tools that a page defines on one or more pages of a list; invalid definitions are skipped."""

    def __init__(self) -> None:
        self.tools: list[mcp.Tool] = []
        self._room = ROOM

    def add(self, definitions: Sequence[object]) -> None:
        """Add the first of them, as far as there is room for each."""
        for definition in definitions[:MOST_LISTED]:
            weight = _weight(definition, self._room)
            if weight <= self._room and (tool := _tool(definition)) is not None:
                self._room -= weight
                self.tools.append(tool)


def _weight(value: object, most: int) -> int:
    """Return the approximate size in bytes; counting stops beyond `most`."""
    weight, waiting = 0, [value]
    while waiting and weight <= most:
        one = waiting.pop()
        weight += _VALUE
        if isinstance(one, str):
            weight += len(one)
        elif isinstance(one, dict):
            weight += sum(map(len, one))
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return weight


def _tool(definition: object) -> mcp.Tool | None:
    try:
        result = parse_server_result("tools/list", LATEST_HANDSHAKE_VERSION, {"tools": [definition]})
    except ValidationError:
        return None
    return result.tools[0] if isinstance(result, mcp.ListToolsResult) else None


def result_of(answer: Mapping[str, Any]) -> mcp.CallToolResult:
    """Parse the result of a call. Raises `MCPError` if it is not a valid result."""
    try:
        parsed = parse_server_result(
            "tools/call", LATEST_HANDSHAKE_VERSION, {} if nests_deeper(dict(answer)) else answer
        )
    except (ValidationError, RecursionError):
        parsed = None
    if not isinstance(parsed, mcp.CallToolResult):
        raise MCPError(mcp.INTERNAL_ERROR, "its answer is not the result of a tool")
    return parsed


_BOUNDED = (
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
UNSAYABLE = (
    "arguments: no page can receive a number too large for JSON, half of a character (a lone surrogate), "
    f"or values nested deeper than {MAX_DEPTH}"
)

_Validator = validators.create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={name: Draft202012Validator.VALIDATORS[name] for name in _BOUNDED},
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


def first_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return the first problem of `arguments`, with its field; None if there is none.

    An invalid schema finds no problem: the page checks for itself.
    """
    try:
        plain_within(dict(arguments)).encode()
    except ValueError:
        return UNSAYABLE
    try:
        error = next(iter(_Validator(_without_patterns(schema)).iter_errors(dict(arguments))), None)
    except (UnknownType, TypeError, ValueError, AttributeError, KeyError):
        return None
    if error is None:
        return None
    place = ".".join(map(str, error.absolute_path)) or "arguments"
    return f"{place}: {error.message[:300]}"


def _without_patterns(schema: Any) -> Any:
    # additionalProperties depends on patternProperties, by matching: both are removed if a pattern is given
    if isinstance(schema, list):
        return [_without_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    drop = {"patternProperties", "additionalProperties"} if "patternProperties" in schema else set()
    return {key: _without_patterns(value) for key, value in schema.items() if key not in drop and key != "$ref"}


LONGEST = 64
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def model_name(app: str, page_name: str) -> str:
    """Return the model's name of a page's tool; a changed or cut one ends in six hex digits of the original's hash."""
    plain = f"{app}_{page_name}"
    return plain if len(plain) <= LONGEST and not _UNSAFE.search(plain) else marked_name(plain, page_name)


def marked_name(plain: str, original: str) -> str:
    """Return a safe name in place of `plain`, marked with a hash of `original`."""
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{_UNSAFE.sub('_', plain)[: LONGEST - 7]}_{mark}"


log = logging.getLogger(__name__)

MOST = 50
SCHEMA_BYTES = 16 * 1024
SCHEMA_DEPTH = 16
TEXT = 4096

BOUNDS: Final = (
    Bound(
        Area.VIEWS,
        "tools of a page",
        f"{MOST} per view, {size(SCHEMA_BYTES)} and depth {SCHEMA_DEPTH} of a schema, {TEXT:,} characters of a text",
        "further ones are not offered",
    ),
)

(_TOOLS,) = BOUNDS
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "title")


def clean_tools(app: str, policy: Policy, listed: Iterable[mcp.Tool], owner: str | None = None) -> tuple[ViewTool, ...]:
    """Return the tools of a page as the model may see them: those that the policy names, at most fifty, unique by name.

    A tool whose name or schema exceeds the bounds is omitted, and one that differs from its pin in the policy. `owner`
    is the principal of the view.
    """
    tools: dict[str, ViewTool] = {}
    for tool in listed:
        rule = policy.tools.get(tool.name)
        if rule is None or rule.deny is not None or not _NAME.fullmatch(tool.name):
            continue
        if len(tools) == MOST:
            _TOOLS.report(owner)
            break
        if not _schema_fits(tool.input_schema):
            _TOOLS.report(owner)
            continue
        if rule.pin is not None and rule.pin != (pin := _pin(tool)):
            log.warning("%s: the page changed its tool %s, which is held back; it is %s now", app, tool.name, pin)
            continue
        name = model_name(app, tool.name)
        view_tool = ViewTool(
            name=name,
            page_name=tool.name,
            title=clean(tool.title or ""),
            description=clean(rule.description or tool.description or ""),
            input_schema=tool.input_schema,
            annotations=_annotations(tool),
            output_schema=tool.output_schema if tool.output_schema and _schema_fits(tool.output_schema) else None,
        )
        tools.setdefault(name, view_tool)
    return tuple(tools.values())


def _pin(tool: mcp.Tool) -> str:
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else {}
    return tool_pin(
        tool.name,
        title=tool.title or "",
        description=tool.description or "",
        input_schema=tool.input_schema,
        annotations=hints,
        output_schema=tool.output_schema,
    )


def clean(text: str) -> str:
    """Return `text` without control, invisible and direction-changing characters, at most 4,096 characters."""
    return "".join(
        char
        for char in text[:TEXT]
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cs", "Cn")
    )


def _annotations(tool: mcp.Tool) -> dict[str, Any]:
    if tool.annotations is None:
        return {}
    hints = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    return {key: clean(value) if isinstance(value, str) else value for key, value in hints.items() if key in _HINTS}


def _schema_fits(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" and _depth_fits(schema) and len(plain_json(schema)) <= SCHEMA_BYTES


def _depth_fits(schema: Any) -> bool:
    layer = [schema]
    for _ in range(SCHEMA_DEPTH):
        layer = [
            child
            for value in layer
            if isinstance(value, (dict, list))
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not layer:
            return True
    return False


def with_callable_tools(view: LiveView, policy: Policy, principal: Principal) -> LiveView:
    """Return `view` with those of its tools that `principal` may call now."""
    now = time.time()
    tools = tuple(tool for tool in view.tools if may_call_tool(policy, tool.page_name, principal, now))
    return view if len(tools) == len(view.tools) else replace(view, tools=tools)

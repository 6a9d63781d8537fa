"""Makes a page's tool definitions fit for a model: bounded, cleaned, renamed. A page is never trusted."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcp import types as mcp

from gateway.bounds import Area, Bound, size
from gateway.model import ViewTool
from gateway.policy import Policy, tool_pin

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
            _TOOLS.exceeded(owner)
            break
        if not _schema_fits(tool.input_schema):
            _TOOLS.exceeded(owner)
            continue
        if rule.pin is not None and rule.pin != (pin := _pin(tool)):
            log.warning("%s: the page changed its tool %s, which is held back; it is %s now", app, tool.name, pin)
            continue
        name = model_name(app, tool.name)
        cleaned = ViewTool(
            name=name,
            page_name=tool.name,
            title=clean(tool.title or ""),
            description=clean(rule.description or tool.description or ""),
            input_schema=tool.input_schema,
            annotations=_annotations(tool),
            output_schema=tool.output_schema if tool.output_schema and _schema_fits(tool.output_schema) else None,
        )
        tools.setdefault(name, cleaned)
    return tuple(tools.values())


def _pin(tool: mcp.Tool) -> str:
    given = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else {}
    return tool_pin(
        tool.name,
        title=tool.title or "",
        description=tool.description or "",
        input_schema=tool.input_schema,
        annotations=given,
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
    given = tool.annotations.model_dump(by_alias=True, exclude_none=True)
    return {key: clean(value) if isinstance(value, str) else value for key, value in given.items() if key in _HINTS}


def _schema_fits(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" and _depth_fits(schema) and len(json.dumps(schema)) <= SCHEMA_BYTES


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

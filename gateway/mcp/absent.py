"""The answers for features that the gateway's apps lack, alike at every door: templates, prompts, completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError


def templates() -> types.ListResourceTemplatesResult:
    """Return an empty list."""
    return types.ListResourceTemplatesResult(resource_templates=[])


def prompts() -> types.ListPromptsResult:
    """Return an empty list."""
    return types.ListPromptsResult(prompts=[])


def no_further_page(cursor: object) -> None:
    """Raise `MCPError` for a cursor: the gateway's own lists have one page, so it never issues one."""
    if cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "Unknown cursor: this list has one page.")


def no_prompt(name: object) -> MCPError:
    """Return the error for a request of a prompt."""
    return MCPError(types.INVALID_PARAMS, f"Unknown prompt: {str(name)[:128]}")


def nothing_to_complete(ref: Mapping[str, Any]) -> MCPError:
    """Return the error for a completion of a prompt or template, of which none exists."""
    named = ref.get("name", ref.get("uri"))
    return MCPError(types.INVALID_PARAMS, f"There is no prompt and no resource template {str(named)[:128]!r}.")

"""What no app of the gateway has, said alike at every door: templates, prompts, completions, further pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError


def templates() -> types.ListResourceTemplatesResult:
    """None."""
    return types.ListResourceTemplatesResult(resource_templates=[])


def prompts() -> types.ListPromptsResult:
    """None."""
    return types.ListPromptsResult(prompts=[])


def no_further_page(cursor: object) -> None:
    """Raises `MCPError` for a cursor, of which none is ever given out: the gateway's own lists are whole."""
    if cursor is not None:
        raise MCPError(types.INVALID_PARAMS, "Unknown cursor: this list has one page.")


def no_prompt(name: object) -> MCPError:
    """The error for a prompt that is asked for nevertheless."""
    return MCPError(types.INVALID_PARAMS, f"Unknown prompt: {str(name)[:128]}")


def nothing_to_complete(ref: Mapping[str, Any]) -> MCPError:
    """The error for an argument of a prompt, or of a template, that is not there."""
    named = ref.get("name", ref.get("uri"))
    return MCPError(types.INVALID_PARAMS, f"There is no prompt and no resource template {str(named)[:128]!r}.")

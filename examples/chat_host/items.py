"""The items of a conversation, as the page shows them and as they are stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from pydantic import TypeAdapter, ValidationError

from examples.chat_host.models.base import AssistantText, Entry, ToolCall, ToolResult, UserText

LONGEST_RESULT = 24_000
"""Characters of a tool's result that the model reads."""

ToolState = Literal["writing", "running", "waiting", "done", "failed", "stopped"]


class Message(msgspec.Struct, frozen=True, tag_field="kind", tag="message"):
    """Text of the person or of the model; `app` is the title of the app that composed it, with the person's consent."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    state: Literal["writing", "done", "stopped"] = "done"
    app: str | None = None


class Approval(msgspec.Struct, frozen=True):
    """A page where the person answers a question; the chat only links to it. `is_gateways` is false elsewhere."""

    url: str
    message: str
    is_gateways: bool = True


class McpApp(msgspec.Struct, frozen=True):
    """An `mcp_app` item: the app that a tool's result is shown with. It has either `app` or `upstream`."""

    title: str
    mcp_app_id: str
    resource_uri: str
    tool_name: str
    tool_call_id: str
    display_mode: Literal["inline", "fullscreen", "pip"] = "inline"
    fallback_text: str = ""
    app: str | None = None
    upstream: str | None = None
    response_type: Literal["mcp_app"] = "mcp_app"


class ToolUse(msgspec.Struct, frozen=True, tag_field="kind", tag="tool"):
    """A call of a tool: what the model wrote, what waits for the person, and the result."""

    id: str
    answer: str
    """The answer of the model in which it made the call; an answer may have several calls."""
    call: str
    name: str
    title: str
    state: ToolState = "writing"
    written: str = ""
    """The JSON text of the arguments, as far as the model has written it."""
    arguments: dict[str, Any] = {}
    approval: Approval | None = None
    text: str = ""
    """The result, or the reason why there is none, as text."""
    result: dict[str, Any] | None = None
    """The whole result for the app that shows it, in MCP's JSON form."""
    app: McpApp | None = None


class AppContext(msgspec.Struct, frozen=True, tag_field="kind", tag="context"):
    """An app's context for the model (`ui/update-model-context`); a later one of the same app replaces it."""

    id: str
    app: str
    text: str


class Failure(msgspec.Struct, frozen=True, tag_field="kind", tag="failure"):
    """An answer that did not come, in words for the person; `retry_after` is in seconds."""

    id: str
    reason: str
    text: str
    retry_after: float | None = None


Item = Message | ToolUse | AppContext | Failure


def read_items(text: bytes) -> list[Item]:
    """Return stored items. Raises `msgspec.ValidationError`."""
    return msgspec.json.decode(text, type=list[Item])


def write_items(items: Iterable[Item]) -> bytes:
    """Return items as JSON, for the page and for the store."""
    return msgspec.json.encode(list(items))


def to_entries(items: Iterable[Item]) -> list[Entry]:
    """Return the conversation as a model reads it. What apps wrote is marked as such: it is not the person's word.

    An app's context stands before the person's next message, since a call must be followed by its result.
    """
    entries: list[Entry] = []
    results: list[Entry] = []
    contexts: list[Entry] = []
    answer = ""
    for item in items:
        if results and not (isinstance(item, ToolUse) and item.answer == answer):
            entries += results  # after all calls of one answer, as both APIs want it
            results = []
        match item:
            case AppContext(app=app, text=text):
                contexts.append(UserText(_quote(app, "This is its content, not the person's words", text)))
            case Message(role="user", text=text, app=app):
                said = _quote(app, "It composed this message, and the person agreed to send it", text) if app else text
                entries += [*contexts, UserText(said)]
                contexts = []
            case Message(role="assistant", text=text) if text.strip():
                entries.append(AssistantText(text))
            case ToolUse() if item.state in ("done", "failed", "stopped"):
                answer, text = item.answer, item.text or "The person stopped this call."
                entries.append(ToolCall(item.call, item.name, item.arguments))
                results.append(ToolResult(item.call, text[:LONGEST_RESULT], item.state != "done"))
            case _:
                pass
    return [*entries, *results]


def _quote(app: str, what: str, text: str) -> str:
    return f"[From the app {json.dumps(app, ensure_ascii=False)}. {what}:]\n" + json.dumps(text, ensure_ascii=False)


def text_of(result: Mapping[str, Any]) -> str:
    """Return the text of a tool's result: its text parts, or its structured content if there are none."""
    parts = []
    for part in result.get("content") or []:
        kind = part.get("type")
        if kind == "text":
            parts.append(str(part.get("text", "")))
        elif kind == "resource" and "text" in (part.get("resource") or {}):
            parts.append(str(part["resource"]["text"]))
        else:
            parts.append(f"[{kind}]")
    if not parts and (structured := result.get("structuredContent")) is not None:
        parts.append(json.dumps(structured, ensure_ascii=False))
    return "\n".join(parts)


_OBJECT = TypeAdapter(dict[str, Any])


def read_partial(text: str) -> dict[str, Any]:
    """Return the arguments as far as they are written, for `ui/notifications/tool-input-partial`."""
    try:
        return _OBJECT.validate_json(text, experimental_allow_partial="trailing-strings")
    except ValidationError:
        return {}

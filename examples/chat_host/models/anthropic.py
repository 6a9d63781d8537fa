"""Anthropic's Messages API, streamed, and endpoints that are compatible with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from examples.chat_host.models.base import (
    AssistantText,
    CallDelta,
    CallStarted,
    Entry,
    Finished,
    Part,
    TextDelta,
    Tool,
    ToolCall,
    ToolNames,
    ToolResult,
    UserText,
    merge_texts,
)
from examples.chat_host.models.endpoint import EndpointModel, broken_off, error_of, read_json, stream_events

VERSION = "2023-06-01"
MAX_TOKENS = 4096

REASONS: Mapping[str, Literal["stop", "calls", "length", "filtered"]] = {
    "tool_use": "calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "filtered",
}
"""Other reasons, such as `end_turn` and `stop_sequence`, end the answer."""


@dataclass(slots=True)
class AnthropicModel(EndpointModel):
    """The model `name` at `base_url`, such as https://api.anthropic.com."""

    async def answer(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> AsyncIterator[Part]:
        """Yield the answer. Raises `ModelError`."""
        names = ToolNames()
        offered = [
            {"name": names.encode(tool.name), "description": tool.description, "input_schema": dict(tool.schema)}
            for tool in tools
        ]
        body: dict[str, Any] = {
            "model": self.name, "max_tokens": MAX_TOKENS, "stream": True, "messages": _messages(entries, names),
        }  # fmt: skip
        if self.system:
            body["system"] = self.system
        if offered:
            body["tools"] = offered
        headers = {"x-api-key": self.key, "anthropic-version": VERSION}
        events = _Events(names)
        async for event in stream_events(self.http, f"{self.base_url}/v1/messages", headers, body):
            for part in events.read(read_json(event)):
                yield part
        yield events.finish()


def _messages(entries: Sequence[Entry], names: ToolNames) -> list[dict[str, Any]]:
    """Return messages of alternating roles; results of tools are content of the user."""
    messages: list[dict[str, Any]] = []
    for entry in merge_texts(entries):
        block: dict[str, Any]
        match entry:
            case UserText(text):
                role, block = "user", {"type": "text", "text": text}
            case AssistantText(text):
                role, block = "assistant", {"type": "text", "text": text}
            case ToolCall(id, name, arguments):
                called = names.encode(name)
                role, block = "assistant", {"type": "tool_use", "id": id, "name": called, "input": dict(arguments)}
            case ToolResult(id, text, is_error):
                role, block = "user", {"type": "tool_result", "tool_use_id": id, "content": text, "is_error": is_error}
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].append(block)
        else:
            messages.append({"role": role, "content": [block]})
    return messages


@dataclass(slots=True)
class _Events:
    """Reads the events of a message. Unknown events and blocks, such as thinking, are passed over."""

    names: ToolNames
    calls: dict[str, str] = field(default_factory=dict)
    """The id of the call in each content block."""
    reason: str | None = None
    ended: bool = False

    def read(self, event: Mapping[str, Any]) -> list[Part]:
        """Return the parts of one event. Raises `ModelError`."""
        match event:
            case {"type": "error"}:
                error = event.get("error")
                said = error if isinstance(error, dict) else {}
                raise error_of(str(said.get("type") or ""), str(said.get("message") or ""))
            case {"type": "content_block_start", "index": index, "content_block": {"type": "tool_use"} as block}:
                self.calls[str(index)] = id = str(block.get("id") or f"call_{index}")
                return [CallStarted(id, self.names.decode(str(block.get("name") or "")))]
            case {"type": "content_block_start", "content_block": {"type": "text", "text": str(text)}} if text:
                return [TextDelta(text)]
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                return [TextDelta(text)]
            case {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": "input_json_delta", "partial_json": str(json)},
            } if str(index) in self.calls:
                return [CallDelta(self.calls[str(index)], json)] if json else []
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                self.reason = reason
            case {"type": "message_stop"}:
                self.ended = True
            case _:
                pass
        return []

    def finish(self) -> Finished:
        """Return the end of the answer. Raises `ModelError` if there was none."""
        if not self.ended:
            raise broken_off()
        return Finished(REASONS.get(self.reason or "", "stop"))

"""Any endpoint that speaks OpenAI's chat completions, streamed: OpenAI, vLLM, Ollama, llama.cpp, LiteLLM and others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from examples.chat_host.models.base import (
    AssistantText,
    CallDelta,
    CallStarted,
    Entry,
    Finished,
    ModelError,
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

REASONS: Mapping[str, Literal["stop", "calls", "length", "filtered"]] = {
    "stop": "stop",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "content_filter": "filtered",
}


@dataclass(slots=True)
class OpenAIModel(EndpointModel):
    """The model `name` at `base_url`, such as https://api.openai.com/v1; local servers often need no key."""

    async def answer(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> AsyncIterator[Part]:
        """Yield the answer. Raises `ModelError`."""
        names = ToolNames()
        offered = [_tool(tool, names) for tool in tools]
        body: dict[str, Any] = {"model": self.name, "stream": True, "messages": self._messages(entries, names)}
        if offered:
            body["tools"] = offered
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        chunks = _Chunks(names)
        async for event in stream_events(self.http, f"{self.base_url}/chat/completions", headers, body):
            if event.data.strip() == "[DONE]":
                break
            for part in chunks.read(read_json(event)):
                yield part
        yield chunks.finish()

    def _messages(self, entries: Sequence[Entry], names: ToolNames) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}] if self.system else []
        for entry in merge_texts(entries):
            last = messages[-1] if messages else {}
            match entry:
                case UserText(text):
                    messages.append({"role": "user", "content": text})
                case AssistantText(text):
                    messages.append({"role": "assistant", "content": text})
                case ToolCall(id, name, arguments):
                    call = {"name": names.encode(name), "arguments": json.dumps(arguments)}
                    if last.get("role") != "assistant":
                        messages.append(last := {"role": "assistant", "content": None})
                    last.setdefault("tool_calls", []).append({"id": id, "type": "function", "function": call})
                case ToolResult(id, text):
                    messages.append({"role": "tool", "tool_call_id": id, "content": text})
        return messages


def _tool(tool: Tool, names: ToolNames) -> dict[str, Any]:
    function = {"name": names.encode(tool.name), "description": tool.description, "parameters": dict(tool.schema)}
    return {"type": "function", "function": function}


@dataclass(slots=True)
class _Call:
    id: str
    place: object
    started: bool = False
    name: str = ""


@dataclass(slots=True)
class _Chunks:
    """Reads `chat.completion.chunk` objects. Endpoints differ: `choices` may be missing, null or empty (usage), the
    `index` of a call or its later `id` may be missing, and its name may come in pieces.
    """

    names: ToolNames
    calls: list[_Call] = field(default_factory=list)
    reason: str | None = None

    def read(self, chunk: Mapping[str, Any]) -> list[Part]:
        """Return the parts of one chunk. Raises `ModelError`."""
        if (error := chunk.get("error")) is not None:
            said = error if isinstance(error, dict) else {"message": str(error)}
            raise error_of(f"{said.get('type') or ''} {said.get('code') or ''}".strip(), str(said.get("message") or ""))
        parts: list[Part] = []
        for choice in _objects(chunk.get("choices")):
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            for text in (delta.get("content"), delta.get("refusal")):
                if isinstance(text, str) and text:
                    parts.append(TextDelta(text))
            for call in _objects(delta.get("tool_calls")):
                parts += self._read_call(call)
            if choice.get("finish_reason"):
                self.reason = str(choice["finish_reason"])
        return parts

    def finish(self) -> Finished:
        """Return the end of the answer. Raises `ModelError` if there was none."""
        if self.reason is None:
            raise broken_off()
        if any(not call.started for call in self.calls):
            raise ModelError("broken", "The model called a tool without naming it.")
        # Some endpoints say "stop" after calls, too.
        return Finished("calls" if self.calls and self.reason != "length" else REASONS.get(self.reason, "stop"))

    def _read_call(self, given: Mapping[str, Any]) -> list[Part]:
        function = given.get("function")
        function = function if isinstance(function, dict) else {}
        call = self._find(given)
        parts: list[Part] = []
        if not call.started:
            call.name += str(function.get("name") or "")
        arguments = function.get("arguments")
        if not call.started and call.name and (arguments is not None or given.get("id")):
            call.started = True
            parts.append(CallStarted(call.id, self.names.decode(call.name)))
        if isinstance(arguments, dict):  # as some local servers send them
            arguments = json.dumps(arguments)
        if arguments and call.started:
            parts.append(CallDelta(call.id, str(arguments)))
        return parts

    def _find(self, given: Mapping[str, Any]) -> _Call:
        """Return the call that a delta belongs to: by its index, else by its id, else the last one."""
        id, place = given.get("id"), given.get("index")
        known = [one for one in self.calls if (one.place == place if place is not None else one.id == id)]
        if place is None and not id and self.calls:
            known = self.calls[-1:]
        if known:
            return known[-1]
        call = _Call(str(id or f"call_{len(self.calls)}"), place)
        self.calls.append(call)
        return call


def _objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []

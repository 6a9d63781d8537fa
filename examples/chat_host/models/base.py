"""The interface of a language model to the chat: a conversation goes in, an answer comes out as it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

ErrorKind = Literal["unreachable", "key", "not-found", "rate-limited", "overloaded", "too-long", "refused", "broken"]


class ModelError(Exception):
    """The model gave no whole answer; the text is for the person, and never contains the key."""

    def __init__(self, kind: ErrorKind, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text
        self.retry_after = retry_after  # seconds


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


# ── the conversation so far ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class UserText:
    """A message of the person."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantText:
    """Text that the model wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call with this id, as text."""

    id: str
    text: str
    is_error: bool = False


Entry = UserText | AssistantText | ToolCall | ToolResult


# ── the answer ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call of a tool begins; calls of one answer may be written in turn."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of the JSON text of a call's arguments."""

    id: str
    json: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is whole, or ended at the model's limit of tokens or at a content filter."""

    reason: Literal["stop", "calls", "length", "filtered"] = "stop"


Part = TextDelta | CallStarted | CallDelta | Finished


class Model(Protocol):
    """A model, or an imitation of one."""

    @property
    def label(self) -> str:
        """The name that the person reads."""
        ...

    def answer(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> AsyncIterator[Part]:
        """Yield the parts of the next answer, `Finished` last. Raises `ModelError`."""
        ...


@dataclass(slots=True)
class ToolNames:
    """Names of tools as model APIs accept them: letters, digits, `_` and `-`, 64 characters at most."""

    _real: dict[str, str] = field(default_factory=dict)

    def encode(self, name: str) -> str:
        """Return the name for the API; equal names stay distinct."""
        made = "".join(char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in name)[:64]
        suffix = 1
        while self._real.setdefault(made, name) != name:
            suffix += 1
            made = f"{made[:60]}_{suffix}"
        return made

    def decode(self, name: str) -> str:
        """Return the tool's own name; a name that was never encoded stays as it is."""
        return self._real.get(name, name)


def merge_texts(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with neighbouring texts of one side joined, which some endpoints demand."""
    merged: list[Entry] = []
    for entry in entries:
        last = merged[-1] if merged else None
        if isinstance(entry, UserText) and isinstance(last, UserText):
            merged[-1] = UserText(f"{last.text}\n\n{entry.text}")
        elif isinstance(entry, AssistantText) and isinstance(last, AssistantText):
            merged[-1] = AssistantText(f"{last.text}\n\n{entry.text}")
        else:
            merged.append(entry)
    return merged

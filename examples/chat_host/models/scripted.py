"""A scripted model for when there is no endpoint: it follows script.yaml, writes word by word, and calls real tools."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

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
    ToolResult,
    UserText,
)

SCRIPT = Path(__file__).parent.parent / "script.yaml"
PACE = 0.025
"""Seconds for a word, or for a piece of a call's arguments."""

PIECE = 8
"""Characters of such a piece."""

LONGEST_QUOTE = 400
NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


@dataclass(frozen=True, slots=True)
class Step:
    """A text, and the call that follows it; no call is made if a tool of `unless` is there already."""

    text: str
    call: str | None = None
    arguments: Mapping[str, Any] | None = None
    unless: str | None = None
    otherwise: str = "That did not work: {result}"


@dataclass(frozen=True, slots=True)
class Scene:
    """The steps that answer a message which `pattern` matches."""

    pattern: re.Pattern[str]
    steps: tuple[Step, ...]


def read_script(path: Path = SCRIPT) -> tuple[Scene, ...]:
    """Return the scenes of a script, the last of which matches everything."""
    scenes = yaml.safe_load(path.read_text("utf-8"))["scenes"]
    return tuple(
        Scene(re.compile(scene.get("match", ""), re.IGNORECASE), tuple(Step(**step) for step in scene["steps"]))
        for scene in scenes
    )


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """Follows the script: the step of an answer depends on what was said and called since the person's last message."""

    scenes: tuple[Scene, ...]
    pace: float = PACE

    @property
    def label(self) -> str:
        """The name that the person reads."""
        return "Scripted model"

    async def answer(self, entries: Sequence[Entry], tools: Sequence[Tool]) -> AsyncIterator[Part]:
        """Yield the next step, with a pause after each word."""
        asked = max((place for place, entry in enumerate(entries) if isinstance(entry, UserText)), default=0)
        said = [entry.text for entry in entries[asked:] if isinstance(entry, UserText)]
        scene, found = self._scene(said[0] if said else "")
        done = [entry for entry in entries[asked:] if isinstance(entry, ToolCall)]
        results = [entry for entry in entries[asked:] if isinstance(entry, ToolResult)]
        step = next_step(scene, [call.name for call in done], results, {tool.name for tool in tools})
        quoted = results[-1].text[:LONGEST_QUOTE] if results else ""
        written = any(isinstance(entry, AssistantText) for entry in entries[asked:])
        text = fill(step.text, found, quoted)
        for word in re.findall(r"\S+\s*|\s+", text if not (step.call and written and not text) else ""):
            await asyncio.sleep(self.pace)
            yield TextDelta(word)
        if step.call is None:
            yield Finished()
            return
        id = f"scripted_{len(entries)}"
        yield CallStarted(id, step.call)
        arguments = json.dumps({name: fill(value, found, quoted) for name, value in (step.arguments or {}).items()})
        for start in range(0, len(arguments), PIECE):
            await asyncio.sleep(self.pace)
            yield CallDelta(id, arguments[start : start + PIECE])
        yield Finished("calls")

    def _scene(self, said: str) -> tuple[Scene, Mapping[str, str]]:
        for scene in self.scenes:
            if match := scene.pattern.search(said):
                return scene, {name: value for name, value in match.groupdict().items() if value}
        return self.scenes[-1], {}


def next_step(scene: Scene, called: Sequence[str], results: Sequence[ToolResult], tools: Collection[str]) -> Step:
    """Return the first step that is not done; after a call that failed, the words for that."""
    place = 0
    for step in scene.steps:
        if step.call is not None and place < len(called) and called[place] == step.call:
            if place < len(results) and results[place].is_error:
                return Step(step.otherwise)
            place += 1
        elif step.call is None or step.unless not in tools:
            return step
    return Step("Done.")


def fill(value: Any, found: Mapping[str, str], result: str) -> Any:
    """Return the text with `{result}` and the words of the message in it; `{count}` alone becomes a number."""
    if not isinstance(value, str):
        return value
    if value == "{count}":
        count = found.get("count", "1").lower()
        return NUMBERS.get(count) or (int(count) if count.isdigit() else 1)
    for name, word in {**found, "result": result}.items():
        value = value.replace("{" + name + "}", word)
    return value

"""The text of a question: a template of the policy, filled with values that cannot disguise it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gateway.jsontext.writing import lenient_json

MAX_VALUE: Final = 120
MAX_MESSAGE: Final = 500

_PART = re.compile(r"\{([a-z]+(?:\.[A-Za-z0-9_\-]+)*)\}|([{}])", re.ASCII)
# Invisible characters that their Unicode categories do not identify.
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0\u034f\u17b4\u17b5") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0), *range(0x180B, 0x1810))
}


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """A template: texts and names in turn, beginning and ending with a text."""

    texts: tuple[str, ...]
    names: tuple[str, ...]

    def fill(self, values: Iterable[object]) -> str:
        """Fill in the values of its names, in order, on one line of at most `MAX_MESSAGE` characters."""
        texts = [self.texts[0]]
        for value, text in zip(values, self.texts[1:], strict=True):
            texts += (_cut(visible(_display(value)), MAX_VALUE), text)
        return _cut(visible("".join(texts)), MAX_MESSAGE)


def parse_message(text: str) -> MessageTemplate:
    """Parse a template with placeholders such as `{params.item}`. Raises ValueError."""
    texts: list[str] = []
    names: list[str] = []
    end = 0
    for match in _PART.finditer(text):
        if match[2]:
            raise ValueError(
                f'"{text[:60]}" has a brace that names no value: write {{params.name}} or {{request.method}}'
            )
        texts.append(text[end : match.start()])
        names.append(match[1])
        end = match.end()
    return MessageTemplate((*texts, text[end:]), tuple(names))


def visible(text: str) -> str:
    """Return `text` on one line, with control, bidirectional and invisible characters shown as code points."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Zs", "Zl", "Zp") or char in "\t\n\r":
        return " "
    return f"⟨U+{ord(char):04X}⟩" if category[0] == "C" or char in _BLANK else char


def _display(value: object) -> str:
    if isinstance(value, str):
        return value
    return "(none)" if value is None else lenient_json(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"

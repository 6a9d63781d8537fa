"""The engine of conditions: how its programs are made, and what it says when it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.policy.regexes import Regex

if TYPE_CHECKING:
    from cel import Program


def compiled(text: str) -> Program:
    """The program of an expression in CEL. Raises what the engine does: ValueError, RuntimeError."""
    # The engine brings a command line of its own, which takes 150 ms to import.
    import cel  # noqa: PLC0415  # here, so that only policies with conditions pay for it

    return cel.compile(text)


def pattern_program(regex: Regex) -> Program:
    """Whether `regex` is found in the text `v`. Raises ValueError where the engine does not take it."""
    try:
        program = compiled(f"v.matches({quoted(regex.text)})")
        program.execute({"v": ""})
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"the regular expression {quoted(regex.text[:60])} is refused: {told(error)}") from error
    return program


def quoted(text: str) -> str:
    """`text` as CEL writes it."""
    return '"' + "".join(map(_quoted_char, text)) + '"'


def _quoted_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isascii() and char.isprintable():
        return char
    return f"\\U{ord(char):08X}"


def told(error: Exception) -> str:
    """The first sentence of what the engine says."""
    return f"it failed: {str(error).partition(chr(10))[0].partition('. ')[0][:120]}"

"""The CEL engine of conditions: compiles programs and words its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.policy.regexes import Regex

if TYPE_CHECKING:
    from cel import Program


def compiled(text: str) -> Program:
    """Compile a CEL expression. Raises the engine's errors: ValueError, RuntimeError."""
    # The engine's package imports its own command line, which takes 150 ms.
    import cel  # noqa: PLC0415  # here, so that only policies with conditions pay for it

    return cel.compile(text)


def pattern_program(regex: Regex) -> Program:
    """Compile a search for `regex` in the string `v`. Raises ValueError if the engine rejects it."""
    try:
        program = compiled(f"v.matches({quoted(regex.text)})")
        program.execute({"v": ""})
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"the regular expression {quoted(regex.text[:60])} is refused: {told(error)}") from error
    return program


def quoted(text: str) -> str:
    """Quote `text` as a CEL string."""
    return '"' + "".join(map(_quoted_char, text)) + '"'


def _quoted_char(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isascii() and char.isprintable():
        return char
    return f"\\U{ord(char):08X}"


def told(error: Exception) -> str:
    """Return the first sentence of the engine's error."""
    return f"it failed: {str(error).partition(chr(10))[0].partition('. ')[0][:120]}"

"""Escapes JavaScript whose source the page can read: tagged templates, and regular expressions.

Those that a `<script>` element cannot contain become an expression with the same value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from gateway.apps.places import Splice

_INVALID: Final = re.compile(
    r"(?:\\\\|[^\\]|\\[^1-9ux0])*?\\(?:[1-9]|0[0-9]|x(?![0-9a-fA-F]{2})|u(?!\{0*(?:10|[0-9a-fA-F])?[0-9a-fA-F]{1,4}\}|[0-9a-fA-F]{4}))",
    re.DOTALL,
)
"""An escape that only tagged templates may contain; their cooked string is undefined then (ECMA-262, 12.9.6)."""


def regular_expression(literal: str) -> str:
    """Return an expression for a regular expression `literal`."""
    end = literal.rindex("/")
    return f" RegExp({_quoted(literal[1:end])},{_quoted(literal[end + 1 :])})"


def template_call(parts: Sequence[tuple[int, int, str]], name: str, escaped: Sequence[str]) -> list[Splice]:
    """Return the changes that turn a tagged template with `parts` (place and text) into a call of its tag (13.3.11).

    `name` identifies the template object, `escaped` are the parts as an element can contain them.
    """
    raw = [_inner(text).replace("\r\n", "\n").replace("\r", "\n") for _, _, text in parts]
    cooked = [
        "void 0" if _INVALID.match(text) else f"`{_inner(safe)}`" for text, safe in zip(raw, escaped, strict=True)
    ]
    frozen = f"Object.freeze([{','.join(map(_quoted, raw))}])"
    make = f"(c=>Object.freeze(Object.defineProperty(c,'raw',{{value:{frozen}}})))"
    kept = f"(globalThis[Symbol.for({_quoted(f'webmcp-gateway.template.{name}')})]??={make}([{','.join(cooked)}]))"
    last = len(parts) - 1
    return [
        Splice(start, end, (f"({kept}" if at == 0 else ")") + (",(" if at < last else ")"))
        for at, (start, end, _) in enumerate(parts)
    ]


def _inner(part: str) -> str:
    """Return the characters of a template's part without its delimiters."""
    return part[1 : -2 if part.endswith("${") else -1]


def _quoted(text: str) -> str:
    return json.dumps(text).replace("<", r"\u003c")

"""JavaScript whose own text a page can read: raw strings of tagged templates, and sources of regular expressions.

In a `<script>` element some of it cannot stand as it is. Each such literal becomes an expression of the same value.
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
"""An escape that only tagged templates may have, and of which their cooked string is undefined (ECMA-262, 12.9.6)."""


def regular_expression(literal: str) -> str:
    """The expression for a regular expression `literal`."""
    end = literal.rindex("/")
    return f" RegExp({_quoted(literal[1:end])},{_quoted(literal[end + 1 :])})"


def template_call(parts: Sequence[tuple[int, int, str]], name: str, escaped: Sequence[str]) -> list[Splice]:
    """What makes a tagged template, of which each of `parts` has its place and text, a call of the tag (13.3.11).

    `name` tells the template object from others, `escaped` are the parts as they stand in an element.
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
    """The characters of a part of a template, without what begins and ends it."""
    return part[1 : -2 if part.endswith("${") else -1]


def _quoted(text: str) -> str:
    return json.dumps(text).replace("<", r"\u003c")

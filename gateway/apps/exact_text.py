"""Classic scripts whose text cannot be written in a `<script>` element: a data block holds it, and a script runs it.

So comments, function sources (ECMA-262, 20.2.3.5) and all else that a page can read of its code stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.apps.files import Splice
from gateway.apps.markup import text_end
from gateway.jsontext.reading import parse_json
from gateway.jsontext.writing import plain_json, plain_json_utf8

_INVALID: Final = re.compile(
    r"(?:\\\\|[^\\]|\\[^1-9ux0])*?\\(?:[1-9]|0[0-9]|x(?![0-9a-fA-F]{2})|u(?!\{0*(?:10|[0-9a-fA-F])?[0-9a-fA-F]{1,4}\}|[0-9a-fA-F]{4}))",
    re.DOTALL,
)
"""An escape that only tagged templates may contain; their cooked string is undefined then (ECMA-262, 12.9.6)."""


def regular_expression(literal: str) -> str:
    """Return an expression for a regular expression `literal`."""
    end = literal.rindex("/")
    return f" RegExp({_quote(literal[1:end])},{_quote(literal[end + 1 :])})"


def template_call(parts: Sequence[tuple[int, int, str]], name: str, escaped: Sequence[str]) -> list[Splice]:
    """Return the changes that turn a tagged template with `parts` (place and text) into a call of its tag (13.3.11).

    `name` identifies the template object, `escaped` are the parts as an element can contain them.
    """
    raw = [_inner(text).replace("\r\n", "\n").replace("\r", "\n") for _, _, text in parts]
    cooked = [
        "void 0" if _INVALID.match(text) else f"`{_inner(safe)}`" for text, safe in zip(raw, escaped, strict=True)
    ]
    raw_texts = f"Object.freeze([{','.join(map(_quote, raw))}])"
    make = f"(c=>Object.freeze(Object.defineProperty(c,'raw',{{value:{raw_texts}}})))"
    cached_call = (
        f"(globalThis[Symbol.for({_quote(f'webmcp-gateway.template.{name}')})]??={make}([{','.join(cooked)}]))"
    )
    last = len(parts) - 1
    return [
        Splice(start, end, (f"({cached_call}" if at == 0 else ")") + (",(" if at < last else ")"))
        for at, (start, end, _) in enumerate(parts)
    ]


def _inner(part: str) -> str:
    """Return the characters of a template's part without its delimiters."""
    return part[1 : -2 if part.endswith("${") else -1]


def _quote(text: str) -> str:
    return plain_json(text).replace("<", r"\u003c")


TYPE: Final = "webmcp-gateway-exact"
"""The type of such a data block."""

_RUN: Final = 'run=kept.cloneNode(!0);run.removeAttribute("type");run.text=JSON.parse(run.text);'
_LOADED: Final = 'run.dispatchEvent(new Event("load"))'


def stands(code: str) -> bool:
    """Return whether `code` can be the text of a `<script>` element without change."""
    return ends_there(code) and "\0" not in code and "\r" not in code  # HTML, 13.2.3.5 and 13.2.5.4


def ends_there(code: str) -> bool:
    """Return whether such an element ends exactly where `code` does."""
    return text_end(f"{code}</script>", 0, "script") == len(code)


def to_data_block(code: str) -> str:
    """Return `code` as the text of a data block."""
    return plain_json_utf8(code).replace("<", r"\u003c")


def from_data_block(text: str) -> str:
    """Return the script in a data block."""
    return str(parse_json(text))


def element(code: str, attributes: str, *, deferred: bool, heard: bool) -> str:
    """Return the replacement of a script with these attributes; `heard`: the page listens to its load event."""
    block = f'<script type="{TYPE}"{attributes}>{to_data_block(code)}</script>'
    if deferred:
        kept_script = f'const kept=document.querySelector("script[type={TYPE}]"),'
        return f'{block}<script type="module">{{{kept_script}{_RUN}kept.replaceWith(run);{_LOADED}}}</script>'
    kept_script = "const own=document.currentScript,kept=own.previousElementSibling,"
    # As in a browser, the last script of the document is the running one.
    runs = f"{kept_script}{_RUN}own.remove();kept.replaceWith(run)"
    return f"{block}<script>{{{runs}{f';{_LOADED}' if heard else ''}}}</script>"

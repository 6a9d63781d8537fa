"""Classic scripts whose text cannot be written in a `<script>` element: a data block holds it, and a script runs it.

So comments, function sources (ECMA-262, 20.2.3.5) and all else that a page can read of its code stay unchanged.
"""

from __future__ import annotations

import json
from typing import Final

from gateway.apps.tags import text_end

TYPE: Final = "webmcp-gateway-exact"
"""The type of such a data block."""

_RUN: Final = 'run=kept.cloneNode(!0);run.removeAttribute("type");run.text=JSON.parse(run.text);'
_LOADED: Final = 'run.dispatchEvent(new Event("load"))'


def stands(code: str) -> bool:
    """Whether `code` can be the text of a `<script>` element without change."""
    return ends_there(code) and "\0" not in code and "\r" not in code  # HTML, 13.2.3.5 and 13.2.5.4


def ends_there(code: str) -> bool:
    """Whether such an element ends exactly where `code` does."""
    return text_end(f"{code}</script>", 0, "script") == len(code)


def written(code: str) -> str:
    """Return `code` as the text of a data block."""
    return json.dumps(code, ensure_ascii=False).replace("<", r"\u003c")


def read(text: str) -> str:
    """Return the script in a data block."""
    return str(json.loads(text))


def element(code: str, attributes: str, *, deferred: bool, heard: bool) -> str:
    """Return the replacement of a script with these attributes; `heard`: the page listens to its load event."""
    block = f'<script type="{TYPE}"{attributes}>{written(code)}</script>'
    if deferred:
        kept = f'const kept=document.querySelector("script[type={TYPE}]"),'
        return f'{block}<script type="module">{{{kept}{_RUN}kept.replaceWith(run);{_LOADED}}}</script>'
    kept = "const own=document.currentScript,kept=own.previousElementSibling,"
    # As in a browser, the last script of the document is the running one.
    runs = f"{kept}{_RUN}own.remove();kept.replaceWith(run)"
    return f"{block}<script>{{{runs}{f';{_LOADED}' if heard else ''}}}</script>"

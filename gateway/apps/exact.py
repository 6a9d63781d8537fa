"""Classic scripts whose text may not stand in a `<script>` element: a data block holds it, and a script runs that.

So comments, the text of functions (ECMA-262, 20.2.3.5) and all else that a page can read of its code are as written.
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
    """Whether `code` is the text of a `<script>` element in which it is written."""
    return ends_there(code) and "\0" not in code and "\r" not in code  # HTML, 13.2.3.5 and 13.2.5.4


def ends_there(code: str) -> bool:
    """Whether such an element ends where `code` does, and not before or behind it."""
    return text_end(f"{code}</script>", 0, "script") == len(code)


def written(code: str) -> str:
    """`code` as the text of a data block."""
    return json.dumps(code, ensure_ascii=False).replace("<", r"\u003c")


def read(text: str) -> str:
    """The script that a data block holds."""
    return str(json.loads(text))


def element(code: str, attributes: str, *, deferred: bool, heard: bool) -> str:
    """What stands for a script with these attributes; `heard` says that the page hears of its loading."""
    block = f'<script type="{TYPE}"{attributes}>{written(code)}</script>'
    if deferred:
        kept = f'const kept=document.querySelector("script[type={TYPE}]"),'
        return f'{block}<script type="module">{{{kept}{_RUN}kept.replaceWith(run);{_LOADED}}}</script>'
    kept = "const own=document.currentScript,kept=own.previousElementSibling,"
    # As in a browser, the last script of the document is the one that runs.
    runs = f"{kept}{_RUN}own.remove();kept.replaceWith(run)"
    return f"{block}<script>{{{runs}{f';{_LOADED}' if heard else ''}}}</script>"

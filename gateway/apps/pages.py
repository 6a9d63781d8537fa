"""Embeds the other pages of an app in the packed page, where a part of the view runtime shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from gateway.apps.elements import Packing
from gateway.apps.own_files import INDEX, own_files
from gateway.apps.places import Splice, splice
from gateway.errors import DocumentError

PAGES: Final = "webmcp-gateway-pages"
"""The id of the element that holds them, by their paths."""

MOST: Final = 14 * 1024 * 1024
"""Bytes of all of them in a message, out of the console's 16 MiB, which also hold the runtime and a snapshot."""

_NAMED = re.compile(r"""(?<![^\s"'`/\\?#=()<>,;])[^\s"'`/\\?#=()<>,;]+\.html?\b""")

_LED_TO = re.compile(r"""\b(?:href|action)\s*=\s*["']?([^\s"'>?#]+)""")


@dataclass(frozen=True, slots=True)
class Made:
    """A packed page without its head, which begins at `start`; `own_location` rewrites its uses of `location`."""

    packing: Packing
    text: str
    start: int
    own_location: list[Splice] | None

    def whole(self, head: str = "") -> str:
        """Return the page with its style sheets behind `head`."""
        head += "".join(self.packing.scripts.sheets)
        return splice(self.text, [Splice(self.start, self.start, head), *(self.own_location or [])])


@dataclass(frozen=True, slots=True)
class Others:
    """The pages beside the first, by their paths on the app's site; `own` are the paths of the first."""

    pages: Mapping[str, Made] = field(default_factory=dict)
    own: tuple[str, ...] = ()

    def written(self, change: Callable[[str], str]) -> str:
        """Return the element that holds them, each changed by `change`; empty if there are none."""
        if not self.pages:
            return ""
        texts: dict[str, str | list[str]] = dict.fromkeys(self.own, "")
        for path, made in self.pages.items():
            # A folder's page is stored at the folder's address; two aliases refer to it.
            at = path.removesuffix(INDEX) if path.endswith(f"/{INDEX}") else path
            texts |= {at.rstrip("/"): [at], path: [at], at: change(made.whole())}
        return f'<script type="application/json" id="{PAGES}">{_written(texts)}</script>'


def others(source: Path, main: Made, make: Callable[[Path], Made]) -> Others:
    """Pack the pages of the folder `source` that `main` or one of them mentions; `make` packs one file.

    One that cannot be packed is omitted, and a note of `main` tells why.
    """
    files = own_files(source)
    index = files.get(f"/{INDEX}")
    left = {path for path in files.values() if path.suffix.lower() in (".html", ".htm") and path != index}
    found: dict[str, Made] = {}
    size, waiting = _carried(main.text), [main]
    while waiting and left:
        is_named = _names_in(waiting.pop().text)
        for path in sorted(filter(is_named, left)):
            left.remove(path)
            name = path.relative_to(source.resolve()).as_posix()
            try:
                made = make(path)
            except DocumentError as error:
                main.packing.notes.append(f"its page {name} is left out: {error.problems[0]}")
                continue
            more = _carried(_written({"": made.whole()}))
            if size + more > MOST or made.packing.base != main.packing.base:
                why = "with it, the app is too large for the console" if size + more > MOST else "it has another <base>"
                main.packing.notes.append(f"its page {name} is left out: {why}")
                continue
            size += more
            found[main.packing.url(path)] = made
            waiting.append(made)
    own = () if index is None else (main.packing.url(index).removesuffix(INDEX), main.packing.url(index))
    return Others(found, own)


def _written(pages: object) -> str:
    return json.dumps(pages, ensure_ascii=False, separators=(",", ":")).replace("<", r"\u003c")


def _carried(text: str) -> int:
    """Return the bytes of a text in a message."""
    return len(json.dumps(text, ensure_ascii=False).encode())


def _names_in(text: str) -> Callable[[Path], bool]:
    """Return whether `text` contains the name of a page; that of a folder means the folder's page."""
    names = {unquote(name) for name in _NAMED.findall(text)}
    folders = {unquote(led.rstrip("/").rpartition("/")[2]) for led in _LED_TO.findall(text)}
    return lambda page: page.name in names or (page.name == INDEX and page.parent.name in folders)

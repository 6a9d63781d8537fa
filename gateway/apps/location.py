"""Rewrites scripts of a packed page that read `location` to call the view runtime, as a frame has no address."""

from __future__ import annotations

import html
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from gateway.apps import exact_text
from gateway.apps.markup import Element, parse
from gateway.apps.modules import SECONDS, node
from gateway.apps.places import Splice, Text
from gateway.jsontext.writing import plain_json

ASKS: Final = "webmcpGatewayOwn("
"""A string that rewritten scripts contain."""

WORD: Final = "location"
"""A string that all scripts that read `location` contain."""

_ANSWERS: Final = TypeAdapter(list[str | None])


@dataclass(frozen=True, slots=True)
class _Script:
    """The JavaScript from `start` to `end` of the page; `name` is that of its attribute, if it is in one.

    `exact`: it is in a data block.
    """

    code: str
    kind: str
    start: int
    end: int
    name: str = ""
    exact: bool = False

    def with_code(self, code: str) -> Splice:
        """Return the replacement of its code."""
        if self.exact:
            code = exact_text.to_data_block(code)
        return Splice(self.start, self.end, f'{self.name}="{html.escape(code)}"' if self.name else code)


def location_changes(page: str, kinds: Collection[str]) -> list[Splice] | None:
    """Return the changes that make scripts of `page` call the runtime for `location`; None without Node.

    `kinds` are the types of its classic scripts. A script with a syntax error is unchanged.
    """
    if WORD not in page:
        return []
    scripts = [script for element in parse(Text("", page)).elements for script in _scripts(page, element, kinds)]
    if not scripts:
        return []
    answers = _answers(scripts)
    if answers is None:
        return None
    return [one.with_code(code) for one, code in zip(scripts, answers, strict=True) if code is not None]


def _scripts(page: str, element: Element, kinds: Collection[str]) -> list[_Script]:
    found = [
        _Script(attribute.value, "handler", attribute.start, attribute.end, name)
        for name, attribute in element.attributes.items()
        if name.startswith("on") and WORD in attribute.value
    ]
    kind = (element.get("type") or "").strip().lower()
    code = page[element.end : element.text_end]
    if element.name == "script" and (kind == "module" or kind in kinds) and WORD in code:
        data = kind == exact_text.TYPE
        code = exact_text.from_data_block(code) if data else code
        kind = "module" if kind == "module" else "script"
        found.append(_Script(code, kind, element.end, element.text_end, exact=data))
    return found


def _answers(scripts: Sequence[_Script]) -> list[str | None] | None:
    program = node()
    if program is None:
        return None
    path = Path(str(files("gateway"))) / "static" / "pack" / "location.mjs"
    try:
        done = subprocess.run(  # noqa: S603  # our own program, with the Node that was found; the scripts are its input
            [program, str(path), "--stdin"],
            input=plain_json([{"code": script.code, "kind": script.kind} for script in scripts]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return _ANSWERS.validate_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValidationError):
        return None  # most pages work without

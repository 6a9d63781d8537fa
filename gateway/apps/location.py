"""Scripts of a packed page that read `location`: they ask a part of the view runtime, as a frame has no address."""

from __future__ import annotations

import html
import json
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from gateway.apps import exact
from gateway.apps.markup import Element, parse
from gateway.apps.modules import SECONDS, node
from gateway.apps.places import Splice, Text

ASKS: Final = "webmcpGatewayOwn("
"""What stands in a script that asks."""

WORD: Final = "location"
"""Without it no script reads one."""

_ANSWERS: Final = TypeAdapter(list[str | None])


@dataclass(frozen=True, slots=True)
class _Script:
    """What the JavaScript from `start` to `end` of the page says; `name` is that of the attribute that it stands in.

    `exact` says that it stands there as data.
    """

    code: str
    kind: str
    start: int
    end: int
    name: str = ""
    exact: bool = False

    def with_code(self, code: str) -> Splice:
        """The same place with other code."""
        if self.exact:
            code = exact.written(code)
        return Splice(self.start, self.end, f'{self.name}="{html.escape(code)}"' if self.name else code)


def asking(page: str, kinds: Collection[str]) -> list[Splice] | None:
    """What makes the scripts of `page` ask, where they read `location`; None where there is no Node that could tell.

    `kinds` are the types of its classic scripts. One that no parser can read stays as it is.
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
        data = kind == exact.TYPE
        code = exact.read(code) if data else code
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
            input=json.dumps([{"code": script.code, "kind": script.kind} for script in scripts]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return _ANSWERS.validate_json(done.stdout)
    except (OSError, subprocess.SubprocessError, ValidationError):
        return None  # most pages go on without

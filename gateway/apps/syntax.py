"""Finds classic scripts with syntax errors, as notes for the author: the page itself works without them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter, ValidationError

from gateway.apps.modules import SECONDS, Module, node
from gateway.errors import Problem

_PROGRAM: Final = """
const { Script } = require("node:vm");
const found = [];
for (const [file, code, line, column] of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
  try {
    new Script(code, { filename: file, lineOffset: line - 1, columnOffset: column - 1 });
  } catch (error) {
    const [at, , caret = ""] = error.stack.split("\\n");
    const on = Number(/\\d+$/.exec(at));
    const before = Math.max(caret.indexOf("^"), 0); // of a long line only the start is underlined
    found.push([file, on, before + (on === line ? column : 1), error.message]);
  }
}
process.stdout.write(JSON.stringify(found));
"""
_Found: Final = TypeAdapter(list[tuple[str, int, int, str]])


def syntax_problems(scripts: Sequence[Module]) -> list[Problem]:
    """Return the syntax errors of `scripts`, as Node reports them; empty without Node."""
    program = node()
    if program is None or not scripts:
        return []
    try:
        done = subprocess.run(  # noqa: S603  # our own program, with the Node that was found; the scripts are its input
            [program, "-e", _PROGRAM],
            input=json.dumps([_job(script) for script in scripts]),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
        return [Problem(*one) for one in _Found.validate_json(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValidationError):
        return []  # a failed check is no reason to refuse the page


def _job(script: Module) -> tuple[str, str, int, int]:
    at = script.text.problem(0, "")
    return at.file, script.source, at.line, at.column

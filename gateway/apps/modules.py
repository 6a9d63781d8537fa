"""Links the module scripts of a page with their imports, since a packed page has no other file to load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.apps.places import Text
from gateway.apps.scripts import find_imports, import_problems
from gateway.errors import DocumentError, Problem
from gateway.jsontext.writing import plain_json

SECONDS: Final = 60
"""Seconds that linking may take."""

_REMEDY: Final = "linking modules needs Node 20 or later: pip install 'webmcp-gateway[pack]', or put node on the PATH"


@dataclass(frozen=True, slots=True)
class Module:
    """A module script: the file `path`, or `code`, which begins in it at `text`."""

    path: Path
    text: Text
    code: str | None = None

    @property
    def source(self) -> str:
        """The module's code."""
        return self.text.whole[self.text.start :] if self.code is None else self.code

    def needs_linking(self) -> bool:
        """Whether it imports another file, or uses `import.meta`."""
        return "import.meta" in self.source or bool(import_problems(self.text, find_imports(self.source)))


@dataclass(frozen=True, slots=True)
class Linked:
    """The linked code of each script, and the style sheets that their imports would have loaded, as files."""

    codes: tuple[str, ...]
    styles: tuple[str, ...]


class _ScriptReport(BaseModel):
    class Place(BaseModel):
        file: str
        line: int
        column: int
        message: str

    codes: list[str]
    styles: list[str]
    problems: list[Place]


def link(
    modules: Sequence[Module],
    root: Path,
    *,
    base: str,
    home: str,
    imports: dict[str, str],
    scopes: dict[str, dict[str, str]],
) -> Linked:
    """Link the modules of one page with all their imports, in order. Raises `DocumentError`.

    `base` is the URL path of the folder `root`, `home` the absolute URL of the app's own; `imports` and `scopes` are
    those of the page's import map.
    """
    program = node()
    if program is None:
        problems = [
            problem for module in modules for problem in import_problems(module.text, find_imports(module.source))
        ]
        raise DocumentError([Problem(p.file, p.line, p.column, f"imports another file; {_REMEDY}") for p in problems])
    scripts = [_script(module) for module in modules]
    job = {"root": str(root), "base": base, "home": home, "scripts": scripts, "imports": imports, "scopes": scopes}
    answer = _run(program, plain_json(job), root)
    if answer.problems:
        raise DocumentError([Problem(str(root / p.file), p.line, p.column, p.message) for p in answer.problems])
    return Linked(tuple(answer.codes), tuple(answer.styles))


def _script(module: Module) -> dict[str, object]:
    if module.code is None:
        return {"file": str(module.path)}
    at = module.text.problem(0, "")
    return {"file": str(module.path), "code": module.code, "line": at.line, "column": at.column}


def _run(node: str, job: str, root: Path) -> _ScriptReport:
    program = Path(str(files("gateway"))) / "static" / "pack" / "bundle.mjs"
    try:
        done = subprocess.run(  # noqa: S603  # our own program, with the Node that was found; the job is its input
            [node, str(program), "--stdin"], input=job, capture_output=True, text=True, timeout=SECONDS, check=True
        )
        return TypeAdapter(_ScriptReport).validate_json(done.stdout)
    except subprocess.TimeoutExpired as error:
        raise DocumentError([Problem(str(root), 1, 1, f"its modules were not linked within {SECONDS} s")]) from error
    except (OSError, subprocess.CalledProcessError, ValidationError) as error:
        said = error.stderr.strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else [str(error)]
        message = f"its modules cannot be linked: {next(iter(said[-1:]), error)}; {_REMEDY}"
        raise DocumentError([Problem(str(root), 1, 1, message)]) from error


def node() -> str | None:
    """Find Node, on the PATH or beside this Python."""
    return shutil.which("node", path=os.pathsep.join((os.environ.get("PATH", ""), sysconfig.get_path("scripts"))))

"""The parts of packing that Node does: linking module scripts with their imports, and rewriting reads of `location`."""

from __future__ import annotations

import errno
import html
import os
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.apps import exact_text
from gateway.apps.files import Splice, Text
from gateway.apps.markup import Element, parse
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
        """Return whether it imports another file, or uses `import.meta`."""
        return "import.meta" in self.source or bool(import_problems(self.text, find_imports(self.source)))


@dataclass(frozen=True, slots=True)
class LinkedScripts:
    """The linked code of each script, and the style sheets that their imports would have loaded, as files.

    `problems` are imports that cannot be linked: where the code runs, they throw. `foreign` are those of other sites.
    """

    codes: tuple[str, ...]
    styles: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    foreign: tuple[str, ...] = ()


class _ScriptReport(BaseModel):
    class Place(BaseModel):
        file: str
        line: int
        column: int
        message: str

    codes: list[str]
    styles: list[str]
    problems: list[Place]
    foreign: list[str] = []


def link(
    modules: Sequence[Module],
    root: Path,
    *,
    base: str,
    home: str,
    imports: dict[str, str],
    scopes: dict[str, dict[str, str]],
    vendored: Mapping[str, Path],
    fetches: bool,
) -> LinkedScripts:
    """Link the modules of one page with all their imports, in order. Raises `DocumentError`.

    `base` is the URL path of the folder `root`, `home` the absolute URL of the app's own; `imports` and `scopes` are
    those of the page's import map, `vendored` the files that were taken from other sites. `fetches`: the page may load
    other modules of the folder, which share the linked ones.
    """
    program = node()
    if program is None:
        problems = [
            problem for module in modules for problem in import_problems(module.text, find_imports(module.source))
        ]
        raise DocumentError([Problem(p.file, p.line, p.column, f"imports another file; {_REMEDY}") for p in problems])
    scripts = [_script(module) for module in modules]
    job: dict[str, object] = {"root": str(root), "base": base, "home": home, "scripts": scripts, "fetches": fetches}
    job |= {"imports": imports, "scopes": scopes, "vendored": {url: str(path) for url, path in vendored.items()}}
    answer = _run(program, plain_json(job), root)
    problems = [Problem(str(root / p.file), p.line, p.column, p.message) for p in answer.problems]
    if not answer.codes:
        raise DocumentError(problems)
    return LinkedScripts(tuple(answer.codes), tuple(answer.styles), tuple(problems), tuple(answer.foreign))


def _script(module: Module) -> dict[str, object]:
    if module.code is None:
        return {"file": str(module.path)}
    at = module.text.problem(0, "")
    return {"file": str(module.path), "code": module.code, "line": at.line, "column": at.column}


def _run(node: str, job: str, root: Path) -> _ScriptReport:
    try:
        return _ScriptReport.model_validate_json(ask(node, "bundle.mjs", job))
    except subprocess.TimeoutExpired as error:
        raise DocumentError([Problem(str(root), 1, 1, f"its modules were not linked within {SECONDS} s")]) from error
    except (OSError, subprocess.CalledProcessError, ValidationError) as error:
        lines = error.stderr.strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else [str(error)]
        message = f"its modules cannot be linked: {next(iter(lines[-1:]), error)}; {_REMEDY}"
        raise DocumentError([Problem(str(root), 1, 1, message)]) from error


def node() -> str | None:
    """Find Node, on the PATH or beside this Python."""
    return shutil.which("node", path=os.pathsep.join((os.environ.get("PATH", ""), sysconfig.get_path("scripts"))))


def run(node: str, *program: str, text: str) -> str:
    """Return what a program of the gateway writes; `text` is its input. Raises `OSError`, `SubprocessError`."""
    done = subprocess.run(  # noqa: S603  # our own program, with the Node that was found
        [node, *program], input=text, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    return done.stdout


class NodeProgram:
    """A program of the gateway that runs with `node`, and answers each line with a line; its start takes long."""

    def __init__(self, node: str, name: str) -> None:
        # In a session of its own: what is found as `node` may be a wrapper, whose child must end with it.
        self._process = subprocess.Popen(  # noqa: S603  # our own program, with the Node that was found
            [node, _bundle_path(name), "--lines"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def ask(self, line: str) -> str:
        """Return the answer to `line`. Raises `OSError`, `SubprocessError`."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise BrokenPipeError
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._kill()

        watch = threading.Timer(SECONDS, stop)
        watch.start()
        try:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            watch.cancel()
        if late.is_set():
            raise subprocess.TimeoutExpired(process.args, SECONDS)
        if not answer:
            raise BrokenPipeError(errno.EPIPE, "node ended without an answer")
        return answer

    def close(self) -> None:
        """End the program."""
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


_KEPT: ContextVar[dict[str, NodeProgram] | None] = ContextVar("_KEPT", default=None)


@contextmanager
def keeping_node() -> Iterator[None]:
    """Keep the programs that are asked within the block running until its end, for many apps."""
    programs: dict[str, NodeProgram] = {}
    token = _KEPT.set(programs)
    try:
        yield
    finally:
        _KEPT.reset(token)
        for program in programs.values():
            program.close()


def ask(node: str, name: str, line: str) -> str:
    """Return the answer of a program of the gateway to one line. Raises `OSError`, `SubprocessError`."""
    programs = _KEPT.get()
    program = programs.pop(name, None) if programs is not None else None
    program = program or NodeProgram(node, name)
    try:
        answer = program.ask(line)
    except BaseException:
        program.close()
        raise
    if programs is not None:
        programs[name] = program
    else:
        program.close()
    return answer


def _bundle_path(name: str) -> str:
    return str(Path(str(files("gateway"))) / "static" / "pack" / name)


ASKS: Final = "webmcpGatewayOwn("
"""A string that rewritten scripts contain."""

WORD: Final = "location"
"""A string that all scripts that read `location` contain."""

_POSTS: Final = "postMessage"
"""The same for those that post messages, perhaps to the page's own origin."""

_ANSWERS: Final = TypeAdapter(list[str | None])

_Rewritten = dict[tuple[str, str], str | None]
"""The new code of scripts by their code and kind; None where nothing changes."""


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


def location_changes(page: str, kinds: Collection[str], known: _Rewritten) -> list[Splice] | None:
    """Return the changes that make scripts of `page` call the runtime for `location`; None without Node.

    `kinds` are the types of its classic scripts. A script with a syntax error is unchanged. `known` remembers scripts
    between the pages of an app, which mostly share them.
    """
    if not _may_change(page):
        return []
    scripts = [script for element in parse(Text("", page)).elements for script in _scripts(page, element, kinds)]
    if not scripts:
        return []
    new = list({(one.code, one.kind): one for one in scripts if (one.code, one.kind) not in known}.values())
    answers = _answers(new) if new else []
    if answers is None:
        return None
    known.update({(one.code, one.kind): code for one, code in zip(new, answers, strict=True)})
    changes = ((one, known[one.code, one.kind]) for one in scripts)
    return [one.with_code(code) for one, code in changes if code is not None]


def _may_change(code: str) -> bool:
    return WORD in code or _POSTS in code


def _scripts(page: str, element: Element, kinds: Collection[str]) -> list[_Script]:
    scripts = [
        _Script(attribute.value, "handler", attribute.start, attribute.end, name)
        for name, attribute in element.attributes.items()
        if name.startswith("on") and _may_change(attribute.value)
    ]
    kind = (element.get("type") or "").strip().lower()
    code = page[element.end : element.text_end]
    if element.name == "script" and (kind == "module" or kind in kinds) and _may_change(code):
        data = kind == exact_text.TYPE
        code = exact_text.from_data_block(code) if data else code
        kind = "module" if kind == "module" else "script"
        scripts.append(_Script(code, kind, element.end, element.text_end, exact=data))
    return scripts


def _answers(scripts: Sequence[_Script]) -> list[str | None] | None:
    program = node()
    if program is None:
        return None
    job = plain_json([{"code": script.code, "kind": script.kind} for script in scripts])
    try:
        return _ANSWERS.validate_json(ask(program, "location.mjs", job))
    except (OSError, subprocess.SubprocessError, ValidationError):
        return None  # most pages work without

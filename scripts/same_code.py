"""Says which files changed in more than words since a commit: `python scripts/same_code.py main`.

Words are docstrings and comments. Without them, a change of words alone leaves the syntax tree as it was, in Python and
in TypeScript; exit status 1 where code changed, too.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
TREES = """
import { parseAst } from "rolldown/parseAst";
import { readFileSync } from "node:fs";
const plain = (key, value) =>
  key === "start" || key === "end" || key === "range" ? undefined : typeof value === "bigint" ? `${value}n` : value;
const [lang, ...texts] = JSON.parse(readFileSync(0, "utf8"));
const trees = texts.map((text) => JSON.stringify(parseAst(text, { lang }), plain));
process.stdout.write(JSON.stringify(trees));
"""


def git(*arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def python(text: str) -> str:
    """The syntax tree without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not _is_docstring(line)]  # type: ignore[attr-defined]  # it has one
    return ast.dump(tree)


def typescript(language: str, *texts: str) -> list[str]:
    """The syntax trees of files in `ts` or `tsx`; comments are not in them."""
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", TREES],
        cwd=ROOT / "browser",  # where it finds its parser
        input=json.dumps([language, *texts]),
        check=True,
        capture_output=True,
        text=True,
    )
    return [str(text) for text in json.loads(done.stdout)]


def is_same(path: str, before: str, after: str) -> bool:
    """Return whether a file says the same to a machine."""
    if path.endswith(".py"):
        return python(before) == python(after)
    one, other = typescript(path.rpartition(".")[2], before, after)
    return one == other


def main(commit: str) -> int:
    """The files that differ in code, a line each."""
    status = 0
    for line in git("diff", "--name-status", "--no-renames", commit, "--", "*.py", "*.ts", "*.tsx").splitlines():
        kind, path = line.split("\t")
        if kind == "M" and is_same(path, git("show", f"{commit}:{path}"), (ROOT / path).read_text("utf-8")):
            continue
        print(f"{path}: {'code changed' if kind == 'M' else 'added or removed'}")
        status = 1
    return status


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

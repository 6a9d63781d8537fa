"""docs/architecture.md names files, functions and layers that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
STEPS = re.findall(r"^\| \d+ \| .* \| `([\w./-]+)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE)
FILES = sorted(set(re.findall(r"`((?:gateway|browser|tests|docs)/[\w./-]+)`", PAGE)))


def functions(path: Path) -> set[str]:
    """The functions of a file; methods with the name of their class, too."""
    text = path.read_text("utf-8")
    if path.suffix == ".ts":
        return set(re.findall(r"export (?:async )?(?:function|class|const) (\w+)", text))
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = (one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{node.name}.{one.name}" for one in methods}
    return found


def test_both_ways_are_drawn() -> None:
    """The tables below are not empty."""
    assert len(STEPS) > 25
    assert len(FILES) > 20


@pytest.mark.parametrize(("file", "name"), sorted(set(STEPS)))
def test_each_step_names_a_function_that_is_there(file: str, name: str) -> None:
    """The file that the step names contains it."""
    assert name in functions(ROOT / file)


@pytest.mark.parametrize("file", FILES)
def test_each_file_is_there(file: str) -> None:
    """Files and folders."""
    assert (ROOT / file).exists()


def test_the_layers_are_those_that_the_linter_enforces() -> None:
    """The order is the same; the smallest modules are not listed."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (lines,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    order = {name: at for at, line in enumerate(lines) for name in re.findall(r"\w+", line)}
    rows = [re.findall(r"`(\w+)`", row) for row in re.findall(r"^\| (`\w+`.*?) \| [A-Z]", PAGE, re.MULTILINE)]
    listed = [name for row in rows for name in row]
    assert [name for name in listed if name not in order] == []
    assert [order[name] for name in listed] == sorted(order[name] for name in listed)
    packages = {path.parent.name for path in (ROOT / "gateway").glob("*/__init__.py")}
    assert packages - set(listed) == set()

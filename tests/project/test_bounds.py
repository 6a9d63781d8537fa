"""Memory, writes and repetition that callers can cause are bounded: documented, and each driven by a test."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from gateway.bounds import Bound
from scripts.bounds_doc import PAGE, declared_bounds, page

TESTS = Path(__file__).parents[1]


@cache
def driven() -> dict[str, list[str]]:
    """Return the tests marked with `@pytest.mark.bound("…")`, by the bound that they drive."""
    found: dict[str, list[str]] = {}
    for file in TESTS.rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        for name, what in _marks(ast.parse(text)) if "pytest.mark.bound(" in text else ():
            found.setdefault(what, []).append(f"{file.relative_to(TESTS)}::{name}")
    return found


def _marks(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for mark in (one for decorator in node.decorator_list for one in ast.walk(decorator)):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.bound":
                    yield from ((node.name, ast.literal_eval(what)) for what in mark.args)


def test_the_table_of_bounds_is_made_from_the_code() -> None:
    """Regenerate it after a change: python scripts/bounds_doc.py."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text)


@pytest.mark.parametrize("bound", declared_bounds(), ids=lambda bound: bound.what)
def test_a_test_drives_each_bound(bound: Bound) -> None:
    """The test goes up to the bound and beyond it, in real parts of the gateway, and is marked with its name."""
    assert driven().get(bound.what), f'no test is marked @pytest.mark.bound("{bound.what}")'


def test_every_driven_bound_is_declared_once() -> None:
    """A test marked with a renamed bound drives nothing."""
    names = Counter(bound.what for bound in declared_bounds())
    assert set(driven()) <= set(names)
    assert [name for name, count in names.items() if count > 1] == []

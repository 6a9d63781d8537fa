"""docs/architecture.md lists every port with its implementation and suite, and these are what it says."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROWS = re.findall(r"^\| [\w ]+ \| `([\w./]+)` `(\w+)` \| `([\w./]+)` `(\w+)` \| `([\w./]+)` \|$", PAGE, re.MULTILINE)


def load_class(file: str, name: str) -> Any:
    """Return the class `name` of a file."""
    return getattr(importlib.import_module(file.removesuffix(".py").replace("/", ".")), name)


def public(kind: type) -> dict[str, Any]:
    """Return the methods that a class has for others."""
    return {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_every_port_is_listed() -> None:
    """Each protocol of `gateway/ports` that has an implementation to choose: a single process has no `OtherTaints`."""
    protocols = set()
    for file in (ROOT / "gateway" / "ports").glob("*.py"):
        protocols |= set(re.findall(r"^class (\w+)\(Protocol\)", file.read_text("utf-8"), re.MULTILINE))
    assert protocols - {"LogoutHints", "OtherTaints"} == {protocol for _, protocol, *_ in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_an_implementation_has_what_its_port_has_and_is_in_its_suite(row: tuple[str, ...]) -> None:
    """Every method, with the same parameters; async where the port awaits."""
    file, protocol, where, implementation, suite = row
    wanted, given = public(load_class(file, protocol)), public(load_class(where, implementation))
    for name, method in wanted.items():
        assert list(inspect.signature(method).parameters) == list(inspect.signature(given[name]).parameters), name
        assert inspect.iscoroutinefunction(method) == inspect.iscoroutinefunction(given[name]), name
    assert re.search(rf"\b{implementation}\b", (ROOT / suite).read_text("utf-8"))

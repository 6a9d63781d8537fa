"""A name means one thing: no two classes share one, nor two modules of a layer, unless they are of one protocol.

Functions and data have nouns or verbs as names, not participles such as `found`, which say nothing of the thing.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

GATEWAY = Path(__file__).parents[2] / "gateway"

PROTOCOLS: Final = {
    "Exchange": "gateway.mcp.mount_interfaces",
    "Forwarder": "gateway.mcp.mount_interfaces",
    "Network": "gateway.backends.connect",
    "Views": "gateway.mcp.mount_interfaces",
}
"""The names that several classes share, and the module of the protocol that they are of."""

LAYERS_OF_COMMANDS: Final = frozenset({"cli"})
"""Layers whose packages are commands, and have modules of the same names."""


PARTICIPLES: Final = frozenset(
    {"asked", "found", "given", "handed", "heard", "kept", "shown", "taken", "told", "wanted"}
)
"""Names that do not tell what the thing is; only a bool may have one."""


class Names(NamedTuple):
    """For each class name the modules of the classes, and whether each is a protocol; the modules by layer and name."""

    classes: Mapping[str, Sequence[tuple[str, bool]]]
    modules: Mapping[str, set[str]]


@pytest.fixture(scope="module")
def names() -> Names:
    """The names of all modules of the gateway."""
    classes, modules = defaultdict(list), defaultdict(set)
    for file in sorted(GATEWAY.rglob("*.py")):
        path = file.relative_to(GATEWAY.parent).with_suffix("")
        if len(path.parts) > 2 and path.name != "__init__" and path.parts[1] not in LAYERS_OF_COMMANDS:
            modules[f"{path.parts[1]}: {path.name}"].add(".".join(path.parts))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                protocol = "Protocol" in [ast.unparse(base) for base in node.bases]
                classes[node.name].append((".".join(path.parts), protocol))
    return Names(classes, modules)


def test_classes_share_a_name_only_for_a_protocol(names: Names) -> None:
    """Rename one of them, or add the name with its protocol to `PROTOCOLS`."""
    assert len(names.classes) > 500
    assert {name: found for name, found in names.classes.items() if len(found) > 1 and name not in PROTOCOLS} == {}


def test_each_shared_name_is_of_a_protocol_that_is_there(names: Names) -> None:
    """With at most one class beside protocols: what implements them."""
    for name, home in PROTOCOLS.items():
        pairs = names.classes[name]
        assert len(pairs) > 1, name
        assert (home, True) in pairs, name
        assert sum(not protocol for _, protocol in pairs) <= 1, name


def test_no_two_modules_of_a_layer_share_a_name(names: Names) -> None:
    """A file's name says what is in it, without its folder."""
    assert len(names.modules) > 200
    assert {name: sorted(found) for name, found in names.modules.items() if len(found) > 1} == {}


def test_functions_and_data_are_not_named_by_a_participle() -> None:
    """Name what it is: the match, the file, the answer."""
    participles = {}
    for file in sorted(GATEWAY.rglob("*.py")):
        participles[file.relative_to(GATEWAY).as_posix()] = [
            name for name in _names(file) if name.strip("_") in PARTICIPLES
        ]
    assert len(participles) > 250
    assert {place: found for place, found in participles.items() if found} == {}


def _names(file: Path) -> Iterator[str]:
    """Yield the names of functions, parameters and variables, except those that are declared as bool."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    bools = {node.target for node in ast.walk(tree) if isinstance(node, ast.AnnAssign) and _is_bool(node.annotation)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in bools:
                yield name
            case ast.arg(arg=name, annotation=annotation) if not _is_bool(annotation):
                yield name
            case ast.FunctionDef(name=name, returns=returns) | ast.AsyncFunctionDef(name=name, returns=returns):
                if not _is_bool(returns):
                    yield name
            case _:
                pass


def _is_bool(annotation: ast.expr | None) -> bool:
    return isinstance(annotation, ast.Name) and annotation.id == "bool"

"""A name means one thing: no two classes share one, nor two modules of a layer, unless they are of one protocol."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

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


def names() -> tuple[Mapping[str, Sequence[ast.ClassDef]], Mapping[str, Sequence[str]], Mapping[str, set[str]]]:
    """Return the classes by name, the modules of each, and the modules by layer and name."""
    classes, homes, modules = defaultdict(list), defaultdict(list), defaultdict(set)
    for file in sorted(GATEWAY.rglob("*.py")):
        path = file.relative_to(GATEWAY.parent).with_suffix("")
        if len(path.parts) > 2 and path.name != "__init__" and path.parts[1] not in LAYERS_OF_COMMANDS:
            modules[f"{path.parts[1]}: {path.name}"].add(".".join(path.parts))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
                homes[node.name].append(".".join(path.parts))
    return classes, homes, modules


CLASSES, HOMES, MODULES = names()


def is_protocol(node: ast.ClassDef) -> bool:
    """Return whether the class is a protocol."""
    return "Protocol" in [ast.unparse(base) for base in node.bases]


def test_classes_share_a_name_only_for_a_protocol() -> None:
    """Rename one of them, or add the name with its protocol to `PROTOCOLS`."""
    assert len(CLASSES) > 500
    assert {name: HOMES[name] for name, found in CLASSES.items() if len(found) > 1 and name not in PROTOCOLS} == {}


def test_each_shared_name_is_of_a_protocol_that_is_there() -> None:
    """With at most one class beside protocols: what implements them."""
    for name, home in PROTOCOLS.items():
        pairs = list(zip(HOMES[name], CLASSES[name], strict=True))
        assert len(pairs) > 1, name
        assert any(where == home and is_protocol(node) for where, node in pairs), name
        assert sum(not is_protocol(node) for _, node in pairs) <= 1, name


def test_no_two_modules_of_a_layer_share_a_name() -> None:
    """A file's name says what is in it, without its folder."""
    assert len(MODULES) > 200
    assert {name: sorted(found) for name, found in MODULES.items() if len(found) > 1} == {}

"""A name means one thing: no two classes share one, nor two modules of a layer, unless they are of one protocol."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
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

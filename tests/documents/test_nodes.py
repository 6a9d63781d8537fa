"""YAML text becomes nodes with positions, and hostile YAML becomes problems."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.documents import load
from gateway.documents.nodes import MAX_DEPTH, MAX_SIZE
from gateway.errors import DocumentError

PLAIN = [
    ("no", "no"),
    ("on", "on"),
    ("Yes", "Yes"),
    ("true", True),
    ("FALSE", False),
    ("tRue", "tRue"),
    ("null", None),
    ("~", None),
    ("", None),
    ("12", 12),
    ("-7", -7),
    ("0o17", 15),
    ("0x1F", 31),
    ("0777", 777),
    ("1_000", "1_000"),
    ("12:30", "12:30"),
    ("2026-12-31", "2026-12-31"),
    ("1.5", 1.5),
    (".5", 0.5),
    ("1e3", 1000.0),
    ("10s", "10s"),
    ("'12'", "12"),
    ('"true"', "true"),
    ("<<", "<<"),
    ("[1, {a: b}]", [1, {"a": "b"}]),
]


@pytest.mark.parametrize(("text", "value"), PLAIN)
def test_core_types(text: str, value: object) -> None:
    """Only YAML 1.2 core types are recognised; everything else is text."""
    assert load(f"key: {text}", "f").plain() == {"key": value}


def test_positions() -> None:
    """A node has its own line and column, and those of its key."""
    root = load("a: 1\nb:\n  - {c: x}\n", "f.yaml")
    assert isinstance(root.value, dict)
    item = root.value["b"].value
    assert isinstance(item, tuple)
    assert (item[0].line, item[0].column) == (3, 5)
    assert root.keys["b"] == (2, 1)


HOSTILE = [
    ("a: &x 1\nb: *x", ["1:4: anchor &x", "2:4: alias *x"]),
    ("a: &x [*x]", ["1:4: anchor", "1:8: alias"]),
    ("a: *missing", ["1:4: alias *missing"]),
    ("a: !!python/object/apply:os.system [ls]", ["1:4: tag"]),
    ("a: !!str 1", ["1:4: tag"]),
    ("a: ! 1", ["1:4: tag"]),
    ("a: 1\nb: 2\na: 3", ['3:1: duplicate key "a": it is already on line 1']),
    ("{a: 1, a: 2}", ["1:8: duplicate"]),
    ("1: x", ["1:1: a key must be text"]),
    ("true: x", ["1:1: a key must be text"]),
    ("[a]: x", ["1:1: a key must be text"]),
    ("'': x", ["1:1: a key must not be empty"]),
    ("a: .nan", ["1:4:"]),
    ("a: -.inf", ["1:4:"]),
    ("a: 1e400", ["1:4:"]),
    ("a: " + "9" * 5000, ["1:4:"]),
    ("a: 1\n--- \nb: 2", ["2:1: a second document"]),
    ("a: b: c", ["1:5: not YAML"]),
    ("a: [", ["2:1: not YAML"]),
    ("a: {b: /c/{d}, e: 1}", ['1:11: not YAML: a "{" inside of a text: put the text in quotes, such as "/api/{id}"']),
    ("a:\n\tb: 1", ["2:1: not YAML: a tab, where lines are indented: write spaces"]),
    ("a: \x00", ["1:1: not YAML: unacceptable character #x0000: control characters are not allowed"]),
    ("a: \ud800", ["not YAML"]),
    ("[" * 1_000_000, [f"1:{MAX_DEPTH + 1}: nested deeper"]),
    ("{a: " * 100_000, ["nested deeper"]),
    ("a: " + "x" * MAX_SIZE, ["larger than 8 MiB"]),
]


@pytest.mark.parametrize(("text", "messages"), HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_documents(text: str, messages: list[str]) -> None:
    """YAML features beyond plain values are refused with their places, all at once."""
    with pytest.raises(DocumentError) as caught:
        load(text, "f")
    found = [str(problem) for problem in caught.value.problems]
    assert len(found) == len(messages)
    assert all(message in line for message, line in zip(messages, found, strict=True))
    assert all(len(line.splitlines()) == 1 for line in found)


def test_alias_bomb_costs_nothing() -> None:
    """A billion-laughs document is refused before it is expanded."""
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    with pytest.raises(DocumentError, match="alias"):
        load("\n".join(lines), "f")


# Control characters, line separators and noncharacters are escaped differently in JSON and YAML.
_TEXT = st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn"), exclude_characters="\ufeff")
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(_TEXT, max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(_TEXT, min_size=1, max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_VALUES)
def test_json_is_read_unchanged(value: object) -> None:
    """Any JSON value is read as the same value."""
    assert load(json.dumps(value, ensure_ascii=False), "f").plain() == value


@given(st.text(max_size=200) | st.text(alphabet="{}[]:,-&*!|>'\"%@` \n\tab01.#?", max_size=60))
def test_any_text_is_a_node_or_problems(text: str) -> None:
    """No text raises anything but `DocumentError`."""
    with contextlib.suppress(DocumentError):
        assert load(text, "f").file == "f"


def test_parser_is_the_c_one() -> None:
    """Policies of 10,000 routes need the C parser."""
    assert yaml.__with_libyaml__

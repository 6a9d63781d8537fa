"""The typed reader reports every problem at once, with the allowed values."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.documents import Section, load, parse_duration, parse_size, read_document, read_parsed, suggestion
from gateway.errors import DocumentError


def _problems(text: str, key_reader: object) -> list[str]:
    assert callable(key_reader)
    with pytest.raises(DocumentError) as caught, read_document(text, "f") as top:
        key_reader(top)
    return [str(problem) for problem in caught.value.problems]


def test_values() -> None:
    """Each reader returns its type, or the default if the key is absent."""
    text = "{name: x, on: true, count: 3, wait: 2m, size: 1KiB, list: [a, b], pick: b, many: {one: {}}}"
    with read_document(text, "f") as top:
        assert top.text("name") == "x"
        assert top.flag("on") is True
        assert top.integer("count") == 3
        assert top.duration("wait") == 120
        assert top.size("size") == 1024
        assert top.texts("list") == ("a", "b")
        assert top.choice("pick", ("a", "b")) == "b"
        assert list(top.named_sections("many")) == ["one"]
        assert top.text("absent", "default") == "default"
        assert top.section("nothing").sections("list") == ()


WRONG = [
    ("a: 1", lambda top: top.text("a"), "1:4: a: must be text, not the number 1; put it in quotes"),
    ("a: ''", lambda top: top.text("a"), "a: must not be empty"),
    ("a:", lambda top: top.text("a"), "a: must be text, not nothing"),
    ("a: on", lambda top: top.flag("a"), 'a: must be true or false, not the text "on"'),
    ("a: true", lambda top: top.integer("a"), "a: must be a whole number"),
    ("a: 1.0", lambda top: top.integer("a"), "a: must be a whole number"),
    ("a: 70000", lambda top: top.integer("a", maximum=65535), "a: must be a whole number from 0 to 65535"),
    ("a: 10", lambda top: top.duration("a"), 'a: "10" is not a duration'),
    ("a: 0s", lambda top: top.duration("a"), "a positive number"),
    ("a: 10", lambda top: top.size("a"), 'a: "10" is not a size'),
    ("a: x", lambda top: top.texts("a"), 'a: must be a list, not the text "x"; write [x]'),
    ("a: '*'", lambda top: top.texts("a"), 'a: must be a list, not the text "*"; write ["*"]'),
    ("a: x", lambda top: top.sections("a"), 'a: must be a list, not the text "x"'),
    ("a: [b, c]", lambda top: top.named_sections("a"), "a: must be a mapping, not a list; write {b: {}}"),
    ("a: [1]", lambda top: top.named_sections("a"), "a: must be a mapping, not a list; write {name: {}}"),
    ("a: [x, 1]", lambda top: top.texts("a"), "1:8: a: must be text, not the number 1"),
    ("a: []", lambda top: top.section("a"), "must be a mapping, not a list"),
    ("a: [1]", lambda top: top.sections("a"), "must be a mapping, not the number 1"),
    ("a: {b: 1}", lambda top: top.named_sections("a"), "must be a mapping, not the number 1"),
    ("a: alway", lambda top: top.choice("a", ("always", "never")), 'not the text "alway", did you mean "always"?'),
    ("{}", lambda top: top.require("a"), '"a" is missing'),
    ("[]", lambda top: top.text("a"), "must be a mapping, not a list"),
    ("", lambda top: top.text("a"), "must be a mapping, not nothing"),
    ("b: 1", lambda top: top.text("a"), 'unknown key "b" (allowed: a)'),
    (
        "methdos: 1",
        lambda top: top.text("methods"),
        'unknown key "methdos", did you mean "methods"? (allowed: methods)',
    ),
]


@pytest.mark.parametrize(("text", "key_reader", "message"), WRONG, ids=[row[2][:40] for row in WRONG])
def test_wrong_values(text: str, key_reader: object, message: str) -> None:
    """An invalid value is reported with its place and the remedy."""
    (found,) = _problems(text, key_reader)
    assert message in found


def test_all_problems_at_once_in_order() -> None:
    """Structure, types, unknown and missing keys are reported together, in the order of the file."""

    def look(top: Section) -> None:
        server = top.section("server")
        server.integer("port")
        top.text("name")

    found = _problems("server: {port: x, hots: 1}\nname: !!str y\nname: z\nextra: 1", look)
    assert [line.split(":")[1] for line in found] == ["1", "1", "2", "3", "4"]


def test_reading_a_loaded_node() -> None:
    """A part of a document can be read separately."""
    with read_parsed(load("a: x", "f")) as top:
        assert top.text("a") == "x"


@given(st.text(max_size=12))
def test_units_take_nothing_else(text: str) -> None:
    """Any text is a positive duration, a size, or a ValueError."""
    for parse in (parse_duration, parse_size):
        with contextlib.suppress(ValueError):
            assert parse(text) >= 0


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5h", 5400), ("90d", 7776000)])
def test_durations(text: str, seconds: float) -> None:
    """A duration is a number with a unit."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1 s", "1S", "٣s", "0ms", "1e3s", "1s\n", "9999999999d"])
def test_no_durations(text: str) -> None:
    """Anything but a positive duration is refused."""
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "size"), [("0B", 0), ("64KiB", 65536), ("10MB", 10_000_000), ("1GiB", 2**30)])
def test_sizes(text: str, size: int) -> None:
    """A size is a whole number with a unit."""
    assert parse_size(text) == size


def test_suggestion() -> None:
    """A similar name is suggested, a dissimilar one is not."""
    assert suggestion("methdos", ["methods", "path"]) == ', did you mean "methods"?'
    assert suggestion("zzz", ["methods"]) == ""

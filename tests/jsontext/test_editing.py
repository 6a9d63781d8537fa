"""Setting a member of a JSON text with comments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jsontext.editing import read_jsonc, set_member

KEPT = """// my servers
{
  // a comment
  "theme": "dark", /* another */
  "servers": {
    "mine": {"url": "http://x//y", "note": "a, } // no comment"}, // trailing
  },
}
"""


def test_comments_and_everything_else_stay() -> None:
    """A new entry comes last, with the indentation of the others; a trailing comma is no problem."""
    now = set_member(KEPT, ["servers", "gateway"], {"url": "http://localhost/mcp"})
    before, after = KEPT.split("// trailing")
    assert now == f'{before}// trailing\n    "gateway": {{\n      "url": "http://localhost/mcp"\n    }}{after}'
    assert set_member(now, ["servers", "gateway"], {"url": "http://localhost/mcp"}) == now
    assert read_jsonc(now)["servers"]["mine"]["note"] == "a, } // no comment"  # type: ignore[index, call-overload]
    changed = set_member(now, ["servers", "gateway"], 1)
    assert "// trailing" in changed
    assert read_jsonc(changed)["servers"]["gateway"] == 1  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x": 1}', '{"x": 1,\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"a": {}}', '{"a": {\n  "b": 1\n}}'),
        ('{\n\t"a": {\n\t\t"c": 2\n\t}\n}', '{\n\t"a": {\n\t\t"c": 2,\n\t\t"b": 1\n\t}\n}'),
        ('{\r\n  "a": {\r\n    // empty\r\n  }\r\n}', '{\r\n  "a": {\r\n    // empty\r\n    "b": 1\r\n  }\r\n}'),
        ('{"a": {"b": [1, {"}": "]"}]}}', '{"a": {"b": 1}}'),
        ("[1, /* a */ 2 /* b */]".join(('{"x": ', "}")), '{"x": [1, /* a */ 2 /* b */],\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x": 1, "y": 2, "x": 3}', '{"x": 1, "y": 2, "x": 3,\n  "a": {\n    "b": 1\n  }\n}'),
    ],
)
def test_a_member_is_set_where_it_belongs(text: str, expected: str) -> None:
    """In an empty file or object, one line, tabs, line ends of Windows, comments, a name twice, for another value."""
    assert set_member(text, ["a", "b"], 1) == expected


def test_a_member_that_is_there_already_changes_nothing() -> None:
    """Also if it is written in another way; another value is written with the line ends of the text."""
    text = '{\r\n  "a": {"b": {"c":1,   /* of c */ "d": [2]}}\r\n}'
    assert set_member(text, ["a", "b"], {"c": 1, "d": [2]}) == text
    assert "\n" not in set_member(text, ["a", "b"], {"c": 2}).replace("\r\n", "")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '"x"',
        "{",
        '{"a": 1 "b": 2}',
        "{'a': 1}",
        '{"a": [}]}',
        '{"a": 1}',
        "nul",
        "// x",
        "{,}",
        '{"a": {"c": 1,,}}',
    ],
)
def test_a_text_that_cannot_be_edited_is_refused(text: str) -> None:
    """Invalid JSON, another value than an object, and another value on the way."""
    with pytest.raises(ValueError, match=r".+"):
        set_member(text, ["a", "b"], 1)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=4), VALUES, max_size=4), st.text(max_size=4), VALUES, st.sampled_from([None, 2])
)
def test_the_value_is_as_if_it_were_set_in_the_object(
    document: dict[str, Any], name: str, value: Any, indent: int | None
) -> None:
    """For any document and value; the same edit again changes nothing."""
    if not isinstance(document.get("s", {}), dict):
        del document["s"]
    now = set_member(json.dumps(document, indent=indent, ensure_ascii=False), ["s", name], value)
    assert json.loads(now) == {**document, "s": {**document.get("s", {}), name: value}}
    assert set_member(now, ["s", name], value) == now

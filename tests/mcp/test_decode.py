"""What upstreams wrote is read, unless it would take too long or could not be written again."""

from __future__ import annotations

import json

import pytest

from gateway.mcp.upstreams.decode import DEPTH, MOST, decode


@pytest.mark.parametrize("part", ["[]", "{}", "1", '"a,"'])
@pytest.mark.parametrize("around", ["{}", '{{"jsonrpc":"2.0","id":1,"result":{{"all":{}}}}}'])
def test_a_message_of_too_many_parts_is_not_read(part: str, around: str) -> None:
    """However they are written, and wherever they stand."""
    parts = "[" + f"{part}," * (MOST + 1) + "1]"
    with pytest.raises(ValueError, match="commas and brackets"):
        decode(around.format(parts).encode())


@pytest.mark.parametrize("text", ["a,b;" * MOST, '"a",[{\\\n' * MOST, "\\" * MOST + "," * MOST * 2])
def test_a_long_text_is_one_part(text: str) -> None:
    """Tables and programs have many commas and brackets."""
    assert decode(json.dumps({"result": text}).encode()) == {"result": text}


@pytest.mark.parametrize("one", ["[{}]", '{{"a":{}}}'])
@pytest.mark.parametrize(("levels", "read"), [(DEPTH - 1, True), (DEPTH + 1, False)])
def test_nesting_has_an_end(one: str, levels: int, read: bool) -> None:
    """Of lists and of objects."""
    text = "1"
    for _ in range(levels):
        text = one.format(text)
    if read:
        assert json.dumps(decode(text.encode()), separators=(",", ":")) == text
    else:
        with pytest.raises(ValueError, match="nested deeper"):
            decode(text.encode())

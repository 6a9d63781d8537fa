"""What upstreams wrote is read, unless it would take too long or could not be written again."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bulk import AT_ONCE, is_bulky
from gateway.mcp.upstreams import decode as module
from gateway.mcp.upstreams.decode import DEPTH, LONG, MOST, THINGS, decode, read, read_text

LIST = '{{"jsonrpc":"2.0","id":1,"result":{{"tools":{},"nextCursor":"2"}}}}'


@pytest.mark.parametrize("part", ["[]", "{}", "1", '"a,"'])
@pytest.mark.parametrize(
    ("around", "most"),
    [
        ("{}", AT_ONCE),
        ('{{"jsonrpc":"2.0","id":1,"result":{{"all":{}}}}}', AT_ONCE),
        ('{{"jsonrpc":"2.0","id":1,"result":{{"all":[],"tools":[7,{{"name":{}}}]}}}}', AT_ONCE),
        ('{{"jsonrpc":"2.0","id":1,"result":{{"tools":{{"name":{}}}}}}}', AT_ONCE),
        ('{{"jsonrpc":"2.0","id":1,"tools":{}}}', AT_ONCE),
        (LIST, MOST),
    ],
)
async def test_a_message_of_too_many_parts_is_not_read(part: str, around: str, most: int) -> None:
    """However they are written, and wherever they stand."""
    text = around.format("[" + f"{part}," * (most + 1) + "1]")
    with pytest.raises(ValueError, match="commas and brackets"):
        await read_text(text)
    with pytest.raises(ValueError, match="commas and brackets"):
        decode(text.encode())


@pytest.mark.parametrize("indent", [None, 1])
async def test_a_list_of_very_many_things_is_read_one_by_one(
    indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is read in one go that has many parts, all of them beside the event loop; the first things are kept."""
    tools = [{"name": f"tool_{number}", "inputSchema": {"type": "object"}, "x": [1]} for number in range(100_000)]
    tools[3]["description"] = "x" * LONG + "\ud800"
    result = {"tools": tools, "nextCursor": "2"}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, indent=indent)
    pieces: list[str] = []
    threads: set[int] = set()

    class Seen(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            threads.add(threading.get_ident())
            if not pieces or s is not pieces[-1]:
                pieces.append(s)
            return super().raw_decode(s, idx)

    monkeypatch.setattr(module, "_decoder", Seen())
    answer = cast(dict[str, Any], await read(text.encode()))
    tools[3]["description"] = "x" * LONG + "?"
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": {**result, "tools": tools[:THINGS]}}
    assert not any(is_bulky(piece) for piece in pieces)
    assert threading.get_ident() not in threads


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=9,
)
MESSAGES = st.fixed_dictionaries(
    {"id": VALUES},
    optional={
        "result": VALUES
        | st.dictionaries(st.sampled_from(["tools", "resources", "result", "x"]), st.lists(VALUES, max_size=9) | VALUES)
    },
)


@given(MESSAGES | VALUES, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 40))
def test_what_is_read_one_by_one_is_the_same(value: Any, indent: int | None, plain: bool, window: int) -> None:
    """Wherever a window ends, and however it is written."""
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WINDOW", window)
        assert module._Values(text).message() == json.loads(text)


@given(MESSAGES, st.integers(1, 40), st.data())
def test_what_is_no_json_is_not_read_one_by_one(value: Any, window: int, data: st.DataObject) -> None:
    """With a character less, or another one, it is read as it always is, or not at all."""
    text = json.dumps(value, ensure_ascii=False)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(["", "]", "}", ",", "x", "1", '"', ":"])) + text[at + 1 :]
    try:
        expected = json.loads(changed, parse_constant=module._refuse)
    except ValueError:
        expected = ValueError
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WINDOW", window)
        try:
            found = module._Values(changed).message()
        except ValueError:
            found = ValueError
    assert found == expected


@pytest.mark.parametrize("text", ["a,b;" * MOST, '"a",[{\\\n' * MOST, "\\" * MOST + "," * MOST * 2])
async def test_a_long_text_is_one_part(text: str) -> None:
    """Tables and programs have many commas and brackets."""
    assert await read(json.dumps({"result": text}).encode()) == {"result": text}


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

"""Long messages of upstreams are parsed incrementally, in turns, with the same result as in one go."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.eventloop.fair_share import RoundRobin, TimeSlices
from gateway.exchange.filter import SecretRedactor
from gateway.jsontext import messages
from gateway.jsontext.messages import (
    DEPTH,
    EACH,
    LONG,
    MOST,
    PIECE,
    THINGS,
    ValueReader,
    _pieces,
    decode,
    decoder,
    encode,
    encode_in_thread,
    read,
)
from gateway.jsontext.sizes import AT_ONCE
from gateway.jsontext.writing import PARTS, SIZE, is_large
from gateway.mcp.upstreams.catalog.listing import LISTS

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
    """However they are written, and wherever they occur."""
    text = around.format("[" + f"{part}," * (most + 1) + "1]")
    with pytest.raises(ValueError, match="commas and brackets"):
        await read(text, TimeSlices(RoundRobin()), LISTS)
    with pytest.raises(ValueError, match="commas and brackets"):
        decode(text.encode())


async def test_a_thing_of_a_list_has_fewer_parts() -> None:
    """Each item is built in one step; there may be many."""
    large = "[" + "1," * (EACH - 100) + "1]"
    text = LIST.format(f"[{','.join([large] * 10)}]")
    assert await read(text, TimeSlices(RoundRobin()), LISTS) == json.loads(text)
    with pytest.raises(ValueError, match=f"more than {EACH} commas and brackets"):
        await read(text.replace(large, "[" + "1," * 2 * EACH + "1]", 1), TimeSlices(RoundRobin()), LISTS)


@pytest.mark.parametrize("indent", [None, 1])
async def test_a_list_of_very_many_things_is_read_in_small_parts(
    indent: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step parses much; the first items are kept."""
    tools = [{"name": f"tool_{number}", "inputSchema": {"type": "object"}, "x": [1]} for number in range(100_000)]
    tools[3]["description"] = "x" * LONG + "\ud800"
    result = {"tools": tools, "nextCursor": "2"}
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}, indent=indent)
    sizes: list[int] = []

    class Seen(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            sizes.append(len(s) - idx)
            return super().raw_decode(s, idx)

    monkeypatch.setattr(messages, "decoder", Seen())
    answer = cast(dict[str, Any], await read(text.encode(), TimeSlices(RoundRobin()), LISTS))
    tools[3]["description"] = "x" * LONG + "?"
    assert answer == {"jsonrpc": "2.0", "id": 1, "result": {**result, "tools": tools[:THINGS]}}
    assert max(sizes) <= 2 * PIECE
    assert len(sizes) < 10_000  # many small ones together


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


def at_once(text: str, piece: int, **patched: int) -> Any:
    """Parse the text in pieces of so many characters, without waiting for turns."""
    moments = TimeSlices(RoundRobin())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"PIECE": piece, "MOMENT": math.inf, **patched}.items():
            patch.setattr(messages, name, value)
        reading = ValueReader(_pieces(text, SecretRedactor(())), moments, LISTS).message()
        with pytest.raises(StopIteration) as ended:
            reading.send(None)
    return ended.value.value


@given(MESSAGES | VALUES, st.sampled_from([None, 1]), st.booleans(), st.integers(8, 60), st.sampled_from([0, 1000]))
def test_what_is_read_part_by_part_is_the_same(
    value: Any, indent: int | None, plain: bool, piece: int, vain: int
) -> None:
    """Wherever a piece ends, and however it is written."""
    text = json.dumps(value, indent=indent, ensure_ascii=plain)
    assert at_once(text, piece, VAIN=vain) == json.loads(text)


@given(
    st.lists(st.sampled_from(["a", "\\n", "\\\\", '\\"', "\\u00e9", "\\ud83d", "\\ude00", "\\uDBFF"])),
    st.integers(8, 20),
)
def test_a_text_is_cut_within_nothing(letters: list[str], piece: int) -> None:
    """Neither an escape nor a surrogate pair is split; lone surrogates become `?`."""
    text = f'"{"".join(letters)}"'
    assert at_once(text, piece) == json.loads(text).encode("utf-8", "replace").decode()


@given(MESSAGES, st.integers(8, 60), st.data())
def test_what_is_no_json_is_not_read_part_by_part(value: Any, piece: int, data: st.DataObject) -> None:
    """With a character missing or changed, the result is that of `json.loads`, or both refuse it."""
    text = json.dumps(value, ensure_ascii=False)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(["", "]", "}", ",", "x", "1", '"', ":"])) + text[at + 1 :]
    try:
        expected = json.loads(changed, parse_constant=decoder.parse_constant)
    except ValueError:
        expected = ValueError
    try:
        found = at_once(changed, piece)
    except ValueError:
        found = ValueError
    assert found == expected


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("x" * 5_000_000, None),
        ("\n" * 1_000_000, None),
        ("é" * 2_000_000, None),
        ("A-secret" * 100_000, "***" * 100_000),
        ([0] * 99_000, None),
        ({"a": ["é"] * 90_000}, None),
    ],
)
async def test_a_long_message_is_read_by_turns(said: object, heard: object) -> None:
    """Other tasks run meanwhile, and secrets are masked."""
    turns, over = 0, False

    async def count() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    raw = json.dumps({"result": {"text": said}}).encode()
    found = await read(raw, TimeSlices(RoundRobin()), LISTS, SecretRedactor(("A-secret",)))
    over = True
    await counting
    assert found == {"result": {"text": heard or said}}
    assert turns > 10


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-8"])
async def test_a_long_message_in_another_encoding(encoding: str) -> None:
    """Read as short ones are: a lone surrogate is no UTF-8. A masked secret may begin where that is detected."""
    raw = json.dumps({"a": "é" * PIECE + "A\ud800" * LONG}, ensure_ascii=False).encode(encoding, "surrogatepass")
    read_so = {"a": "é" * PIECE + "A?" * LONG}
    assert await read(raw, TimeSlices(RoundRobin()), LISTS, SecretRedactor(("A" * 9,))) == read_so == decode(raw)


@pytest.mark.parametrize("text", ["a,b;" * MOST, '"a",[{\\\n' * MOST, "\\" * MOST + "," * MOST * 2])
async def test_a_long_text_is_one_part(text: str) -> None:
    """Tables and programs have many commas and brackets."""
    assert await read(json.dumps({"result": text}).encode(), TimeSlices(RoundRobin()), LISTS) == {"result": text}


@pytest.mark.parametrize("one", ["[{}]", '{{"a":{}}}'])
@pytest.mark.parametrize(("levels", "read"), [(DEPTH - 1, True), (DEPTH + 1, False)])
def test_nesting_has_an_end(one: str, levels: int, read: bool) -> None:
    """Of arrays and of objects."""
    text = "1"
    for _ in range(levels):
        text = one.format(text)
    if read:
        assert json.dumps(decode(text.encode()), separators=(",", ":")) == text
    else:
        with pytest.raises(ValueError, match="nested deeper"):
            decode(text.encode())


@pytest.mark.parametrize("value", [{"a": "x"}, {"é": ["y\ud800\x7f" * SIZE, None, 1.5]}, [{"a": 1}] * PARTS])
async def test_what_is_large_is_written_beside_all_else(value: object) -> None:
    """The text is the one that a single call would write."""
    writing = asyncio.ensure_future(encode_in_thread(value))
    await asyncio.sleep(0)
    assert writing.done() is not is_large(value)
    assert json.loads(await writing) == json.loads(encode(value))

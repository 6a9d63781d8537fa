"""Messages of upstreams are parsed, unless it would take too long or they could not be written again."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.jsontext.decoding import DEPTH, decode, encode, encoded
from gateway.jsontext.writing import PARTS, SIZE, is_large


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
    writing = asyncio.ensure_future(encoded(value))
    await asyncio.sleep(0)
    assert writing.done() is not is_large(value)
    assert json.loads(await writing) == json.loads(encode(value))

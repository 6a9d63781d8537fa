"""What upstreams wrote is read, unless it would take too long or could not be written again."""

from __future__ import annotations

import json

import pytest

from gateway.mcp.upstreams.decode import DEPTH, decode


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

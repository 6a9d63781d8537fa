"""The matching of an answer to its request."""

from __future__ import annotations

import pytest

from gateway.mcp.upstreams.transport.conversation import is_answer


@pytest.mark.parametrize("id", [1, 1.0])
def test_a_number_is_the_same_however_it_is_written(id: object) -> None:
    """Languages write numbers differently."""
    assert is_answer({"id": id}, 1)


@pytest.mark.parametrize("id", [True, "1", None, [1], {}, 2, 1.5, 10**400])
def test_nothing_else_is_that_number(id: object) -> None:
    """An answer that a conversation skips ends no stream."""
    assert not is_answer({"id": id}, 1)

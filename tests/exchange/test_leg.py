"""Deciding on one request."""

import threading
from pathlib import Path
from typing import Any

import pytest

from gateway.model import BodyType, Request
from gateway.policy import canonicalise
from tests.exchange.house import PAGE, built


@pytest.mark.parametrize(("size", "beside"), [(100, False), (2 * 1024 * 1024, True)])
async def test_a_large_body_is_looked_through_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, beside: bool
) -> None:
    """It goes out as it came in all the same."""
    threads: list[int] = []

    def noted(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return canonicalise(*given)

    monkeypatch.setattr("gateway.exchange.leg.canonicalise", noted)
    async with built(tmp_path, request_limit=4 * 1024 * 1024) as house:
        body = bytes(size)
        response = await house.exchange.run(Request("POST", "/api/items", body=body, body_type=BodyType.BASE64), PAGE)
        assert (response.status, house.shop.sent[0].body == body) == (200, True)
    assert [thread != threading.get_ident() for thread in threads] == [beside]

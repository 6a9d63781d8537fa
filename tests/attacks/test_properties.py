"""Arbitrary input of a caller gets an answer with a reason at every door, and reaches nothing outside the routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.model import BodyType
from tests.attacks import checks
from tests.attacks.calls import AttackedDoor
from tests.attacks.doors import DOORS
from tests.attacks.world import AttackWorld

PIECES = ["/api/open/", "/api/files/", "/api/exact", "/api/items/", "/other/", "..", ".", "%2e", "%2f", "%5c", "%25",
          "%00", "%", ";", "\\", "?", "#", "//", "@", ":", "https://www.shop.test", "http://evil.test", "admin", "x",
          "\u2025", "\uff0e", "e\u0301", "%C0%AE", "\t", "\r\n", " ", "*", "_method=DELETE", "&"]  # fmt: skip
NAMES = ["accept", "Authorization", "authorization_", "Cookie", "Host", "x-a", "Connection", "X_Forwarded_For", "te",
         "Content-Type", "content-length", "transfer-encoding", "x-http-method-override", "",
         "x y", "\u212a"]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), st.text(max_size=8), max_size=4)
REQUESTS = st.fixed_dictionaries(
    {"url": st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=8).map("".join) | VALUES},
    optional={
        "method": st.sampled_from(["GET", "POST", "PUT", "DELETE", "TRACE", "get", "CONNECT"]) | VALUES,
        "headers": st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), st.text(max_size=8), max_size=4)
        | VALUES,
        "body": VALUES,
        "bodyType": st.sampled_from([*BodyType]) | VALUES,
        "redirect": st.sampled_from(["follow", "error", "manual"]) | VALUES,
        "credentials": VALUES,
        "timeoutMs": VALUES,
        "stream": VALUES,
    },
)
"""Arguments of `http_request` that are nearly valid, or not at all."""


@pytest.fixture(scope="module")
async def ways(attacked_world: AttackWorld) -> AsyncIterator[dict[str, AttackedDoor]]:
    """Every door, open for all tests of this file."""
    async with AsyncExitStack() as stack:
        yield {name: await stack.enter_async_context(door(attacked_world)) for name, door in DOORS.items()}


@pytest.mark.parametrize("door", [name for name in DOORS if name != "site"])
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(arguments=REQUESTS)
async def test_any_arguments_get_an_answer_with_a_reason(
    attacked_world: AttackWorld, ways: dict[str, AttackedDoor], door: str, arguments: dict[str, Any]
) -> None:
    """There is no 5xx without a reason, no secret, no arrival outside of the routes, no error in the log."""
    attacked_world.take_arrived()
    attacked_world.take_errors()
    attacked_world.backends["main"].answers = []
    answer = await ways[door].ask({"ask": json.loads(json.dumps(arguments, allow_nan=True), parse_constant=str)})
    assert wrong(attacked_world, answer) == []
    assert answer.status != 0 or "-32" in (answer.error or ""), answer


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    target=st.lists(st.sampled_from(PIECES) | st.text(max_size=2), max_size=8).map("".join),
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "TRACE"])
    | st.text("ABCxyz-", min_size=1, max_size=8),
    fields=st.lists(st.tuples(st.sampled_from(NAMES), st.text(max_size=8)), max_size=4),
    body=st.text(max_size=20),
)
async def test_any_request_line_gets_an_answer(
    attacked_world: AttackWorld,
    ways: dict[str, AttackedDoor],
    target: str,
    method: str,
    fields: list[tuple[str, str]],
    body: str,
) -> None:
    """The same holds over a raw socket, also for malformed HTTP."""
    attacked_world.take_arrived()
    attacked_world.take_errors()
    said = {"target": target or "/", "method": method, "headers": fields, "body": body}
    answer = await ways["site"].ask({"url": "/", "site": said})
    assert wrong(attacked_world, answer) == []


def wrong(world: AttackWorld, answer: Any) -> list[str]:
    """The violated invariants."""
    arrived = world.take_arrived()
    problems = checks.wrong_answer(world, answer, passes=False)
    problems += [problem for one in arrived if (problem := checks.outside(one)) is not None]
    problems += [problem for one in arrived for problem in checks.wrong_request(one)]
    return problems + world.take_errors()

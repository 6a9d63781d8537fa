"""A request that goes past the MCP SDK has the same answer, the same refusals and the same record as one through it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.attacks.doors import DOORS
from tests.attacks.mcp_doors import HttpDoor
from tests.attacks.world import AttackWorld, attacked

OWN = frozenset({"trace", "parent", "span", "view", "timing", "id"})
"""What is another one for each request."""

_INSTANCE = re.compile(rb'(instance\\?":\\?")[\w-]{22}')

WISHES: dict[str, dict[str, Any]] = {
    "get": {"url": "/api/exact"},
    "query": {"url": "/api/open/x?a=1"},
    "post": {"url": "/api/open/x", "method": "POST", "body": {"a": 1}},
    "caused": {"url": "/api/open/x", "_initiator": "model", "_gesture": 3},
    "unknown": {"url": "/nothing/here"},
    "malformed": {"url": "/api/%zz"},
    "elsewhere": {"url": "https://evil.test/api/exact"},
    "method": {"url": "/api/exact", "method": "TRACE"},
    "no url": {"method": "GET"},
    "odd body": {"url": "/api/open/x", "method": "POST", "body": 1, "bodyType": "base64"},
}
PROOFS = ("right", "forged", "used", "none")
# Without a proof a change would ask a person first.
TRIED = [(wish, proof) for wish in WISHES for proof in PROOFS if proof != "none" or "body" not in WISHES[wish]]


async def test_both_ways_leave_the_same_record(tmp_path: Path) -> None:
    """Line for line and field for field, but for what is another one each time; and the answers are the same bytes.

    Each way has a gateway of its own: what one of them leaves behind, a view that a model drove, tells on the other.
    """
    ways = []
    for way in ("modern", "modern-sdk"):
        (tmp_path / way).mkdir()
        async with attacked(tmp_path / way) as world, DOORS[way](world) as door:
            assert isinstance(door, HttpDoor)
            ways.append([await told(world, door, WISHES[wish], proof) for wish, proof in TRIED])
    assert ways[0] == ways[1]
    assert sum(bool(lines) for _, lines in ways[0]) >= len(WISHES)


async def told(world: AttackWorld, door: HttpDoor, wish: dict[str, Any], proof: str) -> tuple[object, list[object]]:
    """The answer, and the lines of the record."""
    assert door.proof is not None
    right = door.proof.next()
    shown = {"right": right, "used": right, "forged": f"{right[:-4]}AAAA"}
    if proof == "used":
        await door.call("http_request", json.dumps({"url": "/api/exact", "_view": right}))
    world.take_records()
    arguments = {**wish, **({"_view": shown[proof]} if proof in shown else {})}
    status, raw = await door.call("http_request", json.dumps(arguments))
    return (status, _INSTANCE.sub(rb"\1", raw)), [line_of(line) for line in world.take_records()]


def line_of(line: dict[str, Any]) -> object:
    """A line without what is another one each time; the versions differ, since the policies name ports."""
    fields = {name: value for name, value in line["fields"].items() if name not in OWN}
    if "policy_version" in fields:
        fields["policy_version"] = str(fields["policy_version"]).startswith("sha256:")
    return {"phase": line["phase"], **fields}

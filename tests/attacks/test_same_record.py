"""A request on the fast path has the same answer, the same refusals and the same record as one through the MCP SDK."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.attacks.doors import DOORS
from tests.attacks.mcp_doors import HttpDoor
from tests.attacks.world import AttackWorld, running_world

OWN = frozenset({"trace", "parent", "span", "view", "timing", "id"})
"""The fields that differ from request to request."""

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
# Without a proof a change would require an approval first.
TRIED = [(wish, proof) for wish in WISHES for proof in PROOFS if proof != "none" or "body" not in WISHES[wish]]


async def test_both_ways_leave_the_same_record(tmp_path: Path) -> None:
    """The records agree field by field except for `OWN`, and the answers byte for byte.

    Each path has a separate gateway: state of one, such as a view that a model drove, would influence the other.
    """
    ways = []
    for way in ("modern", "modern-sdk"):
        (tmp_path / way).mkdir()
        async with running_world(tmp_path / way) as world, DOORS[way](world) as door:
            assert isinstance(door, HttpDoor)
            ways.append([await send_recorded(world, door, WISHES[wish], proof) for wish, proof in TRIED])
    assert ways[0] == ways[1]
    assert sum(bool(lines) for _, lines in ways[0]) >= len(WISHES)


async def send_recorded(
    world: AttackWorld, door: HttpDoor, wish: dict[str, Any], proof: str
) -> tuple[object, list[object]]:
    """Send the request; return the answer, and its lines of the record."""
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
    """A line without the fields of `OWN`; the policy versions differ, since the policies contain ports."""
    fields = {name: value for name, value in line["fields"].items() if name not in OWN}
    if "policy_version" in fields:
        fields["policy_version"] = str(fields["policy_version"]).startswith("sha256:")
    return {"phase": line["phase"], **fields}

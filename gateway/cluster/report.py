"""The nodes of the gateway as a node, or a command, reports them to people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gateway.cluster.lease import ADOPT_AFTER
from gateway.cluster.node import difference
from gateway.model import Json
from gateway.ports.nodes import Announcement, NodeRow, NodeState

OWNED = ("views", "sessions", "streams", "calls", "upstreams")
"""The kinds of live objects that a node counts, in the order in which they are shown."""


def state_of(row: NodeRow) -> NodeState:
    """Return the state of a node."""
    return row.state(ADOPT_AFTER)


def count_states(rows: Iterable[NodeRow]) -> dict[NodeState, int]:
    """Return how many nodes have each state."""
    return dict.fromkeys(NodeState, 0) | Counter(map(state_of, rows))


def differences(mine: Announcement, rows: Iterable[NodeRow]) -> dict[str, str]:
    """Return why other nodes that have not ended and this one do not forward to each other, by their names."""
    return {
        row.announced.name: why
        for row in rows
        if row.announced.incarnation != mine.incarnation
        and state_of(row) is not NodeState.ENDED
        and (why := difference(mine, row)) is not None
    }


def node_json(row: NodeRow) -> dict[str, Json]:
    """Return a node: `renewed` and `up` are seconds, `configuration` and `keys` digests, `owns` numbers by kind."""
    one = row.announced
    return {
        "name": one.name,
        "incarnation": one.incarnation,
        "state": state_of(row).value,
        "renewed": row.age,
        "up": row.life,
        "version": one.version,
        "configuration": one.digest,
        "policies": dict(one.policies),
        "keys": [*one.keys.split()],
        "address": one.address,
        "owns": dict(row.owns) if state_of(row) is not NodeState.ENDED else {},
    }


def what_differs(rows: Sequence[NodeRow]) -> list[str]:
    """Return in what nodes that have not ended differ, with their names, so that they do not forward to each other."""
    living = [row for row in rows if state_of(row) is not NodeState.ENDED]
    sentences = [
        f"{row.announced.name} has a row that is not signed with cluster.keys" for row in living if not row.signed
    ]
    signed = [row.announced for row in living if row.signed]
    for what, value in (("version", "version"), ("configuration", "digest")):
        groups: dict[str, list[str]] = {}
        for one in signed:
            groups.setdefault(getattr(one, value), []).append(one.name)
        if len(groups) > 1:
            parts = sorted(f"{', '.join(sorted(names))} ({key[:12]})" for key, names in groups.items())
            sentences.append(f"nodes differ in {what}: {'; '.join(parts)}")
    policies = {name for one in signed for name in one.policies}
    for name in sorted(policies):
        if len({one.policies.get(name, "") for one in signed}) > 1:
            sentences.append(f"nodes have different versions of the policy of {name}")
    return sentences

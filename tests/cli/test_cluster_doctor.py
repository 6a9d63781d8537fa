"""`doctor --url` names a remedy for each fault of the nodes that it reaches, and notes what breaks nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import pytest

from gateway.cli.cluster_doctor import cluster_problems


def node(name: str, **more: Any) -> dict[str, Any]:
    """A node as another one reports it."""
    listed = {"name": name, "incarnation": f"i-{name}", "state": "serving", "renewed": 1.0, "address": f"{name}:7946"}
    return {**listed, "reached": True, "ahead": 0.1, "redis_problem": None, **more}


def answers(*names: str) -> list[dict[str, Any]]:
    """The answers of nodes that know each other."""
    reports: list[dict[str, Any]] = []
    for here in names:
        nodes = [node(name) for name in names]
        report = {"here": f"i-{here}", "nodes": nodes, "differing": [], "redis": True}
        reports.append({"process": here, "cluster": report})
    return reports


async def ask_all(told: Sequence[dict[str, Any] | str], configured: bool = True) -> tuple[list[str], list[str], int]:
    """Return the problems, the notes, and the number of requests to a balancer that alternates."""
    turns, asked, notes = cycle(told), 0, list[str]()

    async def ask() -> Any:
        nonlocal asked
        asked += 1
        return copy.deepcopy(next(turns))

    return await cluster_problems(ask, notes, configured=configured), notes, asked


async def test_sound_nodes() -> None:
    """No problem; it ends as soon as each node has answered."""
    assert await ask_all(answers("a", "b", "c")) == ([], ["3 nodes answered: a, b, c"], 3)


async def test_a_sticky_balancer_breaks_nothing() -> None:
    """The nodes that were not reached are named in a note."""
    problems, (note,), asked = await ask_all(answers("a", "b")[:1])
    assert (problems, asked) == ([], 16)
    assert "leads this machine to a (16 requests), and not to b: if it is sticky, that breaks nothing" in note


async def test_one_process_needs_nothing() -> None:
    """A gateway without the section, alone behind its proxy."""
    problems, notes, _ = await ask_all([{"process": "x", "cluster": None}], configured=False)
    assert (problems, notes) == ([], [])


def change(key: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    """Return a change of what the first node says of the second."""

    def apply(told: list[dict[str, Any]]) -> None:
        told[0]["cluster"]["nodes"][1][key] = value

    return apply


def differ(words: str) -> Callable[[list[dict[str, Any]]], None]:
    """Return a difference that each node reports."""

    def apply(told: list[dict[str, Any]]) -> None:
        for one in told:
            one["cluster"]["differing"] = [words]

    return apply


def strangers(told: list[dict[str, Any]]) -> None:
    """Two nodes on two databases."""
    for one, name in zip(told, "ab", strict=True):
        one["cluster"]["nodes"] = [node(name)]


def no_redis(told: list[dict[str, Any]]) -> None:
    """No node has a Redis."""
    for one in told:
        one["cluster"]["redis"] = False


def lapsed(told: list[dict[str, Any]]) -> None:
    """A node that cannot renew its lease."""
    told[0]["cluster"]["nodes"][0]["renewed"] = 8.0


def alone(told: list[dict[str, Any]]) -> None:
    """A process without the section `cluster` behind the same balancer."""
    told[1]["cluster"] = None


def unreached(told: list[dict[str, Any]]) -> None:
    """A node that the other one does not reach."""
    told[0]["cluster"]["nodes"][1] |= {"reached": False, "detail": "certificate verify failed"}


FAULTS: dict[str, tuple[Callable[[list[dict[str, Any]]], None], str]] = {
    "version": (differ("nodes differ in version: a (1); b (2)"), "install the same version at all nodes"),
    "configuration": (differ("nodes differ in configuration: a (1); b (2)"), "the same gateway.yaml"),
    "policy": (differ("nodes have different versions of the policy of shop"), "the same policies"),
    "keys": (differ("b has a row that is not signed with cluster.keys"), "write the same cluster.keys"),
    "redis": (no_redis, "write stores: {redis:"),
    "broken redis": (change("redis_problem", "it is a replica"), "b cannot use its Redis (stores.redis): it is a rep"),
    "unreached": (unreached, "a does not reach b at b:7946: certificate verify failed. Open that port"),
    "clock": (change("ahead", -61.0), "the clock of b is 61 s behind that of a: synchronise both"),
    "database": (strangers, "write the same stores.database"),
    "lease": (lapsed, "cannot renew its lease: look at its log, and at stores.database"),
    "no section": (alone, "1 of them know no others: give all of them the section cluster"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
async def test_a_fault_is_named_with_its_remedy(fault: str) -> None:
    """One line each, once."""
    apply, remedy = FAULTS[fault]
    apply(told := answers("a", "b"))
    problems, _, _ = await ask_all(told)
    assert len([one for one in problems if remedy in one]) >= 1, problems
    assert len(problems) == len({*problems})


async def test_another_key_is_found_by_asking_again() -> None:
    """A node with another encryption key answers as if it were another server."""
    (problem,), _, _ = await ask_all([answers("a", "b")[0], "it is answered by another server"])
    assert "of 2 requests 1 were answered by nodes" in problem
    assert "Give all nodes the same stores.encryption_key" in problem

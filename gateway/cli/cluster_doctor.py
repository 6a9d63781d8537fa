"""Checks the nodes of a deployed gateway by what each of them reports through the balancer in front of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from gateway.cluster.lease import STOP_AFTER

ASKS_EACH: Final = 8
"""Requests for each node that there is, until all have answered."""

MOST_ASKS: Final = 64

CLOCK: Final = 5.0
"""Seconds that the clocks of two nodes may differ."""

_REMEDIES: Final = (
    ("nodes differ in version", "finish the upgrade, or install the same version at all nodes"),
    ("nodes differ in configuration", "give all nodes the same gateway.yaml, and restart those that have another"),
    ("nodes have different versions of the policy", "give all nodes the same policies"),
    ("", "write the same cluster.keys at all nodes, the newest first"),
)


async def cluster_problems(
    ask: Callable[[], Awaitable[dict[str, Any] | str]], notes: list[str], *, configured: bool
) -> list[str]:
    """Return what is wrong with the nodes; `notes` gets what is worth knowing and breaks nothing.

    `ask` returns the facts of the node that a new connection reaches, or why it is not the gateway's.
    `configured`: gateway.yaml has the section `cluster`.
    """
    answers: dict[str, dict[str, Any]] = {}
    known: dict[str, str] = {}
    asks, most = 0, ASKS_EACH
    while asks < most:
        asks += 1
        facts = await ask()
        if isinstance(facts, str):
            if not answers:
                return [facts]
            return [
                f"of {asks} requests {asks - 1} were answered by nodes, and one was not: {facts}. Give all nodes the "
                "same stores.encryption_key"
            ]
        report = facts["cluster"]
        answers[facts["process"]] = facts
        if report is not None:
            known |= {node["incarnation"]: node["name"] for node in report["nodes"] if node["state"] == "serving"}
            if len(known) > 1 and {*known} <= {one["cluster"]["here"] for one in answers.values() if one["cluster"]}:
                break
        most = min(MOST_ASKS, ASKS_EACH * max(1, len(known)))
    reports = [one["cluster"] for one in answers.values() if one["cluster"] is not None]
    if not configured and len(answers) == 1 and not reports:
        return []
    problems = list(dict.fromkeys(_problems(reports, len(answers), configured)))
    notes += _notes(reports, known, asks)
    return problems


def _problems(reports: Sequence[dict[str, Any]], processes: int, configured: bool) -> Iterator[str]:
    if len(reports) < processes:
        if processes > 1:
            yield (
                f"{processes} processes answer, and {processes - len(reports)} of them know no others: give all of "
                "them the section cluster, and the same stores.database (docs/scaling.md)"
            )
        elif configured:
            yield "gateway.yaml has the section cluster, and the running gateway has not: restart it"
    for report in reports:
        yield from _of_node(report, reports)


def _of_node(report: dict[str, Any], reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what one node reports."""
    nodes = {node["incarnation"]: node for node in report["nodes"]}
    own = nodes.get(report["here"])
    if own is None or own["renewed"] > STOP_AFTER:
        yield "a node that answers cannot renew its lease: look at its log, and at stores.database"
        return
    name = own["name"]
    for other in reports:
        if other["here"] not in nodes:
            yield (
                f"{name} and another node that answers do not know each other: write the same stores.database at "
                "all nodes"
            )
    for words in report["differing"]:
        yield f"{words}: {next(remedy for begin, remedy in _REMEDIES if words.startswith(begin))}"
    serving = [node for node in nodes.values() if node["state"] in ("serving", "draining")]
    if len(serving) > 1 and not report["redis"]:
        yield (
            f"{len(serving)} nodes share no Redis, so that each allows whole rates, and a model finds the tools of a "
            'page at one node alone: write stores: {redis: "${env:REDIS_URL}"}'
        )
    for node in serving:
        if node.get("reached") is False:
            yield (
                f"{name} does not reach {node['name']} at {node['address']}: {node['detail']}. Open that port between "
                f"nodes; cluster.address of {node['name']} must be a name of its certificate, and both certificates of "
                "cluster.tls.authority"
            )
        elif abs(ahead := node.get("ahead", 0.0)) > CLOCK:
            where = "ahead of" if ahead > 0 else "behind"
            yield f"the clock of {node['name']} is {abs(ahead):.0f} s {where} that of {name}: synchronise both (NTP)"
        if node.get("redis_problem"):
            yield f"{node['name']} cannot use its Redis (stores.redis): {node['redis_problem']}"


def _notes(reports: Sequence[dict[str, Any]], known: dict[str, str], asks: int) -> Iterator[str]:
    """Yield which nodes answered."""
    answered = {known[report["here"]] for report in reports if report["here"] in known}
    silent = sorted(set(known.values()) - answered)
    if len(known) > 1 and not silent:
        yield f"{len(known)} nodes answered: {', '.join(sorted(answered))}"
    elif silent and answered:
        yield (
            f"of {len(known)} nodes, the balancer leads this machine to {', '.join(sorted(answered))} ({asks} requests)"
            f", and not to {', '.join(silent)}: if it is sticky, that breaks nothing"
        )

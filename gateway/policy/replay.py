"""Decides a recorded call again under another policy, as far as the record allows.

The record has no bodies, headers, or roles and claims of a caller; a call whose rule reads these cannot be decided
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.errors import Refusal
from gateway.jsontext.writing import plain_json
from gateway.model import Caller, Door, Effect, Initiator, Json, Principal, Request
from gateway.policy.canonical import canonicalise
from gateway.policy.conditions import Condition
from gateway.policy.decide import decide, decide_tool
from gateway.policy.policy import Policy
from gateway.policy.rules import Decision, Route

ALLOW: Final = "allow"
ASK: Final = "confirm"
DENY: Final = "deny"

LONGEST_RAW: Final = 2048
"""Characters of an undecided request's URL in the record."""

REDACTED: Final = "[redacted]"
"""The record's placeholder for redacted values."""

_UNPROVEN: Final = frozenset({"no-view-proof", "no-view", "unproven-view"})


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """A recorded call decided again: `was` then and `would` be now are `allow`, `confirm` or `deny`.

    `reported` means that only report mode allowed it then. `rule_was` and `rule` are the deciding rules, or None.
    `lacks` is what the record lacks to decide it again; `would` is empty then.
    """

    method: str
    target: str
    initiator: str
    was: str
    reported: bool
    rule_was: str | None
    would: str = ""
    rule: str | None = None
    reasons: tuple[str, ...] = ()
    lacks: str | None = None

    @property
    def changed(self) -> bool:
        """True if the decision would differ now."""
        return self.lacks is None and self.was != self.would


def replay_decision(policy: Policy, fields: Mapping[str, Json]) -> ReplayedCall | None:
    """Decide the call whose outcome has these `fields` again, without report mode; None if it repeats another call."""
    kind = fields.get("kind")
    if kind == "http" and "answered_by" not in fields:  # a call that a person answered is recorded a second time
        return _request(policy, fields)
    return _tool(policy, fields) if kind == "tool" else None


def _request(policy: Policy, fields: Mapping[str, Json]) -> ReplayedCall | None:
    method, url, size = fields.get("method"), fields.get("url"), fields.get("request_size")
    if "policy_version" not in fields:
        return None  # refused at a door, before the policy decided
    then = _then(fields, str(method), str(url), fields.get("route"))
    if not isinstance(method, str) or not isinstance(url, str) or not _is_whole(url, decided=size is not None):
        return _without(then, "the whole URL")
    caller = _caller(fields)
    backend = fields.get("backend")
    try:
        replayed_request = Request(method, url, protocols=_protocols(fields))
        request = canonicalise(policy, replayed_request, str(backend) if backend in policy.backends else None)
    except Refusal as refusal:
        return _with_decision(then, DENY, None, (refusal.detail,))
    route = policy.routes.find(request.method, request.path, request.backend)
    lacks = _lacks(route, has_body=size != 0) if route is not None else None
    if lacks is not None:
        return _without(then, lacks)
    decision = decide(policy, request, caller)
    return _with_decision(then, _effect(decision), decision.route, decision.reasons)


def _is_whole(url: str, *, decided: bool) -> bool:
    """Return whether the URL is complete: a decided one is canonical, unless redacted; an undecided one is cut."""
    return url.startswith("/") if decided else len(url) < LONGEST_RAW


def _tool(policy: Policy, fields: Mapping[str, Json]) -> ReplayedCall | None:
    tool, arguments = fields.get("tool"), fields.get("arguments")
    if not isinstance(tool, str) or "decision" not in fields:
        return None  # it ended before the policy decided
    then = _then(fields, "tools/call", tool, tool)
    rule = policy.tools.get(tool)
    if rule is not None and rule.when is not None:
        lacks = _find_unrecorded(rule.when)
        if lacks is None and rule.when.reads("arguments") and not _are_whole(arguments):
            lacks = "the arguments of the tool"
        if lacks is not None:
            return _without(then, lacks)
    decision = decide_tool(policy, tool, _caller(fields), arguments if isinstance(arguments, dict) else None)
    return _with_decision(then, _effect(decision), decision.route, decision.reasons)


def _are_whole(arguments: Json) -> bool:
    """Return whether the arguments are complete: the record omits long ones and redacts some values."""
    return isinstance(arguments, dict) and REDACTED not in plain_json(arguments)


def _lacks(route: Route, *, has_body: bool) -> str | None:
    """Return what a route reads that is not in the record."""
    if has_body and (route.schema is not None or (route.when is not None and route.when.reads("request", "body"))):
        return "the body"
    return _find_unrecorded(route.when) if route.when is not None else None


def _find_unrecorded(when: Condition) -> str | None:
    if when.reads("request", "headers"):
        return "the headers"
    if when.reads("principal", "roles") or when.reads("principal", "claims"):
        return "roles and claims of the caller"
    return None


def _protocols(fields: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the subprotocols that a WebSocket asked for."""
    protocols = fields.get("protocols")
    return tuple(one for one in protocols if isinstance(one, str)) if isinstance(protocols, list) else ()


def _then(fields: Mapping[str, Json], method: str, target: str, rule: Json) -> ReplayedCall:
    was = ASK if fields.get("approval") is not None else ALLOW if fields.get("decision") == Effect.ALLOW else DENY
    return ReplayedCall(
        method=method,
        target=target,
        initiator=str(fields.get("initiator")),
        was=was,
        reported=bool(fields.get("reported")),
        rule_was=rule if isinstance(rule, str) else None,
    )


def _with_decision(then: ReplayedCall, would: str, rule: str | None, reasons: tuple[str, ...]) -> ReplayedCall:
    key = (then.method, then.target, then.initiator, then.was, then.reported, then.rule_was)
    return ReplayedCall(*key, would, rule, reasons)


def _without(then: ReplayedCall, what: str) -> ReplayedCall:
    key = (then.method, then.target, then.initiator, then.was, then.reported, then.rule_was)
    return ReplayedCall(*key, lacks=what)


def _effect(decision: Decision) -> str:
    if decision.effect is Effect.DENY:
        return DENY
    return ASK if decision.obligations.confirm is not None else ALLOW


def _caller(fields: Mapping[str, Json]) -> Caller:
    issuer, client, subject = (*str(fields.get("principal")).split("|", 2), "", "")[:3]
    initiator, view = fields.get("initiator"), fields.get("view")
    return Caller(
        principal=Principal(issuer, client, subject),
        app=str(fields.get("app")),
        door=Door.MCP,
        initiator=Initiator(initiator) if initiator in tuple(Initiator) else Initiator.MODEL,
        evidence=str(fields.get("evidence")),
        view=view if isinstance(view, str) else None,
        proven=fields.get("evidence") not in _UNPROVEN,
    )

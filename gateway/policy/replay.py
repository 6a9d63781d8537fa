"""A recorded call decided anew: what a policy would have said of it, as far as the record tells.

The record holds neither bodies, nor headers, nor the roles and claims of a caller; where a rule asks for these, the
call cannot be decided anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.errors import Refusal
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
"""Characters of a URL that the record keeps of a request before it is decided."""

REDACTED: Final = "[redacted]"
"""What stands in the record for a value that must not."""

_UNPROVEN: Final = frozenset({"no-view-proof", "no-view", "unproven-view"})


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a recorded call: `was` then and `would` be now are `allow`, `confirm` or `deny`.

    `reported` says that report mode alone let it through then. `rule_was` and `rule` are the deciding rules, None where
    none did. `lacks` is what the record lacks to decide it anew; `would` is empty then.
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
        """Whether it would go otherwise now."""
        return self.lacks is None and self.was != self.would


def replayed(policy: Policy, fields: Mapping[str, Json]) -> Replayed | None:
    """The outcome's `fields` decided anew; None for what is no call of its own. Report mode does not hold."""
    kind = fields.get("kind")
    if kind == "http" and "answered_by" not in fields:  # one that a person answered is recorded a second time
        return _request(policy, fields)
    return _tool(policy, fields) if kind == "tool" else None


def _request(policy: Policy, fields: Mapping[str, Json]) -> Replayed | None:
    method, url, size = fields.get("method"), fields.get("url"), fields.get("request_size")
    if "policy_version" not in fields:
        return None  # refused at a door, before any policy was asked
    then = _then(fields, str(method), str(url), fields.get("route"))
    if not isinstance(method, str) or not isinstance(url, str) or not _is_whole(url, decided=size is not None):
        return _lacking(then, "the whole URL")
    caller = _caller(fields)
    backend = fields.get("backend")
    try:
        request = canonicalise(policy, Request(method, url), str(backend) if backend in policy.backends else None)
    except Refusal as refusal:
        return _decided(then, DENY, None, (refusal.detail,))
    route = policy.routes.find(request.method, request.path, request.backend)
    lacks = _lacks(route, has_body=size != 0) if route is not None else None
    if lacks is not None:
        return _lacking(then, lacks)
    decision = decide(policy, request, caller)
    return _decided(then, _effect(decision), decision.route, decision.reasons)


def _is_whole(url: str, *, decided: bool) -> bool:
    """A URL that was decided on is canonical, or redacted; one that was not is cut."""
    return url.startswith("/") if decided else len(url) < LONGEST_RAW


def _tool(policy: Policy, fields: Mapping[str, Json]) -> Replayed | None:
    tool, arguments = fields.get("tool"), fields.get("arguments")
    if not isinstance(tool, str) or "decision" not in fields:
        return None  # it ended before any policy was asked
    then = _then(fields, "tools/call", tool, tool)
    rule = policy.tools.get(tool)
    if rule is not None and rule.when is not None:
        lacks = _unrecorded(rule.when)
        if lacks is None and rule.when.reads("arguments") and not _are_whole(arguments):
            lacks = "the arguments of the tool"
        if lacks is not None:
            return _lacking(then, lacks)
    decision = decide_tool(policy, tool, _caller(fields), arguments if isinstance(arguments, dict) else None)
    return _decided(then, _effect(decision), decision.route, decision.reasons)


def _are_whole(arguments: Json) -> bool:
    """Long ones are not in the record, and some values in it may be redacted."""
    return isinstance(arguments, dict) and REDACTED not in json.dumps(arguments)


def _lacks(route: Route, *, has_body: bool) -> str | None:
    """What a route asks for that no record holds."""
    if has_body and (route.schema is not None or (route.when is not None and route.when.reads("request", "body"))):
        return "the body"
    return _unrecorded(route.when) if route.when is not None else None


def _unrecorded(when: Condition) -> str | None:
    if when.reads("request", "headers"):
        return "the headers"
    if when.reads("principal", "roles") or when.reads("principal", "claims"):
        return "roles and claims of the caller"
    return None


def _then(fields: Mapping[str, Json], method: str, target: str, rule: Json) -> Replayed:
    was = ASK if fields.get("approval") is not None else ALLOW if fields.get("decision") == Effect.ALLOW else DENY
    return Replayed(
        method=method,
        target=target,
        initiator=str(fields.get("initiator")),
        was=was,
        reported=bool(fields.get("reported")),
        rule_was=rule if isinstance(rule, str) else None,
    )


def _decided(then: Replayed, would: str, rule: str | None, reasons: tuple[str, ...]) -> Replayed:
    told = (then.method, then.target, then.initiator, then.was, then.reported, then.rule_was)
    return Replayed(*told, would, rule, reasons)


def _lacking(then: Replayed, what: str) -> Replayed:
    told = (then.method, then.target, then.initiator, then.was, then.reported, then.rule_was)
    return Replayed(*told, lacks=what)


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

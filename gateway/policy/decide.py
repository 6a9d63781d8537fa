"""The decision: a pure function of policy, canonical request and caller; nothing is allowed that no rule allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gateway.model import Caller, CanonicalRequest, Effect, Initiator
from gateway.policy.messages import Message
from gateway.policy.obligations import SAFE_METHODS, Obligations
from gateway.policy.policy import Policy
from gateway.policy.rules import Decision, Route

TOOL_TIMEOUT: Final = 30.0

_UNPROVEN_QUESTION: Final = Message(("Allow ", " ", "?"), ("request.method", "request.path"))


def decide(policy: Policy, request: CanonicalRequest, caller: Caller, now: float | None = None) -> Decision:
    """What the policy says of `request`. The first route in the file that matches path and method decides.

    `now` is in seconds since the epoch; without it report mode does not hold.
    """
    route = policy.routes.find(request.method, request.path, request.backend)
    if route is None:
        return Decision(Effect.DENY, no_route_reasons(policy, request.method, request.path, request.backend))
    decision = route.decided
    if route.deny is not None:
        return decision
    if route.confirm is not None and route.confirm.applies(caller):
        decision = _asking(decision, route.confirm.message, _values(route, request, caller), "its rule asks a person")
    elif caller.initiator is Initiator.MODEL and not caller.proven and request.method not in SAFE_METHODS:
        reason = "the call has no view proof, so a person is asked before it changes anything"
        decision = _asking(decision, _UNPROVEN_QUESTION, _values(route, request, caller), reason)
    if request.timeout is not None and request.timeout < decision.obligations.timeout:
        decision = replace(decision, obligations=replace(decision.obligations, timeout=request.timeout))
    return decision


def decide_tool(
    policy: Policy, tool: str, caller: Caller, arguments: Mapping[str, object] | None = None, now: float | None = None
) -> Decision:
    """What the policy says of a call of the page's tool `tool`, by the page's own name for it. `now` as in `decide`."""
    rule = policy.tools.get(tool)
    if rule is None:
        listed = f"listed are {', '.join(list(policy.tools)[:20])}" if policy.tools else "no tools are listed"
        return Decision(Effect.DENY, (f'the tool "{tool[:128]}" is not under `tools` of the policy: {listed}',))
    if rule.deny is not None:
        return Decision(Effect.DENY, (rule.deny, f"the tool rule {tool} (line {rule.line}) denies it"), tool)
    obligations = Obligations(
        limits=rule.limits, quotas=rule.quotas, timeout=TOOL_TIMEOUT, description=rule.description
    )
    decision = Decision(Effect.ALLOW, (f"the tool rule {tool} (line {rule.line}) allows it",), tool, obligations)
    if rule.confirm is None or not rule.confirm.applies(caller):
        return decision
    values = {"tool": tool, "arguments": arguments or {}, "app": caller.app, "initiator": caller.initiator.value}
    return _asking(decision, rule.confirm.message, values, "its rule asks a person")


def no_route_reasons(policy: Policy, method: str, path: str, backend: str) -> tuple[str, ...]:
    """Why no route allows it, naming the methods that are allowed there, or else the nearest route."""
    there = [
        route
        for route in policy.routes.matching(path)
        if route.deny is None and (route.backend is None or backend in ("", route.backend))
    ]
    if there:
        methods = ", ".join(sorted({name for route in there for name in route.methods or ()}))
        return (f"no route allows {method} {path[:200]}: allowed there are {methods} ({there[0].shown})",)
    nearest = policy.routes.nearest(path)
    hint = f"the nearest is {nearest.shown}" if nearest else "the policy has no routes"
    return (f"no route allows {method} {path[:200]}: {hint}",)


def _asking(decision: Decision, message: Message, values: Mapping[str, object], reason: str) -> Decision:
    obligations = replace(decision.obligations, confirm=message.fill(values), no_store=True)
    return replace(decision, reasons=(*decision.reasons, reason), obligations=obligations)


def _values(route: Route, request: CanonicalRequest, caller: Caller) -> dict[str, object]:
    return {
        "request": {"method": request.method, "path": request.path, "query": request.query},
        "params": route.template.values(request.path),
        "app": caller.app,
        "initiator": caller.initiator.value,
    }

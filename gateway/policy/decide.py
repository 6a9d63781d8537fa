"""The decision: a pure function of policy, canonical request and caller; the default is to deny."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from gateway.model import Caller, CanonicalRequest, Effect, Initiator, Principal
from gateway.policy.conditions import Failure
from gateway.policy.confirm import ROUTE_MESSAGE, question
from gateway.policy.facts import FactSource
from gateway.policy.obligations import SAFE_METHODS, Obligations, SocketRule
from gateway.policy.policy import Policy
from gateway.policy.rules import Confirm, Decision, OrganisationRule, Route, ToolRule

TOOL_TIMEOUT: Final = 30.0

_UNPROVEN: Final = question(None, ROUTE_MESSAGE)
_UNPROVEN_REASON: Final = "the call has no view proof, so a person is asked before it changes anything"
_ASKS: Final = "its rule asks a person"
_MASKED: Final = "values of answers are masked here, and cannot be found in the messages of a WebSocket"


def decide(policy: Policy, request: CanonicalRequest, caller: Caller, now: float | None = None) -> Decision:
    """Decide on `request`. The first route in the file that matches path and method decides.

    `now` is in seconds since the epoch; without it report mode is off.
    """
    reporting = policy.mode is not None and policy.mode.active(now)
    above = policy.organisation.matching(request.method, request.path) if policy.organisation is not None else ()
    for rule in above:
        if rule.deny is not None:
            return Decision(Effect.DENY, (rule.deny, f"the rule {rule.label} denies it"), rule.template.text)
    route = policy.routes.find(request.method, request.path, request.backend)
    if route is None:
        decision = _decide_unrouted(policy, request, reporting=reporting)
    else:
        decision = route.decision
        if route.when is not None or route.schema is not None:
            decision = _conditional(policy, route, request, caller, reporting=reporting)
    if decision.effect is Effect.DENY:
        return decision
    if request.protocols is not None:
        decision = _socket(policy, decision, route, request.protocols, reporting=reporting)
        if decision.effect is Effect.DENY:
            return decision
    if route is not None and route.confirm is not None and route.confirm.applies(caller):
        decision = _require_approval(decision, route.confirm, FactSource(caller, request, route.template), _ASKS)
    elif caller.initiator is Initiator.MODEL and not caller.proven and not _is_safe(request):
        decision = _require_approval(decision, _UNPROVEN, FactSource(caller, request), _UNPROVEN_REASON)
    for rule in above:
        decision = _within_rule(decision, rule, FactSource(caller, request, rule.template))
        if decision.effect is Effect.DENY:
            return decision
    if request.opens_socket and decision.obligations.mask:
        return Decision(Effect.DENY, (_MASKED,), decision.route)
    if reporting:
        decision = replace(decision, obligations=replace(decision.obligations, report=True))
    if request.timeout is not None and request.timeout < decision.obligations.timeout:
        decision = replace(decision, obligations=replace(decision.obligations, timeout=request.timeout))
    return decision


def decide_tool(
    policy: Policy, tool: str, caller: Caller, arguments: Mapping[str, object] | None = None, now: float | None = None
) -> Decision:
    """Decide on a call of the page's tool `tool`, under the page's own name for it. `now` as in `decide`."""
    rule = policy.tools.get(tool)
    if rule is None:
        tools_listed = f"listed are {', '.join(list(policy.tools)[:20])}" if policy.tools else "no tools are listed"
        return Decision(Effect.DENY, (f'the tool "{tool[:128]}" is not under `tools` of the policy: {tools_listed}',))
    if rule.deny is not None:
        return Decision(Effect.DENY, (rule.deny, f"the tool rule {tool} ({rule.place}) denies it"), tool)
    reporting = policy.mode is not None and policy.mode.active(now)
    source = FactSource(caller, tool=tool, arguments=arguments or {})
    decision = Decision(
        Effect.ALLOW, (f"the tool rule {tool} ({rule.place}) allows it",), tool, _tool_obligations(rule)
    )
    failure = rule.when.failure(source) if rule.when is not None else None
    if failure is not None:
        decision = _deny_failed(decision, f"the condition of the tool rule {tool} ({rule.place})", failure)
        if not reporting:
            return decision
        decision = _allow_reported(policy, decision, _tool_obligations(rule))
    if rule.confirm is not None and rule.confirm.applies(caller):
        decision = _require_approval(decision, rule.confirm, source, _ASKS)
    for one in rule.also:
        failure = one.when.failure(source) if one.when is not None else None
        if failure is not None:
            return _deny_failed(decision, f"the organisation's condition for the tool {tool} ({one.place})", failure)
        if one.confirm is not None and one.confirm.applies(caller):
            decision = _require_approval_above(decision, one.confirm, source, one.place)
    if reporting:
        decision = replace(decision, obligations=replace(decision.obligations, report=True))
    return decision


def may_call_tool(policy: Policy, tool: str, principal: Principal, now: float | None = None) -> bool:
    """Return whether `principal` may call the tool with some arguments, as far as only the facts of the principal tell.

    A condition that names anything else is not evaluated. `now` as in `decide`.
    """
    rule = policy.tools.get(tool)
    if rule is None:
        return True
    relaxed = policy.mode is not None and policy.mode.active(now)
    conditions = [one.when for one in ((*rule.also,) if relaxed else (rule, *rule.also)) if one.when is not None]
    source = FactSource(Caller(principal, "", None, Initiator.MODEL, "listing"), tool=tool)
    return all(condition.failure(source) is None for condition in conditions if condition.of_principal)


def decide_link(policy: Policy, url: str, caller: Caller) -> Decision:
    """Decide whether an app may open `url` in the person's browser, and whether the person is asked first."""
    link = policy.links.find(url)
    if link is None:
        allowed = ", ".join(pattern.text for pattern in policy.links.allow[:20]) or "none"
        return Decision(Effect.DENY, (f"no link of the policy allows {ascii(url[:200])[1:-1]} (allowed: {allowed})",))
    decision = Decision(Effect.ALLOW, (f"the link {link.text} allows it",), link.text)
    if policy.links.confirm is None or not policy.links.confirm.applies(caller):
        return decision
    return _require_approval(decision, policy.links.confirm, FactSource(caller, link=url), _ASKS)


def no_route_reasons(policy: Policy, method: str, path: str, backend: str) -> tuple[str, ...]:
    """Explain why no route allows a request, naming the allowed methods or the nearest route."""
    there = [
        route
        for route in policy.routes.matching(path)
        if route.deny is None and (route.backend is None or backend in ("", route.backend))
    ]
    if there:
        methods = ", ".join(sorted({name for route in there for name in route.methods or ()}))
        place = f"{there[0].template.text}, {there[0].place}"
        return (f"no route allows {method} {path[:200]}: this path allows {methods} ({place})",)
    nearest = policy.routes.nearest(path)
    hint = f"the nearest is {nearest.label}" if nearest else "the policy has no routes"
    return (f"no route allows {method} {path[:200]}: {hint}",)


def _decide_unrouted(policy: Policy, request: CanonicalRequest, *, reporting: bool) -> Decision:
    reasons = no_route_reasons(policy, request.method, request.path, request.backend)
    decision = Decision(Effect.DENY, reasons)
    backend = policy.backends.get(request.backend)
    if not reporting or backend is None:
        return decision
    obligations = replace(policy.defaults, circuit=backend.circuit, cookies=backend.cookies)
    return _allow_reported(policy, decision, obligations)


def _is_safe(request: CanonicalRequest) -> bool:
    """Return whether the request changes nothing; a WebSocket may carry any change."""
    return request.method in SAFE_METHODS and not request.opens_socket


def _socket(
    policy: Policy, decision: Decision, route: Route | None, protocols: Sequence[str], *, reporting: bool
) -> Decision:
    """Decide whether the WebSocket may be opened that an allowed GET asks for."""
    rule = decision.obligations.socket
    label = route.label if route is not None else ""
    if rule is None:
        denial = Decision(Effect.DENY, (f"the route {label} carries no WebSocket",), decision.route)
        if not reporting:
            return denial
        obligations = replace(decision.obligations, socket=SocketRule())
        if decision.obligations.reported:
            return replace(decision, obligations=obligations)
        return _allow_reported(policy, denial, obligations)
    other = [protocol for protocol in protocols if rule.protocols is not None and protocol not in rule.protocols]
    if rule.protocols is None or (protocols and not other):
        return decision
    request_text = f"the subprotocol {other[0]}" if other else "no subprotocol"
    reason = (
        f"the route {label} carries WebSockets with {', '.join(rule.protocols)}, and this one asks for {request_text}"
    )
    denial = Decision(Effect.DENY, (reason,), decision.route)
    return _allow_reported(policy, denial, decision.obligations) if reporting else denial


def _conditional(
    policy: Policy, route: Route, request: CanonicalRequest, caller: Caller, *, reporting: bool
) -> Decision:
    """Decide on a route with a schema or a condition. Report mode does not relax the schema."""
    decision = route.decision
    if route.schema is not None:
        failure = route.schema.failure(request.json) if request.body else Failure("there is no body")
        if failure is not None:
            return _deny_failed(decision, f"the body schema of the route {route.label}", failure)
    if route.when is None:
        return decision
    failure = route.when.failure(FactSource(caller, request, route.template))
    if failure is None:
        return decision
    denial = _deny_failed(decision, f"the condition of the route {route.label}", failure)
    return _allow_reported(policy, denial, decision.obligations) if reporting else denial


def _deny_failed(decision: Decision, rule: str, failure: Failure) -> Decision:
    return Decision(Effect.DENY, (f"{rule} does not hold: {failure.why}",), decision.route, reason=failure.reason)


def _allow_reported(policy: Policy, denial: Decision, obligations: Obligations) -> Decision:
    """Turn a denial into an allowed decision of report mode."""
    until = policy.mode.date if policy.mode is not None else ""
    reasons = (*denial.reasons, f"report mode lets it through until {until}")
    return replace(denial, effect=Effect.ALLOW, reasons=reasons, obligations=replace(obligations, reported=True))


def _within_rule(decision: Decision, rule: OrganisationRule, source: FactSource) -> Decision:
    """Return an allowed decision within a rule of the organisation; report mode relaxes none of them."""
    failure = rule.when.failure(source) if rule.when is not None else None
    if failure is not None:
        return _deny_failed(decision, f"the condition of the rule {rule.label}", failure)
    decision = replace(decision, obligations=rule.ceilings.apply(decision.obligations))
    if rule.confirm is None or not rule.confirm.applies(source.caller):
        return decision
    return _require_approval_above(decision, rule.confirm, source, rule.label)


def _require_approval_above(decision: Decision, confirm: Confirm, source: FactSource, place: str) -> Decision:
    """Return a decision with the organisation's question, or the app's own, whose grant lasts no longer than that."""
    if decision.obligations.confirm is None:
        return _require_approval(decision, confirm, source, f"{_ASKS}: {place}")
    lasting = decision.obligations.grant
    shorter = None if lasting is None or confirm.grant is None else min(lasting, confirm.grant)
    return replace(decision, obligations=replace(decision.obligations, grant=shorter, no_store=True))


def _tool_obligations(rule: ToolRule) -> Obligations:
    rules = (rule, *rule.also)
    return Obligations(
        limits=tuple(limit for one in rules for limit in one.limits),
        quotas=tuple(quota for one in rules for quota in one.quotas),
        timeout=rule.timeout or TOOL_TIMEOUT,
        description=rule.description,
    )


def _require_approval(decision: Decision, confirm: Confirm, source: FactSource, reason: str) -> Decision:
    question_text, lasting = confirm.question(source), confirm.grant
    obligations = replace(
        decision.obligations, confirm=question_text, grant=lasting, question_timeout=confirm.timeout, no_store=True
    )
    return replace(decision, reasons=(*decision.reasons, reason), obligations=obligations)

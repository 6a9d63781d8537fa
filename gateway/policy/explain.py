"""Explains a decision: each step, each candidate route, the facts of its conditions, the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from gateway.errors import Refusal
from gateway.jsontext.writing import lenient_json
from gateway.model import WEBSOCKET, Caller, CanonicalRequest, Effect, Request
from gateway.policy import paths
from gateway.policy.canonical import canonical_method, canonicalise, target
from gateway.policy.conditions import Condition, Failure
from gateway.policy.decide import decide, decide_tool
from gateway.policy.facts import FactSource, Missing
from gateway.policy.messages import visible
from gateway.policy.obligations import AppAuthorization
from gateway.policy.page_rules import origin_of
from gateway.policy.policy import Policy
from gateway.policy.rules import TOOL_CALL, Decision, Route, ToolRule, rule_place

MAX_TRIED: Final = 50
MAX_VALUE: Final = 200
_ID: Final = re.compile(r"[0-9]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
"""Segments of a path that look like an id: a number or a UUID."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the normalisation: its name and its result."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class CandidateRoute:
    """A candidate route, and its outcome."""

    route: str
    line: int
    outcome: str
    file: str = ""

    @property
    def place(self) -> str:
        """The place of the rule."""
        return rule_place(self.line, self.file)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision with everything that led to it. `request` is None for tools, and for refused requests.

    `facts` are the values of the facts that the conditions of the deciding rule name, each condition last.
    """

    steps: tuple[Step, ...]
    candidates: tuple[CandidateRoute, ...]
    request: CanonicalRequest | None
    effect: str
    reasons: tuple[str, ...]
    decision: Decision | None
    remedy: str | None
    facts: tuple[Step, ...] = ()


def explain(policy: Policy, request: Request, caller: Caller, now: float | None = None) -> Explanation:
    """Explain the decision of `policy` on `request` of `caller`. `now` as in `decide`."""
    if (opening := opened_past(policy, request.method, request.url)) is not None:
        input_step = Step("as given", f"{request.method} {request.url}")
        return Explanation((input_step,), (), None, "allow", (opening,), None, None)
    steps = _steps(policy, request)
    try:
        canonical = canonicalise(policy, request)
    except Refusal as refusal:
        return Explanation(steps, (), None, "deny", (refusal.detail,), None, _refused_remedy(policy, request, refusal))
    decision = decide(policy, canonical, caller, now)
    route = policy.routes.find(canonical.method, canonical.path, canonical.backend)
    candidates = _candidate_routes(policy, canonical, decision)
    return Explanation(
        steps=steps,
        candidates=candidates,
        request=canonical,
        effect=outcome(decision),
        reasons=decision.reasons,
        decision=decision,
        remedy=_remedy(policy, canonical, decision),
        facts=_route_facts(route, canonical, caller) if route is not None else (),
    )


def opened_past(policy: Policy, method: str, url: str) -> str | None:
    """Return how `external` lets the page's browser send a request past the gateway; None if it does not.

    What `connect` names may be sent any method, files are read.
    """
    if origin_of(url) in policy.origins:
        return None
    is_read = method.upper() == "GET"
    entries = [entry for entry in policy.external.opening(url) if is_read or entry.startswith("connect:")]
    if not entries:
        return None
    entry_names = ", ".join(f"`{entry}`" for entry in entries)
    how = "the page's browser sends it by itself, and the gateway neither sees nor decides it"
    return f"`external` names {entry_names}: {how}"


def explain_tool(
    policy: Policy, tool: str, caller: Caller, arguments: Mapping[str, object] | None = None, now: float | None = None
) -> Explanation:
    """Explain the decision of `policy` on a call of the page's tool `tool`."""
    decision = decide_tool(policy, tool, caller, arguments, now)
    rule = policy.tools.get(tool)
    source = FactSource(caller, tool=tool, arguments=arguments or {})
    candidates = _tried_tools(tool, rule, decision) if rule is not None else ()
    return Explanation(
        steps=(Step("as given", f"{TOOL_CALL} {tool}"),),
        candidates=candidates,
        request=None,
        effect=outcome(decision),
        reasons=decision.reasons,
        decision=decision,
        remedy=_tool_remedy(tool, rule, decision),
        facts=_condition_facts(rule.when, source) if rule is not None and rule.when is not None else (),
    )


def outcome(decision: Decision) -> str:
    """Return `allow`, `deny` or `confirm`."""
    if decision.effect is Effect.DENY:
        return "deny"
    return "confirm" if decision.obligations.confirm is not None else "allow"


def _steps(policy: Policy, request: Request) -> tuple[Step, ...]:
    """Return the normalisation steps up to a refusal."""
    steps = [Step("as given", f"{request.method} {request.url}")]
    try:
        if request.method.upper() == WEBSOCKET:
            protocols_text = f", subprotocols {', '.join(request.protocols)}" if request.protocols else ""
            steps.append(Step("opens a WebSocket", f"by a GET with Upgrade{protocols_text}"))
        else:
            steps.append(Step("method in upper case", canonical_method(request.method)))
        backend, path, query = target(policy, request.url)
        backend_text = f"backend {backend}, named by the URL's origin; " if backend else ""
        steps.append(Step("split, fragment dropped", f"{backend_text}path {path}, query {query or '(none)'}"))
        path = paths.normalised_path(path)
        steps.append(Step("percent-encoding normalised", path))
        path = paths.remove_dots(path)
        steps.append(Step("dot segments removed", path))
        if query:
            steps.append(Step("query normalised", paths.canonical_query(query)))
        canonical = canonicalise(policy, request)
        names = {name for name, _ in canonical.headers}
        hidden_names = sorted({name.lower() for name, _ in request.headers} - names)
        if hidden_names:
            steps.append(Step("headers dropped", ", ".join(hidden_names)))
        if "authorization" in hidden_names:
            steps.append(Step("authorization of the page", _authorization(policy, canonical.backend)))
        backend_text = canonical.backend or "(no backend)"
        steps.append(Step("canonical", f"{canonical.shown_method} {canonical.url} to {backend_text}"))
    except ValueError as error:
        steps.append(Step("refused", str(error)))
    except Refusal as refusal:
        steps.append(Step("refused", refusal.detail))
    return tuple(steps)


def _authorization(policy: Policy, backend: str) -> str:
    """Return what becomes of the field that a page sets itself."""
    spec = policy.backends.get(backend)
    if spec is None:
        return "dropped: no backend is named"
    if spec.credential is not None:
        return f"dropped: the gateway sends its credential {spec.credential} to {spec.name}"
    match spec.authorization:
        case AppAuthorization.PASS:
            return f"sent to {spec.name}, as its `authorization` is pass"
        case AppAuthorization.VAULT:
            return f"sent to {spec.name} with the token of its handle, as its `authorization` is vault"
        case AppAuthorization.DROP:
            return f"dropped: write `authorization: pass` or `vault` at the backend {spec.name} if the app has a login"


def _candidate_routes(policy: Policy, request: CanonicalRequest, decision: Decision) -> tuple[CandidateRoute, ...]:
    above = policy.organisation.matching(request.method, request.path) if policy.organisation is not None else []
    candidates_above = [
        CandidateRoute(f"organisation: {rule.template.text}", rule.line, rule.does, rule.file) for rule in above
    ]
    if any(rule.deny is not None for rule in above):
        return tuple(candidates_above)
    for route in policy.routes.matching(request.path)[:MAX_TRIED]:
        passed_over = _skip_reason(route, request)
        came = passed_over or _came_of(decision, route.deny)
        candidates_above.append(CandidateRoute(route.template.text, route.line, came, route.file))
        if passed_over is None:
            break
    return tuple(candidates_above)


def _skip_reason(route: Route, request: CanonicalRequest) -> str | None:
    """Return why a route with a matching path does not decide; None if it does."""
    if route.methods is not None and request.method not in route.methods:
        return f"path matches, method does not ({', '.join(sorted(route.methods))})"
    if route.backend is not None and route.backend != request.backend:
        return f"path and method match, backend does not ({route.backend})"
    return None


def _came_of(decision: Decision, deny: str | None) -> str:
    if deny is not None:
        return "denies"
    if decision.obligations.reported:
        return "denies, and report mode lets it through"
    return "allows" if decision.effect is Effect.ALLOW else "denies, since its conditions do not hold"


def _route_facts(route: Route, request: CanonicalRequest, caller: Caller) -> tuple[Step, ...]:
    steps: list[Step] = []
    if route.schema is not None:
        failure = route.schema.failure(request.json) if request.body else Failure("there is no body")
        steps.append(Step(f"body schema {route.schema.file}", "holds" if failure is None else failure.why))
    if route.when is not None:
        steps += _condition_facts(route.when, FactSource(caller, request, route.template))
    return tuple(steps)


def _condition_facts(condition: Condition, source: FactSource) -> tuple[Step, ...]:
    steps = [Step(name, _value(value)) for name, value in condition.values(source)]
    failure = condition.failure(source)
    return (*steps, Step(f"when {condition.text}", "is true" if failure is None else failure.why))


def _value(value: object) -> str:
    if isinstance(value, Missing):
        return f"({value.why})"
    text = visible(lenient_json(value))
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}…"


def _refused_remedy(policy: Policy, request: Request, refusal: Refusal) -> str | None:
    """Return the text after the last colon; a single word before it, such as `url`, is a field name."""
    sentence, _, remedy = refusal.detail.rpartition(": ")
    is_elsewhere = bool(origin := origin_of(request.url)) and origin not in policy.origins
    past = "; or name it under `external`: the page's browser then loads it past the gateway" if is_elsewhere else ""
    return f"{remedy}{past}" if " " in sentence else None


def _remedy(policy: Policy, request: CanonicalRequest, decision: Decision) -> str | None:
    if decision.effect is Effect.ALLOW:
        return None
    above = policy.organisation.matching(request.method, request.path) if policy.organisation is not None else []
    denies = next((rule for rule in above if rule.deny is not None), None)
    if denies is not None:
        return f"the organisation denies this, even if a policy allows it: {rule_place(denies.line, denies.file)}"
    route = policy.routes.find(request.method, request.path, request.backend)
    if route is not None and route.deny is not None:
        where = _where(route)
        return f"the rule {where} denies this on purpose: a route for it must come before that line"
    if route is not None and request.protocols is not None:
        rule = route.decision.obligations.socket
        if rule is None:
            return f"add `websocket: true` to {route.template.text} ({route.place})"
        if rule.protocols is not None and not (request.protocols and set(request.protocols) <= set(rule.protocols)):
            return f"add what the page asks for to `websocket.protocols` of {route.template.text} ({route.place})"
    if route is not None:
        return f"change the request, or the conditions of {route.template.text} ({route.place})"
    allowed = next((route for route in policy.routes.matching(request.path) if route.deny is None), None)
    if allowed is not None:
        return f"add {request.method} to `methods` of {allowed.template.text} ({allowed.place})"
    template = _template(request.path)
    alone = f' (the path "{request.path}" allows it for this one alone)' if template != request.path else ""
    carries = ", websocket: true" if request.opens_socket else ""
    return f'add to `routes`: {{path: "{template}", methods: [{request.method}]{carries}}}{alone}'


def _template(path: str) -> str:
    """Return the path with parameters in the place of segments that look like ids."""
    segments, names = [], (f"id{number}" if number > 1 else "id" for number in count(1))
    for segment in path.split("/"):
        segments.append(f"{{{next(names)}}}" if _ID.fullmatch(segment) else segment)
    return "/".join(segments)


def _tool_remedy(tool: str, rule: ToolRule | None, decision: Decision) -> str | None:
    if decision.effect is Effect.ALLOW:
        return None
    if rule is None:
        return f"add to `tools`: {tool}: {{}}"
    if rule.deny is not None:
        return f"the rule {_where(rule)} denies this on purpose: change that line"
    return f"change the arguments, or the condition {_where(rule)}"


def _where(rule: Route | ToolRule) -> str:
    return f"in {rule.place}" if rule.file else f"on line {rule.line}"


def _tried_tools(tool: str, rule: ToolRule, decision: Decision) -> tuple[CandidateRoute, ...]:
    """Return the rule of a tool, and those of the organisation."""
    own = CandidateRoute(f"tool {tool}", rule.line, _came_of(decision, rule.deny), rule.file)
    above = [CandidateRoute(f"organisation: tool {one.name}", one.line, "holds, too", one.file) for one in rule.also]
    return (own, *above)

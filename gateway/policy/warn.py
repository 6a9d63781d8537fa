"""Warns about valid policies: routes that never decide, implicit refusals, report mode."""

from __future__ import annotations

from gateway.errors import Problem
from gateway.policy.confirm import reads_body
from gateway.policy.policy import Policy
from gateway.policy.rules import METHODS, Route


def warnings(policy: Policy) -> tuple[Problem, ...]:
    """Return the warnings with their places; none of them prevents the policy's use."""
    found: list[Problem] = []
    if policy.mode is not None:
        text = f"report mode: what no rule allows is let through until {policy.mode.date}, and written down"
        found.append(Problem(policy.file, 1, 1, text))
    for route in policy.routes.all:
        literal = next((name for name in route.template.text.split("/") if name.startswith(":")), None)
        if literal is not None:
            text = f"{route.template.text}: {literal} means itself alone; a parameter is {{{literal[1:] or 'name'}}}"
            found.append(Problem(policy.file, route.line, 1, text))
        lines = _deciding(policy, route)
        if lines:
            named = f"line {lines[0]} takes" if len(lines) == 1 else f"lines {', '.join(map(str, lines))} take"
            text = f"{route.template.text} never decides: {named} all that it matches"
            found.append(Problem(policy.file, route.line, 1, text))
        said = route.confirm is not None and reads_body(route.confirm.message)
        if said and route.when is None and route.schema is None:
            text = f"{route.template.text}: the question shows the body, so forms and all else but JSON are refused"
            found.append(Problem(policy.file, route.line, 1, text))
    return tuple(found)


def _deciding(policy: Policy, route: Route) -> list[int]:
    """Return the lines of the routes that together decide on everything that `route` matches; else nothing."""
    lines: set[int] = set()
    before = [one for one in policy.routes.covering(route.template) if one.index < route.index and _takes(one, route)]
    for method in route.methods or METHODS:
        first = next((one for one in before if one.methods is None or method in one.methods), None)
        if first is None:
            return []
        lines.add(first.line)
    return sorted(lines)


def _takes(one: Route, route: Route) -> bool:
    """Return whether a route with a wider path also matches all backends and ambiguous segments of `route`."""
    if one.backend is not None and one.backend != route.backend:
        return False
    return one.deny is not None or (route.deny is None and route.template.encoded <= one.template.encoded)

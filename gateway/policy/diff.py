"""Compares two policies: sample paths show what one opens, closes, loosens or tightens against the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from gateway.jsontext.writing import sorted_json
from gateway.model import Json
from gateway.policy.conditions import Condition
from gateway.policy.obligations import AppAuthorization, Limit, Obligations, Quota, Redirects, SocketRule
from gateway.policy.page_rules import Links
from gateway.policy.policy import Policy, ReportMode, Routes
from gateway.policy.rules import METHODS, BackendSpec, Confirm, OrganisationRule, Route, ToolRule, rule_place
from gateway.policy.schemas import BodySchema
from gateway.policy.templates import Region, region
from gateway.token_buckets import Rate

T = TypeVar("T")

_SHOWN: Final = 100
"""Changes of one policy that one entry of the record lists."""


class Turn(StrEnum):
    """The direction of a change."""

    OPENED = "opened"
    CLOSED = "closed"
    CHANGED = "changed"


Difference: TypeAlias = tuple[Turn, str]

_PERIODS: Final = {1.0: "second", 60.0: "minute", 3600.0: "hour", 86400.0: "day"}


def routes_differ(old: Route | None, new: Route | None) -> Iterator[Difference]:
    """Yield the differences between the deciding routes `old` and `new`; None means no route, which denies."""
    was, now = old is not None and old.deny is None, new is not None and new.deny is None
    if not was and not now:
        if old is not None and new is not None and old.deny != new.deny:
            yield Turn.CHANGED, f"the reason of the denial is now: {new.deny}"
    elif not was:
        yield Turn.OPENED, "allowed" if old is None else f"allowed; it was denied: {old.deny}"
    elif not now:
        yield Turn.CLOSED, "no rule allows it any more" if new is None else f"denied: {new.deny}"
    elif old is not None and new is not None:
        yield from _conditions(old.when, new.when)
        yield from _schemas(old.schema, new.schema)
        yield from _confirms(old.confirm, new.confirm)
        yield from _obligations(old.decision.obligations, new.decision.obligations)
        if old.backend != new.backend:
            yield Turn.OPENED, f"goes to the backend {new.backend}, not to {old.backend}"


def tools_differ(old: ToolRule | None, new: ToolRule | None) -> Iterator[Difference]:
    """Yield the differences between two rules of a page's tool."""
    was, now = old is not None and old.deny is None, new is not None and new.deny is None
    if was != now:
        why = new.deny if new is not None and new.deny else "it is no longer listed"
        yield (Turn.OPENED, "models may call it") if now else (Turn.CLOSED, f"models may not call it: {why}")
    elif now and old is not None and new is not None:
        yield from _conditions(old.when, new.when)
        yield from _confirms(old.confirm, new.confirm)
        yield from _count(old.limits, new.limits, "rate", _rate)
        yield from _count(old.quotas, new.quotas, "quota", _quota)
        if old.description != new.description:
            yield Turn.CHANGED, "another description"
        if old.timeout != new.timeout:
            yield Turn.CHANGED, f"timeout in seconds: {new.timeout or 'the usual'} (was {old.timeout or 'the usual'})"
        yield from _rules_above(old.also, new.also)
        if old.pin != new.pin:
            yield (Turn.CLOSED, "pinned") if old.pin is None else (Turn.OPENED, "pinned to another definition, or not")


def _rules_above(old: Sequence[ToolRule], new: Sequence[ToolRule]) -> Iterator[Difference]:
    """Yield the differences of the organisation's rules for a tool."""
    before, after = ([_does(rule) for rule in rules] for rules in (old, new))
    for does in before:
        if does not in after:
            yield Turn.OPENED, f"no longer under the organisation's rule: {does}"
    for does in after:
        if does not in before:
            yield Turn.CLOSED, f"under the organisation's rule: {does}"


def _does(rule: ToolRule) -> str:
    """Return what a rule of the organisation requires of a call."""
    words = [f"only where {rule.when.text}"] if rule.when is not None else []
    words += [f"a person is asked first ({_describe_confirm(rule.confirm)})"] if rule.confirm is not None else []
    words += [_rate(limit)[2] for limit in rule.limits] + [_quota(quota)[2] for quota in rule.quotas]
    words += [f"{rule.timeout:g} seconds"] if rule.timeout is not None else []
    return "; ".join(words) or f"denied: {rule.deny}"


def backends_differ(old: BackendSpec | None, new: BackendSpec | None) -> Iterator[Difference]:
    """Yield the differences between two backends."""
    if old is None or new is None:
        yield (Turn.CHANGED, "new") if old is None else (Turn.CHANGED, "gone")
        return
    for name, what in (("url", "requests go to another place"), ("type", "another type"), ("credential", "credential")):
        if getattr(old, name) != getattr(new, name):
            yield Turn.OPENED, f"{what}: {getattr(new, name)} (was {getattr(old, name)})"
    if old.authorization is not new.authorization:
        turn = Turn.OPENED if new.authorization is AppAuthorization.PASS else Turn.CHANGED
        yield turn, f"the page's own authorization: {new.authorization} (was {old.authorization})"
    yield from _sets(old.origins, new.origins, "origins")
    if old.network != new.network:
        networks = (new.network.public, old.network.public), (new.network.private, old.network.private)
        narrower = set(new.network.blocks) <= set(old.network.blocks) and all(was or not now for now, was in networks)
        if old.network.authorities != new.network.authorities:
            yield Turn.OPENED, f"other certificate authorities are trusted: {new.network.authorities}"
        else:
            yield Turn.CLOSED if narrower else Turn.OPENED, "other addresses may be connected to"
    for name in ("options", "retry", "circuit", "cookies", "trace"):
        if getattr(old, name) != getattr(new, name):
            yield Turn.CHANGED, f"{name}: {getattr(new, name)}"


def rest_differs(old: Policy, new: Policy) -> Iterator[Difference]:
    """Yield the differences of file-wide settings: links, frames, external and mode."""
    yield from _links(old.links, new.links)
    yield from _sets(old.frames, new.frames, "frames")
    yield from _sets(old.external.entries(), new.external.entries(), "external")
    yield from _modes(old.mode, new.mode)


def _links(old: Links, new: Links) -> Iterator[Difference]:
    yield from _sets([one.text for one in old.allow], [one.text for one in new.allow], "links")
    if old.allow and new.allow:
        yield from ((turn, f"links: {detail}") for turn, detail in _confirms(old.confirm, new.confirm))


def _modes(old: ReportMode | None, new: ReportMode | None) -> Iterator[Difference]:
    if old == new:
        return
    if new is None:
        yield Turn.CLOSED, "report mode is over: what no rule allows is refused"
    elif old is None or new.until > old.until:
        yield Turn.OPENED, f"report mode until {new.date}: what no rule allows is let through"
    else:
        yield Turn.CLOSED, f"report mode ends earlier, on {new.date}"


def schema_text(schema: BodySchema | None) -> str | None:
    """Return the content of a body schema, independent of its file name."""
    return None if schema is None else sorted_json(schema.schema)


def _conditions(old: Condition | None, new: Condition | None) -> Iterator[Difference]:
    before, after = (one.text if one is not None else None for one in (old, new))
    if before == after:
        return
    if before is None:
        yield Turn.CLOSED, f"only where {after}"
    elif after is None:
        yield Turn.OPENED, f"no longer only where {before}"
    else:
        yield Turn.OPENED, f"under another condition, and two cannot be compared: {after} (was {before})"


def _schemas(old: BodySchema | None, new: BodySchema | None) -> Iterator[Difference]:
    if schema_text(old) == schema_text(new):
        return
    if old is None:
        yield Turn.CLOSED, f"only with a body as in {new.file if new is not None else ''}"
    elif new is None:
        yield Turn.OPENED, f"with any body, no longer as in {old.file}"
    else:
        yield Turn.OPENED, f"with another body, and two schemas cannot be compared: {new.file} (was {old.file})"


def _confirms(old: Confirm | None, new: Confirm | None) -> Iterator[Difference]:
    if old is None or new is None:
        if new is not None:
            yield Turn.CLOSED, f"a person is asked first ({_describe_confirm(new)})"
        elif old is not None:
            yield Turn.OPENED, "no person is asked first any more"
        return
    before, after = _asks(old), _asks(new)
    if before != after:
        turn = Turn.CLOSED if before < after else Turn.OPENED
        yield turn, f"a person is asked first for {_describe_confirm(new)} (was {_describe_confirm(old)})"
    if (old.grant or 0) != (new.grant or 0):
        turn = Turn.OPENED if (new.grant or 0) > (old.grant or 0) else Turn.CLOSED
        yield turn, f"a person may allow it for {new.grant or 0:g} seconds at once (was {old.grant or 0:g})"
    if old.timeout != new.timeout:
        yield Turn.CHANGED, "the question to a person stays open for another time"
    if old.message != new.message:
        yield Turn.CHANGED, "the question to a person has another text"


def _asks(confirm: Confirm) -> frozenset[str]:
    return frozenset(confirm.initiators) if confirm.initiators is not None else frozenset({"person", "page", "model"})


def _describe_confirm(confirm: Confirm) -> str:
    return "always" if confirm.initiators is None else ", ".join(sorted(confirm.initiators))


def _obligations(old: Obligations, new: Obligations) -> Iterator[Difference]:
    yield from _count(old.limits, new.limits, "rate", _rate)
    yield from _count(old.quotas, new.quotas, "quota", _quota)
    yield from _numbers(old.request_limit, new.request_limit, "requests of up to {} bytes (was {})")
    yield from _numbers(old.response_limit, new.response_limit, "responses of up to {} bytes (was {})")
    yield from _sets(old.response_headers, new.response_headers, "response headers")
    before, after = ([path.text for path in obligations.mask] for obligations in (old, new))
    yield from _sets(after, before, "values shown that were masked", "values masked")
    paths_before, paths_after = ([path.text for path in obligations.vault or ()] for obligations in (old, new))
    yield from _sets(
        paths_after, paths_before, "tokens shown to the page that were in the vault", "tokens kept in the vault"
    )
    if old.secret is not new.secret:
        yield (Turn.CLOSED, "bodies are secret") if new.secret else (Turn.OPENED, "bodies are no longer secret")
    order = list(Redirects)
    yield from _numbers(order.index(old.redirects), order.index(new.redirects), f"redirects: {new.redirects}")
    yield from _sockets(old.socket, new.socket)
    for name in ("timeout", "idempotent", "retry", "circuit", "cookies", "stream"):
        if getattr(old, name) != getattr(new, name):
            yield Turn.CHANGED, f"{name}: {getattr(new, name)} (was {getattr(old, name)})"


def _sockets(old: SocketRule | None, new: SocketRule | None) -> Iterator[Difference]:
    if old is None or new is None:
        if new is not None:
            yield Turn.OPENED, "WebSockets are carried"
        elif old is not None:
            yield Turn.CLOSED, "WebSockets are no longer carried"
        return
    if old.protocols is None or new.protocols is None:
        if new.protocols is not None:
            yield Turn.CLOSED, f"WebSockets only with the subprotocols {', '.join(new.protocols)}"
        elif old.protocols is not None:
            yield Turn.OPENED, "WebSockets with any subprotocol"
    else:
        yield from _sets(old.protocols, new.protocols, "subprotocols of WebSockets")
    yield from _numbers(old.message, new.message, "messages of WebSockets of up to {} bytes (was {})")
    yield from _count(old.limits, new.limits, "rate of messages of WebSockets", _rate)
    if old.model != new.model:
        who = "messages of WebSockets while the page acts for the model"
        yield (Turn.OPENED, who) if new.model else (Turn.CLOSED, f"no {who}")


def _numbers(old: int, new: int, text: str) -> Iterator[Difference]:
    if old != new:
        yield Turn.OPENED if new > old else Turn.CLOSED, text.format(new, old)


def _sets(old: Collection[str], new: Collection[str], more: str, less: str = "") -> Iterator[Difference]:
    additions, removals = sorted(set(new) - set(old)), sorted(set(old) - set(new))
    if additions:
        yield Turn.OPENED, f"{more}: {', '.join(additions)}"
    if removals:
        yield Turn.CLOSED, f"{less or f'{more} no more'}: {', '.join(removals)}"


def _count(
    old: Iterable[T], new: Iterable[T], what: str, read: Callable[[T], tuple[str, int, str]]
) -> Iterator[Difference]:
    """Compare rates or quotas of the same kind by their counts."""
    before, after = ({kind: (count, text) for kind, count, text in map(read, several)} for several in (old, new))
    for kind in dict.fromkeys((*after, *before)):
        if kind not in after:
            yield Turn.OPENED, f"no {what} of {before[kind][1]} any more"
        elif kind not in before:
            yield Turn.CLOSED, f"{what} of {after[kind][1]}"
        elif before[kind] != after[kind]:
            turn = Turn.OPENED if after[kind][0] > before[kind][0] else Turn.CLOSED
            yield turn, f"{what} of {after[kind][1]} (was {before[kind][1]})"


def _rate(limit: Limit) -> tuple[str, int, str]:
    period = _period(limit.rate)
    return f"{period} per {limit.per}", limit.rate.count, f"{limit.rate.count}/{period} per {limit.per}"


def _quota(quota: Quota) -> tuple[str, int, str]:
    return f"{quota.window} per {quota.per}", quota.count, f"{quota.count}/{quota.window} per {quota.per}"


def _period(rate: Rate) -> str:
    return _PERIODS.get(rate.period, f"{rate.period:g} s")


class ChangeKind(StrEnum):
    """The subject of a change."""

    ROUTE = "route"
    TOOL = "tool"
    BACKEND = "backend"
    ORGANISATION = "organisation"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `subjects` are its routes (as `GET /api/cart`), tools or backends.

    `line` is in the new file, in the old one if something is closed; None for the whole file. `file` is the part, or
    the organisation's file, in which it is; empty for the policy's own file.
    """

    turn: Turn
    kind: ChangeKind
    subjects: tuple[str, ...]
    detail: str
    line: int | None = None
    file: str = ""

    @property
    def place(self) -> str | None:
        """The line of the rule; None for the whole file."""
        return rule_place(self.line, self.file) if self.line is not None else None


def diff(old: Policy, new: Policy) -> tuple[Change, ...]:
    """Return the changes from `old` to `new`; opened ones come first."""
    differences = chain(_routes(old, new), _tools(old, new), _backends(old, new), _rest(old, new), _above(old, new))
    return tuple(sorted(differences, key=lambda change: list(Turn).index(change.turn)))


def _routes(old: Policy, new: Policy) -> list[Change]:
    sayings = _Sayings()
    pairs_met: dict[tuple[int | None, int | None], tuple[Route | None, Route | None, dict[str, set[str]]]] = {}
    for place, methods, backend in _places(old, new, sayings):
        for path in place.witnesses:
            for method in methods:
                before, after = (policy.routes.find(method, path, backend) for policy in (old, new))
                if sayings.of(before) != sayings.of(after):
                    key = (before.index if before else None, after.index if after else None)
                    words = pairs_met.setdefault(key, (before, after, {}))[2]
                    words.setdefault(method, set()).add(place.text)
    changes: dict[tuple[Turn, str], tuple[dict[str, None], Route | None]] = {}
    for before, after, words in pairs_met.values():
        subject = _subject(words)
        for turn, detail in routes_differ(before, after):
            rule = (before if turn is Turn.CLOSED and after is None else after) or before
            subjects, _ = changes.setdefault((turn, detail), ({}, rule))
            subjects[subject] = None
    return [
        Change(turn, ChangeKind.ROUTE, tuple(subjects), detail, *_place(rule if len(subjects) == 1 else None))
        for (turn, detail), (subjects, rule) in changes.items()
    ]


class _Sayings:
    """Numbers routes by content, ignoring their position: equal content has equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._routes: dict[int, int] = {}

    def of(self, route: Route | None) -> int:
        """Return the number of a route's content; -1 for None."""
        if route is None:
            return -1
        number = self._routes.get(id(route))
        if number is None:
            number = self._routes[id(route)] = self._numbers.setdefault(_content(route), len(self._numbers))
        return number


def _subject(words: dict[str, set[str]]) -> str:
    """Return the methods of one pair of rules, with the shortest path that shows them."""
    path = min(chain.from_iterable(words.values()), key=lambda text: (len(text), text))
    return f"{', '.join(sorted(words))} {path}"


def _places(old: Policy, new: Policy, sayings: _Sayings) -> Iterator[tuple[Region, Set[str], str | None]]:
    """Yield the regions and methods where a different rule may decide, for each possible backend."""
    names = {*old.backends, *new.backends}
    several = max(len(old.backends), len(new.backends)) > 1
    backends: tuple[str | None, ...] = (None, *sorted(names)) if several else (None,)
    depth = 1 + max((len(route.template.segments) for route in (*old.routes.all, *new.routes.all)), default=0)
    for one, other in _pairs(old.routes, new.routes, sayings):
        methods = (one.methods or METHODS) & (other.methods or METHODS)
        if methods:
            place = region(one.template, other.template, depth)
            for backend in backends:
                yield place, methods, backend


def _pairs(old: Routes, new: Routes, sayings: _Sayings) -> Iterator[tuple[Route, Route]]:
    """Yield each changed route with itself, and with each route of the other policy that it overlaps."""
    changed_old, changed_new = _list_changes(old.all, new.all, sayings)
    for routes, others in ((changed_new, old), (changed_old, new)):
        for route in routes:
            yield route, route
            for other in others.overlapping(route.template):
                yield route, other


def _list_changes(old: Sequence[Route], new: Sequence[Route], sayings: _Sayings) -> tuple[list[Route], list[Route]]:
    """Return the routes that are not in both policies in the same order."""
    places: dict[int, list[int]] = {}
    for place, route in enumerate(new):
        places.setdefault(sayings.of(route), []).append(place)
    pairs: list[tuple[int, int]] = []
    for place, route in enumerate(old):
        waiting = places.get(sayings.of(route))
        if waiting:
            pairs.append((place, waiting.pop(0)))
    same = _longest_rising(pairs)
    in_old, in_new = {one for one, _ in same}, {other for _, other in same}
    return (
        [route for place, route in enumerate(old) if place not in in_old],
        [route for place, route in enumerate(new) if place not in in_new],
    )


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest increasing subsequence by second part; `pairs` increase in their first part."""
    ends: list[int] = []
    last: list[int] = []
    before: list[int | None] = []
    for place, (_, value) in enumerate(pairs):
        length = bisect_left(ends, value)
        before.append(last[length - 1] if length else None)
        ends[length : length + 1] = [value]
        last[length : length + 1] = [place]
    chain: list[tuple[int, int]] = []
    at = last[-1] if last else None
    while at is not None:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _content(route: Route) -> Hashable:
    template, confirm = route.template, route.confirm
    shape = (template.segments, template.rest, template.encoded)
    asks = (confirm.initiators, confirm.message, confirm.grant, confirm.timeout) if confirm is not None else None
    conditions = (route.when.text if route.when is not None else None, schema_text(route.schema))
    return (shape, route.methods, route.backend, route.deny, asks, conditions, route.decision.obligations)


def _tools(old: Policy, new: Policy) -> Iterable[Change]:
    for name in dict.fromkeys((*new.tools, *old.tools)):
        before, after = old.tools.get(name), new.tools.get(name)
        rule = after or before
        for turn, detail in tools_differ(before, after):
            yield Change(turn, ChangeKind.TOOL, (name,), detail, *_place(rule))


def _place(rule: Route | ToolRule | OrganisationRule | None) -> tuple[int | None, str]:
    return (None, "") if rule is None else (rule.line, rule.file)


def _above(old: Policy, new: Policy) -> Iterator[Change]:
    """Yield the rules of the organisation that are new, or gone. Its limits are those of the routes and tools."""
    before, after = (one.organisation.rules if one.organisation is not None else () for one in (old, new))
    for turn, rules, others in ((Turn.OPENED, before, after), (Turn.CLOSED, after, before)):
        known = {rule.content for rule in others}
        for rule in rules:
            if rule.content not in known:
                detail = f"the organisation's rule {'no longer holds' if turn is Turn.OPENED else 'holds'}: {rule.does}"
                subject = f"{', '.join(sorted(rule.methods or METHODS))} {rule.template.text}"
                yield Change(turn, ChangeKind.ORGANISATION, (subject,), detail, *_place(rule))


def _backends(old: Policy, new: Policy) -> Iterable[Change]:
    for name in dict.fromkeys((*new.backends, *old.backends)):
        for turn, detail in backends_differ(old.backends.get(name), new.backends.get(name)):
            yield Change(turn, ChangeKind.BACKEND, (name,), detail)


def _rest(old: Policy, new: Policy) -> Iterable[Change]:
    return (Change(turn, ChangeKind.POLICY, (), detail) for turn, detail in rest_differs(old, new))


def change_fields(old: Policy, new: Policy, changes: Sequence[Change]) -> dict[str, Json]:
    """Return the fields of the entry in the record that reports these changes."""
    rows: list[Json] = [
        {"turn": change.turn, "kind": change.kind, "subjects": list(change.subjects[:_SHOWN]), "detail": change.detail}
        for change in changes[:_SHOWN]
    ]
    openings = sum(change.turn is Turn.OPENED for change in changes)
    return {
        "initiator": None,
        "method": "policy",
        "url": new.file,
        "policy_version": new.version,
        "policy_before": old.version,
        "opened": openings,
        "changes": rows,
        "message": f"{len(changes)} changes, {openings} of them open something",
    }

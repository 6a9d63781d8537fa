"""Compares two rules: lists how the second is looser, stricter or just different.

Changes that cannot be compared count as opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from gateway.policy.conditions import Condition
from gateway.policy.gcra import Rate
from gateway.policy.links import Links
from gateway.policy.obligations import Limit, Obligations, Quota, Redirects
from gateway.policy.policy import Policy, ReportMode
from gateway.policy.rules import BackendSpec, Confirm, Route, ToolRule
from gateway.policy.schemas import BodySchema

T = TypeVar("T")


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
        yield from _obligations(old.decided.obligations, new.decided.obligations)
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
        yield from _counted(old.limits, new.limits, "rate", _rate)
        yield from _counted(old.quotas, new.quotas, "quota", _quota)
        if old.description != new.description:
            yield Turn.CHANGED, "another description"
        if old.timeout != new.timeout:
            yield Turn.CHANGED, f"timeout in seconds: {new.timeout or 'the usual'} (was {old.timeout or 'the usual'})"
        if old.pin != new.pin:
            yield (Turn.CLOSED, "pinned") if old.pin is None else (Turn.OPENED, "pinned to another definition, or not")


def backends_differ(old: BackendSpec | None, new: BackendSpec | None) -> Iterator[Difference]:
    """Yield the differences between two backends."""
    if old is None or new is None:
        yield (Turn.CHANGED, "new") if old is None else (Turn.CHANGED, "gone")
        return
    for name, what in (("url", "requests go to another place"), ("type", "another type"), ("credential", "credential")):
        if getattr(old, name) != getattr(new, name):
            yield Turn.OPENED, f"{what}: {getattr(new, name)} (was {getattr(old, name)})"
    yield from _sets(old.origins, new.origins, "origins")
    if old.network != new.network:
        gained = (new.network.public, old.network.public), (new.network.private, old.network.private)
        narrower = set(new.network.blocks) <= set(old.network.blocks) and all(was or not now for now, was in gained)
        yield Turn.CLOSED if narrower else Turn.OPENED, "other addresses may be connected to"
    for name in ("options", "retry", "circuit", "cookies", "trace"):
        if getattr(old, name) != getattr(new, name):
            yield Turn.CHANGED, f"{name}: {getattr(new, name)}"


def rest_differs(old: Policy, new: Policy) -> Iterator[Difference]:
    """Yield the differences of file-wide settings: links, frames and mode."""
    yield from _links(old.links, new.links)
    yield from _sets(old.frames, new.frames, "frames")
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
    return None if schema is None else json.dumps(schema.schema, sort_keys=True)


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
            yield Turn.CLOSED, f"a person is asked first ({_asked(new)})"
        elif old is not None:
            yield Turn.OPENED, "no person is asked first any more"
        return
    before, after = _asks(old), _asks(new)
    if before != after:
        turn = Turn.CLOSED if before < after else Turn.OPENED
        yield turn, f"a person is asked first for {_asked(new)} (was {_asked(old)})"
    if (old.grant or 0) != (new.grant or 0):
        turn = Turn.OPENED if (new.grant or 0) > (old.grant or 0) else Turn.CLOSED
        yield turn, f"a person may allow it for {new.grant or 0:g} seconds at once (was {old.grant or 0:g})"
    if old.timeout != new.timeout:
        yield Turn.CHANGED, "the question to a person stays open for another time"
    if old.message != new.message:
        yield Turn.CHANGED, "the question to a person has another text"


def _asks(confirm: Confirm) -> frozenset[str]:
    return frozenset(confirm.initiators) if confirm.initiators is not None else frozenset({"person", "page", "model"})


def _asked(confirm: Confirm) -> str:
    return "always" if confirm.initiators is None else ", ".join(sorted(confirm.initiators))


def _obligations(old: Obligations, new: Obligations) -> Iterator[Difference]:
    yield from _counted(old.limits, new.limits, "rate", _rate)
    yield from _counted(old.quotas, new.quotas, "quota", _quota)
    yield from _numbers(old.request_limit, new.request_limit, "requests of up to {} bytes (was {})")
    yield from _numbers(old.response_limit, new.response_limit, "responses of up to {} bytes (was {})")
    yield from _sets(old.response_headers, new.response_headers, "response headers")
    before, after = ([path.text for path in obligations.mask] for obligations in (old, new))
    yield from _sets(after, before, "values shown that were masked", "values masked")
    order = list(Redirects)
    yield from _numbers(order.index(old.redirects), order.index(new.redirects), f"redirects: {new.redirects}")
    for name in ("timeout", "idempotent", "retry", "circuit", "cookies", "stream"):
        if getattr(old, name) != getattr(new, name):
            yield Turn.CHANGED, f"{name}: {getattr(new, name)} (was {getattr(old, name)})"


def _numbers(old: int, new: int, text: str) -> Iterator[Difference]:
    if old != new:
        yield Turn.OPENED if new > old else Turn.CLOSED, text.format(new, old)


def _sets(old: Collection[str], new: Collection[str], more: str, less: str = "") -> Iterator[Difference]:
    added, gone = sorted(set(new) - set(old)), sorted(set(old) - set(new))
    if added:
        yield Turn.OPENED, f"{more}: {', '.join(added)}"
    if gone:
        yield Turn.CLOSED, f"{less or f'{more} no more'}: {', '.join(gone)}"


def _counted(
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

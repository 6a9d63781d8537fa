"""Reads rates and quotas of a policy file, such as `30/minute per principal` and `20/day per principal`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

from gateway.documents import Section
from gateway.policy.gcra import Rate
from gateway.policy.obligations import Limit, Per, Quota, Window

T = TypeVar("T")

RATE = re.compile(r"([1-9][0-9]{0,8})/(second|minute|hour|day) per (view|principal|app|route)", re.ASCII)
QUOTA = re.compile(r"([1-9][0-9]{0,11})/(hour|day|month) per (view|principal|app|route)", re.ASCII)
_EXAMPLES: Final = {"rate": "30/minute per principal", "quota": "5/day per principal"}
_PERIODS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}


def read_rates(section: Section, scope: str) -> tuple[Limit, ...]:
    """Read the limits under `rate`, one or a list; `scope` names the rule, "" for the defaults."""
    return _each(section, "rate", lambda text: _limit(text, scope))


def read_quotas(section: Section, scope: str) -> tuple[Quota, ...]:
    """Read the quotas under `quota`, one or a list; of those with the same window and subject, the smallest."""
    smallest: dict[tuple[Window, Per], Quota] = {}
    for quota in _each(section, "quota", lambda text: _quota(text, scope)):
        known = smallest.setdefault((quota.window, quota.per), quota)
        if quota.count < known.count:
            smallest[quota.window, quota.per] = quota
    return tuple(smallest.values())


def checked(section: Section, key: str, parse: Callable[[str], T], text: str) -> T | None:
    """Parse a text, None if it is empty; a ValueError becomes a problem at `key`."""
    try:
        return parse(text) if text else None
    except ValueError as error:
        section.problem(str(error), key)
        return None


def _each(section: Section, key: str, parse: Callable[[str], T]) -> tuple[T, ...]:
    node = section.get(key)
    if node is not None and not isinstance(node.value, str | tuple):
        section.problem(f"must be text such as {_EXAMPLES[key]}, or a list of such, not {node.kind}", key)
        return ()
    texts = (node.value,) if node is not None and isinstance(node.value, str) else section.texts(key)
    return tuple(one for text in texts if (one := checked(section, key, parse, text)) is not None)


def _limit(text: str, scope: str) -> Limit:
    match = RATE.fullmatch(text)
    if match is None:
        raise ValueError(
            f'"{text}" is not a rate: write one such as "30/minute per principal" (second, minute, hour, '
            "day; per view, principal, app, route)"
        )
    return Limit(Rate(int(match[1]), _PERIODS[match[2]]), Per(match[3]), scope)


def _quota(text: str, scope: str) -> Quota:
    match = QUOTA.fullmatch(text)
    if match is None:
        raise ValueError(
            f'"{text}" is not a quota: write one such as "20/day per principal" (hour, day, month; per view, '
            "principal, app, route)"
        )
    return Quota(int(match[1]), Window(match[2]), Per(match[3]), scope)

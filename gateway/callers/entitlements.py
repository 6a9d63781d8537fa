"""The apps and upstreams that each caller may use, by the access rules of the running configuration."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from gateway.model import Principal
from gateway.policy import Policy, may_call_tool
from gateway.policy.access import AccessRule, Exclusion

REMEMBERED: Final = 10_000
"""Callers whose newest claims are remembered, so that what they opened with older ones ends."""

LOGGED: Final = 1_000
"""Failing rules of callers that were logged, so that each is logged once."""

OWN: Final = "gateway"
"""The issuer of the gateway's own principals, which no rule concerns; no issuer of tokens or logins has this name."""

Watcher: TypeAlias = Callable[[Principal | None], None]
"""Is called with the principal whose access, or list of tools, may have changed; None means all."""

Admits: TypeAlias = Callable[[Principal, str], bool]
"""Whether a caller may use an app or an upstream: `Entitlements.admits`."""

log = logging.getLogger(__name__)


def admit_all(principal: Principal, name: str) -> bool:
    """Admit every caller, as without access rules."""
    return True


class Entitlements:
    """The access rules by app and upstream; those without a rule admit everybody.

    A caller is admitted only if its claims are, and also the newest claims with which the same principal has arrived:
    what an older token or login opened ends once a newer one has lost the access.
    """

    def __init__(self) -> None:
        self._rules: Mapping[str, tuple[AccessRule, ...]] = {}
        self._personal: tuple[Policy, ...] = ()
        self._newest: OrderedDict[tuple[str, str], Principal] = OrderedDict()
        self._logged: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._watchers: list[Watcher] = []

    def replace(self, rules: Mapping[str, tuple[AccessRule, ...]], policies: Iterable[Policy] = ()) -> None:
        """Replace all rules, and the policies whose lists of tools differ; notify the watchers of other rules."""
        self._personal = tuple(policy for policy in policies if policy.personal_tools)
        now = {name: several for name, several in rules.items() if several}
        before, self._rules = self._rules, now
        if now != before:
            self._notify(None)

    @property
    def restricts(self) -> bool:
        """Whether there is any rule."""
        return bool(self._rules)

    def admits(self, principal: Principal, name: str) -> bool:
        """Whether the caller may use the app or upstream `name`; an unknown name has no rule."""
        return name not in self._rules or self.exclusion(principal, name) is None

    def only(self, principal: Principal, names: Iterable[str]) -> list[str]:
        """Return those of `names` that the caller may use."""
        return [name for name in names if self.admits(principal, name)]

    def exclusion(self, principal: Principal, name: str) -> Exclusion | None:
        """Return why the caller may not use the app or upstream `name`, None if it may."""
        rules = self._rules.get(name, ())
        if not rules or principal.issuer == OWN:
            return None
        newest = self._newest.get(_key(principal))
        for one in (principal,) if newest is None or newest is principal else (principal, newest):
            for rule in rules:
                if (found := rule.exclusion(one)) is not None:
                    if found.error:
                        self._log(one, name, found)
                    return found
        return None

    def arrived(self, principal: Principal) -> None:
        """Note the claims with which a caller was identified now; notify the watchers if the newest ones changed."""
        if not self._rules and not self._personal:
            return
        key = _key(principal)
        before = self._newest.get(key)
        if before is principal or (before is not None and _issued_at(before) > _issued_at(principal)):
            return
        self._newest[key] = principal
        self._newest.move_to_end(key)
        if before is None:
            if len(self._newest) > REMEMBERED:
                self._newest.popitem(last=False)
        elif self._sees(before) != self._sees(principal):
            self._notify(principal)

    def watch(self, callback: Watcher) -> None:
        """Call `callback` whenever the access of one principal, or of all, may have changed."""
        self._watchers.append(callback)

    def _sees(self, principal: Principal) -> object:
        """Return what differs in the lists of callers: the apps and upstreams, and the tools."""
        admitted = [all(rule.exclusion(principal) is None for rule in rules) for rules in self._rules.values()]
        personal = ((policy, tool) for policy in self._personal for tool in policy.personal_tools)
        return admitted, [may_call_tool(policy, tool, principal) for policy, tool in personal]

    def _notify(self, principal: Principal | None) -> None:
        for watcher in self._watchers:
            watcher(principal)

    def _log(self, principal: Principal, name: str, found: Exclusion) -> None:
        key = (principal.id, name, found.why)
        if key in self._logged:
            return
        self._logged[key] = None
        if len(self._logged) > LOGGED:
            self._logged.popitem(last=False)
        log.warning("%s may not use %s, since the rule `access` cannot be evaluated: %s", principal.id, name, found.why)


def _issued_at(principal: Principal) -> float:
    """Return when the claims of a caller were issued, as far as its credential says so; later ones are newer."""
    issued = principal.claims.get("iat")
    if isinstance(issued, int | float) and not isinstance(issued, bool):
        return float(issued)
    return principal.expires or 0.0


def _key(principal: Principal) -> tuple[str, str]:
    """Return the key of the claims that a caller's kind of credential carries: those of a login are not a token's."""
    return principal.id, principal.proof.partition(":")[0]

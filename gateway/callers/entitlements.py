"""Access rules: which callers may use which apps and upstreams, and which ones stay when the configuration changes."""

from __future__ import annotations

import logging
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from gateway.callers.issuer_tokens import of_access_token, texts
from gateway.callers.methods import PERSON_VIEWS, Method, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.callers.people import is_login, person_on_console, proxy_issuer
from gateway.callers.tokens import with_views
from gateway.documents import Section
from gateway.errors import Unidentified
from gateway.model import LOCAL, Caller, Initiator, Principal
from gateway.policy import Policy, may_call_tool
from gateway.policy.conditions import FALSE, Condition, parse_condition
from gateway.policy.facts import FactSource, Vocabulary
from gateway.policy.obligations import parse_text
from gateway.watchers import Watchers

_VOCABULARY: Final = Vocabulary(None, (), ("principal",))
_UNSEEN: Final = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """The reason why a caller may not use an app or an upstream; `error`: the rule could not be evaluated."""

    why: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class AccessRule:
    """The rule `access` of an app or an upstream: one of `roles`, and `when`, as far as they are set.

    `condition` is the text of `when`; `file` and `line` are the place of the rule in gateway.yaml.
    """

    roles: frozenset[str] | None
    condition: str = ""
    when: Condition | None = field(default=None, compare=False)  # its program equals no other
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    def exclusion(self, principal: Principal) -> Exclusion | None:
        """Return why `principal` is not admitted, None if it is. Roles are compared character by character."""
        if self.roles is not None and not self.roles & principal.roles:
            return Exclusion(f"it takes one of the roles {', '.join(sorted(self.roles))}")
        if self.when is None:
            return None
        failure = self.when.failure(FactSource(Caller(principal, "", None, Initiator.PAGE, "access")))
        return None if failure is None else Exclusion(f"when {self.condition}: {failure.why}", failure.why != FALSE)

    @property
    def description(self) -> str:
        """The rule in words."""
        roles = [f"one of the roles {', '.join(sorted(self.roles))}"] if self.roles is not None else []
        return " and ".join([*roles, *([f"when {self.condition}"] if self.condition else [])])


def widens(old: AccessRule | None, new: AccessRule | None) -> bool:
    """Return whether `new` may admit a caller whom `old` excludes; two conditions cannot be compared."""
    if old is None or old == new:
        return False
    if new is None or old.condition not in ("", new.condition):
        return True
    return old.roles is not None and (new.roles is None or not new.roles <= old.roles)


def read_access(section: Section, *, has_roles: bool = True) -> AccessRule | None:
    """Read `access` of an app or an upstream, None without one. Without `has_roles` no caller can have a role."""
    node = section.get("access")
    if node is None:
        return None
    rule = section.section("access")
    roles = rule.texts("roles", empty="name at least one role; without `access` everybody may use it")
    for role in roles:
        if role != role.strip() or any(unicodedata.category(char) in _UNSEEN for char in role):
            rule.problem(f"{role!a} has spaces around it, or characters that cannot be seen", "roles")
    if roles and not has_roles:
        rule.problem("no caller has a role here: only oauth and proxy of `auth` give roles", "roles")
    when = parse_text(rule, "when", lambda text: parse_condition(text, _VOCABULARY), rule.text("when"))
    if isinstance(node.value, dict) and not {"roles", "when"} & node.value.keys():
        rule.problem("name `roles`, `when` or both; without `access` everybody may use it")
    return AccessRule(frozenset(roles) if "roles" in rule else None, rule.text("when"), when, node.file, node.line)


REMEMBERED: Final = 10_000
"""Callers whose newest claims are remembered, so that what they opened with older ones ends."""

LOGGED: Final = 1_000
"""Failing rules of callers that were logged, so that each is logged once."""

OWN: Final = "gateway"
"""The issuer of the gateway's own principals, which no rule concerns; no issuer of tokens or logins has this name."""

Admits: TypeAlias = Callable[[Principal, str], bool]
"""Returns whether a caller may use an app or an upstream, as `Entitlements.admits`."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recognition:
    """The callers of one configuration under another one: `methods` and `roles` replace `before`.

    `public` is the URL of the gateway, below which audiences of tokens may be. What cannot be known of a caller any
    more (the algorithm of its token, the proxy through which it came) counts against it.
    """

    before: tuple[Method, ...]
    methods: tuple[Method, ...]
    roles: Roles
    public: str

    def recognize(self, principal: Principal, now: float) -> Principal | None:
        """Return a caller with its present capabilities; None if it may not call any more."""
        if principal.issuer == OWN:
            return principal
        try:
            return self._recognize(principal, now)
        except Unidentified:
            return None

    def keeps(self, principal: Principal, needs: str, now: float) -> bool:
        """Return whether a caller is still one, with all that it had of the capability `needs`; "" is every one."""
        if principal.issuer == OWN:
            return True
        known = self.recognize(principal, now)
        had = (capability.partition(":") for capability in principal.capabilities)
        return known is not None and all(known.may(name, app or None) for name, _, app in had if needs in ("", name))

    def _recognize(self, principal: Principal, now: float) -> Principal | None:
        if is_login(principal):
            return person_on_console(principal, self.methods, self.roles)
        for method in self.methods:
            match method:
                case NoAuth() if principal == LOCAL and not principal.proof:
                    return principal
                case TokenAuth() if principal.issuer == LOCAL.issuer and principal.proof:
                    plain = replace(principal, capabilities=principal.capabilities - {PERSON_VIEWS})
                    return with_views(plain, method.view_clients)
                case ProxyAuth() if principal.issuer == proxy_issuer(method):
                    return self._of_proxy(principal, method)
                case OAuthIssuer() if principal.issuer == method.issuer:
                    return self._of_token(principal, method, now)
                case _:
                    pass
        return None

    def _of_proxy(self, principal: Principal, method: ProxyAuth) -> Principal | None:
        old = [one for one in self.before if isinstance(one, ProxyAuth) and one.name == method.name]
        same = any(replace(one, proxies=method.proxies) == method for one in old)
        if not same or not set(method.proxies).issuperset(*(one.proxies for one in old)):
            return None
        return replace(principal, capabilities=self.roles.capabilities(principal.roles))

    def _of_token(self, principal: Principal, method: OAuthIssuer, now: float) -> Principal | None:
        if principal.proof and not method.introspection:
            return None
        old = [one for one in self.before if isinstance(one, OAuthIssuer) and one.issuer == method.issuer]
        if not principal.proof and not set(method.algorithms).issuperset(*(one.algorithms for one in old)):
            return None
        resources = (one for one in texts(principal.claims.get("aud")) if one.startswith(f"{self.public}/mcp"))
        return of_access_token(method, self.roles, principal.claims, frozenset(resources), now)


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
        self._logged_exclusions: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._watchers = Watchers[[Principal | None]]()

    def replace(self, rules: Mapping[str, tuple[AccessRule, ...]], policies: Iterable[Policy] = ()) -> None:
        """Replace all rules, and the policies whose lists of tools differ; notify the watchers of other rules."""
        self._personal = tuple(policy for policy in policies if policy.personal_tools)
        now = {name: several for name, several in rules.items() if several}
        before, self._rules = self._rules, now
        if now != before:
            self._watchers.notify(None)

    @property
    def restricts(self) -> bool:
        """True if there is any rule."""
        return bool(self._rules)

    def admits(self, principal: Principal, name: str) -> bool:
        """Return whether the caller may use the app or upstream `name`; an unknown name has no rule."""
        return name not in self._rules or self.exclusion(principal, name) is None

    def exclusion(self, principal: Principal, name: str) -> Exclusion | None:
        """Return why the caller may not use the app or upstream `name`, None if it may."""
        rules = self._rules.get(name, ())
        if not rules or principal.issuer == OWN:
            return None
        newest = self._newest.get(_key(principal))
        for one in (principal,) if newest is None or newest is principal else (principal, newest):
            for rule in rules:
                if (reason := rule.exclusion(one)) is not None:
                    if reason.error:
                        self._log(one, name, reason)
                    return reason
        return None

    def note_arrival(self, principal: Principal) -> None:
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
            self._watchers.notify(principal)

    def watch(self, callback: Callable[[Principal | None], None]) -> None:
        """Call `callback` with each principal whose access, or list of tools, may have changed; None means all."""
        self._watchers.add(callback)

    def _sees(self, principal: Principal) -> object:
        """Return what differs in the lists of callers: the apps and upstreams, and the tools."""
        admitted = [all(rule.exclusion(principal) is None for rule in rules) for rules in self._rules.values()]
        personal = ((policy, tool) for policy in self._personal for tool in policy.personal_tools)
        return admitted, [may_call_tool(policy, tool, principal) for policy, tool in personal]

    def _log(self, principal: Principal, name: str, exclusion: Exclusion) -> None:
        key = (principal.id, name, exclusion.why)
        if key in self._logged_exclusions:
            return
        self._logged_exclusions[key] = None
        if len(self._logged_exclusions) > LOGGED:
            self._logged_exclusions.popitem(last=False)
        log.warning(
            "%s may not use %s, since the rule `access` cannot be evaluated: %s", principal.id, name, exclusion.why
        )


def _issued_at(principal: Principal) -> float:
    """Return when the claims of a caller were issued, as far as its credential says so; later ones are newer."""
    issued = principal.claims.get("iat")
    if isinstance(issued, int | float) and not isinstance(issued, bool):
        return float(issued)
    return principal.expires or 0.0


def _key(principal: Principal) -> tuple[str, str]:
    """Return the key of the claims that a caller's kind of credential carries: those of a login are not a token's."""
    return principal.id, principal.proof.partition(":")[0]

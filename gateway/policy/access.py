"""Access rules: which callers may use an app or an upstream, by their roles or by a condition over their claims."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Final

from gateway.documents import Section
from gateway.model import Caller, Initiator, Principal
from gateway.policy.conditions import FALSE, Condition, parse_condition
from gateway.policy.facts import FactSource, Vocabulary
from gateway.policy.obligations import parse_text

_VOCABULARY: Final = Vocabulary(None, (), ("principal",))
_UNSEEN: Final = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a caller may not use an app or an upstream; `error` means that the rule could not be evaluated."""

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
    def shown(self) -> str:
        """The rule in words."""
        roles = [f"one of the roles {', '.join(sorted(self.roles))}"] if self.roles is not None else []
        return " and ".join([*roles, *([f"when {self.condition}"] if self.condition else [])])


def widens(old: AccessRule | None, new: AccessRule | None) -> bool:
    """Whether `new` may admit a caller whom `old` excludes; two conditions cannot be compared."""
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

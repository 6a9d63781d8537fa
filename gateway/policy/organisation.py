"""The policy of an organisation: denials, questions and limits that hold for every app, whatever its policy allows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway.documents import Section
from gateway.documents.reader import Report
from gateway.errors import Problem
from gateway.model import Effect
from gateway.policy.conditions import parse_condition
from gateway.policy.confirm import ROUTE_MESSAGE, read_confirm, reads_body
from gateway.policy.facts import Vocabulary
from gateway.policy.headers import never_in_response
from gateway.policy.includes import PolicyFiles, put_together, read_file
from gateway.policy.masks import parse_json_path
from gateway.policy.obligations import parse_text, read_quotas, read_rates
from gateway.policy.page_rules import read_tool
from gateway.policy.policy import EVERY, Organisation, Routes
from gateway.policy.route_rules import read_methods
from gateway.policy.rules import METHODS, Ceilings, Decision, OrganisationRule, Route, ToolRule, rule_place
from gateway.policy.templates import parse_template

SCOPE: Final = "organisation"
"""The scope of the organisation's rates and quotas: they count apart from those of the apps."""

_SIZES: Final = ("timeout", "request", "response")


class BoundTools(Mapping[str, ToolRule]):
    """The tools of an upstream without a policy: any tool is allowed, under the organisation's rules."""

    def __init__(self, organisation: Organisation) -> None:
        self._organisation = organisation

    def __getitem__(self, name: str) -> ToolRule:
        plain = ToolRule(name, 1, None, None, (), None, file=self._organisation.file)
        return self._organisation.bind(plain)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def load_organisation(path: Path, root: Path | None = None) -> Organisation:
    """Load the policy of an organisation in `path`; `root` as for `PolicyFiles`. Raises DocumentError."""
    return parse_organisation(read_file(path), str(path), PolicyFiles(path, root))


def parse_organisation(text: str, file: str, files: PolicyFiles | None = None) -> Organisation:
    """Parse the policy of an organisation. Raises DocumentError with every problem, contradictions too."""
    problems: list[Problem] = []
    parts = put_together(text, file, files, problems)
    report = Report(problems)
    top = report.section(parts.node)
    top.require("version")
    top.integer("version", 1, minimum=1, maximum=1)
    top.get("include")
    limits = top.section("limits")
    ceilings = _filter(_ceilings(limits, SCOPE), top.section("responses"))
    sections = top.sections("routes")
    rules = tuple(_rule(section) for section in sections)
    tools = {name: _tool(name, section) for name, section in top.named_sections("tools").items()}
    routes = Routes([_as_route(index, rule) for index, rule in enumerate(rules)])
    _check_rules(sections, rules, routes, limits)
    _check_tools(top, tools)
    report.close()
    sha = hashlib.sha256("\0".join((text, *parts.texts)).encode())
    version = f"sha256:{sha.hexdigest()[:16]}"
    return Organisation(file, version, rules, tools, ceilings, (file, *parts.files), routes)


def _ceilings(section: Section, scope: str) -> Ceilings:
    return Ceilings(
        timeout=section.duration("timeout") or None,
        request=_size(section, "request"),
        response=_size(section, "response"),
        limits=read_rates(section, scope),
        quotas=read_quotas(section, scope),
    )


def _size(section: Section, key: str) -> int | None:
    return section.size(key) if section.get(key) is not None else None


def _filter(ceilings: Ceilings, section: Section) -> Ceilings:
    """Return the limits with the masks and the headers of `responses`."""
    paths = (parse_text(section, "mask", parse_json_path, text) for text in section.texts("mask"))
    headers = frozenset(name.lower() for name in section.texts("headers")) if section.get("headers") else None
    for name in sorted(headers or ()):
        if never_in_response(name):
            section.problem(f'"{name}" never reaches an app: leave it out', "headers")
    return replace(ceilings, mask=tuple(path for path in paths if path is not None), headers=headers)


def _rule(section: Section) -> OrganisationRule:
    section.require("path")
    template = parse_text(section, "path", parse_template, section.text("path")) or parse_template("/")
    methods = read_methods(section, needed=False)
    vocabulary = Vocabulary(tuple(name for name in template.names if name))
    confirm = read_confirm(section, vocabulary, ROUTE_MESSAGE)
    when = parse_text(section, "when", lambda text: parse_condition(text, vocabulary), section.text("when"))
    scope = f"{SCOPE} {' '.join(sorted(methods or ()))} {template.text}"
    rule = OrganisationRule(
        template,
        methods,
        section.text("deny") or None,
        confirm,
        _ceilings(section, scope),
        section.node.line,
        section.node.file,
        when,
    )
    if (when is not None and when.reads("request", "body")) or (confirm is not None and reads_body(confirm.message)):
        key = "when" if when is not None and when.reads("request", "body") else "confirm"
        section.problem("the rules of an organisation read no bodies: the policy of the app defines them", key)
    does = ("deny", "when", "confirm", *_SIZES, "rate", "quota")
    if not any(key in section for key in does):
        section.problem(f"has no effect: name one of {', '.join(does)}; an organisation allows nothing by itself")
    if rule.deny is not None:
        for key in does[1:]:
            if key in section:
                section.problem('has no meaning beside "deny": leave it out', key)
    return rule


def _tool(name: str, section: Section) -> ToolRule:
    rule = read_tool("every" if name == EVERY else name, section, SCOPE)
    for key in ("description", "pin"):
        if key in section:
            section.problem("is for the policy of one app: leave it out", key)
    if not any(key in section for key in ("deny", "when", "confirm", "rate", "quota", "timeout")):
        section.problem("has no effect: an organisation allows nothing by itself")
    return replace(rule, name=name, file=section.node.file)


def _as_route(index: int, rule: OrganisationRule) -> Route:
    """Return a route that matches as the rule; it counts as a denial, which also matches ambiguous segments."""
    decision = Decision(Effect.DENY, ())
    return Route(index, rule.line, rule.template, rule.methods, None, rule.deny or "", None, decision)


def _check_rules(
    sections: Sequence[Section], rules: Sequence[OrganisationRule], routes: Routes, limits: Section
) -> None:
    """Report rules that contradict others: those that can never hold, with the lines of both."""
    for index, (section, rule) in enumerate(zip(sections, rules, strict=True)):
        for other in (rules[route.index] for route in routes.covering(rule.template) if route.index != index):
            if other.deny is None or not (rule.methods or METHODS) <= (other.methods or METHODS):
                continue
            if rule.deny is not None and other.line > rule.line and other.file == rule.file:
                continue  # of two denials the later one is the superfluous one
            place = rule_place(other.line, other.file)
            verb = "denies it already" if rule.deny is not None else "denies all that it matches"
            section.problem(f"{rule.template.text} contradicts {other.template.text} ({place}), which {verb}")
            break
        for key in _SIZES:
            own, whole = (getattr(one, key) for one in (rule.ceilings, _ceilings(limits, SCOPE)))
            if own is not None and whole is not None and own > whole:
                node = limits.get(key)
                place = rule_place(node.line, node.file) if node is not None else "limits"
                section.problem(f"is larger than `{key}` of `limits` ({place}), which holds for every route", key)


def _check_tools(top: Section, tools: Mapping[str, ToolRule]) -> None:
    every = tools.get(EVERY)
    for name, rule in tools.items():
        if every is not None and every.deny is not None and name != EVERY:
            place, own = rule_place(every.line, every.file), rule_place(rule.line, rule.file)
            top.problem(f'"{name}" ({own}) contradicts "{EVERY}" ({place}), which denies every tool', "tools")

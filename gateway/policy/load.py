"""A policy file becomes a policy, or the list of everything that is wrong in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from gateway.documents import Section, read
from gateway.errors import DocumentError, Problem
from gateway.model import Effect, Initiator
from gateway.policy.backends import read_backends
from gateway.policy.canonical import canonical_method
from gateway.policy.gcra import Rate
from gateway.policy.headers import DEFAULT_RESPONSE, never_in_response
from gateway.policy.messages import Message, parse_message
from gateway.policy.obligations import Limit, Obligations, Per
from gateway.policy.policy import Policy
from gateway.policy.routes import Routes
from gateway.policy.rules import (
    METHODS,
    BackendSpec,
    Confirm,
    Decision,
    PolicyTest,
    Route,
    ToolRule,
)
from gateway.policy.templates import Template, parse_template

T = TypeVar("T")

_RATE = re.compile(r"([1-9][0-9]{0,8})/(second|minute|hour|day) per (view|principal|app|route)", re.ASCII)
_PERIODS: Final = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}", re.ASCII)
_REQUEST_NAMES: Final = frozenset({"request.method", "request.path", "request.query", "app", "initiator"})
_TOOL_NAMES: Final = frozenset({"tool", "app", "initiator"})
_ROUTE_MESSAGE: Final = "Allow {request.method} {request.path}?"
_TOOL_MESSAGE: Final = "Run {tool}?"
_NO_TEMPLATE: Final = Template("/", ("",), ("",), frozenset(), False)


def load_policy(path: Path) -> Policy:
    """The policy in the file `path`. Raises DocumentError."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DocumentError([Problem(str(path), 1, 1, f"not UTF-8: {error.reason} at byte {error.start}")]) from error
    except OSError as error:
        raise DocumentError([Problem(str(path), 1, 1, f"cannot be read: {error.strerror or error}")]) from error
    return parse_policy(text, str(path))


def parse_policy(text: str, file: str) -> Policy:
    """The policy in `text`; `file` is its name in messages. Raises DocumentError with every problem."""
    with read(text, file) as top:
        top.require("version")
        top.integer("version", 1, minimum=1, maximum=1)
        top.unavailable("links", "mode")
        backends = read_backends(top)
        defaults = _defaults(top)
        routes = _routes(top, backends, defaults)
        tools = {name: _tool(name, section) for name, section in top.named("tools").items()}
        tests = tuple(_test(section) for section in top.sections("tests"))
    return Policy(
        file=file,
        version=f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}",
        backends=backends,
        routes=Routes(routes),
        tools=tools,
        tests=tests,
        defaults=defaults,
        origins={origin: spec.name for spec in backends.values() for origin in spec.origins},
        only_backend=next(iter(backends)) if len(backends) == 1 else None,
        sources=(file,),
    )


def _defaults(top: Section) -> Obligations:
    limits = top.section("limits")
    limits.unavailable("quota")
    responses = top.section("responses")
    responses.unavailable("mask")
    return replace(
        _sizes(limits, Obligations()),
        limits=_rates(limits, "rate", ""),
        response_headers=_response_headers(responses),
    )


def _sizes(section: Section, defaults: Obligations) -> Obligations:
    return replace(
        defaults,
        timeout=section.duration("timeout", defaults.timeout),
        request_limit=section.size("request", defaults.request_limit),
        response_limit=section.size("response", defaults.response_limit),
    )


def _response_headers(responses: Section) -> frozenset[str]:
    if "headers" not in responses:
        responses.get("headers")
        return DEFAULT_RESPONSE
    names = frozenset(name.lower() for name in responses.texts("headers"))
    for name in sorted(names):
        if never_in_response(name):
            responses.problem(f'"{name}" never reaches an app: leave it out', "headers")
    return names


def _rates(section: Section, key: str, scope: str) -> tuple[Limit, ...]:
    node = section.get(key)
    texts = (node.value,) if node is not None and isinstance(node.value, str) else section.texts(key)
    return tuple(limit for text in texts if (limit := _checked(section, key, _limit(scope), text)) is not None)


def _limit(scope: str) -> Callable[[str], Limit]:
    def parse(text: str) -> Limit:
        match = _RATE.fullmatch(text)
        if match is None:
            raise ValueError(
                f'"{text}" is not a rate: write one such as "30/minute per principal" (second, minute, hour, '
                "day; per view, principal, app, route)"
            )
        return Limit(Rate(int(match[1]), _PERIODS[match[2]]), Per(match[3]), scope)

    return parse


def _routes(top: Section, backends: Mapping[str, BackendSpec], defaults: Obligations) -> list[Route]:
    return [_route(index, section, backends, defaults) for index, section in enumerate(top.sections("routes"))]


def _route(index: int, section: Section, backends: Mapping[str, BackendSpec], defaults: Obligations) -> Route:
    section.unavailable("when", "body", "quota", "idempotent", "stream", "snapshot", "redirects")
    section.require("path")
    template = _checked(section, "path", parse_template, section.text("path")) or _NO_TEMPLATE
    methods = _methods(section)
    deny = section.text("deny") or None
    names = _REQUEST_NAMES | {f"params.{name}" for name in template.names if name}
    confirm = _confirm(section, _ROUTE_MESSAGE, lambda name: name in names, names)
    scope = f"{' '.join(sorted(methods or ()))} {template.text}"
    obligations = _sizes(section, defaults)
    if (limits := _rates(section, "rate", scope)) or "rate" in section:
        obligations = replace(obligations, limits=limits)
    if deny is not None:
        _alone(section, "path", "methods", "backend", "deny")
    route = Route(
        index=index,
        line=section.node.line,
        template=template,
        methods=methods,
        backend=_backend_of(section, backends, denies="deny" in section),
        deny=deny,
        confirm=confirm,
        decided=Decision(Effect.DENY, (deny or "",), template.text),
    )
    if deny is None:
        reasons = (f"the route {route.shown} allows it",)
        obligations = replace(obligations, no_store=confirm is not None)
        return replace(route, decided=Decision(Effect.ALLOW, reasons, template.text, obligations))
    return replace(route, decided=Decision(Effect.DENY, (deny, f"the route {route.shown} denies it"), template.text))


def _methods(section: Section) -> frozenset[str] | None:
    if "methods" not in section:
        section.get("methods")
        if "deny" not in section:
            section.problem(f'"methods" is missing: name those that are allowed, of {", ".join(sorted(METHODS))}')
        return None
    texts = section.texts("methods")
    if not texts:
        section.problem("name at least one method", "methods")
    for text in texts:
        if text not in METHODS:
            _checked(section, "methods", _upper_method, text)
    return frozenset(texts)


def _upper_method(text: str) -> str:
    raise ValueError(f'write {canonical_method(text)} for "{text}"')


def _backend_of(section: Section, backends: Mapping[str, BackendSpec], denies: bool) -> str | None:
    if "backend" in section and backends:
        return section.choice("backend", backends) or None
    section.get("backend")
    if len(backends) == 1 and not denies:
        return next(iter(backends))
    if not denies or "backend" in section:
        known = f"name one of {', '.join(backends)}" if backends else "the policy has no backends"
        section.problem(f'"backend" is missing: {known}')
    return None


def _confirm(section: Section, default: str, known: Callable[[str], bool], names: frozenset[str]) -> Confirm | None:
    node = section.get("confirm")
    if node is None:
        return None
    if isinstance(node.value, str):
        section.choice("confirm", ("always",))
        return Confirm(None, parse_message(default))
    rule = section.section("confirm")
    when = rule.get("when")
    words = (when.value,) if when is not None and isinstance(when.value, str) else rule.texts("when", ("always",))
    allowed = ("always", *Initiator)
    for word in words:
        if word not in allowed:
            rule.problem(f'must be of {", ".join(allowed)}, not "{word}"', "when")
    if not words:
        rule.problem(f"must be of {', '.join(allowed)}", "when")
    message = _checked(rule, "message", parse_message, rule.text("message", default)) or parse_message(default)
    _check_names(rule, message, known, names)
    return Confirm(_initiators(words), message)


def _initiators(words: tuple[str, ...]) -> frozenset[Initiator] | None:
    return None if "always" in words else frozenset(Initiator(word) for word in words if word in tuple(Initiator))


def _check_names(rule: Section, message: Message, known: Callable[[str], bool], names: frozenset[str]) -> None:
    for name in message.names:
        if not known(name):
            rule.problem(f"{{{name}}} is unknown here (known: {', '.join(sorted(names))})", "message")


def _tool(name: str, section: Section) -> ToolRule:
    section.unavailable("when", "quota", "pin")
    if not _TOOL_NAME.fullmatch(name):
        section.problem(f'"{name[:40]}" is not the name of a WebMCP tool (1 to 128 of A-Z a-z 0-9 _ . -)')
    deny = section.text("deny") or None
    names = _TOOL_NAMES | {"arguments.NAME"}
    confirm = _confirm(section, _TOOL_MESSAGE, lambda name: name in names or name.startswith("arguments."), names)
    limits = _rates(section, "rate", f"tool {name}")
    if deny is not None:
        _alone(section, "deny", "description")
    return ToolRule(name, section.node.line, deny, confirm, limits, section.text("description") or None)


def _alone(section: Section, *keys: str) -> None:
    for key in section:
        if key not in keys and section.get(key) is not None:
            section.problem('has no meaning beside "deny": leave it out', key)


def _test(section: Section) -> PolicyTest:
    section.require("request", "expect")
    method, _, url = section.text("request", "GET /").partition(" ")
    if not url or " " in url:
        section.problem("must be a method and a URL, such as GET /api/products", "request")
    return PolicyTest(
        method=method,
        url=url,
        initiator=Initiator(section.choice("initiator", tuple(Initiator), Initiator.PAGE)),
        principal=section.text("as") or None,
        expect=section.choice("expect", ("allow", "deny", "confirm"), "deny"),
        line=section.node.line,
    )


def _checked(section: Section, key: str, parse: Callable[[str], T], text: str) -> T | None:
    try:
        return parse(text) if text else None
    except ValueError as error:
        section.problem(str(error), key)
        return None

"""Loads a policy file, or lists everything that is wrong in it; warns about valid rules that look like mistakes."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from gateway.documents import Section
from gateway.documents.nodes import parse
from gateway.documents.reader import read_parsed
from gateway.errors import Problem, Reason
from gateway.model import Json
from gateway.policy.confirm import reads_body
from gateway.policy.destinations import PUBLIC, Network, canonical_url, parse_network, parse_origin
from gateway.policy.headers import DEFAULT_RESPONSE, never_in_response
from gateway.policy.includes import PolicyFiles, put_together, read_file
from gateway.policy.masks import JsonPath, parse_json_path
from gateway.policy.obligations import (
    NO_OBLIGATIONS,
    REPEATABLE_METHODS,
    AppAuthorization,
    Circuit,
    Cookies,
    Obligations,
    Retry,
    parse_text,
    read_quotas,
    read_rates,
)
from gateway.policy.organisation import BoundTools
from gateway.policy.page_rules import csp_origin, read_external, read_links, read_tools
from gateway.policy.policy import Organisation, Policy, Routes, read_mode
from gateway.policy.route_rules import Schemas, read_routes, read_sizes
from gateway.policy.rules import METHODS, BackendSpec, Route
from gateway.policy.testing import TestFile, parse_tests, read_tests

_NAME = re.compile(r"[a-z][a-z0-9_\-]{0,63}", re.ASCII)
_APPLICATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_RETRIED_STATUSES: Final = (408, 425, 429, 500, 502, 503, 504)
_RETRIED_REASONS: Final = (Reason.BACKEND_UNREACHABLE, Reason.BACKEND_PROTOCOL, Reason.BACKEND_TIMEOUT)
_WORTH_ANOTHER: Final = (502, 503, 504, Reason.BACKEND_UNREACHABLE)
_COMMON_KEYS: Final = (
    "type",
    "url",
    "credential",
    "origins",
    "network",
    "authorities",
    "cookies",
    "authorization",
    "retry",
    "circuit",
    "trace",
)


def read_backends(top: Section) -> dict[str, BackendSpec]:
    """Read all backends of the policy by name; each names files relative to the part that it is in."""
    sections = top.named_sections("backends").items()
    backends = {name: _backend(name, section, os.path.dirname(section.node.file)) for name, section in sections}
    owners: dict[str, str] = {}
    for spec in backends.values():
        for origin in spec.origins:
            if owners.setdefault(origin, spec.name) != spec.name:
                top.problem(f"{origin} is an origin of {owners[origin]} and of {spec.name}", "backends")
    return backends


def _backend(name: str, section: Section, folder: str) -> BackendSpec:
    if not _NAME.fullmatch(name):
        section.problem(f'"{name[:40]}" is not a name (a-z, 0-9, _ and -, beginning with a letter)')
    type = section.text("type")
    if "type" in section and not type:
        for key in section:
            section.get(key)  # invalid type: any type's keys may be meant
    elif type in ("", "http"):
        section.require("url")
    url = section.text("url")
    return BackendSpec(
        name=name,
        url=_url(section, url) if url or type in ("", "http") else f"http://{name}.invalid",
        credential=section.text("credential") or None,
        origins=_origins(section),
        network=replace(_network(section), authorities=_authorities(section, folder)),
        type=type or "http",
        options=_options(section, type or "http"),
        retry=_retry(section),
        circuit=_circuit(section),
        cookies=Cookies(section.choice("cookies", tuple(Cookies), Cookies.NONE)),
        trace=section.flag("trace", True),
        authorization=_authorization(section),
    )


def _authorization(section: Section) -> AppAuthorization:
    authorization = AppAuthorization(section.choice("authorization", tuple(AppAuthorization), AppAuthorization.DROP))
    if authorization is not AppAuthorization.DROP and "credential" in section:
        section.problem(
            f"`credential` sends the gateway's own token there, so that a page's cannot be sent: leave one out, "
            f"`credential` or `authorization: {authorization}`",
            "authorization",
        )
    return authorization


def _url(section: Section, text: str) -> str:
    try:
        return canonical_url(text) if text else ""
    except ValueError as error:
        section.problem(str(error), "url")
        return ""


def _origins(section: Section) -> tuple[str, ...]:
    rules = []
    for text in section.texts("origins"):
        try:
            rules.append(parse_origin(text))
        except ValueError as error:
            section.problem(str(error), "origins")
    return tuple(rules)


def _network(section: Section) -> Network:
    node = section.get("network")
    if node is None:
        return PUBLIC
    words = (node.value,) if isinstance(node.value, str) else section.texts("network")
    try:
        network = parse_network(words)
    except ValueError as error:
        section.problem(str(error), "network")
        return PUBLIC
    if not words:
        section.problem("must name public, private, or blocks such as 10.0.0.0/8", "network")
    return network


def _authorities(section: Section, folder: str) -> str | None:
    text = section.text("authorities")
    return os.path.join(folder, text) if text else None


def _retry(section: Section) -> Retry | None:
    if section.get("retry") is None:
        return None
    rule = section.section("retry")
    rule.require("attempts")
    words = [str(node.plain()) for node in rule.nodes("on")]
    if not words and "on" not in rule:
        words = [str(one) for one in _WORTH_ANOTHER]
    durations = [parse_text(rule, "on", _worth, word) for word in words]
    return Retry(
        attempts=rule.integer("attempts", 2, minimum=2, maximum=5),
        on=frozenset(one for one in durations if one is not None),
        backoff=rule.duration("backoff", 0.2),
        methods=REPEATABLE_METHODS,
    )


def _worth(word: str) -> int | Reason:
    if word in _RETRIED_REASONS:
        return Reason(word)
    if word.isascii() and word.isdigit() and int(word) in _RETRIED_STATUSES:
        return int(word)
    known = ", ".join(map(str, (*_RETRIED_STATUSES, *_RETRIED_REASONS)))
    raise ValueError(f'"{word[:40]}" is not worth another attempt (known: {known})')


def _circuit(section: Section) -> Circuit | None:
    if section.get("circuit") is None:
        return None
    rule = section.section("circuit")
    rule.require("failures", "reset")
    return Circuit(rule.integer("failures", 5, minimum=1, maximum=1000), rule.duration("reset", 30.0))


def _options(section: Section, type: str) -> dict[str, Json]:
    if type == "http":
        return {}
    if type == "asgi":
        section.require("app")
        app = section.text("app")
        if app and not _APPLICATION.fullmatch(app):
            section.problem('must be "module:name", the ASGI application as Python finds it', "app")
        return {"app": app}
    keys = [key for key in section if key not in _COMMON_KEYS]
    return {key: node.plain() for key in keys if (node := section.get(key)) is not None}


def warnings(policy: Policy) -> tuple[Problem, ...]:
    """Return the warnings with their places; none of them prevents the policy's use."""
    problems: list[Problem] = []
    if policy.mode is not None:
        text = f"report mode: what no rule allows is let through until {policy.mode.date}, and written down"
        problems.append(Problem(policy.file, 1, 1, text))
    vaulting = {route.backend for route in policy.routes.all if route.decision.obligations.vault}
    for spec in policy.backends.values():
        if spec.authorization is AppAuthorization.VAULT and spec.name not in vaulting:
            text = (
                f"the backend {spec.name} has `authorization: vault`, and no route to it names where an answer holds a "
                "token: write such as `vault: [$.access_token]` at the route of the login"
            )
            problems.append(Problem(policy.file, 1, 1, text))
    for route in policy.routes.all:
        literal = next((name for name in route.template.text.split("/") if name.startswith(":")), None)
        if literal is not None:
            text = f"{route.template.text}: {literal} means itself alone; a parameter is {{{literal[1:] or 'name'}}}"
            problems.append(Problem(route.file or policy.file, route.line, 1, text))
        secret = route.decision.obligations.secret
        if secret and route.confirm is not None and reads_body(route.confirm.message):
            text = f"{route.template.text}: its question shows the body, which `secret` keeps from people"
            problems.append(Problem(route.file or policy.file, route.line, 1, text))
        lines = _deciding_places(policy, route)
        if lines:
            plain = all(place.startswith("line ") for place in lines)
            numbers = ", ".join(place.removeprefix("line ") for place in lines)
            together = f"lines {numbers}" if plain else "; ".join(lines)
            subject = f"{lines[0]} takes" if len(lines) == 1 else f"{together} take"
            text = f"{route.template.text} never decides: {subject} all that it matches"
            problems.append(Problem(route.file or policy.file, route.line, 1, text))
        shows_body = route.confirm is not None and reads_body(route.confirm.message)
        if shows_body and route.when is None and route.schema is None:
            text = f"{route.template.text}: the question shows the body, so forms and all else but JSON are refused"
            problems.append(Problem(route.file or policy.file, route.line, 1, text))
    return tuple(problems)


def _deciding_places(policy: Policy, route: Route) -> list[str]:
    """Return the places of the routes that together decide on everything that `route` matches; else nothing."""
    places: dict[tuple[str, int], str] = {}
    before = [one for one in policy.routes.covering(route.template) if one.index < route.index and _takes(one, route)]
    for method in route.methods or METHODS:
        first = next((one for one in before if one.methods is None or method in one.methods), None)
        if first is None:
            return []
        places[first.file, first.line] = first.place
    return [places[key] for key in sorted(places)]


def _takes(one: Route, route: Route) -> bool:
    """Return whether a route with a wider path also matches all backends and ambiguous segments of `route`."""
    if one.backend is not None and one.backend != route.backend:
        return False
    return one.deny is not None or (route.deny is None and route.template.encoded <= one.template.encoded)


def load_policy(
    path: Path, now: float | None = None, *, root: Path | None = None, organisation: Organisation | None = None
) -> Policy:
    """Load the policy in the file `path`. `now` is in seconds since the epoch, by default the current time.

    `root` is the folder of the configuration, outside of which no part is read; `organisation` is the policy above it.
    Raises DocumentError.
    """
    clock, files = time.time() if now is None else now, PolicyFiles(path, root)
    return parse_policy(read_file(path), str(path), None, clock, files=files, organisation=organisation)


def load_tests(path: Path) -> TestFile:
    """Load the tests in a `*.test.yaml` file, with the policy that they test. Raises DocumentError."""
    return parse_tests(read_file(path), path)


def parse_policy(
    text: str,
    file: str,
    beside: Callable[[str], str] | None = None,
    now: float | None = None,
    *,
    files: PolicyFiles | None = None,
    organisation: Organisation | None = None,
) -> Policy:
    """Parse the policy in `text`; `file` is its name in messages. Raises DocumentError with every problem.

    `beside` returns the text of a file named relative to the policy (raises ValueError), `files` also those of parts;
    without them no such file is found. Without `now`, the end of report mode is not limited.
    """
    near = (lambda _, name: beside(name)) if beside is not None else None
    schemas = Schemas(file, files.beside if files is not None else near)
    problems: list[Problem] = []
    with _without_collector():
        parts = put_together(text, file, files, problems)
    with _without_collector(), read_parsed(parts.node, problems) as top:
        top.get("include")
        top.require("version")
        top.integer("version", 1, minimum=1, maximum=1)
        backends = read_backends(top)
        defaults = _defaults(top)
        routes = read_routes(top, backends, defaults, schemas)
        tools = read_tools(top)
        if organisation is not None:
            defaults = organisation.ceilings.apply(defaults)
            routes = [_within(route, organisation) for route in routes]
            tools = {name: organisation.bind(rule) for name, rule in tools.items()}
        links = read_links(top)
        frames = tuple(site for text in top.texts("frames") if (site := parse_text(top, "frames", csp_origin, text)))
        external = read_external(top)
        mode = read_mode(top, now)
        tests = read_tests(top)
        top.report.problems += schemas.problems
    sha = hashlib.sha256(text.encode())
    above = (organisation.version,) if organisation is not None else ()
    for more in (*parts.texts, *schemas.texts, *above):
        sha.update(b"\0" + more.encode())
    return Policy(
        file=file,
        version=f"sha256:{sha.hexdigest()[:16]}",
        backends=backends,
        routes=Routes(routes),
        tools=tools,
        tests=tests,
        defaults=defaults,
        origins={origin: spec.name for spec in backends.values() for origin in spec.origins},
        only_backend=next(iter(backends)) if len(backends) == 1 else None,
        links=links,
        frames=frames,
        external=external,
        mode=mode,
        sources=(file, *parts.files, *schemas.files, *(organisation.files if organisation is not None else ())),
        reads_body=any(route.reads_body for route in routes),
        largest_request=max((route.decision.obligations.request_limit for route in routes), default=0),
        snapshot=tuple(dict.fromkeys(url for route in routes for url in route.snapshot)),
        organisation=organisation,
        parts=parts.files,
    )


def is_part(path: Path) -> bool:
    """Return whether a file is only a part of policies: it has no `version`, as a policy has. Raises DocumentError."""
    node = parse(read_file(path), str(path), [])
    return isinstance(node.value, Mapping) and bool(node.value) and "version" not in node.value


def check_part(path: Path) -> Policy:
    """Parse a part alone, as if it were a policy with the backends that its routes name. Raises DocumentError."""
    text, files = read_file(path), PolicyFiles(path, None)
    node = parse(text, str(path), [])
    entries = node.value if isinstance(node.value, Mapping) else {}
    routes = entries["routes"].value if "routes" in entries else ()
    rule_values = [one.value for one in routes if isinstance(one.value, Mapping)] if isinstance(routes, tuple) else []
    backends = dict.fromkeys(one["backend"].value for one in rule_values if "backend" in one)
    lacking = [name for name in backends if isinstance(name, str) and _NAME.fullmatch(name)] or ["backend"]
    backend_lines = [] if "backends" in entries else [f"  {name}: {{url: http://part.invalid}}" for name in lacking]
    lines = ["" if "version" in entries else "version: 1", *(["backends:", *backend_lines] if backend_lines else [])]
    # After the part, so that the lines of its problems stay.
    return parse_policy("\n".join([text.rstrip("\n"), *lines, ""]), str(path), files=files)


def any_tool(organisation: Organisation) -> Policy:
    """Return the policy of an upstream without one: every tool is allowed, under the rules of the organisation."""
    empty = parse_policy("version: 1", organisation.file, organisation=organisation)
    return replace(empty, tools=BoundTools(organisation), sources=organisation.files)


def _within(route: Route, organisation: Organisation) -> Route:
    """Return a route with the limits that hold for every app."""
    obligations = organisation.ceilings.apply(route.decision.obligations)
    return (
        route if route.deny is not None else replace(route, decision=replace(route.decision, obligations=obligations))
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector, whose walks of a growing tree take half of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _defaults(top: Section) -> Obligations:
    limits = top.section("limits")
    responses = top.section("responses")
    sizes = read_sizes(limits, NO_OBLIGATIONS)
    return Obligations(
        timeout=sizes.timeout,
        request_limit=sizes.request_limit,
        response_limit=sizes.response_limit,
        limits=read_rates(limits, ""),
        quotas=read_quotas(limits, ""),
        response_headers=_response_headers(responses),
        mask=_mask(responses),
    )


def _mask(responses: Section) -> tuple[JsonPath, ...]:
    paths = (parse_text(responses, "mask", parse_json_path, text) for text in responses.texts("mask"))
    return tuple(path for path in paths if path is not None)


def _response_headers(responses: Section) -> frozenset[str]:
    if "headers" not in responses:
        responses.get("headers")
        return DEFAULT_RESPONSE
    names = frozenset(name.lower() for name in responses.texts("headers"))
    for name in sorted(names):
        if never_in_response(name):
            responses.problem(f'"{name}" never reaches an app: leave it out', "headers")
    return names

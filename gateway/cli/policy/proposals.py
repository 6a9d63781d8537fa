"""Learned routes and omissions, and their addition to a policy file that keeps its content and comments."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from gateway.cli.init import network_of, yaml_text
from gateway.jsontext.writing import indented_json_utf8
from gateway.model import WEBSOCKET, Json
from gateway.policy import METHODS, SAFE_METHODS, Policy
from gateway.policy.templates import parse_template, region

ENCODED: Final = ":encoded"

_PARAMETER = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class ProposedSchema:
    """The JSON Schema of a route's body; `name` is the base name of its file."""

    name: str
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True)
class RouteProposal:
    """A proposal: one method of one path template. `why` is its origin."""

    method: str
    path: str
    why: str
    backend: str | None = None
    body: ProposedSchema | None = None

    @property
    def description(self) -> str:
        """The route in one line."""
        return f"{self.method} {self.path}"

    @property
    def example(self) -> str:
        """A path that the route matches, without any recorded value."""
        return _PARAMETER.sub("1", self.path)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something omitted, with the reason. `place` is its position in the file, such as `openapi.yaml:3:5`."""

    what: str
    why: str
    count: int = 1
    place: str = ""


@dataclass(slots=True)
class Findings:
    """The results of one source. `backend` is the URL that it declares for the API."""

    proposals: list[RouteProposal] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    backend: str | None = None


def singular(word: str) -> str:
    """Return a parameter name for one of many, such as `order` for `orders`."""
    name = re.sub("[^A-Za-z0-9_]+", "_", word).strip("_")
    for ending, one in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ss", "ss"), ("s", "")):
        if name.lower().endswith(ending) and len(name) > len(ending) + 1:
            name = name[: len(name) - len(ending)] + one
            break
    return name if re.match("[A-Za-z_]", name) else "id"


def unique(name: str, used: Iterable[str]) -> str:
    """Return `name`, with a number if it is already used."""
    names, number, free = set(used), 2, name
    while free in names:
        free, number = f"{name}{number}", number + 1
    return free


def path_problem(path: str) -> str | None:
    """Return why no route can have this path, None if one can."""
    try:
        parse_template(path)
    except ValueError as error:
        return str(error)
    return None


WIDE: Final = 4096

NEW: Final = """\
# What the app may do. Nothing is allowed that no rule allows.
# These routes were learned: read them, and take out what the app does not need.
version: 1

backends:
  app:
    url: {url}
    network: {network}

limits:
  timeout: 10s
  request: 1MiB
  response: 5MiB
  rate: [20/second per view, 600/minute per principal]

routes: []

tests: []
"""


@dataclass(frozen=True, slots=True)
class LearnedRoute:
    """A route to add: methods of one path with the same rule. `schema` is the file of its body's schema."""

    path: str
    methods: tuple[str, ...]
    why: str
    backend: str | None
    body: ProposedSchema | None
    schema: str | None

    @property
    def unsafe(self) -> bool:
        """True if it can change something: a model's call then needs an approval."""
        return not SAFE_METHODS.union({WEBSOCKET}).issuperset(self.methods)  # messages of a model are refused

    @property
    def description(self) -> str:
        """The route in one line."""
        asks = "; a model's call asks a person" if self.unsafe else ""
        checked = f"; bodies as in {self.schema}" if self.schema is not None else ""
        return f"{', '.join(self.methods)} {self.path} ({self.why}{asks}{checked})"


def new_policy(backend: str) -> str:
    """Return a policy without routes for the API at the URL `backend`."""
    return NEW.format(url=yaml_text(backend), network=network_of(backend))


def undecided_routes(policy: Policy, proposals: Iterable[RouteProposal]) -> tuple[list[RouteProposal], list[LeftOut]]:
    """Return the routes that the policy does not decide yet, and the others with reasons: an explicit denial stays."""
    fresh: list[RouteProposal] = []
    left: list[LeftOut] = []
    for one in proposals:
        backend = one.backend if one.backend in policy.backends else None
        template = parse_template(one.path)
        path = region(template, template, len(template.segments)).witnesses[-1]
        opens_socket = one.method == WEBSOCKET
        route = policy.routes.find("GET" if opens_socket else one.method, path, backend)
        if route is None:
            fresh.append(one)
        elif opens_socket and route.deny is None and route.decision.obligations.socket is None:
            left.append(LeftOut(one.description, f"line {route.line} decides it: add `websocket: true` there"))
        elif route.deny is None:
            left.append(LeftOut(one.description, f"line {route.line} allows it already"))
        else:
            left.append(LeftOut(one.description, f"line {route.line} denies it on purpose: {route.deny}"))
    return fresh, left


def group_routes(proposals: Sequence[RouteProposal], several_backends: bool, folder: str | None) -> list[LearnedRoute]:
    """Return the routes to add: safe and unsafe methods apart, each method with a schema separately."""
    groups: dict[tuple[str, str | None, bool, str | None], list[RouteProposal]] = {}
    for one in proposals:
        name = one.body.name if one.body is not None else None
        groups.setdefault((one.path, one.backend, one.method in (*SAFE_METHODS, WEBSOCKET), name), []).append(one)
    return [
        LearnedRoute(
            path=path,
            methods=tuple(one.method for one in several),
            why="; ".join(dict.fromkeys(one.why for one in several)),
            backend=backend if several_backends else None,
            body=several[0].body,
            schema=f"{folder}/{name}.schema.json" if name is not None and folder is not None else None,
        )
        for (path, backend, _, name), several in groups.items()
    ]


def add_routes(text: str, routes: Sequence[LearnedRoute], origin: str) -> str:
    """Append `routes`, and a test for each, to the policy `text`; `origin` names their source in a comment."""
    yaml = _yaml(text)
    document = yaml.load(text)
    entries = _list(document, "routes")
    begin = len(entries)
    for route in routes:
        entries.append(_route(route))
        entries.yaml_add_eol_comment(f"# {_plain(route.why)}", len(entries) - 1)
    _heading(entries, begin, f"Learned {origin}:")
    tests = _list(document, "tests")
    for route in routes:
        for test in _tests(route):
            tests.append(test)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def schema_files(routes: Iterable[LearnedRoute]) -> Mapping[str, str]:
    """Return the schema files of the routes, with their content."""
    return {
        route.schema: indented_json_utf8(route.body.schema) + "\n"
        for route in routes
        if route.schema is not None and route.body is not None
    }


def _yaml(text: str) -> YAML:
    """Return a YAML round-tripper that keeps the file's quotes, width and indentation."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDE
    offset = next((len(line) - len(line.lstrip()) for line in text.splitlines() if line.lstrip().startswith("- ")), 2)
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    return yaml


def _list(document: Any, key: str) -> CommentedSeq:
    """Return the list under `key`, created if missing, in block style so that each entry has a line."""
    node = document.get(key)
    if not isinstance(node, CommentedSeq):
        node = CommentedSeq()
        document[key] = node
    node.fa.set_block_style()  # in a flow list a comment would swallow what follows
    return node


def _route(route: LearnedRoute) -> CommentedMap:
    methods = dict.fromkeys("GET" if method == WEBSOCKET else method for method in route.methods)
    entry = CommentedMap(path=_quote(route.path), methods=_flow(methods))
    if WEBSOCKET in route.methods:
        entry["websocket"] = True
    if route.backend is not None:
        entry["backend"] = route.backend
    if route.schema is not None:
        entry["body"] = _flow_map(schema=_quote(route.schema))
    if route.unsafe:
        entry["confirm"] = _flow_map(when="model")
    entry.fa.set_flow_style()
    return entry


def _tests(route: LearnedRoute) -> list[CommentedMap]:
    """Return tests without any recorded value."""
    method = WEBSOCKET if WEBSOCKET in route.methods else route.methods[0]
    request = f"{method} {RouteProposal(method, route.path, '').example}"
    if route.schema is not None:
        return [_flow_map(request=request, expect="deny")]  # the request has no body
    if not route.unsafe:
        return [_flow_map(request=request, expect="allow")]
    return [
        _flow_map(request=request, initiator="person", expect="allow"),
        _flow_map(request=request, initiator="model", expect="confirm"),
    ]


def _heading(entries: CommentedSeq, place: int, text: str) -> None:
    indent = (entries.lc.col if getattr(entries.lc, "col", None) is not None and place else 2) or 0
    entries.yaml_set_comment_before_after_key(place, before=_plain(text), indent=indent)


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _quote(text: str) -> str:
    return DoubleQuotedScalarString(text) if set(text) & set("{}*,:#&[]") else text


def _flow(items: Iterable[str]) -> CommentedSeq:
    listed = CommentedSeq(items)
    listed.fa.set_flow_style()
    return listed


def _flow_map(**entries: str) -> CommentedMap:
    mapping = CommentedMap(entries)
    mapping.fa.set_flow_style()
    return mapping


def sort_routes(proposals: Iterable[RouteProposal]) -> list[RouteProposal]:
    """Sort by path; literal segments before parameters, since the first matching route decides."""
    methods = sorted((*METHODS, WEBSOCKET), key=lambda method: (method not in SAFE_METHODS, method))

    def place(one: RouteProposal) -> tuple[list[tuple[bool, str]], int]:
        return [(part.startswith("{"), part) for part in one.path.split("/")], methods.index(one.method)

    return sorted(proposals, key=place)

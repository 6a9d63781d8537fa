"""Reads `routes` of a policy file: the allowed requests and their rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypedDict

from gateway.documents import Section, load
from gateway.errors import DocumentError, Problem
from gateway.model import LARGEST_BODY, Effect
from gateway.policy import paths
from gateway.policy.canonical import canonical_method
from gateway.policy.conditions import Condition, parse_condition
from gateway.policy.confirm import ROUTE_MESSAGE, read_confirm, reads_body
from gateway.policy.facts import Vocabulary
from gateway.policy.masks import VAULTED, JsonPath, parse_json_path
from gateway.policy.obligations import (
    LARGEST_MESSAGE,
    SAFE_METHODS,
    SOCKET_MESSAGE,
    AppAuthorization,
    Circuit,
    Cookies,
    Limit,
    Obligations,
    Quota,
    Redirects,
    Retry,
    SocketRule,
    is_protocol,
    parse_text,
    read_quotas,
    read_rates,
)
from gateway.policy.page_rules import alone
from gateway.policy.policy import Routes
from gateway.policy.rules import METHODS, BackendSpec, Confirm, Decision, Route, route_name, rule_place
from gateway.policy.schemas import BodySchema, parse_schema
from gateway.policy.templates import Template, parse_template

MAX_URLS: Final = 64
"""URLs per route: a snapshot is the initial content of a page, not a copy of the backend."""

Find = Callable[[str, str, str | None], Route | None]


def read_snapshot(section: Section, template: Template, methods: frozenset[str] | None) -> tuple[str, ...]:
    """Read the canonical URLs of a route's snapshot: its own path, or those that it lists."""
    node = section.get("snapshot")
    if node is None or node.value is False:
        return ()
    if methods is not None and "GET" not in methods:
        section.problem("a snapshot is made of GET requests, which this route does not take", "snapshot")
    for key in ("when", "confirm"):
        if key in section:
            section.problem(f"a snapshot is made with no person there, so that `{key}` cannot hold", "snapshot")
    if node.value is True:
        return _own_path(section, template)
    if not isinstance(node.value, tuple):
        section.problem(f"must be true, or a list of URLs such as [/api/products], not {node.kind}", "snapshot")
        return ()
    urls = section.texts("snapshot")
    if len(urls) > MAX_URLS:
        section.problem(f"at most {MAX_URLS} URLs, not {len(urls)}", "snapshot")
    return tuple(url for text in urls if (url := _url(section, template, text)) is not None)


def check_reached(section: Section, route: Route, find: Find) -> None:
    """Report each URL of the snapshot that another route decides."""
    for url in route.snapshot:
        route_found = find("GET", url.partition("?")[0], route.backend)
        if route_found is not route and route_found is not None:
            label = route_found.label
            section.problem(f"{url} is decided by the route {label}, which comes first", "snapshot")


def _own_path(section: Section, template: Template) -> tuple[str, ...]:
    if None in template.segments:
        section.problem("the path has parameters: list the URLs, such as [/api/products/1]", "snapshot")
        return ()
    return ("/" + "/".join(segment or "" for segment in template.segments),)


def _url(section: Section, template: Template, text: str) -> str | None:
    path, mark, query = text.partition("?")
    try:
        url = f"{paths.canonical_path(path)}{mark}{paths.canonical_query(query)}"
    except ValueError as error:
        section.problem(f"{text[:80]!r}: {error}", "snapshot")
        return None
    if "#" in text or not template.matches(url.partition("?")[0]):
        section.problem(f"{text[:80]!r} does not match the path of the route, {template.text}", "snapshot")
        return None
    return url


MAX_SCHEMA: Final = 256 * 1024
_REDIRECTS: Final = tuple(Redirects)
_NO_TEMPLATE: Final = Template("/", ("",), ("",), frozenset(), False)


class Schemas:
    """The schema files that a policy and its parts name, each read once. `problems` are those inside them.

    `beside` returns the text of a file that another one names relative to itself (raises ValueError).
    """

    def __init__(self, policy: str, beside: Callable[[str, str], str] | None) -> None:
        self.policy = policy
        self._beside = beside
        self._schemas: dict[str, BodySchema | None] = {}
        self.texts: list[str] = []
        self.problems: list[Problem] = []

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files, relative to the policy's own name."""
        return tuple(self._schemas)

    def read(self, name: str, file: str) -> BodySchema | None:
        """Read the schema in the file `name`, relative to `file`. Raises ValueError if there is no such file."""
        label = _name(name, file)
        if label not in self._schemas:
            if self._beside is None:
                raise ValueError("a policy that is not read from a file has no files beside it")
            text = self._beside(file, name)
            if len(text) > MAX_SCHEMA:
                raise ValueError(f'"{name[:80]}" is larger than {MAX_SCHEMA // 1024} KiB')
            self.texts.append(text)
            self._schemas[label] = self._parse_body_schema(name, label, text)
        return self._schemas[label]

    def _parse_body_schema(self, name: str, label: str, text: str) -> BodySchema | None:
        try:
            # A tab in JSON occurs only between values, where it means nothing; YAML refuses it.
            return parse_schema(load(text.replace("\t", " "), label), name)
        except DocumentError as error:
            self.problems += error.problems
            return None


def _name(name: str, file: str) -> str:
    folder = file.rpartition("/")[0]
    return f"{folder}/{name}" if folder else name


def read_routes(
    top: Section, backends: Mapping[str, BackendSpec], defaults: Obligations, schemas: Schemas
) -> list[Route]:
    """Read the routes in the order of the file."""
    sections = top.sections("routes")
    routes = [_route(index, section, backends, defaults, schemas) for index, section in enumerate(sections)]
    if any(route.snapshot for route in routes):
        find = Routes(routes).find
        for section, route in zip(sections, routes, strict=True):
            check_reached(section, route, find)
    return routes


class Sizes(NamedTuple):
    """The time and size limits of a section."""

    timeout: float
    request_limit: int
    response_limit: int


def read_sizes(section: Section, defaults: Obligations) -> Sizes:
    """Read the limits of a section, with `defaults` for missing ones."""
    request = section.size("request", defaults.request_limit)
    if request > LARGEST_BODY:
        section.problem(f"no door takes more than {LARGEST_BODY // 2**20}MiB", "request")
    return Sizes(
        section.duration("timeout", defaults.timeout),
        request,
        section.size("response", defaults.response_limit),
    )


def _route(
    index: int, section: Section, backends: Mapping[str, BackendSpec], defaults: Obligations, schemas: Schemas
) -> Route:
    section.require("path")
    template = parse_text(section, "path", parse_template, section.text("path")) or _NO_TEMPLATE
    methods = read_methods(section)
    deny = section.text("deny") or None
    vocabulary = Vocabulary(tuple(name for name in template.names if name))
    confirm = read_confirm(section, vocabulary, ROUTE_MESSAGE)
    when = parse_text(section, "when", lambda text: parse_condition(text, vocabulary), section.text("when"))
    schema = _schema(section, schemas)
    backend = _backend_of(section, backends, denies="deny" in section)
    body_read = _reads_body(confirm, when) or "body" in section
    _check_sense(section, methods, confirm, body_read)
    obligations = replace(
        defaults,
        no_store=confirm is not None,
        reads_body=body_read,
        **_duties(section, defaults, backends.get(backend or ""), f"{' '.join(sorted(methods or ()))} {template.text}"),
        socket=_read_socket(section, defaults, methods, template.text, body_read=body_read),
    )
    if deny is not None:
        alone(section, "path", "methods", "backend", "deny")
    file = "" if section.node.file == schemas.policy else section.node.file
    label = route_name(methods, template, rule_place(section.node.line, file))
    return Route(
        index=index,
        line=section.node.line,
        template=template,
        methods=methods,
        backend=backend,
        deny=deny,
        confirm=confirm,
        decision=Decision(Effect.ALLOW, (f"the route {label} allows it",), template.text, obligations)
        if deny is None
        else Decision(Effect.DENY, (deny, f"the route {label} denies it"), template.text),
        when=when,
        schema=schema,
        reads_body=body_read,
        snapshot=read_snapshot(section, template, methods),
        file=file,
    )


class Duties(TypedDict):
    """The obligations that a route sets."""

    timeout: float
    request_limit: int
    response_limit: int
    limits: tuple[Limit, ...]
    quotas: tuple[Quota, ...]
    idempotent: bool
    redirects: Redirects
    stream: bool
    vault: tuple[JsonPath, ...] | None
    secret: bool
    retry: Retry | None
    circuit: Circuit | None
    cookies: Cookies


def _duties(section: Section, defaults: Obligations, backend: BackendSpec | None, scope: str) -> Duties:
    sizes = read_sizes(section, defaults)
    idempotent = section.flag("idempotent")
    limits = read_rates(section, scope)
    quotas = read_quotas(section, scope)
    return Duties(
        timeout=sizes.timeout,
        request_limit=sizes.request_limit,
        response_limit=sizes.response_limit,
        limits=limits if "rate" in section else defaults.limits,
        quotas=quotas if "quota" in section else defaults.quotas,
        idempotent=idempotent,
        redirects=Redirects(section.choice("redirects", _REDIRECTS, Redirects.SAFE)),
        stream=section.flag("stream"),
        vault=_vault(section, backend),
        secret=section.flag("secret"),
        retry=_retry(backend, idempotent=idempotent),
        circuit=backend.circuit if backend is not None else None,
        cookies=backend.cookies if backend is not None else defaults.cookies,
    )


def _vault(section: Section, backend: BackendSpec | None) -> tuple[JsonPath, ...] | None:
    """Read the paths of tokens in the answers of a route."""
    if "vault" not in section:
        section.get("vault")
        return None
    if backend is not None and backend.authorization is not AppAuthorization.VAULT:
        section.problem(f"write `authorization: vault` at the backend {backend.name}, or leave this out", "vault")
    if section.flag("stream"):
        section.problem("values can be replaced in a complete answer only: leave `stream` out", "vault")
    masks = (
        parse_text(section, "vault", partial(parse_json_path, purpose=VAULTED), text) for text in section.texts("vault")
    )
    return tuple(path for path in masks if path is not None)


def _read_socket(
    section: Section, defaults: Obligations, methods: frozenset[str] | None, path: str, *, body_read: bool
) -> SocketRule | None:
    """Read `websocket`: true, or a mapping; None if the route carries none."""
    node = section.get("websocket")
    if node is None or node.value is False:
        return None
    if methods is not None and "GET" not in methods:
        section.problem("a WebSocket is opened by a GET, which this route does not take", "websocket")
    if body_read:
        section.problem("a rule of this route reads the body, and messages of a WebSocket are not read", "websocket")
    if defaults.mask:
        section.problem("`responses.mask` hides values, and messages of a WebSocket are not searched", "websocket")
    if node.value is True:
        return SocketRule()
    if not isinstance(node.value, Mapping):
        allowed = "true, or a mapping with protocols, message, rate or model"
        section.problem(f"must be {allowed}, not {node.kind}", "websocket")
        return None
    rule = section.section("websocket")
    protocols = rule.texts("protocols", empty="name at least one subprotocol, or leave it out") or None
    for text in protocols or ():
        if not is_protocol(text):
            rule.problem(f'"{text[:80]}" is not a subprotocol: write a word such as graphql-transport-ws', "protocols")
    message = rule.size("message", SOCKET_MESSAGE)
    if message > LARGEST_MESSAGE:
        rule.problem(f"no door carries messages of more than {LARGEST_MESSAGE // 2**20}MiB", "message")
    return SocketRule(
        protocols=tuple(dict.fromkeys(protocols)) if protocols else None,
        message=message,
        limits=read_rates(rule, f"WEBSOCKET {path}"),
        model=rule.choice("model", ("deny", "allow"), "deny") == "allow",
    )


def _retry(backend: BackendSpec | None, *, idempotent: bool) -> Retry | None:
    """Return the retries of a route: an idempotency key makes every method repeatable."""
    if backend is None or backend.retry is None:
        return None
    return replace(backend.retry, methods=METHODS) if idempotent else backend.retry


def _check_sense(section: Section, methods: frozenset[str] | None, confirm: Confirm | None, body_read: bool) -> None:
    """Report keys that would have no effect, or conflict with others."""
    method_names = methods or frozenset()
    if section.flag("idempotent") and method_names <= SAFE_METHODS:
        section.problem("has no meaning for methods that change nothing: leave it out", "idempotent")
    if body_read and method_names and method_names <= {"GET", "HEAD"}:
        key = next(key for key in ("body", "when", "confirm") if key in section)
        section.problem("GET and HEAD have no body that a rule could read", key)


def _reads_body(confirm: Confirm | None, when: Condition | None) -> bool:
    return (when is not None and when.reads("request", "body")) or (confirm is not None and reads_body(confirm.message))


def _schema(section: Section, schemas: Schemas) -> BodySchema | None:
    if section.get("body") is None:
        return None
    rule = section.section("body")
    rule.require("schema")
    name = rule.text("schema")
    return parse_text(rule, "schema", lambda text: schemas.read(_relative(text), section.node.file), name)


def _relative(name: str) -> str:
    if name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
        raise ValueError(f'"{name[:80]}" must be a file beside the policy, or in a folder below it')
    return name


def read_methods(section: Section, *, needed: bool = True) -> frozenset[str] | None:
    """Read the methods of a rule; None for all, which a rule that allows must name if they are `needed`."""
    if "methods" not in section:
        section.get("methods")
        if needed and "deny" not in section:
            section.problem(f'"methods" is missing: name those that are allowed, of {", ".join(sorted(METHODS))}')
        return None
    texts = section.texts("methods", empty="name at least one method")
    for text in texts:
        if text not in METHODS:
            parse_text(section, "methods", _upper_method, text)
    return _same(frozenset(texts))


@lru_cache(maxsize=128)
def _same(methods: frozenset[str]) -> frozenset[str]:
    """Return one shared object for equal sets, for memory locality."""
    return methods


def _upper_method(text: str) -> str:
    try:
        upper = canonical_method(text)
    except ValueError as error:
        raise ValueError(str(error).removeprefix("method: ")) from None
    raise ValueError(f'write {upper} for "{text}"')


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

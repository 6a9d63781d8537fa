"""Reads `backends` of a policy file: the targets of requests, and the absolute URLs that mean them."""

from __future__ import annotations

import re
from typing import Final

from gateway.documents import Section
from gateway.errors import Reason
from gateway.model import Json
from gateway.policy.limits import checked
from gateway.policy.network import PUBLIC, Network, parse_network
from gateway.policy.obligations import REPEATABLE_METHODS, Circuit, Cookies, Retry
from gateway.policy.origins import canonical_url, parse_origin
from gateway.policy.rules import BackendSpec

_NAME = re.compile(r"[a-z][a-z0-9_\-]{0,63}", re.ASCII)
_APPLICATION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_RETRIED_STATUSES: Final = (408, 425, 429, 500, 502, 503, 504)
_RETRIED_REASONS: Final = (Reason.BACKEND_UNREACHABLE, Reason.BACKEND_PROTOCOL, Reason.BACKEND_TIMEOUT)
_WORTH_ANOTHER: Final = (502, 503, 504, Reason.BACKEND_UNREACHABLE)
_COMMON_KEYS: Final = ("type", "url", "credential", "origins", "network", "cookies", "retry", "circuit", "trace")


def read_backends(top: Section) -> dict[str, BackendSpec]:
    """Read all backends of the file by name."""
    backends = {name: _backend(name, section) for name, section in top.named("backends").items()}
    owners: dict[str, str] = {}
    for spec in backends.values():
        for origin in spec.origins:
            if owners.setdefault(origin, spec.name) != spec.name:
                top.problem(f"{origin} is an origin of {owners[origin]} and of {spec.name}", "backends")
    return backends


def _backend(name: str, section: Section) -> BackendSpec:
    if not _NAME.fullmatch(name):
        section.problem(f'"{name[:40]}" is not a name (a-z, 0-9, _ and -, beginning with a letter)')
    type = section.text("type", "http")
    if type == "http":
        section.require("url")
    url = section.text("url")
    return BackendSpec(
        name=name,
        url=_url(section, url) if url or type == "http" else f"http://{name}.invalid",
        credential=section.text("credential") or None,
        origins=_origins(section),
        network=_network(section),
        type=type,
        options=_options(section, type),
        retry=_retry(section),
        circuit=_circuit(section),
        cookies=Cookies(section.choice("cookies", tuple(Cookies), Cookies.NONE)),
        trace=section.flag("trace", True),
    )


def _url(section: Section, text: str) -> str:
    try:
        return canonical_url(text) if text else ""
    except ValueError as error:
        section.problem(str(error), "url")
        return ""


def _origins(section: Section) -> tuple[str, ...]:
    found = []
    for text in section.texts("origins"):
        try:
            found.append(parse_origin(text))
        except ValueError as error:
            section.problem(str(error), "origins")
    return tuple(found)


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


def _retry(section: Section) -> Retry | None:
    if section.get("retry") is None:
        return None
    rule = section.section("retry")
    rule.require("attempts")
    words = [str(node.plain()) for node in rule.nodes("on")]
    if not words and "on" not in rule:
        words = [str(one) for one in _WORTH_ANOTHER]
    found = [checked(rule, "on", _worth, word) for word in words]
    return Retry(
        attempts=rule.integer("attempts", 2, minimum=2, maximum=5),
        on=frozenset(one for one in found if one is not None),
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

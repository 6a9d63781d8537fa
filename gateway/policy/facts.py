"""The facts that conditions and questions can name: of the request, its caller, the path, and a tool's arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from gateway.jsontext.reading import MAX_INTEGER
from gateway.model import Caller, CanonicalRequest
from gateway.policy.paths import has_lone_percent
from gateway.policy.templates import Template

Path: TypeAlias = tuple[str | int, ...]
"""The path of a fact: `("request", "body", "items", 0)`."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that is absent or ambiguous; `why` ends a sentence that begins with its name.

    `odd` means that even its absence is uncertain.
    """

    why: str
    odd: bool = False


@dataclass(frozen=True, slots=True)
class FactSource:
    """The facts of one call: a request with its route's template, a tool's arguments, or a link."""

    caller: Caller
    request: CanonicalRequest | None = None
    template: Template | None = None
    tool: str = ""
    link: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)


Finder: TypeAlias = Callable[[FactSource], object]
"""Returns one fact: a JSON value, or `Missing`."""

ABSENT: Final = Missing("is not there")
_TWIN: Final = Missing("is there under another name too, which differs in case", odd=True)
_TWINS: Final = Missing("has a key in two forms that differ only in case", odd=True)
_HUGE: Final = Missing("is, or has, a number beyond 2^53: send it as a text", odd=True)
_ONE: Final = "name one of {known}"
_PRINCIPAL: Final = ("id", "roles", "claims")
_REQUEST: Final = ("method", "path", "query", "headers", "body")
_COMMON: Final = ("principal", "app", "view", "initiator")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names that a rule may use. `parameters` are those of a route's path; other rules have `own` names.

    `common` are the names that it shares with the rules of other kinds.
    """

    parameters: Collection[str] | None
    own: tuple[str, ...] = ("tool", "arguments")
    common: tuple[str, ...] = _COMMON

    @property
    def roots(self) -> tuple[str, ...]:
        """The first parts of all names."""
        return (*(("request", "params") if self.parameters is not None else self.own), *self.common)

    def check(self, path: Path) -> None:
        """Check that `path` names a fact. Raises ValueError with the known names."""
        root, second = path[0], path[1] if len(path) > 1 else None
        if root not in self.roots:
            raise _unknown_fact(path[:1], self.roots)
        match root:
            case "request":
                _check_known(path, second, _REQUEST)
                if second in ("method", "path"):
                    _ends(path, 2)
                if second in ("query", "headers"):
                    _ends(path, 4)
                    _check_name(path)
            case "params":
                _check_known(path, second, tuple(self.parameters or ()))
                _ends(path, 2)
            case "principal":
                _check_known(path, second, _PRINCIPAL)
                if second == "id":
                    _ends(path, 2)
            case "view":
                _check_known(path, second, ("id",))
                _ends(path, 2)
            case "app" | "initiator" | "tool" | "link":
                _ends(path, 1)
            case _:
                pass

    @property
    def listing(self) -> str:
        """All names, for a message."""
        names = ["app", "initiator", "view.id", *(f"principal.{name}" for name in _PRINCIPAL)]
        if self.parameters is None:
            return ", ".join([*("arguments.NAME" if name == "arguments" else name for name in self.own), *names])
        parameters = [f"params.{name}" for name in self.parameters]
        return ", ".join([*(f"request.{name}" for name in _REQUEST), *parameters, *names])


def fact_name(path: Path) -> str:
    """Return a path as a condition writes it."""
    text = str(path[0])
    for part in path[1:]:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if part.isidentifier() and part.isascii() else f'["{part}"]'
    return text


def is_repeated(path: Path) -> bool:
    """Return whether a path names a query parameter or header: a list, or its only value."""
    return len(path) == 3 and path[:2] in (("request", "query"), ("request", "headers"))


def finder(path: Path, *, scalar: bool = False, whole: bool = True) -> Finder:
    """Return the finder of the fact `path`.

    `scalar` means the only value of a query parameter or header; without `whole` only the presence of an argument
    matters.
    """
    match path:
        case ("request", "method"):
            return lambda source: _request(source).method
        case ("request", "path"):
            return lambda source: _request(source).path
        case ("request", "query", *rest):
            return _many(lambda source: _query(_request(source).query), tuple(rest), scalar=scalar)
        case ("request", "headers", *rest):
            return _many(lambda source: _fields(_request(source).headers), tuple(rest), scalar=scalar)
        case ("request", "body", *rest):
            return _body(tuple(rest))
        case ("params", str(name)):
            return lambda source: source.template.value(name, _request(source).path) if source.template else ABSENT
        case ("principal", "id"):
            return lambda source: source.caller.principal.id
        case ("principal", "roles", *rest):
            return lambda source: descend(sorted(source.caller.principal.roles), tuple(rest))
        case ("principal", "claims", *rest):
            return lambda source: descend(source.caller.principal.claims, tuple(rest))
        case ("view", "id"):
            return lambda source: source.caller.view
        case ("app",):
            return lambda source: source.caller.app
        case ("initiator",):
            return lambda source: source.caller.initiator.value
        case ("tool",):
            return lambda source: source.tool
        case ("link",):
            return lambda source: source.link
        case ("arguments", *rest):
            return lambda source: _argument(source.arguments, tuple(rest), whole=whole)
        case _:
            raise ValueError(f"{fact_name(path)} names nothing")


def presence(path: Path) -> Finder:
    """Return a finder of whether `path` exists; `Missing` if its parent does not, which is an error in CEL."""
    around = finder(path[:-1], whole=False) if len(path) > 2 else None
    inner = finder(path, whole=False)

    def find(source: FactSource) -> object:
        outer = around(source) if around is not None else {}
        if isinstance(outer, Missing):
            return outer
        if not isinstance(outer, Mapping | list):
            return Missing("is part of no object")
        value = inner(source)
        return value if isinstance(value, Missing) and value.odd else not isinstance(value, Missing)

    return find


def membership(path: Path) -> Finder:
    """Return a finder of whether the last part of `path` is a key of its parent object or in its parent list."""
    around, name = finder(path[:-1], whole=False), path[-1]

    def find(source: FactSource) -> object:
        outer = around(source)
        if isinstance(outer, list):
            return name in outer
        if not isinstance(outer, Mapping):
            return outer if isinstance(outer, Missing) else Missing("is in no object and no list")
        value = descend(outer, (name,))
        return value if isinstance(value, Missing) and value.odd else not isinstance(value, Missing)

    return find


def descend(value: object, path: Path) -> object:
    """Return the value at `path` inside a JSON value, or `Missing`."""
    for part in path:
        if isinstance(part, str):
            if not isinstance(value, Mapping):
                return ABSENT
            if part not in value:
                return _TWIN if _has_twin(value, part) else ABSENT
            value = value[part]
        else:
            if not isinstance(value, list) or not part < len(value):
                return ABSENT
            value = value[part]
    return value


def _argument(value: object, path: Path, *, whole: bool) -> object:
    """Descend into arguments, which are not checked as strictly as bodies: `Missing` for ambiguous values."""
    for part in path:
        if isinstance(part, str) and isinstance(value, Mapping) and _has_twin(value, part):
            return _TWIN
        value = descend(value, (part,))
        if isinstance(value, Missing):
            return value
    below: list[object] = [value] if whole else []
    for one in below:  # the list grows
        if isinstance(one, Mapping):
            if len({key.casefold() for key in one}) != len(one):
                return _TWINS
            below += one.values()
        elif isinstance(one, list):
            below += one
        elif isinstance(one, int | float) and abs(one) > MAX_INTEGER:
            return _HUGE
    return value


def _body(path: Path) -> Finder:
    def find(source: FactSource) -> object:
        request = _request(source)
        return descend(request.json, path) if request.body else ABSENT

    return find


def _many(read: Callable[[FactSource], Mapping[str, list[str]] | Missing], rest: Path, *, scalar: bool) -> Finder:
    def find(source: FactSource) -> object:
        mapping = read(source)
        if isinstance(mapping, Missing):
            return mapping
        twins = _twins(mapping, str(rest[0]) if rest else None)
        if twins is not None:
            return twins
        value = descend(mapping, rest)
        if scalar and isinstance(value, list):
            return value[0] if len(value) == 1 else Missing(f"is there {len(value)} times, and used as one value")
        return value

    return find


def _twins(values: Mapping[str, list[str]], name: str | None) -> Missing | None:
    """Return `Missing` for names that differ only in case: servers treat these differently."""
    if name is None:
        return _TWIN if len({key.casefold() for key in values}) != len(values) else None
    return _TWIN if _has_twin(values, name) else None


def _has_twin(values: Mapping[str, object], name: str) -> bool:
    folded_name = name.casefold()
    return any(key != name and key.casefold() == folded_name for key in values)


def _query(query: str) -> Mapping[str, list[str]] | Missing:
    if ";" in query:
        return Missing('cannot be read in one way, since the query has a ";"', odd=True)
    if has_lone_percent(query):
        return Missing('cannot be read in one way, since the query has a "%" that is not a percent-encoding', odd=True)
    values: dict[str, list[str]] = {}
    try:
        for part in query.split("&"):
            if part:
                name, _, value = part.partition("=")
                values.setdefault(_decode(name), []).append(_decode(value))
    except UnicodeDecodeError:
        return Missing("cannot be read, since the query is not UTF-8", odd=True)
    return values


def _fields(headers: tuple[tuple[str, str], ...]) -> Mapping[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value)
    return values


def _decode(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode() if "%" in text or "+" in text else text


def _request(source: FactSource) -> CanonicalRequest:
    if source.request is None:
        raise TypeError("a tool rule has no request")
    return source.request


def _check_known(path: Path, second: str | int | None, known: tuple[str, ...]) -> None:
    if second is None:
        raise ValueError(f"{fact_name(path)} is not a fact by itself: {_ONE.format(known=_all(path[:1], known))}")
    if second not in known:
        raise _unknown_fact(path[:2], known, path[:1])


def _unknown_fact(path: Path, known: tuple[str, ...], before: Path = ()) -> ValueError:
    return ValueError(f"{fact_name(path)} is unknown here (known: {_all(before, known)})")


def _all(before: Path, known: tuple[str, ...]) -> str:
    return ", ".join(fact_name((*before, name)) for name in known) or "none"


def _ends(path: Path, length: int) -> None:
    if len(path) > length:
        raise ValueError(f"{fact_name(path[:length])} has no parts: {fact_name(path)}")


def _check_name(path: Path) -> None:
    if len(path) > 2 and not isinstance(path[2], str):
        raise ValueError(f"{fact_name(path)}: {fact_name(path[:2])} holds lists by their names")
    if len(path) > 2 and path[1] == "headers" and path[2] != str(path[2]).lower():
        raise ValueError(f"{fact_name(path)}: write the names of headers in lower case")

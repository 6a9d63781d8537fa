"""Learned routes, and omissions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gateway.model import Json
from gateway.policy.templates import parse_template

ENCODED: Final = ":encoded"

_PARAMETER = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class BodySchema:
    """The JSON Schema of a route's body; `name` is the base name of its file."""

    name: str
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Learned:
    """A proposal: one method of one path template. `why` is its origin."""

    method: str
    path: str
    why: str
    backend: str | None = None
    body: BodySchema | None = None

    @property
    def shown(self) -> str:
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

    learned: list[Learned] = field(default_factory=list)
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
    taken, number, free = set(used), 2, name
    while free in taken:
        free, number = f"{name}{number}", number + 1
    return free


def path_problem(path: str) -> str | None:
    """Return why no route can have this path, None if one can."""
    try:
        parse_template(path)
    except ValueError as error:
        return str(error)
    return None

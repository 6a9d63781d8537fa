"""What was learned, and what was left out."""

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
class Body:
    """The JSON Schema of a route's body; `name` is a name for its file."""

    name: str
    schema: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Learned:
    """A proposal: one method of one path, as a route writes it. `why` says where it comes from."""

    method: str
    path: str
    why: str
    backend: str | None = None
    body: Body | None = None

    @property
    def shown(self) -> str:
        """The route in a line."""
        return f"{self.method} {self.path}"

    @property
    def example(self) -> str:
        """A path that the route matches; no value that was seen is in it."""
        return _PARAMETER.sub("1", self.path)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not learned, and why. `place` is where it stands in its file, such as `openapi.yaml:3:5`."""

    what: str
    why: str
    count: int = 1
    place: str = ""


@dataclass(slots=True)
class Findings:
    """All that one source gave. `backend` is the URL that it names for the API."""

    learned: list[Learned] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    backend: str | None = None


def singular(word: str) -> str:
    """A name for one of many, such as `order` for `orders`."""
    name = re.sub("[^A-Za-z0-9_]+", "_", word).strip("_")
    for ending, one in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ss", "ss"), ("s", "")):
        if name.lower().endswith(ending) and len(name) > len(ending) + 1:
            name = name[: len(name) - len(ending)] + one
            break
    return name if re.match("[A-Za-z_]", name) else "id"


def unique(name: str, used: Iterable[str]) -> str:
    """`name`, with a number where it is used already."""
    taken, number, free = set(used), 2, name
    while free in taken:
        free, number = f"{name}{number}", number + 1
    return free


def path_problem(path: str) -> str | None:
    """Why no route can have this path, None if one can."""
    try:
        parse_template(path)
    except ValueError as error:
        return str(error)
    return None

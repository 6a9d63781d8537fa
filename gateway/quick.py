"""Frozen dataclasses that are made at every request, in less than half the time of the generated `__init__`."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots a `__new__` with the signature of its `__init__`, and no `__init__`.

    Frozen slots take no plain assignment: each object is filled as one of a twin that has the same slots and is not
    frozen, then its class is changed. Raises TypeError for a class that does more when it is made.
    """
    found: Any = cls
    if hasattr(cls, "__post_init__") or "__dict__" in dir(cls):
        raise TypeError(f"{cls.__name__} does more than to fill its slots")
    twin = type(cls.__name__, (), {"__slots__": found.__slots__})
    names: dict[str, object] = {"_bare": object.__new__, "_twin": twin}
    parameters, lines = ["cls"], ["    self = _bare(_twin)"]
    for field in fields(found):
        if field.default_factory is not MISSING or not field.init or field.kw_only:
            raise TypeError(f"{cls.__name__}.{field.name} is not a plain field")
        if field.default is not MISSING:
            names[f"_default_{field.name}"] = field.default
        parameters.append(field.name if field.default is MISSING else f"{field.name}=_default_{field.name}")
        lines.append(f"    self.{field.name} = {field.name}")
    source = "\n".join(
        [f"def __new__({', '.join(parameters)}):", *lines, "    self.__class__ = cls", "    return self"]
    )
    exec(source, names)  # noqa: S102  # as dataclasses does it: all that varies in it are the names of a class's fields
    made: Any = names["__new__"]
    made.__annotations__ = found.__init__.__annotations__
    made.__qualname__ = f"{cls.__qualname__}.__new__"
    found.__new__ = made
    found.__reduce__ = _as_it_was_made
    del found.__init__
    return cls


def _as_it_was_made(self: Any) -> tuple[type, tuple[object, ...]]:
    """How copies are made: what is made of nothing cannot be filled later."""
    return type(self), tuple(getattr(self, field.name) for field in fields(self))

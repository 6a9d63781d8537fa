"""Frozen dataclasses that are made at every request: an `__init__` that takes half the time of the generated one."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


def quick(cls: type[T]) -> type[T]:
    """Give a frozen dataclass with slots an `__init__` of the same signature, which fills the slots themselves.

    The generated one asks `object.__setattr__` to find each slot by its name. Raises TypeError for a class that does
    more when it is made.
    """
    found: Any = cls
    if hasattr(cls, "__post_init__") or "__dict__" in dir(cls):
        raise TypeError(f"{cls.__name__} does more than to fill its slots")
    names: dict[str, object] = {}
    parameters, lines = ["self"], []
    for field in fields(found):
        if field.default_factory is not MISSING or not field.init or field.kw_only:
            raise TypeError(f"{cls.__name__}.{field.name} is not a plain field")
        names[f"_set_{field.name}"] = found.__dict__[field.name].__set__
        if field.default is not MISSING:
            names[f"_default_{field.name}"] = field.default
        parameters.append(field.name if field.default is MISSING else f"{field.name}=_default_{field.name}")
        lines.append(f"    _set_{field.name}(self, {field.name})")
    source = "\n".join([f"def __init__({', '.join(parameters)}):", *lines])
    exec(source, names)  # noqa: S102  # as dataclasses does it: all that varies in it are the names of a class's fields
    made: Any = names["__init__"]
    made.__annotations__ = found.__init__.__annotations__
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    found.__init__ = made
    return cls

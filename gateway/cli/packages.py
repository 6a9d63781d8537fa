"""Imports large packages without the parts that the gateway does not use; those are loaded when a name of theirs is."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final

ON_DEMAND: Final = frozenset(
    {
        "mcp",  # the client, the command line, the high-level server
        "mcp.server",
        "mcp.types",
        "sqlalchemy.ext.asyncio",  # the object-relational mapper
    }
)
"""Packages whose `__init__` imports far more than the gateway uses: it runs once a name is used that it defines."""

DEFERRED: Final = frozenset({"mcp_types", "mcp_types.methods"})
"""Packages with some five hundred models of pydantic: the validator of each is built at its first use."""


def import_on_demand() -> None:
    """Import these packages so from now on, in this process. Plugins notice no difference."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ON_DEMAND and fullname not in DEFERRED:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            make = _OnDemand if fullname in ON_DEMAND else _Deferring
            found.loader = make(fullname, found.loader.path)
        return found


class _OnDemand(SourceFileLoader):
    """Loads a package without running it, and runs it later."""

    def __init__(self, fullname: str, path: str) -> None:
        super().__init__(fullname, path)
        self._lock = RLock()
        self._ran = False

    def exec_module(self, module: ModuleType) -> None:
        def get(name: str) -> Any:  # PEP 562
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            if find_spec(f"{module.__name__}.{name}") is not None:
                return import_module(f"{module.__name__}.{name}")
            self._run(module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = get

    def _run(self, module: ModuleType) -> None:
        with self._lock:
            if not self._ran:
                self._ran = True
                module.__dict__.pop("__getattr__", None)
                super().exec_module(module)


class _Deferring(SourceFileLoader):
    """Loads a module whose models are complete at their first use."""

    def exec_module(self, module: ModuleType) -> None:
        with _deferred_models():
            super().exec_module(module)


@contextmanager
def _deferred_models() -> Iterator[None]:
    """Let pydantic build what is defined in the block later (`defer_build` of its ConfigDict)."""
    import pydantic  # noqa: PLC0415  only where a package with models is loaded

    inherited = pydantic.BaseModel.model_config
    pydantic.BaseModel.model_config = pydantic.ConfigDict(defer_build=True)
    try:
        yield
    finally:
        pydantic.BaseModel.model_config = inherited

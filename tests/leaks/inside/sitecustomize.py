"""Taps a gateway that tests start in a separate process: Python runs this module before the program."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.leaks.watch import FOLDER, TAPS, Watch


def _tap(stream: Any, kind: str) -> None:
    """Scan the program's output."""
    write = stream.write

    def writing(text: str) -> Any:
        TAPS.watch.look(kind, text.encode("utf-8", "backslashreplace"))
        return write(text)

    stream.write = writing


class _Gateway(MetaPathFinder):
    """Waits for a gateway: most programs that tests start are none, and loading the taps takes seconds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Tap the gateway as soon as it is loaded."""
        if fullname != "gateway.app":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        assert spec is not None
        assert spec.loader is not None
        _then(spec.loader, lambda: import_module("tests.leaks.alone").install())
        return spec


def _then(loader: Loader, more: Callable[[], None]) -> None:
    exec_module = loader.exec_module

    def loading(module: ModuleType) -> None:
        exec_module(module)
        more()

    loader.exec_module = loading  # type: ignore[method-assign]  # the same, and more


if FOLDER in os.environ:
    TAPS.watch = Watch(Path(os.environ[FOLDER]))
    _tap(sys.stdout, "standard output")
    _tap(sys.stderr, "standard error")
    sys.meta_path.insert(0, _Gateway())

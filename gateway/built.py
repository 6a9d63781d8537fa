"""The browser files of the build that the gateway itself reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path

from gateway.apps import PARTS, STORAGE_PART, UNGUESSED, with_parts
from gateway.errors import StartError

RUNTIME = "view/runtime.js"


@dataclass(frozen=True, slots=True)
class Built:
    """Their folder, and the scripts packed into pages: the view runtime, its parts by name, its storage."""

    folder: Path
    runtime: str
    parts: Mapping[str, Collection[str]]
    storage: str

    @property
    def everything(self) -> str:
        """The runtime with its parts, for pages whose source is not scanned for the names of parts."""
        parts = [part for word, several in self.parts.items() if word not in UNGUESSED for part in several]
        return with_parts(self.runtime, parts, self.parts)


def built() -> Built:
    """Read the browser files. Raises `StartError` if they are not built."""
    folder = Path(str(files("gateway"))) / "static"
    if not all((folder / name).is_file() for name in (RUNTIME, STORAGE_PART, *chain(*PARTS.values()))):
        raise StartError("The browser files are not built: install with `pip install .`, which builds them.")
    return Built(
        folder,
        (folder / RUNTIME).read_text("utf-8"),
        {word: [(folder / name).read_text("utf-8") for name in names] for word, names in PARTS.items()},
        (folder / STORAGE_PART).read_text("utf-8"),
    )

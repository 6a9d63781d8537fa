"""The browser files that the build has written, as far as the gateway itself reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from gateway.apps import PARTS, STORAGE_PART, WAITS
from gateway.errors import StartError

RUNTIME = "view/runtime.js"


@dataclass(frozen=True, slots=True)
class Built:
    """Their folder, and the scripts that pages are packed with: the view runtime, its parts by name, its storage."""

    folder: Path
    runtime: str
    parts: Mapping[str, str]
    storage: str

    @property
    def everything(self) -> str:
        """The runtime with its parts, for pages of which nobody knows what they name."""
        return ";".join(dict.fromkeys([self.runtime, *(part for word, part in self.parts.items() if word != WAITS)]))


def built() -> Built:
    """What is there. Raises `StartError` where it was not built."""
    folder = Path(str(files("gateway"))) / "static"
    if not all((folder / name).is_file() for name in (RUNTIME, STORAGE_PART, *PARTS.values())):
        raise StartError("The browser files are not built: install with `pip install .`, which builds them.")
    return Built(
        folder,
        (folder / RUNTIME).read_text("utf-8"),
        {word: (folder / name).read_text("utf-8") for word, name in PARTS.items()},
        (folder / STORAGE_PART).read_text("utf-8"),
    )

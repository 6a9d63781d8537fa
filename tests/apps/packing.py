"""Packs the files of a test, and lists the problems."""

import re
from pathlib import Path

from gateway.apps import pack
from gateway.model import Resource

RUNTIME = 'console.log("runtime")'
PIXEL = b"\x89PNG\r\n\x1a\n"
PIXEL_URL = "data:image/png;base64,iVBORw0KGgo="


def write(folder: Path, **files: str | bytes) -> Path:
    """Write files by name; `__` is a dot, `_of_` a slash."""
    for name, content in files.items():
        path = folder / name.replace("_of_", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def pack_files(folder: Path, **files: str | bytes) -> Resource:
    """The packed app of these files."""
    return pack(write(folder, **files), app="cart", title="The cart", runtime=RUNTIME)


def body(resource: Resource) -> str:
    """The HTML without the packer's additions to the head."""
    return re.sub(r'<meta name="webmcp-gateway".*?</script>', "", resource.html, count=1, flags=re.DOTALL)


def problems(folder: Path, **files: str | bytes) -> list[str]:
    """The warnings of the packer about what it left out, with file names relative to the folder."""
    return [str(problem).removeprefix(f"{folder}/") for problem in pack_files(folder, **files).warnings]

"""The folder of the configuration, and the folder of everything that the gateway writes."""

from __future__ import annotations

import os
from pathlib import Path

from gateway.config.secrets import config_text
from gateway.documents import Report, Section, load
from gateway.errors import DocumentError

KUBERNETES_DATA = "..data"
"""The symbolic link in a volume of a ConfigMap or Secret, which the kubelet swaps at each change (AtomicWriter)."""


def real_path(path: Path) -> Path:
    """Return the absolute path of gateway.yaml behind all symbolic links.

    In a Kubernetes volume that is the file's place in the volume: the folder behind the links is replaced at each
    change.
    """
    if (path.parent / KUBERNETES_DATA).is_symlink():
        return Path(os.path.realpath(path.parent)) / path.name
    return Path(os.path.realpath(path))


def read_state_dir(server: Section, folder: Path) -> Path | None:
    """Read `server.state_dir`, relative to `folder`; None if it is not set."""
    if server.get("state_dir") is None:
        return None
    state = Path(os.path.abspath(folder / server.text("state_dir")))
    if state.exists() and not state.is_dir():
        server.problem(f"{state} is not a folder", "state_dir")
    elif not state.parent.is_dir():
        server.problem(f"there is no folder {state.parent}", "state_dir")
    return state


def state_folder(path: Path) -> Path:
    """Return the state folder of the configuration in `path`; its own folder if it cannot be read."""
    folder = real_path(path).parent
    try:
        root = Report([]).section(load(config_text(path), str(path)))
        return read_state_dir(root.section("server"), folder) or folder
    except DocumentError:
        return folder

"""The wheel holds every file that the gateway reads when it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_every_built_file(tmp_path: Path) -> None:
    """Everything under gateway/static is in the wheel; npm is replaced by a program that builds nothing anew."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "npm").write_text("#!/bin/sh\n", "utf-8")
    (programs / "npm").chmod(0o755)
    environment = {**os.environ, "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.defpath))}
    assert shutil.which("npm", path=environment["PATH"]) == str(programs / "npm")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "built"],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "built").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    built = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gateway" / "static").rglob("*") if path.is_file()}
    assert len(built) > 30
    assert not built - packed

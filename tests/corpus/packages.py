"""Downloads the packages of the corpus from their registries, as pinned in lock.txt."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).with_name("lock.txt")
SERVERS = Path(__file__).with_name("servers.txt")
"""What servers need beside themselves, for pip."""

CACHE = Path(__file__).parents[2] / ".corpus"
"""Where packages are kept; git ignores it, and `make clean` removes it."""


@dataclass(frozen=True, slots=True)
class Package:
    """A line of the lock file: a package of npm or PyPI, without its dependencies."""

    registry: str
    name: str
    version: str
    hash: str
    """`sha512-…` in base64, as npm writes it."""

    @property
    def folder(self) -> Path:
        """Where it is unpacked."""
        return CACHE / f"{self.registry}-{self.name.replace('/', '+')}-{self.version}"

    @property
    def requirement(self) -> str:
        """The package as its registry's client expects it."""
        return f"{self.name}@{self.version}" if self.registry == "npm" else f"{self.name}=={self.version}"


def read_lock(text: str) -> dict[str, Package]:
    """Return the packages by their names."""
    packages = [Package(*line.split()) for line in text.splitlines() if line and not line.startswith("#")]
    return {package.name: package for package in packages}


def locked() -> dict[str, Package]:
    """Return the packages of the lock file."""
    return read_lock(LOCK.read_text("utf-8"))


def install(names: Iterable[str]) -> None:
    """Download, verify and unpack these packages, unless they are there."""
    packages = locked()
    missing = [packages[name] for name in sorted(set(names)) if not packages[name].folder.is_dir()]
    archives = CACHE / f"archives-{os.getpid()}"
    archives.mkdir(parents=True, exist_ok=True)
    try:
        for registry in ("npm", "pypi"):
            for package, archive in _download(registry, [one for one in missing if one.registry == registry], archives):
                _verify(package, archive)
                _unpack(archive, package.folder)
    finally:
        shutil.rmtree(archives)


def install_servers() -> Path:
    """Install what servers need into a folder of their own, unless it is there, and return the folder."""
    place = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = CACHE / f"servers-{hashlib.sha256(SERVERS.read_bytes()).hexdigest()[:12]}-{place}"
    if not folder.is_dir():
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        wanted = ["--require-hashes", "--only-binary", ":all:", "--target", str(part), "--requirement", str(SERVERS)]
        subprocess.run([*pip, *wanted], check=True)
        _move(part, folder)
    return folder


def _download(registry: str, packages: list[Package], folder: Path) -> list[tuple[Package, Path]]:
    if not packages:
        return []
    wanted = [package.requirement for package in packages]
    if registry == "npm":
        command = ["npm", "pack", "--json", "--silent", "--ignore-scripts", "--pack-destination", str(folder), *wanted]
        listed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout)
        entries = listed.values() if isinstance(listed, dict) else listed
        files = {entry["name"]: folder / entry["filename"] for entry in entries}
        return [(package, files[package.name]) for package in packages]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    found = []
    for package, requirement in zip(packages, wanted, strict=True):
        target = folder / package.name
        subprocess.run([*pip, "--only-binary", ":all:", "--dest", str(target), requirement], check=True)
        found.append((package, next(target.iterdir())))
    return found


def hash_of(archive: Path) -> str:
    """Return the archive's hash in the form of the lock file."""
    return "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()


def _verify(package: Package, archive: Path) -> None:
    if hash_of(archive) != package.hash:
        raise SystemExit(
            f"{package.requirement} of {package.registry} has the hash {hash_of(archive)}, not {package.hash}"
        )


def _unpack(archive: Path, folder: Path) -> None:
    part = folder.with_name(f"{folder.name}.{os.getpid()}")
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(part)
    else:
        with tarfile.open(archive) as packed_tar:
            packed_tar.extractall(part, filter="data")
        inner = next(part.iterdir())  # "package", but for a few
        for file in inner.iterdir():
            file.rename(part / f"{file.name}.moved")
        inner.rmdir() if not any(inner.iterdir()) else None
        for file in list(part.iterdir()):
            file.rename(part / file.name.removesuffix(".moved"))
    _move(part, folder)


def _move(part: Path, folder: Path) -> None:
    try:
        part.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(part)

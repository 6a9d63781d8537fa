"""The size of the view runtime, which is part of every packed app."""

import gzip
import re

from gateway.doors.assets import read_built
from tests.browser.runtime_host import ROOT, RUNTIME

LIMIT = 20_000


def test_the_runtime_is_small() -> None:
    """Its gzipped size in bytes is limited; code for some pages only is in separate parts."""
    size = len(gzip.compress(RUNTIME.read_bytes(), 9, mtime=0))
    assert size <= LIMIT, f"{size:,} bytes; `node build.ts view` in browser/ makes it"


def test_nothing_of_others_is_inside() -> None:
    """Each of its modules imports only modules of the runtime."""
    view = ROOT / "browser/src/view"
    modules = [path for path in view.rglob("*.ts") if not path.name.endswith(".test.ts")]
    imported = re.compile(r"""(?:\bfrom|\bimport|\brequire\()\s*\(?\s*["']([^"']+)["']""")
    found = [(path, name) for path in modules for name in imported.findall(path.read_text("utf-8"))]
    assert len(found) > len(modules)
    own = [view in (path.parent / name).resolve().parents for path, name in found if name.startswith(".")]
    assert own == [True] * len(found)


def test_its_scripts_are_ascii() -> None:
    """A page without a declared encoding is not read as UTF-8, and they are in its text."""
    found = read_built()
    assert found.everything.isascii()
    assert found.storage.isascii()
    assert all(script.isascii() for several in found.parts.values() for script in several)

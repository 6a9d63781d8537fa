"""The size of the view runtime, which is part of every packed app."""

import gzip
import re

from tests.browser.runtime_host import ROOT, RUNTIME

LIMIT = 20_000


def test_the_runtime_is_small() -> None:
    """Its gzipped size in bytes is limited; code for some pages only is in separate parts."""
    size = len(gzip.compress(RUNTIME.read_bytes(), 9, mtime=0))
    assert size <= LIMIT, f"{size:,} bytes; `node build.ts view` in browser/ makes it"


def test_nothing_of_others_is_inside() -> None:
    """Each of its modules imports only modules of this project."""
    modules = [path for path in (ROOT / "browser/src/view").rglob("*.ts") if not path.name.endswith(".test.ts")]
    imported = re.compile(r"""(?:\bfrom|\bimport|\brequire\()\s*\(?\s*["']([^"']+)["']""")
    found = [name for path in modules for name in imported.findall(path.read_text("utf-8"))]
    assert len(found) > len(modules)
    assert [name for name in found if not name.startswith("./")] == []

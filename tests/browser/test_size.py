"""How large the view runtime is, which stands in every packed app."""

import gzip
import re

from tests.browser.runtime_host import ROOT, RUNTIME

LIMIT = 20_000


def test_the_runtime_is_small() -> None:
    """In bytes, packed as servers pack it; what only some pages need is a part of its own."""
    size = len(gzip.compress(RUNTIME.read_bytes(), 9, mtime=0))
    assert size <= LIMIT, f"{size:,} bytes; `node build.ts view` in browser/ makes it"


def test_nothing_of_others_is_inside() -> None:
    """Each of its modules imports its own alone."""
    modules = [path for path in (ROOT / "browser/src/view").rglob("*.ts") if not path.name.endswith(".test.ts")]
    imported = re.compile(r"""(?:\bfrom|\bimport|\brequire\()\s*\(?\s*["']([^"']+)["']""")
    found = [name for path in modules for name in imported.findall(path.read_text("utf-8"))]
    assert len(found) > len(modules)
    assert [name for name in found if not name.startswith("./")] == []

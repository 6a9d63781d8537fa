"""How large the view runtime is, which stands in every packed app."""

import gzip

from tests.browser.runtime_host import RUNTIME

LIMIT = 20_000


def test_the_runtime_is_small() -> None:
    """In bytes, packed as servers pack it; what only some pages need is a part of its own."""
    size = len(gzip.compress(RUNTIME.read_bytes(), 9, mtime=0))
    assert size <= LIMIT, f"{size:,} bytes; `npx vite build --mode view` prints what it made"

"""Bodies in the content coding zstd (RFC 8878), for tests of decoders."""

from __future__ import annotations

import sys
from typing import Final

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SKIPPED: Final = b"\x50\x2a\x4d\x18\x03\0\0\0abc"
"""A skippable frame, which adds nothing to the body (RFC 8878 3.1.2)."""


def zstd_of(data: bytes, **parameters: int) -> bytes:
    """One frame, written with these parameters of the library (`window_log=23`)."""
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter[name]: to for name, to in parameters.items()})
    return packer.compress(data) + packer.flush()

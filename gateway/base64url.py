"""Base64url encoding of bytes, for URLs and file names."""

from binascii import b2a_base64
from typing import Final

_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def base64url(value: bytes) -> str:
    """Base64url without padding (RFC 4648, section 5)."""
    return b2a_base64(value, newline=False).translate(_SAFE).rstrip(b"=").decode("ascii")

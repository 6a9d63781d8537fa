"""Digests of secrets, and their comparison in constant time, for any string.

The string may have no encoding: headers that are not UTF-8, JSON with a lone surrogate.
"""

from __future__ import annotations

import hashlib
import hmac


def equals_secret(given: str, known: str) -> bool:
    """Return whether `given` equals the secret `known`, in constant time."""
    return hmac.compare_digest(_raw(given), _raw(known))


def digest(shown: str) -> bytes:
    """Return the stored form of a secret: 128 random bits or more need no salt or slow hash."""
    return hashlib.sha256(_raw(shown)).digest()


def framed(*parts: str | bytes) -> bytes:
    """Join parts with their lengths, so that different lists of parts have different bytes."""
    return b"".join(
        b"%d:%b" % (len(data), data) for data in (part if isinstance(part, bytes) else _raw(part) for part in parts)
    )


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

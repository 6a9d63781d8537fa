"""What a caller shows to prove something: compared, and kept as a digest, whatever text it is.

It may have no encoding: headers that are not UTF-8, JSON with half a character.
"""

from __future__ import annotations

import hashlib
import hmac


def shows(given: str, known: str) -> bool:
    """Whether `given` is the secret `known`, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(_raw(given), _raw(known))


def digest(shown: str) -> bytes:
    """What is kept of a secret: with its 128 random bits or more, a plain hash cannot be turned back."""
    return hashlib.sha256(_raw(shown)).digest()


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

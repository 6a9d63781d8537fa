"""JSON without white space, by one encoder for all values: the library makes that in C anew for each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder as library


def writer(*, ensure_ascii: bool) -> Callable[[object], str]:
    """Writes values without cycles. Raises ValueError, TypeError and RecursionError for what is no JSON."""
    made = json.JSONEncoder(ensure_ascii=ensure_ascii, separators=(",", ":"), allow_nan=False, check_circular=False)
    make = getattr(library, "c_make_encoder", None)
    if make is None:  # a Python whose library has none
        return made.encode
    text = library.encode_basestring_ascii if ensure_ascii else library.encode_basestring
    pieces = make(None, made.default, text, None, ":", ",", False, False, False)
    return lambda value: "".join(pieces(value, 0))

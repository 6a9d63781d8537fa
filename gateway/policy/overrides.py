"""The `_method` parameter, by which some servers take another method than the one that was sent."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import unquote_plus

from gateway.model import Headers

NAME: Final = "_method"

_FORM_FIELD = re.compile(rb"\bname\s*=\s*(?:\"_method\"|'_method'|_method\b)", re.IGNORECASE)


def method_override(query: str, headers: Headers, body: bytes) -> str | None:
    """Where a `_method` parameter stands (`query`, `form` or `JSON body`), None where there is none."""
    if query and _names(query):
        return "query"
    media_type = next((value for name, value in headers if name == "content-type"), "").split(";")[0].strip().lower()
    if media_type == "application/json" or media_type.endswith("+json"):
        return "JSON body" if _mentions(body, b"\\u") and _in_json(body) else None
    if media_type == "multipart/form-data":
        return "form" if _FORM_FIELD.search(body) else None
    if media_type in ("application/x-www-form-urlencoded", ""):
        return "form" if _mentions(body, b"%") and _names(body.decode(errors="replace")) else None
    return None


def _mentions(body: bytes, escape: bytes) -> bool:
    return b"_method" in body or escape in body


def _names(text: str) -> bool:
    return any(unquote_plus(part.partition("=")[0]) == NAME for part in re.split("[&;]", text))


def _in_json(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and NAME in value

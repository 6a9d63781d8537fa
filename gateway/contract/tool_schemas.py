"""Input and output schema of the tool `http_request` (JSON Schema 2020-12)."""

from __future__ import annotations

from typing import Final

from gateway.contract.arguments import CREDENTIALS, METHODS
from gateway.model import BodyType, Json, Redirect

_BODY_TYPES: Final[list[Json]] = [kind.value for kind in BodyType]
_STRINGS: Final[dict[str, Json]] = {"type": "object", "additionalProperties": {"type": "string"}}

INPUT_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "url": {"type": "string", "description": "Path and query, such as /api/cart?page=1."},
        "method": {"type": "string", "default": "GET", "description": f"One of {', '.join(METHODS)}."},
        "headers": {**_STRINGS, "description": "Header fields; names are case-insensitive."},
        "body": {"description": "As bodyType says."},
        "bodyType": {"type": "string", "enum": _BODY_TYPES, "description": "How the body is written."},
        "redirect": {"type": "string", "enum": [kind.value for kind in Redirect], "default": "follow"},
        "cache": {"type": "string", "description": "As in Fetch; advisory."},
        "credentials": {"type": "string", "enum": [*CREDENTIALS]},
        "timeoutMs": {"type": "integer", "minimum": 1, "description": "Lowers the timeout, never raises it."},
        "stream": {"type": "boolean", "description": "Ask for the body in parts."},
        "_view": {"type": "string", "description": "The proof of a view that it makes the call itself."},
        "_initiator": {"const": "model", "description": "The view says that a model made it do this."},
        "_gesture": {"type": "integer", "description": "The view says how many milliseconds ago a person acted in it."},
    },
    "required": ["url"],
}

OUTPUT_SCHEMA: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "status": {"type": "integer", "minimum": 200, "maximum": 599},
        "statusText": {"type": "string"},
        "url": {"type": "string", "description": "Relative to the app."},
        "ok": {"type": "boolean"},
        "redirected": {"type": "boolean"},
        "headers": {**_STRINGS},
        "bodyType": {"type": "string", "enum": _BODY_TYPES},
        "body": {"description": "As bodyType says; absent with none."},
        "stream": {"type": "string", "description": "The id under which http_stream gives the next parts."},
    },
    "required": ["status", "statusText", "url", "ok", "redirected", "headers", "bodyType"],
}

"""Every key of a policy file with its values, as a JSON Schema for editors.

The parser checks more (paths, URLs, conditions); a test compares the names here with the parser's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gateway.model import Initiator, Json
from gateway.policy.obligations import QUOTA, RATE, AppAuthorization, Cookies, Redirects
from gateway.policy.rules import METHODS

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Final[Json] = {"type": "string", "minLength": 1}
_FLAG: Final[Json] = {"type": "boolean"}
_OBJECT: Final[Json] = {"type": "object"}
_DURATION: Final[Json] = {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,6})?(ms|s|m|h|d)$"}
_SIZE: Final[Json] = {"type": "string", "pattern": "^[0-9]{1,12}(B|kB|KB|MB|GB|KiB|MiB|GiB)$"}
_CONDITION: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 1024}
_TEXTS: Final[Json] = {"type": "array", "items": _TEXT}
_METHODS: Final[Json] = [*sorted(METHODS)]
_SNAPSHOT: Final[Json] = {"anyOf": [_FLAG, {"type": "array", "items": {"type": "string", "pattern": "^/"}}]}
_WORDS: Final[Json] = [str(one) for one in ("always", *Initiator)]


def _several(one: Json) -> Json:
    return {"anyOf": [one, {"type": "array", "items": one}]}


def _of(name: str) -> Json:
    return {"$ref": f"#/$defs/{name}"}


def _each(name: str) -> Json:
    return {"type": "object", "additionalProperties": _of(name)}


def _list(name: str) -> Json:
    return {"type": "array", "items": _of(name)}


_RATES: Final = _several({"type": "string", "pattern": f"^{RATE.pattern}$"})
_QUOTAS: Final = _several({"type": "string", "pattern": f"^{QUOTA.pattern}$"})

Keys = Mapping[str, tuple[Json, str]]
"""The schema of each key's value, and one line of help."""

_LIMITS: Final[Keys] = {
    "timeout": (_DURATION, "How long the backend may take, such as 10s."),
    "request": (_SIZE, "The largest body of a request, such as 1MiB."),
    "response": (_SIZE, "The largest body of an answer, after decompression."),
    "rate": (_RATES, "At most so many in a while, such as 30/minute per principal."),
    "quota": (_QUOTAS, "At most so many in a calendar window in UTC, such as 20/day per principal."),
}
_SOCKET: Final[Json] = {"anyOf": [_FLAG, _of("websocket")]}
_CONFIRM: Final[Json] = {"anyOf": [{"const": "always"}, _of("confirm")]}

KEYS: Final[Mapping[str, Keys]] = {
    "policy": {
        "version": ({"const": 1}, "The version of this format."),
        "include": (_TEXTS, "Files with parts of this policy, relative to this one."),
        "backends": (_each("backend"), "Where requests go, by names of your own."),
        "limits": (_of("limits"), "The limits of every route that sets none itself."),
        "routes": (_list("route"), "Allowed requests: the first route that matches path and method decides."),
        "responses": (_of("responses"), "What of an answer reaches the app."),
        "tools": (_each("tool"), "WebMCP tools of the page that models may call, by the page's names."),
        "links": (_of("links"), "What an app may ask to open in the browser."),
        "frames": (_TEXTS, "Origins of other sites whose pages an app may show in frames."),
        "external": (_of("external"), "What the page may load from other sites by itself, past the gateway."),
        "mode": ({"anyOf": [{"const": "enforce"}, _of("mode")]}, "Enforce, or report for a while."),
        "tests": (_list("test"), "The expected decisions of this policy."),
    },
    "backend": {
        "type": (_TEXT, "http, asgi, or a type that a plugin registers."),
        "url": (_TEXT, "The http or https URL before every path."),
        "credential": (_TEXT, "The credential of gateway.yaml that is attached to each request."),
        "origins": (_TEXTS, "Origins of absolute URLs that mean this backend."),
        "network": (_several(_TEXT), "public, private, or blocks of addresses that may be connected to."),
        "authorities": (_TEXT, "A file of certificate authorities trusted there, besides the system's."),
        "cookies": ({"enum": [str(one) for one in Cookies]}, "Whether the backend's cookies are kept for the caller."),
        "authorization": (
            {"enum": [str(one) for one in AppAuthorization]},
            "What becomes of the Authorization field that a page sets: dropped, passed on, or kept in the vault.",
        ),
        "retry": (_of("retry"), "When a request is sent again."),
        "circuit": (_of("circuit"), "When the backend is left alone."),
        "trace": ({"type": "boolean"}, "Whether the trace is sent to the backend, in the header traceparent."),
    },
    "retry": {
        "attempts": ({"type": "integer", "minimum": 2, "maximum": 5}, "How often in all."),
        "on": ({"type": "array", "items": {"type": ["string", "integer"]}}, "Statuses and reasons that are worth it."),
        "backoff": (_DURATION, "The first pause; each further one is twice as long."),
    },
    "circuit": {
        "failures": ({"type": "integer", "minimum": 1, "maximum": 1000}, "So many in a row open it."),
        "reset": (_DURATION, "After this time one request tries again."),
    },
    "limits": _LIMITS,
    "route": {
        "path": ({"type": "string", "pattern": "^/"}, "Whole segments; {name} for one, ** at the end for any number."),
        "methods": ({"type": "array", "minItems": 1, "items": {"enum": _METHODS}}, "The methods it is about."),
        "backend": (_TEXT, "The backend, if there are several."),
        "deny": (_TEXT, "Refuse, with this reason."),
        "when": (_CONDITION, "A condition in CEL; only true allows."),
        "body": (_of("body"), "What the body must be."),
        "confirm": (_CONFIRM, "Whose calls a person is asked about first."),
        **_LIMITS,
        "idempotent": (_FLAG, "Send an Idempotency-Key, so that every method may be sent again."),
        "redirects": ({"enum": [str(one) for one in Redirects]}, "Which redirects are followed."),
        "stream": (_FLAG, "Stream the response to the app as it arrives."),
        "vault": (_TEXTS, "JSON paths of tokens in the answer, for which the page gets handles; needs such a backend."),
        "secret": (_FLAG, "The body is reported to no model, and shown to no person."),
        "websocket": (_SOCKET, "Whether the route carries WebSockets: true, or their rules."),
        "snapshot": (_SNAPSHOT, "Put the answer into the page, for hosts that carry no requests: true, or URLs."),
    },
    "websocket": {
        "protocols": (_TEXTS, "The subprotocols that a page may ask for, at least one of them."),
        "message": (_SIZE, "The largest message in either direction, 1MiB by default, at most 16MiB."),
        "rate": (_RATES, "At most so many messages of the page in a while; further ones wait."),
        "model": ({"enum": ["deny", "allow"]}, "Whether messages may be sent while the page acts for the model."),
    },
    "body": {"schema": (_TEXT, "A file with a JSON Schema, beside this one.")},
    "confirm": {
        "when": (_several({"enum": _WORDS}), "Whose calls: always, or those of a person, page or model."),
        "message": (_TEXT, "The question; {params.name}, {request.body.name} and others are filled in."),
        "grant": (_DURATION, "How long a person may allow all calls under this rule at once, at most 8h."),
        "timeout": (_DURATION, "How long the question stays open, at most 1h; by default `approvals.timeout`."),
    },
    "responses": {
        "headers": (_TEXTS, "The headers that an app may see."),
        "mask": (_TEXTS, "JSON paths of values that no app may see."),
    },
    "tool": {
        "deny": (_TEXT, "Refuse, with this reason."),
        "confirm": (_CONFIRM, "Whose calls a person is asked about first."),
        "rate": _LIMITS["rate"],
        "quota": _LIMITS["quota"],
        "when": (_CONDITION, "A condition in CEL over the arguments; only true allows."),
        "description": (_TEXT, "What models read instead of the page's own description."),
        "pin": (
            {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"},
            "Hold it back where the page changed it.",
        ),
        "timeout": (_DURATION, "How long a call may take, such as 2m; 30s without it."),
    },
    "links": {
        "allow": (_TEXTS, "Origins with paths, such as https://shop.example.com/**."),
        "confirm": (_CONFIRM, "Whose links a person is asked about first."),
    },
    "external": {
        "fonts": (_TEXTS, "Origins of fonts, such as https://fonts.gstatic.com."),
        "images": (_TEXTS, "Origins of pictures, films and sounds."),
        "styles": (_TEXTS, "Origins of style sheets."),
        "scripts": (_list("external_script"), "Scripts, each with its digest."),
        "connect": (_TEXTS, "Origins that scripts of the page may send requests to."),
    },
    "external_script": {
        "url": ({"type": "string", "pattern": "^https?://"}, "Its whole URL."),
        "integrity": (
            {"type": "string", "pattern": "^sha(256|384|512)-[A-Za-z0-9+/=]+$"},
            "The digest that it must have, as in the attribute of that name.",
        ),
    },
    "mode": {"report": (_of("report"), "Let through what no rule allows, and write it down.")},
    "report": {"until": ({"type": "string", "format": "date"}, "The last day, at most 30 days away.")},
    "test": {
        "request": ({"type": "string", "pattern": "^[A-Za-z]+ [^ ]+$"}, "Method and URL; WEBSOCKET opens one."),
        "headers": (_OBJECT, "Headers of the request."),
        "body": (True, "The JSON body of the request."),
        "tool": (_TEXT, "Instead of a request: the page's name of a tool."),
        "arguments": (_OBJECT, "The arguments of the tool."),
        "initiator": ({"enum": [str(one) for one in Initiator]}, "Initiator: the page, or for a tool the model."),
        "as": ({"anyOf": [_TEXT, _of("caller")]}, "Caller: a subject, or a mapping with roles and claims."),
        "expect": ({"enum": ["allow", "deny", "confirm"]}, "The expected decision."),
    },
    "caller": {
        "subject": (_TEXT, "The subject."),
        "roles": (_TEXTS, "The roles."),
        "claims": (_OBJECT, "The claims of the token."),
    },
}
REQUIRED: Final[Mapping[str, list[Json]]] = {
    "policy": ["version"],
    "retry": ["attempts"],
    "circuit": ["failures", "reset"],
    "route": ["path"],
    "body": ["schema"],
    "external_script": ["url", "integrity"],
    "mode": ["report"],
    "report": ["until"],
    "test": ["expect"],
}


def policy_schema() -> dict[str, Json]:
    """Return the JSON Schema (draft 2020-12) of policy files."""
    definitions: dict[str, Json] = {name: _section(name) for name in KEYS if name != "policy"}
    return {"$schema": DIALECT, "title": "A policy of webmcp-gateway", **_section("policy"), "$defs": definitions}


def _section(name: str) -> dict[str, Json]:
    keys = KEYS[name]
    properties: dict[str, Json] = {}
    for key, (value, line) in keys.items():
        properties[key] = {"description": line, **(value if isinstance(value, dict) else {})}
    schema: dict[str, Json] = {"type": "object", "properties": properties, "required": REQUIRED.get(name, [])}
    if name == "backend":
        # Backend types of plugins have further keys.
        name_schema: Json = {"propertyNames": {"enum": list(keys)}, "required": ["url"]}
        return schema | {"if": {"properties": {"type": {"const": "http"}}}, "then": name_schema}
    return schema | {"additionalProperties": False}

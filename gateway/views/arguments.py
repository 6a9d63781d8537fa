"""Validates the arguments of a model's call against the page's schema, with keywords of bounded cost only.

Left to the page: `$ref` and related keywords, patterns, formats, `uniqueItems` and combinations that can multiply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import UnknownType

from gateway.jsontext.portable import DEPTH_LIMIT, sayable

_BOUNDED = (
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)
UNSAYABLE = (
    "arguments: no page can be told of a number too large for JSON, of half a character (a lone surrogate), "
    f"or of values nested deeper than {DEPTH_LIMIT}"
)

_Validator = validators.create(
    meta_schema=Draft202012Validator.META_SCHEMA,
    validators={name: Draft202012Validator.VALIDATORS[name] for name in _BOUNDED},
    type_checker=Draft202012Validator.TYPE_CHECKER,
)


def first_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return the first problem of `arguments`, with its field; None if there is none.

    An invalid schema finds no problem: the page checks for itself.
    """
    try:
        sayable(dict(arguments)).encode()
    except ValueError:
        return UNSAYABLE
    try:
        error = next(iter(_Validator(_without_patterns(schema)).iter_errors(dict(arguments))), None)
    except (UnknownType, TypeError, ValueError, AttributeError, KeyError):
        return None
    if error is None:
        return None
    place = ".".join(map(str, error.absolute_path)) or "arguments"
    return f"{place}: {error.message[:300]}"


def _without_patterns(schema: Any) -> Any:
    # additionalProperties depends on patternProperties, by matching: both are removed if a pattern is given
    if isinstance(schema, list):
        return [_without_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    drop = {"patternProperties", "additionalProperties"} if "patternProperties" in schema else set()
    return {key: _without_patterns(value) for key, value in schema.items() if key not in drop and key != "$ref"}

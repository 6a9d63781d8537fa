"""Schemas of bodies are enforced whole, fetch nothing, and take bounded time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.documents import load
from gateway.errors import DocumentError, Reason
from gateway.model import LOCAL, BodyType, Caller, Door, Effect, Initiator, Json, Request
from gateway.policy import Policy, canonicalise, decide, load_policy
from gateway.policy.schemas import BodySchema, parse_schema


def schema(value: Json) -> BodySchema:
    """Return the schema in a JSON value."""
    return parse_schema(load(json.dumps(value), "s.json"), "s.json")


ORDER = schema(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["total"],
        "additionalProperties": False,
        "properties": {
            "total": {"type": "number", "maximum": 500},
            "code": {"type": "string", "pattern": "^[a-z]{1,5}$"},
            "items": {"type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/item"}},
            "at": {"format": "date-time"},
            "mail": {"format": "email"},
            "kind": {"enum": ["a", 1]},
        },
        "patternProperties": {"^x-": {"type": "string"}},
        "$defs": {"item": {"type": ["integer", "array"], "items": {"$ref": "#/$defs/item"}}},
    }
)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"total": 3}, None),
        ({"total": 3, "code": "abc", "items": [1, [2, [3]]], "at": "2026-01-01T00:00:00.5Z", "x-a": "b"}, None),
        ({"total": 3, "items": [1, True, [1]], "mail": "a@b.example"}, "True is not of type"),
        ({}, "'total' is a required property"),
        ({"total": 501}, "body.total: 501 is greater"),
        ({"total": "3"}, "is not of type 'number'"),
        ({"total": 1, "z": 1}, "'z' is not allowed"),
        ({"total": 1, "x-a": 1}, "is not of type 'string'"),
        ({"total": 1, "code": "abc\n"}, "does not match"),
        ({"total": 1, "items": [1, 2, 1.0]}, "body.items: has an item twice"),
        ({"total": 1, "items": [[1], ["a"]]}, "body.items[1][0]: 'a' is not of type"),
        ({"total": 1, "at": "2026-13-01T00:00:00Z"}, "is not a date-time"),
        ({"total": 1, "mail": "a@b@c"}, "is not a email"),
        ({"total": 1, "kind": True}, "is not one of"),
        ([], "is not of type 'object'"),
        (None, "is not of type 'object'"),
    ],
)
def test_validation(body: Json, why: str | None) -> None:
    """The error names the place that violates the schema."""
    found = ORDER.failure(body)
    assert (found is None) is (why is None)
    if found is not None and why is not None:
        assert why in found.why
        assert found.reason is Reason.POLICY_DENIED


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"$ref": "https://example.com/a.json"}, "$ref leads inside the file alone"),
        ({"$ref": "other.json"}, "$ref leads inside the file alone"),
        ({"allOf": [{"properties": {"a": {"$ref": "file:///etc/passwd"}}}]}, "$ref leads inside the file alone"),
        ({"$ref": "#/$defs/no"}, "leads nowhere"),
        ({"$id": "https://example.com/"}, "$id is not supported"),
        ({"$dynamicRef": "#a"}, "$dynamicRef is not supported"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties is not supported"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#"},
            "write the schema in https://json-schema.org/draft/2020",
        ),
        ({"maxmum": 3}, "maxmum is not a keyword"),
        ({"if": {"requierd": ["a"]}}, "requierd is not a keyword"),
        ({"format": "uri"}, "a format must be one that is checked"),
        ({"pattern": "(?=a)"}, "is refused"),
        ({"pattern": "(.{100}){100}"}, "multiply"),
        ({"patternProperties": {"(a)\\1": {}}}, "is refused"),
        ({"type": "strin"}, "not a JSON Schema"),
        ({"properties": {"a": {"minimum": "x"}}}, "s.json:1:34: not a JSON Schema: 'x' is not of type 'number'"),
        ([1], "must be a mapping"),
    ],
)
def test_refused_at_load(value: Json, message: str) -> None:
    """Unsupported keywords, external references, and schemas of unbounded cost are refused with the place."""
    with pytest.raises(DocumentError) as caught:
        schema(value)
    assert message in str(caught.value)
    assert str(caught.value).startswith("s.json:1:")


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ({"$ref": "#"}, 1),
        ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1),
        ({"anyOf": [{"items": {"anyOf": [{"type": "string"}] * 20}}] * 20}, [1] * 1000),
        ({"items": {"pattern": "^.{1,400}$"}}, ["é" * 300] * 10_000),
        ({"uniqueItems": True}, list(range(50_000))),
    ],
)
def test_dear_validations_end(value: Json, body: Json) -> None:
    """A validation that would take too long is a denial with a separate reason."""
    found = schema(value).failure(body)
    assert found is not None
    assert found.reason is Reason.CONDITION_LIMIT


POLICY = """
version: 1
backends: {shop: {url: https://shop.example.com}}
routes:
  - {path: /checkout, methods: [POST], body: {schema: schemas/checkout.json}, when: request.body.total <= 500}
"""
PAGE = Caller(LOCAL, "cart", Door.BRIDGE, Initiator.PAGE, "", view="v1", proven=True)


def write_policy(folder: Path, text: str, policy: str = POLICY) -> Path:
    """Write a policy with a schema beside it."""
    (folder / "schemas").mkdir(exist_ok=True)
    (folder / "schemas" / "checkout.json").write_text(text)
    (folder / "p.yaml").write_text(policy)
    return folder / "p.yaml"


def checkout(policy: Policy, body: bytes) -> tuple[Effect, str]:
    """Return the decision on a checkout."""
    headers = (("content-type", "application/json"),) if body else ()
    decision = decide(policy, canonicalise(policy, Request("POST", "/checkout", headers, body, BodyType.JSON)), PAGE)
    return decision.effect, decision.reasons[0]


def test_schema_of_a_route(tmp_path: Path) -> None:
    """The schema is checked before the condition, and a body is required."""
    policy = load_policy(
        write_policy(tmp_path, '{\n\t"required": ["total"],\n\t"properties": {"to": {"type": "string"}}}')
    )
    assert checkout(policy, b'{"total": 500}')[0] is Effect.ALLOW
    assert "it is false" in checkout(policy, b'{"total": 501}')[1]
    assert "body.to: 1 is not of type" in checkout(policy, b'{"total": 501, "to": 1}')[1]
    assert "there is no body" in checkout(policy, b"")[1]
    assert policy.sources == (str(tmp_path / "p.yaml"), f"{tmp_path}/schemas/checkout.json")


def test_the_version_follows_the_schema(tmp_path: Path) -> None:
    """An approval is bound to the version: another schema is another policy."""
    first = load_policy(write_policy(tmp_path, "{}")).version
    assert load_policy(write_policy(tmp_path, '{"type": "object"}')).version != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "checkout.json:2:1: not YAML"),
        ('{"type": "object",\n "maxmum": 1}', "schemas/checkout.json:2:12: maxmum is not a keyword"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ('{"title": "' + "x" * 300_000 + '"}', "larger than 256 KiB"),
    ],
)
def test_broken_schema_files(tmp_path: Path, text: str, message: str) -> None:
    """A schema that cannot be parsed is a problem of the policy, with the schema's own line."""
    with pytest.raises(DocumentError) as caught:
        load_policy(write_policy(tmp_path, text))
    assert message in str(caught.value)


def test_schema_files_stay_in_the_folder(tmp_path: Path) -> None:
    """Not even a symbolic link can leave it; a missing file is a problem at its name."""
    (tmp_path / "outside.json").write_text("{}")
    folder = tmp_path / "policies"
    folder.mkdir()
    file = write_policy(folder, "{}")
    (folder / "schemas" / "checkout.json").unlink()
    with pytest.raises(DocumentError, match=r"p\.yaml:5:\d+: schema: .* cannot be read"):
        load_policy(file)
    (folder / "schemas" / "checkout.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(DocumentError, match="outside of the folder"):
        load_policy(file)

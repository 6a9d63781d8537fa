"""Arguments are checked against the schema of an untrusted page."""

import pytest

from gateway.views.tools import first_problem

ITEM = {"type": "object", "properties": {"item_id": {"type": "string"}}, "required": ["item_id"]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({}, "item_id"), ({"item_id": 1}, "item_id"), ({"item_id": None}, "item_id")],
)
def test_a_wrong_field_is_named(arguments: dict[str, object], said: str) -> None:
    """The model can correct its call."""
    assert said in str(first_problem(ITEM, arguments))


def nest(depth: int) -> object:
    """Return nested lists."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), "\ud800", {"\udfff": 1}, [[float("-inf")]], nest(64), nest(5000)]
)
def test_what_no_message_can_carry_is_refused(value: object) -> None:
    """The call could never be sent, and the transport might fail on it."""
    assert "no page can receive" in str(first_problem({"type": "object"}, {"a": value}))


def test_right_arguments_have_no_problem() -> None:
    """No problem is returned."""
    assert first_problem(ITEM, {"item_id": "1"}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}},
        {"type": "object", "patternProperties": {"(a+)+$": {}}, "additionalProperties": False},
        {"type": "object", "$ref": "http://127.0.0.1:1/schema"},
        {"type": "object", "allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"type": "object", "required": 7, "properties": {"a": 3}},
        {"type": "object", "properties": []},
        {"type": {"nonsense": []}},
    ],
)
def test_a_hostile_schema_costs_nothing_and_breaks_nothing(schema: dict[str, object]) -> None:
    """Patterns are not run, references not followed, invalid keywords ignored."""
    first_problem(schema, {"a": "a" * 5000 + "!"})

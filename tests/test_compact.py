"""JSON is written as the library writes it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.compact import writer

VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False, allow_infinity=False) | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)


@given(VALUES, some.booleans())
def test_every_value_is_written_as_the_library_does(value: object, ensure_ascii: bool) -> None:
    """To the last byte."""
    assert writer(ensure_ascii=ensure_ascii)(value) == json.dumps(
        value, ensure_ascii=ensure_ascii, separators=(",", ":")
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [{"a": float("-inf")}], {"a": {1}}, object()])
def test_what_is_no_json_is_refused(value: object) -> None:
    """As the library refuses it."""
    with pytest.raises((ValueError, TypeError)):
        writer(ensure_ascii=True)(value)

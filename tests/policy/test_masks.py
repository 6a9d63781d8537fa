"""JSON paths lead to the values that are hidden, and to no others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model import Json
from gateway.policy.masks import parse_json_path

ORDER: Json = {
    "customer": {"email": "ann@example.com", "card_number": "1"},
    "items": [{"x": 1, "card_number": {"card_number": "2"}}, {"x": 2}, 3],
    "a b": [["p", "q"]],
}


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("$.customer.email", ['"ann@example.com"']),
        ("$.customer", ['{"email": "ann@example.com", "card_number": "1"}']),
        ("$..card_number", ['"1"', '{"card_number": "2"}']),
        ("$.items[*].x", ['"x": 1', '"x": 2']),
        ("$.items[1].x", ['"x": 2']),
        ('$["a b"][0][1]', ['"q"']),
        ("$['a b'][*][*]", ['"p"', '"q"']),
        ("$.customer.*", ['"ann@example.com"', '"1"']),
        ("$..[0]", ['{"x": 1, "card_number": {"card_number": "2"}}', '["p", "q"]']),
        ("$.nothing.here", []),
        ("$.items.x", []),
        ("$.customer[0]", []),
    ],
)
def test_masked(path: str, hidden: list[str]) -> None:
    """The values at a path are masked, the rest stays, and the input is not changed."""
    before = json.dumps(ORDER)
    after = json.dumps(parse_json_path(path).mask(ORDER))
    expected = before
    for text in hidden:
        expected = expected.replace(text, f'{text[:5]}"***"' if text.startswith('"x"') else '"***"')
    assert after == expected
    assert json.dumps(ORDER) == before


@pytest.mark.parametrize(
    "path",
    ["", "$", "a.b", "$.", "$a", "$.a.", "$.a[", "$.a[-1]", "$.a[?@.x]", "$.a[0:2]", "$..a..b", "$" + ".a" * 200],
)
def test_wrong_paths(path: str) -> None:
    """A path with any unknown part is refused."""
    with pytest.raises(ValueError, match="write one such as"):
        parse_json_path(path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
)


@given(_JSON)
def test_nothing_is_left_at_any_depth(value: Json) -> None:
    """After masking, every member of that name is the mask."""
    masked = json.loads(json.dumps(parse_json_path("$..a").mask(value)))
    stack = [masked]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            assert one.get("a", "***") == "***"
            stack += one.values()
        elif isinstance(one, list):
            stack += one


def test_depth_does_not_matter() -> None:
    """An answer nested thousands deep is masked without exhausting the stack."""
    value: Json = {"a": 1}
    for _ in range(5000):
        value = [value]
    found = parse_json_path("$..a").mask(value)
    while isinstance(found, list):
        (found,) = found
    assert found == {"a": "***"}

"""Values in a question to a person cannot disguise it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.messages import MAX_MESSAGE, MAX_VALUE, parse_message, visible


@pytest.mark.parametrize(
    ("text", "values", "filled"),
    [
        ("Remove {params.item}?", ["7"], "Remove 7?"),
        ("{request.method} it", ["PUT"], "PUT it"),
        ("Pay {arguments.total}", [12.5], "Pay 12.5"),
        ("Add {arguments.a.b}", ["x"], "Add x"),
        ("Add {arguments.gone}", [None], "Add (none)"),
        ("Add {arguments.list}", [[1, "é"]], 'Add [1, "é"]'),
        ("Add {arguments.x}", ["{arguments.y}"], "Add {arguments.y}"),
        (
            "Add {arguments.x}",
            ["a\u202etxt\u200b.exe\x1b[31m\n\ny\U000e0041\u2800"],
            "Add a⟨U+202E⟩txt⟨U+200B⟩.exe⟨U+001B⟩[31m  y⟨U+E0041⟩⟨U+2800⟩",
        ),
    ],
)
def test_fill(text: str, values: list[object], filled: str) -> None:
    """Values are inserted as plain visible text, once."""
    assert parse_message(text).fill(values) == filled


@pytest.mark.parametrize("text", ["{", "}", "{}", "{a b}", "{A}", "{a..b}", "{a.}", "{{a}}"])
def test_broken_places(text: str) -> None:
    """A placeholder without a known name is an error in the policy."""
    with pytest.raises(ValueError):
        parse_message(text)


@given(st.text(max_size=2000))
def test_hostile_values(value: str) -> None:
    """No value makes a message long, more than one line, or invisible in part."""
    message = parse_message("Remove {arguments.x} of {arguments.x} now").fill([value, value])
    assert len(message) <= MAX_MESSAGE
    assert message.startswith("Remove ")
    assert message.endswith(" now")
    assert len(message) <= 2 * MAX_VALUE + 20
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in message)


def test_long_values_are_cut() -> None:
    """A long value cannot push the words of the policy out of sight."""
    filled = parse_message("Remove {arguments.x} now").fill(["y" * 5000])
    assert filled == "Remove " + "y" * (MAX_VALUE - 1) + "… now"


def test_letters_of_the_world_stay() -> None:
    """Ordinary text of any script is unchanged."""
    assert visible("Größe 日本語 עברית emoji 🛒") == "Größe 日本語 עברית emoji 🛒"

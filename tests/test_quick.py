"""Quick frozen dataclasses: the same as the usual ones, but for the time that they take."""

import pickle
from copy import copy, deepcopy
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from gateway.quick import quick


@quick
@dataclass(frozen=True, slots=True)
class Point:
    """A class with and without defaults."""

    x: int
    y: int = 2
    name: str = field(default="here", compare=False)


def test_it_is_made_compared_and_copied_as_before() -> None:
    """By position, by name, with defaults."""
    assert Point(1) == Point(x=1, y=2, name="there")
    assert hash(Point(1)) == hash(Point(1, 2))
    assert repr(replace(Point(1), y=5)).endswith("Point(x=1, y=5, name='here')")
    for copied in (copy(Point(1, 3)), deepcopy(Point(1, 3)), pickle.loads(pickle.dumps(Point(1, 3)))):
        assert copied == Point(1, 3)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Point()  # type: ignore[call-arg]


def test_it_stays_frozen() -> None:
    """Nothing of it can be changed."""
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del Point(1).x
    assert type(Point(1)) is Point


def test_a_class_that_does_more_is_refused() -> None:
    """Rather than made without it."""

    @dataclass(frozen=True, slots=True)
    class Listing:
        names: list[str] = field(default_factory=list)

    with pytest.raises(TypeError, match=r"Listing\.names is not a plain field"):
        quick(Listing)

    @dataclass(frozen=True)
    class Open:
        x: int

    with pytest.raises(TypeError, match="Open does more"):
        quick(Open)

"""A view proof is valid exactly once."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.crypto import base64url
from gateway.views.view import WINDOW, ViewKey, split


def signature(key: ViewKey, sequence: str) -> str:
    """Return the signature of a view."""
    secret = base64.urlsafe_b64decode(key.reveal() + "=")
    return base64url(hmac.digest(secret, sequence.encode(), hashlib.sha256))


def test_each_number_is_good_once() -> None:
    """A replay is refused."""
    key = ViewKey()
    assert key.accepts("1", signature(key, "1"))
    assert not key.accepts("1", signature(key, "1"))


def test_calls_may_overtake_each_other_within_the_window() -> None:
    """Older numbers are valid within the window, and not beyond it."""
    key = ViewKey()
    newest = WINDOW + 5
    assert key.accepts(str(newest), signature(key, str(newest)))
    assert key.accepts(str(newest - 1), signature(key, str(newest - 1)))
    assert key.accepts(str(newest - WINDOW + 1), signature(key, str(newest - WINDOW + 1)))
    assert not key.accepts(str(newest - WINDOW), signature(key, str(newest - WINDOW)))


@given(st.lists(st.integers(min_value=1, max_value=400), max_size=300))
def test_no_order_lets_a_number_in_twice(numbers: list[int]) -> None:
    """In any order, an accepted number is never accepted again."""
    key = ViewKey()
    accepted = [number for number in numbers if key.accepts(str(number), signature(key, str(number)))]
    assert len(accepted) == len(set(accepted))


@pytest.mark.parametrize("sequence", ["0", "01", "-1", "+1", "1.0", "", "٣", "9" * 16, "1 "])
def test_odd_numbers_are_refused_even_if_signed(sequence: str) -> None:
    """A number has one spelling."""
    key = ViewKey()
    assert not key.accepts(sequence, signature(key, sequence))


def test_a_wrong_signature_does_not_use_the_number_up() -> None:
    """A forger cannot use up the numbers of a view."""
    key = ViewKey()
    assert not key.accepts("1", signature(ViewKey(), "1"))
    assert key.accepts("1", signature(key, "1"))


@pytest.mark.parametrize("proof", ["", "a.b", "a.1.c.d", "ä.1.c", "a" * 200 + ".1.c"])
def test_a_proof_of_another_shape_is_none(proof: str) -> None:
    """The shape is checked before anything else."""
    assert split(proof) is None

"""The model's names for the tools of pages."""

import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.views.tools import model_name


def test_a_plain_name_is_prefixed_and_kept() -> None:
    """The usual names stay readable."""
    assert model_name("cart", "add_to_cart") == "cart_add_to_cart"


def test_a_changed_name_is_marked() -> None:
    """`a.b` and `a_b` of one page get different names."""
    assert re.fullmatch(r"cart_a_b_[0-9a-f]{6}", model_name("cart", "a.b"))
    assert model_name("cart", "a_b") == "cart_a_b"


@given(st.text(min_size=1, max_size=200))
def test_every_name_suits_every_client(page_name: str) -> None:
    """At most 64 characters of the common alphabet, and stable."""
    name = model_name("cart", page_name)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
    assert name == model_name("cart", page_name)

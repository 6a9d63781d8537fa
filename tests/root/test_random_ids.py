"""Random ids: each drawn once, as many as requested."""

import re

from gateway.crypto import Randomness


def test_nothing_is_drawn_twice() -> None:
    """Also when more random bytes are fetched from the system."""
    randomness = Randomness()
    drawn = [randomness.hex(16) for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert {len(one) for one in drawn} == {32}


def test_ids_are_safe_in_urls() -> None:
    """128 bits in 22 characters."""
    randomness = Randomness()
    drawn = {randomness.id() for _ in range(1000)}
    assert len(drawn) == 1000
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", one) for one in drawn)
    assert any("-" in one or "_" in one for one in drawn)

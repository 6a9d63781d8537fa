"""Ids of live objects: they name their node, and cannot be made up."""

from __future__ import annotations

import os
import re

from hypothesis import given
from hypothesis import strategies as st

from gateway.cluster.ids import LENGTH, ObjectIds, ObjectKind, incarnation
from gateway.crypto import SigningKeys

KEYS = SigningKeys((b"n" * 32, b"o" * 32))
ME = incarnation(os.urandom)
IDS = ObjectIds(KEYS, lambda: ME, os.urandom)


def test_an_id_names_its_node() -> None:
    """Every node with the keys reads it, also during a rotation; it fits where ids of one process do."""
    id = IDS.new(ObjectKind.VIEW)
    assert re.fullmatch(r"[A-Za-z0-9_-]{22,64}", id)
    assert len(id) == LENGTH
    rotated = ObjectIds(SigningKeys((b"x" * 32, b"n" * 32)), lambda: "other", os.urandom)
    assert rotated.incarnation_of(ObjectKind.VIEW, id) == ME


def test_another_kind_or_key_is_refused() -> None:
    """The id of a stream is no id of a view, and one of another cluster none at all."""
    id = IDS.new(ObjectKind.STREAM)
    assert IDS.incarnation_of(ObjectKind.VIEW, id) is None
    foreign = ObjectIds(SigningKeys((b"f" * 32,)), lambda: ME, os.urandom)
    assert IDS.incarnation_of(ObjectKind.VIEW, foreign.new(ObjectKind.VIEW)) is None


@given(st.integers(0, LENGTH - 1), st.sampled_from("Aa0-_ü .\n"))
def test_a_changed_id_is_refused(place: int, letter: str) -> None:
    """Whatever character was changed."""
    id = IDS.new(ObjectKind.VIEW)
    changed = id[:place] + letter + id[place + 1 :]
    assert changed == id or IDS.incarnation_of(ObjectKind.VIEW, changed) is None


@given(st.text(max_size=80))
def test_any_text_is_refused(text: str) -> None:
    """Without an error."""
    assert IDS.incarnation_of(ObjectKind.VIEW, text) is None

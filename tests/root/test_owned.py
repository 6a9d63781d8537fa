"""Values of many owners: an owner over its bound loses its own, and each operation has constant cost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.caches import OwnerCache

OWNERS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(st.sampled_from(["put", "get", "pop"]), OWNERS, st.integers(0, 12)), max_size=80)


def test_who_has_too_many_loses_the_one_that_was_not_used_for_longest() -> None:
    """However many it adds, the values of others stay."""
    kept: OwnerCache[str, int] = OwnerCache(each=2, most=10)
    kept.put("ann", "ann", 1)
    for number in range(100):
        kept.put("eve", f"eve-{number}", number)
        assert kept.get("eve-0") == 0
    assert (len(kept), kept.get("ann"), kept.get("eve-99"), kept.get("eve-98")) == (3, 1, 99, None)


def test_where_all_have_too_many_who_has_most_loses_one() -> None:
    """The newcomer gets a place."""
    kept: OwnerCache[str, int] = OwnerCache(each=4, most=6)
    for owner, count in (("eve", 4), ("ann", 2), ("bob", 2)):
        for number in range(count):
            kept.put(owner, f"{owner}-{number}", number)
    assert [kept.get(f"eve-{number}") for number in range(4)] == [None, None, 2, 3]
    assert [kept.get(key) for key in ("ann-0", "ann-1", "bob-0", "bob-1")] == [0, 1, 0, 1]
    kept.clear()
    assert (len(kept), kept.get("ann-0")) == (0, None)
    kept.put("ann", "ann-0", 5)
    assert kept.get("ann-0") == 5


@given(STEPS)
def test_no_owner_and_no_sum_is_ever_over_its_bound(steps: list[tuple[str, str, int]]) -> None:
    """After any steps; and no owner loses a value while another one has more."""
    kept: OwnerCache[str, int] = OwnerCache(each=3, most=7)
    there: dict[str, set[str]] = {owner: set() for owner in "abcd"}
    for what, owner, number in steps:
        key = f"{owner}{number}"
        if what == "put":
            before = {name: len(keys) for name, keys in there.items()}
            kept.put(owner, key, number)
            there[owner].add(key)
        elif what == "get":
            assert kept.get(key) == (number if key in there[owner] else None)
        else:
            assert kept.pop(key) == (number if key in there[owner] else None)
            there[owner].discard(key)
        for name, keys in there.items():
            lost = {one for one in keys if one not in kept._values}
            if lost:
                assert what == "put"
                assert len(lost) == 1
                assert name == owner if before[owner] >= 3 else before[name] == max(before.values())
            keys.difference_update(lost)
        assert len(kept) == sum(map(len, there.values())) <= 7
        assert max(map(len, there.values())) <= 3

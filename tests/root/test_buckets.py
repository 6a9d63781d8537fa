"""Token buckets in bounded memory: eviction costs the same for any number, and gives no caller a second burst."""

from __future__ import annotations

import pytest

from gateway.policy import Rate, take
from gateway.token_buckets import LOOKS, Buckets

RATE = Rate(2, 60.0)


def may_pass(buckets: Buckets[str], key: str, now: float, owner: str) -> bool:
    """Return whether a caller may pass, with the calls that the gateway makes."""
    if key not in buckets.tats:
        key = buckets.place(key, owner, f"others of {owner}", now)
    taken = take(buckets.tats.get(key, 0.0), now, RATE)
    buckets.put(key, taken.tat, now, owner if not key.startswith("others") else None)
    return taken.allowed


@pytest.mark.parametrize("count", [10, 10_000, 200_000])
def test_a_new_bucket_looks_at_two_others_at_most(count: int) -> None:
    """However many are not full again; an existing bucket checks none."""
    buckets = Buckets[str](each=count + 2)
    for number in range(count):
        buckets.put(f"{number}", 1e9, 0.0, "ada")
    before = buckets.probes
    assert may_pass(buckets, "one more", 1.0, "bob")
    assert buckets.probes - before <= LOOKS
    before = buckets.probes
    assert may_pass(buckets, "one more", 1.0, "bob")
    assert buckets.probes == before
    assert len(buckets) == count + 1


def test_what_is_full_again_is_forgotten() -> None:
    """There are at most twice as many as arrive in the time in which a bucket fills."""
    buckets, most = Buckets[str](each=10**6), 0
    for number in range(20_000):
        assert may_pass(buckets, f"{number}", number / 100, "ada")
        most = max(most, len(buckets))
    assert most <= 2 * 100 * RATE.period / RATE.count + LOOKS


def test_a_bucket_that_is_not_full_again_is_kept() -> None:
    """Although other buckets come and go: no caller gets a second burst by eviction."""
    buckets = Buckets[str](each=10**6)
    assert [may_pass(buckets, "mine", 0.0, "ada") for _ in range(3)] == [True, True, False]
    for number in range(1000):
        may_pass(buckets, f"{number}", 29.0 * number / 1000, "bob")
    assert not may_pass(buckets, "mine", 29.0, "ada")
    assert may_pass(buckets, "mine", 30.1, "ada")


def test_too_many_buckets_of_one_owner_are_one() -> None:
    """Further callers share one until it is full again; another owner's buckets are not affected."""
    buckets = Buckets[str](each=3, most=100)
    assert all(may_pass(buckets, f"{number}", 0.0, "ada") for number in range(3))
    assert [may_pass(buckets, f"{number}", 0.0, "ada") for number in range(3, 9)] == [True, True, *[False] * 4]
    assert may_pass(buckets, "bob's", 0.0, "bob")
    assert len(buckets) == 5
    assert [may_pass(buckets, f"again {number}", 31.0, "ada") for number in range(3)] == [True, False, False]
    assert "again 0" not in buckets.tats
    assert all(may_pass(buckets, f"later {number}", 200.0, "ada") for number in range(3))
    assert "later 2" in buckets.tats


def test_too_many_buckets_in_all_are_one_for_each_owner() -> None:
    """Existing buckets stay."""
    buckets = Buckets[str](each=3, most=4)
    assert all(may_pass(buckets, f"{owner}{number}", 0.0, owner) for owner in ("ada", "bob") for number in range(2))
    assert [may_pass(buckets, f"cleo{number}", 0.0, "cleo") for number in range(3)] == [True, True, False]
    assert may_pass(buckets, "ada0", 0.0, "ada")
    assert len(buckets) == 5

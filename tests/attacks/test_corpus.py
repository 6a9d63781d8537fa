"""The corpus itself: it is large, each case is unique and has a reason, each file is run by a test."""

from collections import Counter

from gateway.cli.attack.cases import read_corpus
from tests.attacks.corpus import CASES, REQUESTS, SEQUENCES, doors_of
from tests.attacks.doors import DOORS

FAMILIES = {
    *REQUESTS,
    *SEQUENCES,
    "raw",
    "address",
    "mcp",
    "site",
    "sandbox",
    "dedicated",
    "sockets",
    "page",
    "relay",
    "tokens",
    "access-tokens",
    "policy",
    "operation",
}
EXPECTED = {"expect", "policy", "broken"}
"""The keys of a step with an expectation; a step that changes the policy has no answer."""


def test_the_corpus_is_large_and_every_case_says_why() -> None:
    """The corpus has at least 600 cases, no duplicates, and each has an expectation and a reason."""
    cases = read_corpus(CASES)
    twice = [name for name, count in Counter((case["family"], case["id"]) for case in cases).items() if count > 1]
    assert len(cases) >= 600
    assert not twice
    assert [case["id"] for case in cases if not case.get("why")] == []
    assert [case["id"] for case in cases for step in case.get("steps", [case]) if not EXPECTED & set(step)] == []


def test_every_family_is_run() -> None:
    """Each file has a test, and every request case has an existing door."""
    assert {path.stem for path in CASES.glob("*.yaml")} == FAMILIES
    for case in read_corpus(CASES):
        if case["family"] in (*REQUESTS, *SEQUENCES):
            assert doors_of(dict(case)), case["id"]
            assert set(doors_of(dict(case))) <= set(DOORS), case["id"]

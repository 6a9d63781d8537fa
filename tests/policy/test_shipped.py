"""The shipped policies: each is fully tested, valid by the policy schema, and has no unreachable route."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gateway.documents import load
from gateway.policy import Policy, PolicyTest, coverage, load_policy, load_tests, run_tests, warnings
from gateway.policy.keys import policy_schema

ROOT = Path(__file__).parents[2]
POLICIES = [
    *(file for file in sorted((ROOT / "policies").glob("*.yaml")) if not file.name.endswith(".test.yaml")),
    *sorted((ROOT / "examples").glob("*/policy*.yaml")),
]
NAMES = [str(file.relative_to(ROOT)) for file in POLICIES]


def load_with_tests(file: Path) -> tuple[Policy, list[PolicyTest]]:
    """Load a policy with its tests, including those beside it."""
    policy = load_policy(file)
    beside = file.with_name(f"{file.stem}.test.yaml")
    more = load_tests(beside) if beside.exists() else None
    assert more is None or more.policy == file
    return policy, [*policy.tests, *(more.tests if more is not None else ())]


@pytest.mark.parametrize("file", POLICIES, ids=NAMES)
def test_every_rule_is_tried_and_every_test_passes(file: Path) -> None:
    """Route coverage is 100 %."""
    policy, tests = load_with_tests(file)
    results = run_tests(policy, tests)
    assert results
    assert [result for result in results if not result.passed] == []
    assert coverage(policy, results).routes == ()
    assert warnings(policy) == ()


@pytest.mark.parametrize("file", POLICIES, ids=NAMES)
def test_every_policy_holds_to_the_schema(file: Path) -> None:
    """The editors' schema accepts what the parser accepts."""
    document = load(file.read_text(encoding="utf-8"), file.name).plain()
    assert [error.message for error in Draft202012Validator(policy_schema()).iter_errors(document)] == []


def test_the_shipped_policies_are_these() -> None:
    """At least those that the documentation names."""
    names = {file.name for file in POLICIES}
    assert {"deny-everything.yaml", "read-only.yaml", "cart.yaml", "graphql.yaml", "file-upload.yaml"} <= names

"""Every policy and configuration case: each problem has a place, and a valid policy allows no more than it declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.config import load_config
from gateway.errors import DocumentError, Problem
from gateway.model import LOCAL, Caller, Door, Effect, Initiator, Request
from gateway.policy import canonicalise, decide, parse_policy
from tests.attacks.corpus import family
from tests.calls import counted_calls

CALLER = Caller(LOCAL, "a", Door.MCP, Initiator.PAGE, "test", "v" * 22, proven=True)
MOST_CALLS = 20_000
"""Calls of functions with which every file is read or refused; the most expensive one takes 3,500."""


def test_each_file_is_refused_where_it_is_wrong(tmp_path: Path) -> None:
    """The first problem is at the expected line; the reader makes few calls, and raises no other error."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<p>a", "utf-8")
    (tmp_path / "policy.yaml").write_text("version: 1\n", "utf-8")
    wrong = []
    for case in family("policy"):
        with counted_calls() as calls:
            problems = find_problems(case, tmp_path)
        if calls() > MOST_CALLS:
            wrong.append(f"{case['id']}: took {calls():,} calls")
        wrong += [f"{case['id']} ({case['why']}): {one}" for one in differences(case, problems)]
    assert not wrong, f"{len(wrong)} problems:\n" + "\n".join(wrong)


def find_problems(case: dict[str, Any], folder: Path) -> list[Problem]:
    """The problems of the file; a valid policy that allows a request it should deny fails."""
    try:
        if "config" in case:
            file = folder / "gateway.yaml"
            file.write_bytes(case["config"].encode("utf-8", "surrogatepass"))
            load_config(file, {})
            return []
        policy = parse_policy(case["policy"], "policy.yaml")
    except DocumentError as error:
        return list(error.problems)
    if case.get("denies"):
        for path in ("/", "/a", "/api/x"):
            assert decide(policy, canonicalise(policy, Request("GET", path)), CALLER).effect is Effect.DENY
    return []


def differences(case: dict[str, Any], problems: list[Problem]) -> list[str]:
    """The differences between the problems and the expectation."""
    expected = case["expect"]
    if expected == "ok":
        return [str(problem)[:200] for problem in problems]
    if not problems:
        return ["it was taken"]
    if any(problem.line < 1 or problem.column < 1 or not problem.message for problem in problems):
        return [f"a problem without a place: {problems}"]
    wrong = []
    if expected != "refused" and problems[0].line != expected:
        wrong.append(f"expected line {expected}, got {[str(problem)[:160] for problem in problems]}")
    if not any(case.get("says", "") in problem.message for problem in problems):
        wrong.append(f"expected {case['says']!r} in {[str(problem)[:160] for problem in problems]}")
    return wrong

"""The benchmark in three places measures the same page in each."""

from __future__ import annotations

import re
import subprocess

import pytest

from benchmarks.places.__main__ import GOALS, LABELS, print_table
from benchmarks.processes import ROOT
from benchmarks.targets import module


@pytest.mark.soak
def test_each_place_is_measured() -> None:
    """Each line of the table has a figure of each place."""
    command = [*module("benchmarks.places"), "--rounds", "1"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = re.findall(r"^\| (.+?) (?:\| [\d.]+ ){3}\| \w+: [\d.]+ \| [\d.]+ \| (?:not )?met \|$", ended.stdout, re.M)
    assert lines == [LABELS[what] for what, _, _ in GOALS]


def test_a_goal_is_met_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    """By the ratio of the view's median to another place's."""
    print_table({what: {"backend": 1.0, "site": 2.0, "view": 2.2} for what, _, _ in GOALS})
    verdicts = [line.split(" | ")[-1].removesuffix(" |") for line in capsys.readouterr().out.splitlines()[2:]]
    assert verdicts == ["met", "not met", "not met", "not met", "not met", "met"]

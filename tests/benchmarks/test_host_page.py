"""The benchmark of host pages measures calls and the start of an app, over the bridge and with posts."""

from __future__ import annotations

import re
import subprocess

import pytest

from benchmarks.host_page.__main__ import GOALS, LABELS, print_table
from benchmarks.processes import ROOT
from benchmarks.targets import module


@pytest.mark.soak
def test_each_way_is_measured() -> None:
    """Each line of the table has a figure of each way."""
    command = [*module("benchmarks.host_page"), "--rounds", "1"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr
    lines = re.findall(r"^\| (.+?) (?:\| [\d.]+ ){3}\| (?:not )?met \|$", ended.stdout, re.M)
    assert lines == list(LABELS.values())
    steps = re.findall(r"([\w ./-]+?) \d+(?:,|$)", ended.stdout.partition("inserted, in ms:")[2], re.M)
    assert {step.strip() for step in steps} >= {
        "/bridge/tickets",
        "view opened",
        "page passed to the frame",
    }


def test_a_goal_is_met_or_not(capsys: pytest.CaptureFixture[str]) -> None:
    """By the bridge's own median."""
    start = {"bridge": 120.1, "posts": 1.0}
    print_table({"call": {"bridge": GOALS["call"], "posts": 20.0}, "start": start, "first": {**start, "bridge": 120.0}})
    verdicts = [line.split(" | ")[-1].removesuffix(" |") for line in capsys.readouterr().out.splitlines()[2:]]
    assert verdicts == ["met", "not met", "met"]

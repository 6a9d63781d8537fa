"""The benchmark of an upstream's tools measures what it claims to; speed itself is never tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.upstream import main
from tests.leaks.marks import MARK


def test_each_tool_is_called_directly_and_through_the_gateway(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The two are measured alternately, and reported side by side."""
    monkeypatch.setenv("BENCH_SECRET", f"bench-{MARK}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    main(["--rounds", "1", "--requests", "5", "--seconds", "20"])
    said = capsys.readouterr()
    assert said.err.count("through the gateway, connections: ") == 4
    rows = re.findall(r"^\| (\w+), which .*? \| (1|32) \| (\d+\.\d\d) \|", said.out, re.MULTILINE)
    assert [(tool, connections) for tool, connections, _ in rows] == [
        (tool, connections) for tool in ("item", "http_request") for connections in ("1", "32")
    ]
    assert all(float(ratio) > 0 for *_, ratio in rows)

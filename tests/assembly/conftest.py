"""Tests of this folder poll files at a short interval."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll files every 50 ms instead of every second."""
    monkeypatch.setattr("gateway.assembly.reload.LOOK", 0.05)

"""Files are looked at often here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at more often than once a second."""
    monkeypatch.setattr("gateway.assembly.reload.LOOK", 0.05)

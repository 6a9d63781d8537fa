"""A restart under load loses no call that a gateway could have served, and runs none twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.whole.restart_load import cut_by_gateway, measure, placed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("front", "held", "announce"),
    [
        pytest.param("", False, "0s", id="alone"),
        pytest.param("nginx", True, "0s", id="nginx-socket"),
        pytest.param("", True, "1s", id="socket", marks=pytest.mark.soak),
        pytest.param("nginx", False, "1s", id="nginx", marks=pytest.mark.soak),
        pytest.param("caddy", False, "0s", id="caddy", marks=pytest.mark.soak),
    ],
)
async def test_no_call_is_lost_in_a_restart(tmp_path: Path, front: str, held: bool, announce: str) -> None:
    """Each client gets its answer; calls are refused only where nobody listens, and then a repetition is safe."""
    async with placed(tmp_path, front, held=held, announce=announce) as place:
        tally = await measure(place, 2, 60)
    assert tally.cut == []
    assert tally.twice == []
    if held:
        assert tally.refused == []
    if front == "nginx":
        assert cut_by_gateway(tmp_path) == []

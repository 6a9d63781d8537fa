"""Journals as tests read them."""

from pathlib import Path

from gateway.stores.lines import Line, read_line
from gateway.stores.segments import lines_from


def read(path: Path) -> list[Line]:
    """Return the lines of a whole journal, oldest first. Raises ValueError at a damaged one."""
    return [read_line(raw) for _, raw in lines_from(path)]

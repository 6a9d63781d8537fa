"""Writes the table of bounds in docs/security.md from what the modules declare: `python scripts/bounds_doc.py`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import gateway
from gateway.bounds import Area, Bound

PAGE = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN = "<!-- made by scripts/bounds_doc.py: -->\n"
END = "<!-- until here -->\n"


def declared_bounds() -> list[Bound]:
    """The bounds of all modules, in the order of the table."""
    found = [bound for name in _modules() for bound in getattr(import_module(name), "BOUNDS", ())]
    order = list(Area)
    return sorted(found, key=lambda bound: (order.index(bound.area), bound.what.lower()))


def table() -> str:
    """The table, in Markdown."""
    head = "\n| what | bound | beyond it |\n|---|---|---|\n"
    rows, area = "", None
    for bound in declared_bounds():
        if bound.area is not area:
            rows += f"| **{bound.area}** | | |\n"
            area = bound.area
        counted = f" (not counted: {bound.uncounted})" if bound.uncounted else ""
        rows += f"| {bound.what[:1].upper()}{bound.what[1:]} | {bound.limit} | {bound.beyond}{counted} |\n"
    return f"{BEGIN}{head}{rows}\n{END}"


def page(text: str) -> str:
    """The page `text` with the table of now."""
    before, _, rest = text.partition(BEGIN)
    return before + table() + rest.partition(END)[2]


def _modules() -> Iterator[str]:
    yield from (
        module.name
        for module in pkgutil.walk_packages(gateway.__path__, "gateway.")
        if not module.name.endswith("__main__")
    )


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

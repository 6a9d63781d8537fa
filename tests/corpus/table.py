"""The table of docs/corpus.md, made from a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.corpus.catalog import App
from tests.corpus.packages import locked
from tests.corpus.running import Row

PAGE: Final = Path(__file__).parents[2] / "docs" / "corpus.md"
BEGIN: Final = "<!-- made by make corpus: -->\n"
END: Final = "<!-- until here -->\n"
HEAD: Final = "| app | package | technique | in a view | what differs, and why |\n|---|---|---|---|---|\n"
EQUAL: Final = "as natively"


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table as written."""

    cells: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the view showed the same."""
        return self.cells[3] == EQUAL


def row_start(app: App) -> tuple[str, str, str]:
    """Return the cells of an app that a run does not change."""
    return app.name, f"`{app.package}` {locked()[app.package].version}", app.technique


def write_table(rows: Sequence[Row], apps: Sequence[App]) -> None:
    """Replace the rows of the table in the page; those of `apps` that did not run stay as they are."""
    text = PAGE.read_text("utf-8")
    lines = {line.cells[0]: line.cells for line in read_table(text)}
    for row in rows:
        result = EQUAL if row.equal else "differs"
        lines[row.app.name] = (*row_start(row.app), result, row.app.limit or row.app.apart)
    listed = [lines[app.name] for app in apps if app.name in lines]
    count = f"{sum(Line(cells).equal for cells in listed)} of {len(listed)} apps are the same in a view as natively.\n"
    table = "".join(f"| {' | '.join(cells)} |\n".replace("|  |", "| |") for cells in listed)
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{count}\n{HEAD}{table}\n{END}{rest.partition(END)[2]}", "utf-8")


def read_table(text: str) -> list[Line]:
    """Return the rows of the page's table."""
    table = text.partition(HEAD)[2].partition(END)[0]
    return [Line(tuple(cell.strip() for cell in line.strip("|").split("|"))) for line in table.split("\n") if line]

"""`python -m benchmarks.capacity FILE`: draws the load of one Redis, from the costs measured in benchmarks/README.md.

Calls with two rates per second, beside up to a million open views; one Redis uses one processor.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

README: Final = Path(__file__).parent / "README.md"

VIEWS: Final = (0, 100_000, 500_000, 1_000_000)
CALLS: Final = (1_000, 10_000, 25_000, 50_000, 100_000)
EVERY: Final = 30
"""Seconds after which each view is written again."""

ROOM: Final = 1825
"""Bytes of Redis's memory for a view with three tools, and for its person's rates, as measured there."""

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 400, 64, 40, 150, 52
MOST: Final = 4.0
"""Processors at the top of the plot."""

COLORS: Final = ("#1a7f37", "#0969da", "#8250df", "#bc4c00")


@dataclass(frozen=True, slots=True)
class Units:
    """Microseconds of Redis's processor, and bytes to it, for a call with two rates, and for a view each 30 s."""

    call: float
    call_bytes: float
    view: float
    view_bytes: float

    def processors(self, calls: float, views: float) -> float:
        """Return the processors that so many calls per second need beside so many views."""
        return (calls * self.call + views / EVERY * self.view) / 1e6

    def full_at(self, views: float) -> float:
        """Return the calls per second at which one Redis is full beside so many views."""
        return max(0.0, 1e6 - views / EVERY * self.view) / self.call

    def megabits(self, calls: float, views: float) -> float:
        """Return the megabits per second to Redis."""
        return 8 * (calls * self.call_bytes + views / EVERY * self.view_bytes) / 1e6


def read_units(text: str) -> Units:
    """Return the costs in the table of the page. Raises ValueError if it has none."""
    rows = {}
    for name in ("call with 2 rates, 32 at once", f"view, each {EVERY} s"):
        found = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"benchmarks/README.md has no figures of: {name}")
        cells = [cell.strip().replace(",", "") for cell in found[1].split("|")]
        rows[name] = float(cells[3]), float(cells[1])
    (call, call_bytes), (view, view_bytes) = rows.values()
    return Units(call, call_bytes, view, view_bytes)


def table(units: Units) -> str:
    """Return the table of docs/scaling.md."""
    head = ("open views", *(f"{calls:,} calls/s" for calls in CALLS), "one Redis is full at", "memory")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for views in VIEWS:
        loads = (f"{units.processors(calls, views):.2f}" for calls in CALLS)
        full = f"{round(units.full_at(views), -2):,.0f} calls/s"
        lines.append(f"| {' | '.join((f'{views:,}', *loads, full, f'{views * ROOM / 2**30:.2f} GiB'))} |")
    return "\n".join(lines)


def plot(units: Units) -> str:
    """Return the plot as SVG."""
    inner = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(calls: float) -> float:
        return LEFT + calls / CALLS[-1] * inner[0]

    def y(processors: float) -> float:
        return TOP + (1 - processors / MOST) * inner[1]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="title desc" font-family="system-ui, -apple-system, \'Segoe UI\', sans-serif" font-size="13">',
        '<title id="title">The load of one Redis</title>',
        '<desc id="desc">Processors that Redis needs for calls with two rates, beside open views. One Redis has one: '
        f"it is full at {units.full_at(0):,.0f} calls per second without views, and at {units.full_at(VIEWS[-1]):,.0f} "
        "beside a million.</desc>",
        "<style>.grid{stroke:#d0d7de}.limit{stroke:#cf222e;stroke-width:2;stroke-dasharray:6 4}text{fill:#24292f}"
        ".full{fill:#cf222e}@media (prefers-color-scheme: dark){.grid{stroke:#30363d}text{fill:#e6edf3}"
        ".limit{stroke:#ff7b72}.full{fill:#ff7b72}}</style>",
        *_axes(x, y),
    ]
    for views, color in zip(VIEWS, COLORS, strict=True):
        end = CALLS[-1]
        if units.processors(end, views) > MOST:
            end = int((MOST * 1e6 - views / EVERY * units.view) / units.call)
        parts.append(
            f'<path d="M{x(0):.1f} {y(units.processors(0, views)):.1f}L{x(end):.1f} '
            f'{y(units.processors(end, views)):.1f}" fill="none" stroke="{color}" stroke-width="2.2"/>'
        )
        full = units.full_at(views)
        parts.append(f'<circle cx="{x(full):.1f}" cy="{y(1):.1f}" r="4" fill="{color}"/>')
    parts += _legend(units)
    return "\n".join([*parts, "</svg>", ""])


def _axes(x: Callable[[float], float], y: Callable[[float], float]) -> Iterator[str]:
    for processors in range(int(MOST) + 1):
        yield f'<path class="grid" d="M{LEFT} {y(processors):.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 10}" y="{y(processors) + 4:.1f}" text-anchor="end">{processors}</text>'
    for calls in range(0, CALLS[-1] + 1, 20_000):
        yield f'<text x="{x(calls):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{calls:,}</text>'
    yield f'<path class="limit" d="M{LEFT} {y(1):.1f}H{WIDTH - RIGHT}"/>'
    yield f'<text class="full" x="{WIDTH - RIGHT + 8}" y="{y(1) + 4:.1f}">one Redis is full</text>'
    yield f'<text x="{LEFT - 40}" y="{TOP - 16}">processors of Redis</text>'
    yield f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 10}" text-anchor="end">calls per second, with two rates each</text>'


def _legend(units: Units) -> Iterator[str]:
    for number, (views, color) in enumerate(zip(VIEWS, COLORS, strict=True)):
        at = TOP + 8 + 20 * (len(VIEWS) - 1 - number)
        yield f'<path d="M{LEFT + 14} {at}h22" stroke="{color}" stroke-width="2.2"/>'
        words = f"{views:,} open views: full at {round(units.full_at(views), -2):,.0f}"
        yield f'<text x="{LEFT + 44}" y="{at + 4}">{words}</text>'


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the plot, and print the table."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        sys.exit("usage: python -m benchmarks.capacity FILE")
    units = read_units(README.read_text("utf-8"))
    Path(given[0]).write_text(plot(units), "utf-8")
    print(table(units))


if __name__ == "__main__":
    main()

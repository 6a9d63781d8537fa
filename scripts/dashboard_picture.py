"""Draw deploy/grafana-dashboard.json as an SVG file: `python scripts/dashboard_picture.py PROMETHEUS MINUTES FILE`.

Each panel shows what Prometheus answers to its queries, with Grafana's variables filled in as Grafana does.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

DASHBOARD: Final = Path(__file__).parent.parent / "deploy" / "grafana-dashboard.json"
WIDTH: Final = 1440
CELL: Final = 30
"""The height of a row of Grafana's grid; there are 24 columns."""
POINTS: Final = 90
SCRAPE: Final = 2
"""Seconds between two scrapes."""
COLORS: Final = (
    "#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#f2495c", "#b877d9", "#8ab8ff", "#37872d", "#e0b400", "#c4162a",
)  # fmt: skip
NAMED: Final = {"green": "#73bf69", "red": "#f2495c", "text": "#d8d9da", "transparent": "none"}


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a panel: values at times, in seconds."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The shown time."""

    start: float
    end: float

    @property
    def step(self) -> int:
        """Seconds between two points."""
        return max(SCRAPE, round((self.end - self.start) / POINTS))

    def fill_in(self, query: str) -> str:
        """Replace the variables of Grafana."""
        seconds = {"$__rate_interval": max(4 * SCRAPE, self.step + SCRAPE), "$__interval": self.step}
        for name, value in {**seconds, "$__range": round(self.end - self.start)}.items():
            query = query.replace(name, f"{value}s")
        return query.replace("$instance", ".*")


class Prometheus:
    """The server that has the metrics."""

    def __init__(self, url: str, span: Span) -> None:
        self._url = url
        self._span = span

    def series(self, target: dict[str, Any]) -> list[Series]:
        """Return the lines of one query."""
        span = self._span
        query = {"query": span.fill_in(target["expr"]), "start": span.start, "end": span.end, "step": span.step}
        place = f"{self._url}/api/v1/query_range?{urlencode(query)}"
        with urllib.request.urlopen(place, timeout=60) as answer:
            told = json.load(answer)
        found = []
        for one in told["data"]["result"]:
            labels = one["metric"]
            name = re.sub(r"{{(\w+)}}", lambda hit: "{" + hit[1] + "}", target.get("legendFormat", ""))
            name = name.format_map(defaultdict(str, labels))
            points = tuple((at, float(value)) for at, value in one["values"] if math.isfinite(float(value)))
            found.append(Series(name.strip(), points))
        return sorted(found, key=lambda series: series.name)


def text_of(value: float, unit: str, decimals: int | None = None) -> str:
    """Write a value as Grafana does in this unit."""
    match unit:
        case "percentunit":
            return f"{_short(value * 100)} %"
        case "bytes":
            power = min(int(math.log(value, 1024)), 4) if value >= 1 else 0
            return f"{_short(value / 1024**power)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"
        case "s" if value >= 90:
            return f"{_short(value / 60)} min" if value < 5400 else f"{_short(value / 3600)} h"
        case "s" if 0 < value < 1:
            return f"{_short(value * 1000)} ms"
        case "s":
            return f"{_short(value)} s"
        case "reqps" | "ops":
            return f"{_short(value)} {'req' if unit == 'reqps' else 'ops'}/s"
        case _:
            return f"{value:.{decimals}f}" if decimals is not None else _short(value)


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def ticks(largest: float, whole: bool, base: int) -> list[float]:
    """Return from 3 to 6 round numbers from 0 on, the last of which is not below `largest`."""
    scale = base ** math.floor(math.log(largest, base)) if largest > 0 else 1.0
    for step in sorted(
        scale * part / over
        for part in (1, 2, 4, 5, 8, 10, 20, 40, 64, 128, 256)
        for over in (1, 10, 16 if base > 10 else 1)
    ):
        if step * 4 >= largest and not (whole and step < 1):
            break
    return [step * number for number in range(math.ceil(largest / step - 1e-9) + 1)] if largest else [0.0, step]


class Panel:
    """One panel: its place in pixels, and what it is drawn with."""

    def __init__(self, told: dict[str, Any], span: Span) -> None:
        grid, unit = told["gridPos"], WIDTH / 24
        self.x, self.y = grid["x"] * unit + 4, grid["y"] * CELL + 4
        self.width, self.height = grid["w"] * unit - 8, grid["h"] * CELL - 8
        self.told, self.span = told, span
        defaults = told.get("fieldConfig", {}).get("defaults", {})
        self.unit, self.decimals = defaults.get("unit", "short"), defaults.get("decimals")
        self.custom, self.defaults = defaults.get("custom", {}), defaults

    def frame(self) -> str:
        """Draw the border and the title."""
        return (
            f'<rect x="{self.x:.0f}" y="{self.y:.0f}" width="{self.width:.0f}" height="{self.height:.0f}" rx="3" '
            f'fill="#181b1f" stroke="#2c3235"/>'
            f'<text x="{self.x + 10:.0f}" y="{self.y + 19:.0f}" class="t">{escape(self.told["title"])}</text>'
        )

    def row(self) -> str:
        """Draw a heading."""
        return f'<text x="{self.x:.0f}" y="{self.y + 18:.0f}" class="r">{escape(self.told["title"])}</text>'

    def stat(self, series: list[Series]) -> str:
        """Draw the last value, large, over the line of all values."""
        parts = [self.frame()]
        if not series or not series[0].points:
            return f'{parts[0]}<text x="{self.x + 10:.0f}" y="{self.y + 70:.0f}" class="n">No data</text>'
        last = series[0].points[-1][1]
        color = self._color(last)
        largest = max(value for _, value in series[0].points) or 1
        line = self._path(series[0].points, self.y + 74, self.height - 76, largest, self.x + 2, self.width - 4)
        parts.append(f'<path d="{line}" fill="none" stroke="{color}" opacity=".5"/>')
        parts.append(
            f'<text x="{self.x + 10:.0f}" y="{self.y + 62:.0f}" class="v" fill="{color}">'
            f"{escape(text_of(last, self.unit, self.decimals))}</text>"
        )
        return "".join(parts)

    def _color(self, value: float) -> str:
        steps = self.defaults["thresholds"]["steps"]
        return NAMED[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]

    def graph(self, series: list[Series], marks: Iterable[float]) -> str:
        """Draw axes, lines or bars, and the legend."""
        legend, below = self._legend(series)
        left, top = self.x + 70, self.y + 32
        width, height = self.width - 84, self.height - 56 - below
        largest = max((value for one in series for _, value in one.points), default=0.0)
        shown = self.defaults.get("max", largest * 1.05)
        scale = ticks(shown, self.decimals == 0, 1024 if self.unit == "bytes" else 10)
        parts = [self.frame(), legend]
        for value in scale:
            y = top + height - height * value / scale[-1]
            parts.append(f'<path d="M{left:.0f} {y:.0f}h{width:.0f}" class="g"/>')
            parts.append(
                f'<text x="{left - 6:.0f}" y="{y + 4:.0f}" class="a" text-anchor="end">{self._axis(value)}</text>'
            )
        for at in _minutes(self.span):
            x = left + width * (at - self.span.start) / (self.span.end - self.span.start)
            said = time.strftime("%H:%M", time.gmtime(at))
            parts.append(f'<text x="{x:.0f}" y="{top + height + 16:.0f}" class="a" text-anchor="middle">{said}</text>')
        for at in marks:
            x = left + width * (at - self.span.start) / (self.span.end - self.span.start)
            parts.append(f'<path d="M{x:.0f} {top:.0f}v{height:.0f}" stroke="#ff9830" stroke-dasharray="3 3"/>')
        if not any(one.points for one in series):
            parts.append(f'<text x="{left + width / 2:.0f}" y="{top + height / 2:.0f}" class="n">No data</text>')
        for number, one in enumerate(series):
            color = COLORS[number % len(COLORS)]
            if self.custom.get("drawStyle") == "bars":
                style = f'stroke="{color}" stroke-width="{max(2.0, width / POINTS - 2):.0f}" opacity=".8"'
                path = self._bars(one.points, top, height, scale[-1], left, width)
            else:
                style = f'stroke="{color}" stroke-width="1.4"'
                path = self._path(one.points, top, height, scale[-1], left, width)
            parts.append(f'<path d="{path}" fill="none" {style}/>')
        return "".join(parts)

    def _axis(self, value: float) -> str:
        for mapping in self.defaults.get("mappings", ()):
            return str(mapping["options"].get(f"{value:g}", {}).get("text", ""))
        return escape(text_of(value, self.unit, self.decimals))

    def _legend(self, series: list[Series]) -> tuple[str, int]:
        parts, x, line = [], self.x + 12, 0
        for number, one in enumerate(series):
            size = 26 + 6.3 * len(one.name)
            if x + size > self.x + self.width and x > self.x + 12:
                x, line = self.x + 12, line + 1
            parts.append((number, one.name, x, line))
            x += size
        drawn = []
        for number, name, x, line_of in parts:
            y = self.y + self.height - 10 - 16 * (line - line_of)
            drawn.append(
                f'<path d="M{x:.0f} {y - 4:.0f}h12" stroke="{COLORS[number % len(COLORS)]}" stroke-width="3"/>'
            )
            drawn.append(f'<text x="{x + 16:.0f}" y="{y:.0f}" class="l">{escape(name)}</text>')
        return "".join(drawn), 16 * (line + 1)

    def _at(
        self,
        points: Iterable[tuple[float, float]],
        top: float,
        height: float,
        largest: float,
        left: float,
        width: float,
    ) -> Iterator[tuple[float, int, int]]:
        for at, value in points:
            share = (at - self.span.start) / (self.span.end - self.span.start)
            yield at, round(left + width * share), round(top + height - height * min(value / largest, 1))

    def _path(self, points: tuple[tuple[float, float], ...], *place: float) -> str:
        parts: list[str] = []
        before: tuple[float, int, int] | None = None
        for at, x, y in self._at(points, *place):
            if before is None or at - before[0] > 1.5 * self.span.step:
                parts.append(f"M{x} {y}")
            elif self.custom.get("lineInterpolation") == "stepAfter":
                parts.append(f"h{x - before[1]}v{y - before[2]}")
            else:
                parts.append(f"l{x - before[1]} {y - before[2]}")
            before = at, x, y
        return "".join(parts)

    def _bars(self, points: tuple[tuple[float, float], ...], top: float, height: float, *place: float) -> str:
        bottom = round(top + height)
        return "".join(f"M{x} {bottom}V{y}" for _, x, y in self._at(points, top, height, *place) if y < bottom)


def _minutes(span: Span) -> list[float]:
    apart = next(60 * minutes for minutes in (1, 2, 5, 10, 30, 60, 240) if (span.end - span.start) / 60 / minutes <= 6)
    first = math.ceil(span.start / apart) * apart
    return [first + apart * number for number in range(int((span.end - first) // apart) + 1)]


STYLE: Final = (
    "text{font-family:Inter,Helvetica,Arial,sans-serif;fill:#d8d9da}.t{font-size:13px;font-weight:600}"
    ".r{font-size:15px;font-weight:600}.v{font-size:30px;font-weight:600}.a,.l{font-size:11px;fill:#9fa7b3}"
    ".n{font-size:13px;fill:#9fa7b3;text-anchor:middle}.g{stroke:#2c3235}"
)


def draw(url: str, span: Span) -> tuple[str, list[str]]:
    """Return the picture, and the titles of panels that have no data."""
    told = json.loads(DASHBOARD.read_text("utf-8"))
    ask = Prometheus(url, span).series
    starts = {value / 1000 for one in told["annotations"]["list"] for series in ask(one) for _, value in series.points}
    marks = [at for at in starts if span.start < at < span.end]
    drawn, empty = [], []
    for panel in told["panels"]:
        shape = Panel(panel, span)
        if panel["type"] == "row":
            drawn.append(shape.row())
            continue
        series = [one for target in panel["targets"] for one in ask(target)]
        if not any(one.points for one in series):
            empty.append(panel["title"])
        drawn.append(shape.stat(series) if panel["type"] == "stat" else shape.graph(series, marks))
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in told["panels"]) * CELL + 4
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
    title = f"<title>{escape(told['title'])}</title><style>{STYLE}</style>"
    return f'{head}{title}<rect width="100%" height="100%" fill="#111217"/>{"".join(drawn)}</svg>\n', empty


if __name__ == "__main__":
    now = time.time()
    picture, missing = draw(sys.argv[1].rstrip("/"), Span(now - 60 * float(sys.argv[2]), now))
    Path(sys.argv[3]).write_text(picture, "utf-8")
    print(f"No data: {', '.join(missing)}" if missing else "Every panel has data.")

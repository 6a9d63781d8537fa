"""What pages came to natively and in a view: kept in a file, compared, and told."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.wpt.running import Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """A page in both places."""

    url: str
    native: Outcome
    view: Outcome

    def passing(self) -> list[str]:
        """The subtests that pass natively."""
        return [name for name in self.native.subtests if self.native.passes(name)]

    def differs(self) -> list[str]:
        """Those of them that do not pass in a view."""
        return [name for name in self.passing() if not self.view.passes(name)]

    def line(self) -> str:
        """The page in one line."""
        passing, differs = len(self.passing()), len(self.differs())
        problem = f" ({self.view.problem})" if differs and self.view.problem else ""
        return f"{passing - differs}/{passing} {self.url}{problem}"


def written(result: Result) -> str:
    """A line of the file."""
    outcomes = ([outcome.subtests, outcome.problem] for outcome in (result.native, result.view))
    return json.dumps([result.url, *outcomes]) + "\n"


def read(file: Path) -> dict[str, Result]:
    """The results in a file, by the URL of the page."""
    lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return {url: Result(url, _outcome(*native), _outcome(*view)) for url, native, view in lines}


def _outcome(subtests: dict[str, list[str]], problem: str) -> Outcome:
    return Outcome({name: (status, message) for name, (status, message) in subtests.items()}, problem)


def summary(results: Iterable[Result], left_out: Mapping[str, Collection[str]]) -> str:
    """The subtests that differ by page, then the figures by area."""
    lines: list[str] = []
    passing: Counter[str] = Counter()
    differing: Counter[str] = Counter()
    for result in sorted(results, key=lambda each: each.url):
        area = (
            "/".join(result.url.split("/")[1:3])
            if result.url.startswith(("/fetch", "/html"))
            else result.url.split("/")[1]
        )
        passing[area] += len(result.passing())
        differs = result.differs()
        differing[area] += len(differs)
        if differs:
            lines += ["", f"{result.line()}"]
            lines += [f"    {name}\n        {result.view.why(name)}" for name in differs]
    lines += ["", "Left out:", *(f"  {len(names):>5} pages {reason}" for reason, names in left_out.items())]
    lines += ["", "Subtests that pass natively, and of those in a view:"]
    lines += [f"  {area:<16} {count:>6} {count - differing[area]:>6}" for area, count in sorted(passing.items())]
    return "\n".join(lines)

"""The results of pages natively and in a view: stored in a file, compared, and summarized."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.wpt.exceptions import exempt, needless
from tests.wpt.running import Outcome


@dataclass(frozen=True, slots=True)
class Result:
    """The results of a page in both places."""

    url: str
    native: Outcome
    view: Outcome

    def passing(self) -> list[str]:
        """The subtests that pass natively."""
        return [name for name in self.native.subtests if self.native.passes(name)]

    def differs(self) -> list[str]:
        """Return those of them that do not pass in a view."""
        return [name for name in self.passing() if not self.view.passes(name)]

    @property
    def area(self) -> str:
        """The area that it tests."""
        names = self.url.split("/")
        return "/".join(names[1:3]) if names[1] in ("fetch", "html") else names[1]

    def line(self) -> str:
        """The result in one line for people."""
        passing, differs = len(self.passing()), len(self.differs())
        problem = f" ({self.view.problem})" if differs and self.view.problem else ""
        return f"{passing - differs}/{passing} {self.url}{problem}"


def format_result(result: Result) -> str:
    """Return the result as a line of the file."""
    outcomes = ([outcome.subtests, outcome.problem] for outcome in (result.native, result.view))
    return json.dumps([result.url, *outcomes]) + "\n"


def read_results(file: Path) -> dict[str, Result]:
    """Return the results in a file, by the URL of the page."""
    lines = (json.loads(line) for line in file.read_text("utf-8").splitlines())
    return {url: Result(url, _outcome(*native), _outcome(*view)) for url, native, view in lines}


def _outcome(subtests: dict[str, list[str]], problem: str) -> Outcome:
    return Outcome({name: (status, message) for name, (status, message) in subtests.items()}, problem)


def summary(results: Iterable[Result], left_out: Mapping[str, Collection[str]]) -> str:
    """Return the subtests that differ by page, then the figures by area."""
    lines: list[str] = []
    figures: dict[str, list[int]] = {}
    classes: Counter[str] = Counter()
    differing: dict[str, list[str]] = {}
    for result in sorted(results, key=lambda each: each.url):
        differs = differing[result.url] = result.differs()
        named = {name: exempt(result.url, name) for name in differs}
        figure = figures.setdefault(result.area, [0, 0, 0])
        named_here = [found for found in named.values() if found]
        for at, count in enumerate((len(result.passing()), len(differs), len(named_here))):
            figure[at] += count
        classes.update(named_here)
        if differs:
            lines += ["", result.line()]
            for name, why in named.items():
                mark = f"[{why}] " if why else ""
                lines += [f"    {mark}{name}", f"        {result.view.why(name)}"]
    lines += ["", "Left out:", *(f"  {len(names):>5} pages {reason}" for reason, names in left_out.items())]
    lines += ["", "Named exceptions:", *(f"  {count:>5} {name}" for name, count in sorted(classes.items()))]
    if found := needless(differing):
        lines += ["", "Exceptions that nothing needs:", *(f"  {each.url} {each.pattern}" for each in found)]
    lines += ["", "Subtests: passing natively, of those in a view, named exceptions, and what is left:"]
    for area, (passing, failing, exceptions) in sorted(figures.items()):
        lines.append(f"  {area:<16} {passing:>6} {passing - failing:>6} {exceptions:>6} {failing - exceptions:>6}")
    return "\n".join(lines)

"""`policy test`: runs the tests of policies, and reports uncovered routes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import click
from rich.text import Text

from gateway.cli.group import Unusable, opener
from gateway.cli.output import FAILED, console, json_option, problems_as_json, write_json
from gateway.cli.policy.sources import Suite, policies_option, suites
from gateway.model import Json
from gateway.policy import Coverage, Route, TestResult, coverage, run_tests

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, runs: Iterable[tuple[Suite, Sequence[TestResult]]]) -> None:
    """Write a report: a suite for each policy, a case for each test. Raises `Unusable` if it cannot be written."""
    root = ElementTree.Element("testsuites", name="webmcp-gateway policy test")
    failed = total = 0
    for suite, results in runs:
        bad = sum(not result.passed for result in results) if results else 1
        cases = ElementTree.SubElement(
            root, "testsuite", name=_text(suite.name), tests=str(len(results) or 1), failures=str(bad), errors="0"
        )
        failed, total = failed + bad, total + (len(results) or 1)
        for result in results:
            _case(cases, result)
        if not results:
            case = ElementTree.SubElement(cases, "testcase", name="has tests", classname=_text(suite.name))
            ElementTree.SubElement(case, "failure", message="the policy has no tests")
    root.set("tests", str(total))
    root.set("failures", str(failed))
    try:
        with open(path, "wb", opener=opener) as file:
            ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise Unusable(f"{path}: cannot be written: {error.strerror}") from error


def _case(suite: ElementTree.Element, result: TestResult) -> None:
    one = result.test
    name = f"{one.method} {one.url} by the {one.initiator}"
    case = ElementTree.SubElement(
        suite, "testcase", name=_text(name), classname=_text(one.file), file=_text(one.file), line=str(one.line)
    )
    if not result.passed:
        message = f"{result.outcome}, not {one.expect}"
        failure = ElementTree.SubElement(case, "failure", message=message)
        failure.text = _text(f"{one.file}:{one.line}: {'; '.join(result.reasons)}")


def _text(text: str) -> str:
    """Replace characters that XML 1.0 does not allow."""
    return _NOT_XML.sub("?", text)


@dataclass(frozen=True, slots=True)
class TestRun:
    """A suite with its results."""

    suite: Suite
    results: Sequence[TestResult]
    coverage: Coverage

    @property
    def good(self) -> bool:
        """True if there are tests and all pass."""
        return bool(self.results) and all(result.passed for result in self.results)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@policies_option
@click.option("--coverage", "covered", is_flag=True, help="List the routes and tools that no test covers.")
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 100),
    metavar="PERCENT",
    help="Exit code 1 if fewer routes are covered; implies --coverage.",
)
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write a JUnit report to this file.")
@json_option
@click.pass_context
def test(
    ctx: click.Context,
    files: tuple[Path, ...],
    config: Path,
    covered: bool,
    fail_under: float | None,
    junit: Path | None,
    as_json: bool,
) -> None:
    """Run the tests of policy FILES, of all in a folder, or of those of gateway.yaml.

    Tests are listed under `tests:` of a policy, and in files beside it such as cart.test.yaml. A route is covered if it
    decides in some test.

    Exit code 0 if all pass, 1 if one fails, a policy has none, or --fail-under is not reached, 2 if a file is invalid.

    Example: webmcp-gateway policy test policies/ --fail-under 100 --junit policies.xml
    """
    with problems_as_json(as_json):
        runs = [_run(suite) for suite in suites(files, config)]
    percent = _percent(runs)
    under = fail_under is not None and percent < fail_under
    good = all(ran.good for ran in runs) and not under
    if junit is not None:
        write_junit(junit, [(ran.suite, ran.results) for ran in runs])
    if as_json:
        write_json({"ok": good, "coverage": round(percent, 2), "policies": [_json(ran) for ran in runs]})
    else:
        _print(runs, covered=covered or fail_under is not None)
        if under:
            console().print(Text(f"route coverage is {percent:.1f} %, less than {fail_under:g} %", "bold red"))
    if not good:
        ctx.exit(FAILED)


def _run(suite: Suite) -> TestRun:
    results = run_tests(suite.policy, suite.tests)
    return TestRun(suite, results, coverage(suite.policy, results))


def _percent(runs: Sequence[TestRun]) -> float:
    """Return the percentage of routes that decide some test; each route counts once."""
    routes: dict[tuple[str, int], bool] = {}
    for ran in runs:
        missed = {route.index for route in ran.coverage.routes}
        for route in ran.suite.policy.routes.all:
            key = (str(Path(ran.suite.policy.file).resolve()), route.index)
            routes[key] = routes.get(key, False) or route.index not in missed
    return 100 * sum(routes.values()) / len(routes) if routes else 100.0


def _print(runs: Sequence[TestRun], *, covered: bool) -> None:
    out = console()
    for ran in runs:
        for result in ran.results:
            out.print(_line(result))
        if not ran.results:
            out.print(Text(f"{ran.suite.name} has no tests: write some under `tests:`", "bold red"))
        if covered:
            for line in _list_uncovered(ran):
                out.print(line)
    results = [result for ran in runs for result in ran.results]
    failed = sum(not result.passed for result in results)
    summary = f"{len(results) - failed} passed, {failed} failed"
    out.print(f"{summary}, {_percent(runs):.1f} % of the routes covered" if covered else summary)


def _list_uncovered(ran: TestRun) -> list[Text]:
    uncovered, file = ran.coverage, ran.suite.policy.file
    rules = [(route.file or file, route.line, f"route {_route(route)}") for route in uncovered.routes]
    rules += [(rule.file or file, rule.line, f"tool {rule.name}") for rule in uncovered.tools]
    return [Text.assemble(("no test ", "yellow"), f"{place}:{line}  {label}") for place, line, label in sorted(rules)]


def _route(route: Route) -> str:
    methods = ", ".join(sorted(route.methods)) if route.methods is not None else "any method"
    return f"{methods} {route.template.text}"


def _line(result: TestResult) -> Text:
    one = result.test
    mark = ("ok      ", "green") if result.passed else ("FAILED  ", "bold red")
    why = "" if result.passed else f", not {one.expect}: {'; '.join(result.reasons)}"
    return Text.assemble(
        mark, f"{one.file}:{one.line}  {one.method} {one.url} by the {one.initiator}: ", result.outcome, why
    )


def _json(ran: TestRun) -> Json:
    tests: list[Json] = [
        {
            "file": result.test.file,
            "line": result.test.line,
            "method": result.test.method,
            "url": result.test.url,
            "initiator": result.test.initiator,
            "principal": result.test.principal,
            "expect": result.test.expect,
            "outcome": result.outcome,
            "reasons": list(result.reasons),
            "passed": result.passed,
        }
        for result in ran.results
    ]
    uncovered = ran.coverage
    return {
        "file": ran.suite.policy.file,
        "version": ran.suite.policy.version,
        "tests": tests,
        "coverage": {
            "routes": round(100 * uncovered.of_routes, 2),
            "tools": round(100 * uncovered.of_tools, 2),
            "missed_routes": [
                {"file": route.file or None, "line": route.line, "route": _route(route)} for route in uncovered.routes
            ],
            "missed_tools": [
                {"file": rule.file or None, "line": rule.line, "tool": rule.name} for rule in uncovered.tools
            ],
        },
    }

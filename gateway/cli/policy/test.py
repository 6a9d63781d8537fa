"""`policy test`: whether policies say what their own `tests:` expect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from gateway.cli.policy.sources import config_option, policies
from gateway.policy import Policy, TestResult, run_tests

FAILED = 1


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@config_option
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_context
def test(ctx: click.Context, files: tuple[Path, ...], config: Path, as_json: bool) -> None:
    """Run the `tests:` of policy FILES, or of those of gateway.yaml.

    Exit code 0 if all pass, 1 if one fails or a policy has none, 2 if a policy cannot be used.
    """
    found = policies(files, config)
    results = {name: run_tests(policy) for name, policy in found.items()}
    good = all(results.values()) and all(result.passed for several in results.values() for result in several)
    if as_json:
        click.echo(
            json.dumps({"ok": good, "policies": [_json(found[name], results[name]) for name in found]}, indent=2)
        )
    else:
        _print(found, results)
    if not good:
        ctx.exit(FAILED)


def _print(found: Mapping[str, Policy], results: Mapping[str, Sequence[TestResult]]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for name, policy in found.items():
        for result in results[name]:
            console.print(_line(policy, result))
        if not results[name]:
            console.print(Text(f"{name} has no tests: write some under `tests:`", "bold red"))
    failed = sum(not result.passed for several in results.values() for result in several)
    passed = sum(map(len, results.values())) - failed
    console.print(f"{passed} passed, {failed} failed")


def _line(policy: Policy, result: TestResult) -> Text:
    one = result.test
    mark = ("ok      ", "green") if result.passed else ("FAILED  ", "bold red")
    why = "" if result.passed else f", not {one.expect}: {'; '.join(result.reasons)}"
    request = f"{one.method} {one.url} by the {one.initiator}"
    return Text.assemble(mark, f"{policy.file}:{one.line}  {request}: {result.outcome}{why}")


def _json(policy: Policy, results: Sequence[TestResult]) -> dict[str, object]:
    tests = [
        {
            "line": result.test.line,
            "method": result.test.method,
            "url": result.test.url,
            "initiator": result.test.initiator,
            "principal": result.test.principal,
            "expect": result.test.expect,
            "outcome": result.outcome,
            "reasons": result.reasons,
            "passed": result.passed,
        }
        for result in results
    ]
    return {"file": policy.file, "version": policy.version, "tests": tests}

"""Test results as JUnit XML for CI servers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from gateway.cli.group import Unusable
from gateway.cli.policy.sources import Suite
from gateway.policy import TestResult

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_junit(path: Path, found: Iterable[tuple[Suite, Sequence[TestResult]]]) -> None:
    """Write a report: a suite for each policy, a case for each test. Raises `Unusable` if it cannot be written."""
    root = ElementTree.Element("testsuites", name="webmcp-gateway policy test")
    failed = total = 0
    for suite, results in found:
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
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
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

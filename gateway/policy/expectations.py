"""Reads the expected decisions of a policy: the `tests` of its file and of `*.test.yaml` beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.documents import Section, read
from gateway.model import Headers, Initiator, Json
from gateway.policy.bodies import write_json
from gateway.policy.rules import TOOL_CALL, PolicyTest

EXPECTED = ("allow", "deny", "confirm")
SUFFIX = ".test.yaml"


@dataclass(frozen=True, slots=True)
class TestFile:
    """A file with only tests; `policy` is the file that they test."""

    __test__ = False  # pytest would collect it as a test class

    file: str
    policy: Path
    tests: tuple[PolicyTest, ...]


def parse_tests(text: str, path: Path) -> TestFile:
    """Parse the tests in `text`, of the file `path`; without `policy` they test the policy of the same name.

    Raises DocumentError.
    """
    with read(text, str(path)) as top:
        named = top.text("policy", f"{path.name.removesuffix(SUFFIX)}.yaml")
        top.require("tests")
        tests = read_tests(top)
    return TestFile(str(path), path.parent / named, tests)


def read_tests(top: Section) -> tuple[PolicyTest, ...]:
    """Read the `tests` of a file."""
    return tuple(_test(section) for section in top.sections("tests"))


def _test(section: Section) -> PolicyTest:
    is_tool = "tool" in section
    method, url = (TOOL_CALL, section.text("tool")) if is_tool else _request(section)
    for key in ("request", "headers", "body") if is_tool else ("arguments",):
        if key in section:
            section.problem(f'has no meaning beside "{"tool" if is_tool else "request"}"', key)
    section.require("expect")
    caller = Initiator.MODEL if is_tool else Initiator.PAGE
    subject, roles, claims = _principal(section)
    return PolicyTest(
        method=method,
        url=url,
        initiator=Initiator(section.choice("initiator", tuple(Initiator), caller)),
        principal=subject,
        expect=section.choice("expect", EXPECTED, "deny"),
        line=section.node.line,
        file=section.node.file,
        roles=roles,
        claims=claims,
        headers=_headers(section),
        body=_body(section),
        arguments=_object(section, "arguments"),
    )


def _request(section: Section) -> tuple[str, str]:
    section.get("tool")
    section.require("request")
    method, _, url = section.text("request", "GET /").partition(" ")
    if not url or " " in url:
        section.problem("must be a method and a URL, such as GET /api/products", "request")
    return method, url


def _principal(section: Section) -> tuple[str | None, frozenset[str], dict[str, Json]]:
    """Read `as`: a subject, or a mapping with subject, roles and claims."""
    node = section.get("as")
    if node is None:
        return None, frozenset(), {}
    if isinstance(node.value, str):
        return section.text("as") or None, frozenset(), {}
    rule = section.section("as")
    return rule.text("subject") or None, frozenset(rule.texts("roles")), _object(rule, "claims")


def _headers(section: Section) -> Headers:
    return tuple((name.lower(), str(value)) for name, value in _object(section, "headers").items())


def _body(section: Section) -> str | None:
    node = section.get("body")
    try:
        return None if node is None else write_json(node.plain()).decode()
    except ValueError as error:
        section.problem(str(error), "body")
        return None


def _object(section: Section, key: str) -> dict[str, Json]:
    node = section.get(key)
    if node is None:
        return {}
    value = node.plain()
    if not isinstance(value, dict):
        section.problem(f"must be a mapping, not {node.kind}", key)
        return {}
    return value

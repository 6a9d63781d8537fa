"""The JSON Schema of policies has the parser's keys: no more, no fewer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from gateway.documents import load
from gateway.errors import DocumentError
from gateway.policy import parse_policy, run_tests
from gateway.policy.keys import KEYS, REQUIRED, policy_schema

DOCS = Path(__file__).parents[2] / "docs" / "policy.md"

PLACES = {
    "policy": "version: 1\nzzz: 1",
    "backend": "version: 1\nbackends: {a: {zzz: 1, url: http://a}}",
    "retry": "version: 1\nbackends: {a: {url: http://a, retry: {zzz: 1}}}",
    "circuit": "version: 1\nbackends: {a: {url: http://a, circuit: {zzz: 1}}}",
    "limits": "version: 1\nlimits: {zzz: 1}",
    "route": "version: 1\nroutes: [{zzz: 1}]",
    "body": "version: 1\nroutes: [{body: {zzz: 1}}]",
    "websocket": "version: 1\nroutes: [{websocket: {zzz: 1}}]",
    "confirm": "version: 1\nroutes: [{confirm: {zzz: 1}}]",
    "responses": "version: 1\nresponses: {zzz: 1}",
    "tool": "version: 1\ntools: {a: {zzz: 1}}",
    "links": "version: 1\nlinks: {zzz: 1}",
    "external": "version: 1\nexternal: {zzz: 1}",
    "external_script": "version: 1\nexternal: {scripts: [{zzz: 1}]}",
    "mode": "version: 1\nmode: {zzz: 1}",
    "report": "version: 1\nmode: {report: {zzz: 1}}",
    "test": "version: 1\ntests: [{zzz: 1}]",
    "caller": "version: 1\ntests: [{as: {zzz: 1}}]",
}


@pytest.mark.parametrize("name", KEYS)
def test_the_parser_and_the_schema_know_the_same_keys(name: str) -> None:
    """The parser lists the allowed keys in its error about an unknown one; the schema refuses it too."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(PLACES[name], "p.yaml")
    (allowed,) = re.findall(r'unknown key "zzz".*\(allowed: ([^)]*)\)', str(caught.value))
    assert set(allowed.split(", ")) == set(KEYS[name])
    document = load(PLACES[name], "p.yaml").plain()
    errors = [error.message for error in Draft202012Validator(policy_schema()).iter_errors(document)]
    assert any("zzz" in message for message in errors)


@pytest.mark.parametrize(("name", "key"), [(name, str(key)) for name, keys in REQUIRED.items() for key in keys])
def test_the_parser_requires_what_the_schema_requires(name: str, key: str) -> None:
    """Both name a missing required key."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(PLACES[name].replace("version: 1\n", "") if name == "policy" else PLACES[name], "p.yaml")
    assert f'"{key}" is missing' in str(caught.value)


def test_the_schema_is_one() -> None:
    """It is a valid JSON Schema."""
    Draft202012Validator.check_schema(policy_schema())


@pytest.mark.parametrize("name", KEYS)
def test_every_key_is_documented(name: str) -> None:
    """An undocumented key is not part of the format."""
    page = DOCS.read_text(encoding="utf-8")
    assert [key for key in KEYS[name] if f"`{key}" not in page] == []


def test_the_policy_of_the_page_is_a_policy() -> None:
    """It can be copied unchanged, and its tests pass."""
    first, *_ = re.findall(r"^```yaml\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [result.passed for result in run_tests(parse_policy(first, "policy.md"))] == [True]

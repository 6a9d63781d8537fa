"""`external`: what a page may load from other sites by itself."""

from __future__ import annotations

import pytest

from gateway.errors import DocumentError
from gateway.model import Caller, Door, Initiator, Principal, Request
from gateway.policy import explain, parse_policy, run_tests
from gateway.policy.diff import Turn, diff

DIGEST = "sha384-" + "A" * 64


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("fonts: ['https://*.example.com']", 'fonts: "https://*.example.com" is a pattern: name each origin'),
        ("fonts: ['https://fonts.example/css']", "is not an origin: write scheme, host and port alone"),
        ("images: ['http://fonts.example']", "is not https: what it sends could be changed on the way"),
        ("images: ['data:']", "is not an http or https URL"),
        ('styles: ["https://a.example; script-src x"]', "has no valid host and port"),
        ("connect: https://api.example", "connect: must be a list"),
        ("scripts: ['https://cdn.example/x.js']", "must be a mapping"),
        ("scripts: [{url: 'https://cdn.example/x.js'}]", '"integrity" is missing'),
        ("scripts: [{url: 'https://cdn.example/x.js', integrity: sha1-abc}]", "is no digest: write one such as sha384"),
        (
            f"scripts: [{{url: 'https://cdn.example/', integrity: {DIGEST}}}]",
            "is not the URL of a script",
        ),
        (f"scripts: [{{url: 'https://cdn.example/x.js?v=1', integrity: {DIGEST}}}]", "is not the URL of a script"),
        (f"scripts: [{{url: 'https://cdn.example/a;b.js', integrity: {DIGEST}}}]", "is not the URL of a script"),
        (f"scripts: [{{url: 'http://cdn.example/x.js', integrity: {DIGEST}}}]", "is not https"),
        ("frames: []", 'unknown key "frames"'),
    ],
)
def test_what_is_no_origin_is_an_error_with_its_place(entry: str, message: str) -> None:
    """The message names the key and the remedy."""
    with pytest.raises(DocumentError) as caught:
        parse_policy(f"version: 1\nexternal:\n  {entry}\n", "p.yaml")
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.yaml:3:")


def test_each_origin_and_script_counts_as_opened() -> None:
    """Also another digest of the same script."""
    script = "{{url: 'https://cdn.example/x.js', integrity: sha384-{}}}"
    old = parse_policy(
        f"version: 1\nexternal: {{fonts: ['https://f.example'], scripts: [{script.format('A' * 64)}]}}", "p"
    )
    new = parse_policy(
        f"version: 1\nexternal: {{images: ['https://f.example'], scripts: [{script.format('B' * 64)}]}}", "p"
    )
    assert [(change.turn, change.detail) for change in diff(old, new)] == [
        (
            Turn.OPENED,
            f"external: images: https://f.example, scripts: https://cdn.example/x.js (sha384-{'B' * 64})",
        ),
        (
            Turn.CLOSED,
            f"external no more: fonts: https://f.example, scripts: https://cdn.example/x.js (sha384-{'A' * 64})",
        ),
    ]


CALLER = Caller(Principal("local", "local", "ann"), "app", Door.MCP, Initiator.PAGE, "a test", "view", proven=True)

OPENED = f"""\
version: 1
backends: {{api: {{url: 'https://api.example', origins: ['https://api.example']}}}}
routes: [{{path: /x, methods: [GET]}}]
external:
  fonts: ['https://f.example']
  connect: ['https://tiles.example', 'https://api.example']
  scripts: [{{url: 'https://cdn.example/x.js', integrity: {DIGEST}}}]
tests:
  - {{request: GET https://f.example/a.woff2, expect: allow}}
  - {{request: POST https://f.example/a.woff2, expect: deny}}
  - {{request: POST https://tiles.example/1, expect: allow}}
  - {{request: GET https://cdn.example/x.js, expect: allow}}
  - {{request: GET https://cdn.example/y.js, expect: deny}}
  - {{request: GET https://api.example/y, expect: deny}}
"""


def test_explain_and_tests_know_what_is_opened() -> None:
    """Each entry opens its kind: files are read, `connect` is any request; what a backend has is decided by routes."""
    policy = parse_policy(OPENED, "p.yaml")
    assert [result.outcome for result in run_tests(policy)] == [test.expect for test in policy.tests]
    found = explain(policy, Request("GET", "https://f.example/a.woff2"), CALLER)
    assert (found.effect, found.reasons[0].partition(":")[0]) == ("allow", "`external` names `fonts")
    refused = explain(policy, Request("GET", "https://cdn.example/y.js"), CALLER)
    assert refused.remedy is not None
    assert refused.remedy.endswith("or name it under `external`: the page's browser then loads it past the gateway")

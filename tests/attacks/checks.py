"""Invariants of every request case, whatever the case itself expects."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from gateway.errors import STATUS, Reason
from tests.attacks.backends import Arrived
from tests.attacks.calls import Answer
from tests.attacks.world import TOKEN, AttackWorld

ROUTES = {
    "main": (
        (re.compile(rb"/v1/api/open/(?!admin(/|$)).*"), {"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}),
        (re.compile(rb"/v1/api/open"), {"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}),
        (re.compile(rb"/v1/api/read(/.*)?"), {"GET"}),
        (re.compile(rb"/v1/api/items/[^/]+"), {"GET", "PUT"}),
        (re.compile(rb"/v1/api/files/.+"), {"GET"}),
        (re.compile(rb"/v1/api/(exact|small)"), {"GET", "POST"}),
        (re.compile(rb"/v1/api/slow(/.*)?"), {"GET", "POST"}),
        (re.compile(rb"/v1/api/(checkout|schema|once)"), {"POST"}),
        (re.compile(rb"/v1/api/pick"), {"GET"}),
    ),
    "other": ((re.compile(rb"/o/other(/.*)?"), {"GET", "POST"}),),
    "outside": (),
    "stranger": (),
}
"""The routes of the test policy, written a second time: as patterns of every path that a server may read."""

PREFIXES = {"main": "/v1", "other": "/o"}
"""The path prefixes of the backends' URLs."""

FORBIDDEN = re.compile(
    r"cookie2?|forwarded|proxy-.*|sec-.*|x-forwarded.*|x-real-ip|x-client-ip|true-client-ip|via|te|trailer|upgrade|"
    r"keep-alive|expect|origin|referer|webmcp-gateway-.*|gateway-.*|transfer-encoding|x-http-method.*|"
    r"x-method-override|x-original-.*|x-rewrite-url|x-host|mcp-.*"
)


def outside(one: Arrived) -> str | None:
    """The reason why a request should not have arrived; None if a route covers every reading of it."""
    method, _, target = one.line.partition(" ")
    path = target.partition("?")[0].encode("latin-1")
    for _ in range(3):
        below = resolve_leniently(path)
        if not any(pattern.fullmatch(below) and method in methods for pattern, methods in ROUTES[one.backend]):
            return f"{one.line} reached {one.backend} outside its routes (read as {below!r})"
        path = unquote_to_bytes(path)
    return None


def resolve_leniently(path: bytes) -> bytes:
    """The path as a lenient server reads it: backslashes are slashes, parameters are cut, dot segments resolved."""
    kept: list[bytes] = []
    for segment in re.split(rb"[/\\]", path)[1:]:
        bare = segment.split(b";")[0]
        if bare == b"..":
            del kept[-1:]
        elif bare not in (b".", b""):
            kept.append(bare)
    return b"/" + b"/".join(kept)


def wrong_request(one: Arrived) -> list[str]:
    """The violations in the header fields of a request that arrived."""
    problems = []
    named = [name.replace("_", "-") for name, _ in one.headers]
    if named.count("host") != 1 or b"\nEVIL" in one.raw:
        problems.append(f"{one.line}: not exactly one host, or a line of the attacker's own")
    credentials = [value for name, value in one.headers if name.replace("_", "-") == "authorization"]
    wanted = [f"Bearer {TOKEN}"] if one.backend == "main" else []
    if credentials != wanted:
        problems.append(f"{one.line}: the credentials at {one.backend} are {credentials}")
    if one.backend != "main" and TOKEN.encode() in one.raw:
        problems.append(f"the token reached {one.backend}")
    problems += [f"{one.line}: the field {name} arrived" for name in named if FORBIDDEN.fullmatch(name)]
    if named.count("content-length") > 1:
        problems.append(f"{one.line}: two lengths")
    return problems


def wrong_answer(world: AttackWorld, answer: Answer, passes: bool) -> list[str]:
    """The violations in an answer of any door; `passes`: the failure is the backend's own."""
    problems = [f"the answer holds the secret {secret[:12]!r}…" for secret in world.secrets if secret in answer.raw]
    if "set-cookie" in answer.headers:
        problems.append("the answer sets a cookie")
    if answer.status >= 500 and answer.reason is None and answer.error is None and not passes:
        problems.append(f"status {answer.status} without a reason")
    if answer.reason == Reason.INTERNAL:
        problems.append(f"an internal error: {answer.body}")
    return problems


def wrong_record(records: list[dict[str, Any]], arrived: list[Arrived]) -> list[str]:
    """Check that the records contain the exact targets of the first and the last request sent."""
    fields = [line["fields"] for line in records if line["fields"].get("kind") == "http"]
    decided = {f"{one.get('method')} {PREFIXES.get(str(one.get('backend')), '')}{one.get('url')}" for one in fields}
    return (
        [
            f"{one.line!r} was sent, and what was decided on is {sorted(decided)}"
            for one in (arrived[0], arrived[-1])
            if one.line not in decided
        ]
        if arrived
        else []
    )


def expectation(case: dict[str, Any], door: str) -> dict[str, Any]:
    """The expectation of the case at this door, as a mapping."""
    group = "mcp" if door in ("modern", "modern-sdk", "legacy", "stdio") else door
    said = case.get(f"expect_{door}", case.get(f"expect_{group}", case["expect"]))
    expected = dict(said) if isinstance(said, dict) else {"reason": said}
    reason = expected.get("reason")
    if reason == "ok":
        expected["reason"] = None
    if "one_of" in expected:
        reason = "refused"
    if "status" not in expected and "status_in" in expected:
        expected["status"] = expected["status_in"][0]
    if "status" not in expected and "error" not in expected:
        expected["status"] = 200 if reason in (None, "ok") else STATUS[Reason(reason)]
    sent = case.get(f"sent_{door}", case.get("sent", [])) if reason in ("ok", None) else []
    expected.setdefault("sent", sent)
    if isinstance(expected["sent"], str):
        expected["sent"] = [expected["sent"]]
    return expected


def differences(
    case: dict[str, Any],
    expected: dict[str, Any],
    answer: Answer,
    arrived: list[Arrived],
    records: list[dict[str, Any]],
) -> list[str]:
    """The differences between the outcome and the case's expectation."""
    problems = []
    if "error" in expected:
        if expected["error"] not in (answer.error or ""):
            problems.append(f"expected the error {expected['error']!r}, got {answer.error!r}, status {answer.status}")
    else:
        wanted, got = (expected["status"], expected.get("reason")), (answer.status, answer.reason)
        statuses, reasons = expected.get("status_in", [wanted[0]]), expected.get("one_of", [wanted[1]])
        if got[0] not in statuses or got[1] not in reasons:
            problems.append(f"expected {wanted}, got {got} {answer.error or ''} {_short(answer.body)}")
    lines = [f"{one.backend} {one.line}" for one in arrived]
    if lines != [line if line.startswith(("main ", "other ")) else f"main {line}" for line in expected["sent"]]:
        problems.append(f"expected to arrive {expected['sent']}, arrived {lines}")
    problems += _headers_differ("answer header", expected.get("headers", {}), answer.headers)
    if "body" in expected and answer.body != expected["body"]:
        problems.append(f"expected the body {_short(expected['body'])}, got {_short(answer.body)}")
    if "holds_not" in expected and expected["holds_not"] in answer.raw.decode("utf-8", "replace"):
        problems.append(f"the answer holds {expected['holds_not']!r}")
    if arrived:
        problems += _headers_differ("sent header", expected.get("sent_headers", {}), dict(arrived[-1].headers))
        if "sent_body" in expected and arrived[-1].body.decode("latin-1") != expected["sent_body"]:
            problems.append(f"expected the body {expected['sent_body']!r} to arrive, got {arrived[-1].body!r}")
        if expected.get("sent_holds", "") not in arrived[-1].body.decode("latin-1"):
            problems.append(f"expected {expected['sent_holds']!r} to arrive in {arrived[-1].body[:300]!r}")
    everything = b"".join(one.raw for one in arrived)
    if b"EVIL" in everything and not case.get("evil_arrives"):
        problems.append(f"what the attacker planted arrived: {everything!r}")
    return problems


def _headers_differ(what: str, expected: dict[str, str | None], got: dict[str, str]) -> list[str]:
    return [
        f"expected the {what} {name}: {value!r}, got {got.get(name)!r}"
        for name, value in expected.items()
        if got.get(name) != value
    ]


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text[:300]

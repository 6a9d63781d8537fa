"""Every case of raw HTTP at every site: MCP messages, foreign pages, tickets, signatures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cli.attack.cases import answer_in, message
from tests.attacks.calls import Answer
from tests.attacks.checks import wrong_answer
from tests.attacks.corpus import family
from tests.attacks.wire import WireAnswer, exchange
from tests.attacks.world import AttackWorld


@pytest.mark.parametrize("name", ["mcp", "site", "sandbox"])
async def test_raw_requests_have_their_expected_answers(attacked_world: AttackWorld, name: str) -> None:
    """Each request is refused at the edge or answered as expected, reaches no backend; the gateway keeps running."""
    problems: list[str] = []
    for case in family(name):
        if "csp" not in case and "declared" not in case:
            problems += [f"{case['id']} ({case['why']}): {problem}" for problem in await run_case(attacked_world, case)]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


async def run_case(world: AttackWorld, case: dict[str, Any]) -> list[str]:
    """The violations after one case."""
    case = world.placed(case)
    world.take_arrived()
    world.take_errors()
    at = str(case.get("at", "plain"))
    host = world.hosts.get(at, at)
    headers, body = mcp(case) if "rpc" in case or "mcp" in case else ({}, case.get("body", ""))
    headers |= _own(case, f"http://{host}") | case.get("headers", {})
    fields = [("host", host), *((name, str(value)) for name, value in headers.items() if value is not None)]
    fields = [field for field in fields if field[0] != "host" or "host" not in case.get("headers", {}) or field[1]]
    text = body if isinstance(body, str) else json.dumps(body)
    answer = await exchange(
        world.port, case.get("method", "GET"), case.get("target", "/"), fields, text.encode("utf-8", "surrogatepass")
    )
    problems = differences(case["expect"], answer)
    problems += wrong_answer(world, Answer(answer.status, None, answer.headers, None, answer.raw, "wire"), passes=True)
    problems += [f"{one.line} reached {one.backend}" for one in world.take_arrived()]
    problems += [f"logged as an error: {line}" for line in world.take_errors()]
    return problems


def mcp(case: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Headers and body of a message, which is posted to the app's mount unless the case declares another place."""
    case.setdefault("method", "POST")
    case.setdefault("target", "/mcp/target")
    headers, body = message(case)
    return dict(headers), body


def differences(expected: Any, answer: WireAnswer) -> list[str]:
    """The differences between an answer and the expectation: a status, or a mapping of properties."""
    if isinstance(expected, int | list):
        expected = {"status": expected}
    statuses = expected["status"] if isinstance(expected["status"], list) else [expected["status"]]
    problems = []
    if answer.status not in statuses:
        problems.append(f"expected {statuses}, got {answer.status} {answer.text[:200]}")
    told = answer_in(answer.text.encode()) or {}
    if (
        "id" in expected
        and "result" in told
        and (type(told["id"]), told["id"]) != (type(expected["id"]), expected["id"])
    ):
        problems.append(f"expected the id {expected['id']!r}, got {told['id']!r}")
    if "error" in expected:
        code = told.get("error", {}).get("code")
        if code not in (expected["error"] if isinstance(expected["error"], list) else [expected["error"]]):
            problems.append(f"expected the error {expected['error']}, got {code}: {answer.text[:200]}")
    text = answer.raw.decode("utf-8", "replace")
    if expected.get("holds", "") not in text:
        problems.append(f"the answer lacks {expected['holds']!r}: {text[-300:]}")
    if "holds_not" in expected and expected["holds_not"] in text:
        problems.append(f"the answer holds {expected['holds_not']!r}")
    return problems


def _own(case: dict[str, Any], origin: str) -> dict[str, str]:
    """The headers of a browser on the site's page, or of a client that is not a browser."""
    match case.get("own"):
        case "browser":
            return {"origin": origin, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
        case "client":
            return {"webmcp-gateway-client": "1"}
        case _:
            return {}

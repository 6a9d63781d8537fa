"""Every byte that a gateway writes anywhere, and no secret in it."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path

import pytest

from tests.test_tracing import CLIENT, GOOD, far, traced, until
from tests.world import SECRET


async def test_no_secret_is_written_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files, log, metrics, traces, the logs of a collector, answers: no client secret, no token, no key."""
    caplog.set_level(logging.DEBUG)
    answers: list[str] = []
    async with far() as there, traced(tmp_path, there) as world, world.client(headers=CLIENT) as client:
        asked = [
            ("GET", f"{world.site}/api/echo"),
            ("POST", f"{world.site}/api/echo"),
            ("GET", f"{world.site}/api/nowhere"),
            ("GET", f"{world.site}/api/%2e%2e/x"),
            ("GET", f"{world.url}/metrics"),
            ("GET", f"{world.console}/api/state"),
            ("GET", f"{world.console}/api/audit"),
            ("POST", f"{world.url}/mcp"),
        ]
        await world.auth.stop()  # a failure of the token endpoint is told without what was sent to it
        for method, url in asked[:2]:
            async with client.request(method, url, headers={"traceparent": GOOD}) as answer:
                answers += [await answer.text(), str(answer.headers)]
        await world.start_auth()
        for method, url in asked:
            async with client.request(method, url, headers={"traceparent": GOOD}) as answer:
                answers += [await answer.text(), str(answer.headers)]
        await until(lambda: any(span["name"] == "send" for span in there.spans()))
        count = len(world.records())
        await until(lambda: len(there.logs()) >= count)
        key = (tmp_path / "gateway.journal.key").read_text().strip()
        tokens = {said["authorization"].removeprefix("Bearer ") for said in there.headers if "authorization" in said}
    written = {
        path.name: path.read_bytes()
        for path in tmp_path.iterdir()
        if path.is_file() and path.name.startswith("gateway.") and path.suffix not in (".key", ".yaml")
    }
    # The authorization server of the example runs in this process, too, and logs what it issues.
    log = [one.getMessage() for one in caplog.records if not one.name.startswith("authlib.oauth2.rfc6749.grants")]
    written |= {"log": "\n".join(log).encode(), "answers": "\n".join(answers).encode()}
    written |= {"collector": json.dumps(there.got).encode()}
    assert {"gateway.journal", "gateway.db", "log", "answers", "collector"} <= written.keys()
    assert all(written.values())
    assert tokens
    forms = [form for secret in (SECRET, key, *tokens) for form in _forms(secret)]
    found = [(name, form) for name, data in written.items() for form in forms if form in data]
    assert found == []


def _forms(secret: str) -> list[bytes]:
    """A secret as it is, as JSON, in base64, in hex."""
    raw = secret.encode()
    return [raw, json.dumps(secret)[1:-1].encode(), base64.b64encode(raw).rstrip(b"="), raw.hex().encode()]

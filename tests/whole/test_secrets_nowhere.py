"""No byte that a gateway writes anywhere contains a secret."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import click
import pytest
from click.testing import CliRunner

from gateway.exchange.record import OnFailure, Recorder
from gateway.hooks import Hooks
from gateway.model import LOCAL, Caller, Door, Initiator, Secret
from gateway.stores.journal import Journal
from gateway.telemetry import Metrics
from tests.attacks.mcp_doors import http_door
from tests.doors.bridge.test_bridge import connected, console
from tests.leaks.files import look_through
from tests.leaks.marks import FORMS, MARK, found_in
from tests.leaks.watch import FOLDER, TAPS, environment, read_findings
from tests.whole.test_tracing import CLIENT, GOOD, Far, far, traced, until
from tests.world import SECRET, running


async def test_no_secret_is_written_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Files, log, metrics, traces, exported logs, answers: no client secret, no token, no key."""
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
        await world.auth.stop()  # a failure of the token endpoint is reported without the request
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
    # The authorization server of the example also runs in this process, and logs its tokens.
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
    """Return a secret as it is, as JSON, in base64, in hex."""
    raw = secret.encode()
    return [raw, json.dumps(secret)[1:-1].encode(), base64.b64encode(raw).rstrip(b"="), raw.hex().encode()]


@pytest.mark.parametrize("form", FORMS)
def test_a_marked_secret_is_found_in_any_form(form: bytes) -> None:
    """As it is, in hex, escaped, encoded."""
    assert found_in(b"before" + form + b"behind") == form


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, lambda raw: raw.hex().encode()])
def test_a_marked_secret_is_found_wherever_it_stands(before: int, encode: Callable[[bytes], bytes]) -> None:
    """In base64 of a text, at any byte offset."""
    assert found_in(encode(b"?" * before + SECRET.encode() + b"!"))


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that is not scanned at the end."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@dataclass
class At:
    """The address of a gateway."""

    port: int
    hosts: dict[str, str] = field(default_factory=dict)


def exporting_configuration(there: Far) -> str:
    """Return the configuration of a gateway that exports everything to a collector."""
    return f"telemetry: {{otlp: 'http://127.0.0.1:{there.server.port}'}}\naudit: {{sinks: [database, otlp]}}\n"


async def test_everything_that_a_gateway_says_is_looked_at(elsewhere: Path) -> None:
    """A secret in each kind of output is found, in any encoding used there."""
    tmp_path = elsewhere
    (tmp_path / "left.log").write_text(SECRET)
    (tmp_path / "left.key").write_text("k" * 43)
    (tmp_path / "left.db").write_bytes(
        b"\0" * 9 + b"k" * 43 + b" wmg_abcdefghijkl_" + b"t" * 43 + b" of-a-cookie-of-20-chars"
    )
    page = tmp_path / "web"
    page.mkdir()
    (page / "index.html").write_text("<!doctype html><title>one</title>")
    (page / "large.txt").write_text(SECRET + "x" * 2**20)
    rules = f'{{version: 1, routes: [{{path: /told, deny: "{SECRET}"}}]}}\n'
    with TAPS.aside() as watch:
        metrics = Metrics()
        async with (
            far() as there,
            running(tmp_path, source=page, policy=rules, extra=exporting_configuration(there)) as other,
            other.client(headers=CLIENT) as client,
        ):
            for method in ("GET", "OPTIONS"):  # on the fast path, and by aiohttp
                async with client.request(method, f"{other.site}/told") as answer:
                    assert SECRET in await answer.text()
            async with client.get(f"{other.site}/large.txt") as answer:
                assert SECRET in await answer.text()
            async with client.get(f"{other.console}/connect/{quote(SECRET)}", allow_redirects=False) as answer:
                assert MARK in answer.headers["location"]
            async with http_door(At(other.gateway.port), modern=True, app="cart") as door:
                assert SECRET in str((await door.ask({"url": "/told"})).body)
            async with console(other) as at_the_console, connected(other, at_the_console) as host:
                opened = await host.open()
                assert SECRET in str(await host.call(opened.view, url="/told"))
            await until(lambda: SECRET in json.dumps(there.logs()))
            logging.getLogger("gateway.any").info("told: %s", SECRET)
            Recorder(Journal(tmp_path / "other"), Hooks([], tmp_path), OnFailure.CONTINUE).start(
                "http", Caller(LOCAL, "cart", Door.SITE, Initiator.PAGE, "page"), safe=True
            ).span.note({"said": SECRET})
            metrics.circuits.labels("cart", SECRET).set(1)
            CliRunner().invoke(click.command()(lambda: click.echo(SECRET)))
        look_through(tmp_path, watch, {"of-a-cookie-of-20-chars"})
    kinds = {kind for kind in watch.seen for one in watch.found if one.startswith(f"{kind} ")}
    names = {Path(one.split()[1].removesuffix(":")).name for one in watch.found if one.startswith("files")}
    assert {"left.log", "left.db", "gateway.journal"} <= names
    assert len([one for one in watch.found if "left.db" in one]) == 3
    spoken = {"answers", "headers", "fast answers", "sent files", "frames"}
    assert kinds == spoken | {"log", "spans", "exports", "metrics", "commands", "files"}


ALONE = f"""
import logging, sys, tempfile
from pathlib import Path
from gateway.app import build_app
from gateway.stores.journal import Journal
with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "left.log").write_text({SECRET!r} if "files" in sys.argv else "nothing")
    journal = Journal(Path(folder) / "gateway.journal")
    if "log" in sys.argv:
        logging.getLogger("gateway.any").info({SECRET!r})
    if "output" in sys.argv:
        print({SECRET!r})
        print({SECRET!r}, file=sys.stderr)
    import atexit; atexit._run_exitfuncs()
"""


@pytest.mark.parametrize(
    ("leak", "kinds"), [("files", {"files"}), ("log", {"log"}), ("output", {"standard"}), ("none", set())]
)
async def test_a_gateway_of_its_own_process_is_looked_at(elsewhere: Path, leak: str, kinds: set[str]) -> None:
    """Its output and logs, and its files, which are gone when the tests end."""
    command = [sys.executable, "-c", ALONE, leak]
    environ = {**environment(), FOLDER: str(elsewhere)}
    ended = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    found, seen = read_findings(elsewhere)
    assert {one.split()[0] for one in found} == kinds
    assert seen["files"] > 0


def test_a_secret_without_the_mark_is_found_too() -> None:
    """Every secret that a gateway was given; of a multi-line key any line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.leaks.marks._OTHERS", set())
        Secret("forgotten-to-mark")
        Secret(f"-----BEGIN KEY-----\n{'M' * 60}\n{'N' * 60}\n-----END KEY-----\n")
        assert found_in(b"before forgotten-to-mark behind")
        assert found_in(f"before {'N' * 60}".encode())
        assert not found_in(b"-----BEGIN KEY-----")

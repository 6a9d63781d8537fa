"""The demo's handling of its child processes, with small programs in place of its parts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from examples.cart_app import demo
from gateway.config import load_config
from tests.leaks.marks import MARK
from tests.world import free_port

SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""


def part(program: str, port: int, probe: str = "/ready") -> demo.Part:
    """A part that runs a Python program."""
    return demo.Part("small part", port, probe, [sys.executable, "-c", program, str(port)])


@pytest.fixture
def running(tmp_path: Path) -> Iterator[demo.Demo]:
    """A demo without parts, ended after the test."""
    built = demo.Demo(tmp_path, demo.Signals())
    yield built
    built.end()


def test_part_is_started_and_ended(running: demo.Demo) -> None:
    """`start` returns once the part answers, and `end` once it has exited."""
    ready = part(SERVER, free_port())

    running.start(ready, dict(os.environ))
    answered = demo.answers(ready)
    running.end()

    assert answered
    assert running.children[0].process.returncode is not None
    assert not demo.answers(ready)


def test_part_that_dies_at_its_start_is_named(running: demo.Demo) -> None:
    """The error contains the part's name, its exit code and its last output."""
    with pytest.raises(demo.DemoError, match=r"The small part ended \(exit code 3\)[^§]*no luck today"):
        running.start(part("import sys; print('no luck today'); sys.exit(3)", free_port()), dict(os.environ))


def test_part_that_dies_later_is_named(running: demo.Demo) -> None:
    """The running demo notices that a part has exited."""
    running.start(part(SERVER, free_port()), dict(os.environ))
    running.children[0].process.kill()

    with pytest.raises(demo.DemoError, match="The small part ended"):
        running.watch()


def test_part_that_never_gets_ready_is_named(running: demo.Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that answers another status than 200 is waited for with a timeout."""
    monkeypatch.setattr(demo, "READY_WITHIN", 0.5)

    with pytest.raises(demo.DemoError, match="not ready within"):
        running.start(part(SERVER, free_port(), probe="/other"), dict(os.environ))


def test_part_that_does_not_want_to_end_is_killed(running: demo.Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that ignores the signal is killed after a while."""
    monkeypatch.setattr(demo, "END_WITHIN", 0.5)
    running.start(
        part(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN){SERVER}", free_port()), {**os.environ}
    )

    running.end()

    assert running.children[0].process.returncode is not None


def test_busy_port_is_named() -> None:
    """The message contains the busy port and its purpose."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = int(sock.getsockname()[1])
        with pytest.raises(demo.DemoError, match=rf"Port {port}, which the small part needs, is not free"):
            demo.check_port(part(SERVER, port))


def test_busy_port_ends_the_command_with_1(tmp_path: Path) -> None:
    """The command prints the message and no traceback."""
    try:
        taken = socket.create_server(("127.0.0.1", demo.AUTH_PORT))
    except OSError:
        taken = None  # by another program, which is as good
    command = [sys.executable, str(demo.HERE / "demo.py"), "--no-open", "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if taken is not None:
        taken.close()

    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr


def test_ports_are_those_of_the_files() -> None:
    """The demo starts its parts at the addresses in gateway.yaml and policy.yaml."""
    config = yaml.safe_load((demo.HERE / "gateway.yaml").read_text(encoding="utf-8"))
    policy = yaml.safe_load((demo.HERE / "policy.yaml").read_text(encoding="utf-8"))

    assert config["server"]["listen"] == f"127.0.0.1:{demo.GATEWAY_PORT}"
    assert config["credentials"]["shop-service"]["issuer"] == f"http://localhost:{demo.AUTH_PORT}"
    assert policy["backends"]["shop"]["url"] == f"http://127.0.0.1:{demo.SHOP_PORT}"


def test_config_beside_the_data_says_the_same(tmp_path: Path) -> None:
    """Only the paths differ, which lead to the example's files, and there is a story of tools of the page."""
    original = yaml.safe_load((demo.HERE / "gateway.yaml").read_text(encoding="utf-8"))

    written = yaml.safe_load(demo.write_config(tmp_path).read_text(encoding="utf-8"))

    cart = written["apps"]["cart"]
    assert Path(cart.pop("source")).is_dir()
    assert Path(cart.pop("policy")).is_file()
    tools = {step["tool"] for step in cart.pop("story")["steps"] if "tool" in step}
    assert tools == {"get_cart", "add_to_cart", "remove_from_cart"}
    del original["apps"]["cart"]["source"], original["apps"]["cart"]["policy"]
    assert written == original


def test_gateway_takes_both_configurations(tmp_path: Path) -> None:
    """The example's files and the one that the demo writes load without a problem."""
    environ = {"SHOP_SECRET": f"a secret of these tests {MARK}"}

    example = load_config(demo.HERE / "gateway.yaml", environ).apps["cart"]
    written = load_config(demo.write_config(tmp_path), environ)

    assert written.apps["cart"].source == example.source
    assert written.apps["cart"].policy.version == example.policy.version
    assert written.journal.parent == tmp_path

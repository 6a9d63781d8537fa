"""Runs the whole example: authorization server, shop and gateway as child processes, until Ctrl-C."""

from __future__ import annotations

import argparse
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
SHOP = "examples.cart_app.shop"
AUTH_PORT, SHOP_PORT, GATEWAY_PORT = 9400, 9401, 8080  # as in gateway.yaml and policy.yaml
PAGE = f"http://localhost:{GATEWAY_PORT}"
READY_WITHIN = 60.0
END_WITHIN = 15.0  # the gateway lets running requests finish for ten seconds
LAST_LINES = 20

say = partial(print, flush=True)


class DemoError(Exception):
    """The demo cannot continue; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the programs; `probe` is a path that answers 200 once it is ready."""

    name: str
    port: int
    probe: str
    command: Sequence[str]


@dataclass(slots=True)
class Child:
    """A running part; its output goes to a file."""

    part: Part
    process: subprocess.Popen[bytes]
    output: Path

    def last_words(self) -> str:
        """Return the last lines of its output."""
        lines = self.output.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(f"    {line}" for line in lines) or "    (it printed nothing)"


@dataclass(slots=True)
class Signals:
    """Counts signals to stop, so that nothing is interrupted half-way."""

    count: int = 0

    def listen(self) -> None:
        """Handle SIGINT, SIGTERM and, if it exists, SIGHUP."""
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), self._take)

    def _take(self, number: int, frame: object) -> None:
        self.count += 1


@dataclass(slots=True)
class Demo:
    """The running parts, in order of start."""

    data: Path
    signals: Signals
    children: list[Child] = field(default_factory=list)

    def start(self, part: Part, environ: dict[str, str]) -> None:
        """Start a part and wait until it is ready. Raises `DemoError`."""
        output = self.data / f"{part.name.replace(' ', '-')}.log"
        with output.open("wb") as file:
            # a separate session: a terminal sends Ctrl-C to all, and a part that gets it twice ends at once
            process = subprocess.Popen(
                part.command,
                cwd=HERE.parents[1],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.children.append(Child(part, process, output))
        say(f"  {part.name:22} port {part.port}  ", end="")
        deadline = time.monotonic() + READY_WITHIN
        while not answers(part):
            if self.signals.count:
                return
            self.check()
            if time.monotonic() > deadline:
                say("not ready")
                raise DemoError(
                    f"The {part.name} was not ready within {READY_WITHIN:.0f} seconds. Its last output:\n"
                    + self.children[-1].last_words()
                )
            time.sleep(0.1)
        say("ready")

    def check(self) -> None:
        """Check that all parts still run. Raises `DemoError`."""
        for child in self.children:
            code = child.process.poll()
            if code is not None:
                raise DemoError(
                    f"The {child.part.name} ended (exit code {code}). Its last output:\n{child.last_words()}"
                )

    def watch(self) -> None:
        """Wait for a signal. Raises `DemoError` if a part ends first."""
        while not self.signals.count:
            self.check()
            time.sleep(0.2)

    def end(self) -> None:
        """Terminate all parts, the last one first, and wait for them; another signal kills them."""
        heard = self.signals.count
        for child in reversed(self.children):
            if child.process.poll() is None:
                child.process.terminate()
            deadline = time.monotonic() + END_WITHIN
            while child.process.poll() is None:
                if time.monotonic() > deadline or self.signals.count > heard:
                    child.process.kill()
                time.sleep(0.05)


def answers(part: Part) -> bool:
    """Return whether the part answers its probe with 200."""
    connection = http.client.HTTPConnection("127.0.0.1", part.port, timeout=2)
    try:
        connection.request("GET", part.probe)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def check_port(part: Part) -> None:
    """Check that no other program listens on the part's port. Raises `DemoError`."""
    try:
        socket.create_server(("127.0.0.1", part.port)).close()
    except OSError as error:
        raise DemoError(
            f"Port {part.port}, which the {part.name} needs, is not free: {os.strerror(error.errno or 0)}.\n"
            "End the program that uses it (perhaps another demo), and start again."
        ) from error


def write_config(data: Path) -> Path:
    """Copy gateway.yaml to `data`, beside which the gateway writes its record, with absolute paths and the story."""
    config = yaml.safe_load((HERE / "gateway.yaml").read_text(encoding="utf-8"))
    for app in config["apps"].values():
        app |= {key: str(HERE / app[key]) for key in ("source", "policy")}
    config["apps"]["cart"]["story"] = yaml.safe_load((HERE / "story.yaml").read_text(encoding="utf-8"))
    path = data / "gateway.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def parts(data: Path) -> list[Part]:
    """Return the three programs in dependency order. Raises `DemoError`."""
    command = shutil.which("webmcp-gateway", path=str(Path(sys.executable).parent))
    if command is None:
        raise DemoError(f"There is no webmcp-gateway beside {sys.executable}: install it with `pip install .` first.")
    auth = [sys.executable, str(HERE / "auth_server.py"), "--port", str(AUTH_PORT), "--keys", str(data / "keys.json")]
    shop = [sys.executable, "-m", SHOP, "--port", str(SHOP_PORT), "--database", str(data / "shop.db")]
    gateway = [command, "serve", "--config", str(write_config(data))]
    return [
        Part("authorization server", AUTH_PORT, "/.well-known/oauth-authorization-server", auth),
        Part("shop", SHOP_PORT, "/healthz", [*shop, "--issuer", f"http://localhost:{AUTH_PORT}"]),
        Part("gateway", GATEWAY_PORT, "/readyz", gateway),
    ]


def show_page(open_browser: bool) -> None:
    """Print the page's address, and open it if there is a display."""
    frame = f"  +{'-' * (len(PAGE) + 8)}+"
    say(f"\n{frame}\n  |    {PAGE}    |\n{frame}\n\n  Ctrl-C ends everything.\n")
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if open_browser and has_display:
        webbrowser.open(PAGE)


def run(
    data: Path, needed: list[Part], title: str, show: Callable[[], None], more: Mapping[str, str] | None = None
) -> None:
    """Start all parts, with `more` environment variables, show the page, and stop on a signal. Raises `DemoError`."""
    signals = Signals()
    signals.listen()
    demo = Demo(data, signals)
    environ = {**os.environ, "SHOP_SECRET": secrets.token_urlsafe(32), "PYTHONUNBUFFERED": "1", **(more or {})}
    try:
        for part in needed:
            check_port(part)
        say(f"Starting {title}; its files are in {data}")
        for part in needed:
            demo.start(part, environ)
            if signals.count:
                return
        show()
        demo.watch()
    finally:
        if demo.children:
            say("\nEnding …", end="")
        demo.end()
        if demo.children:
            say(" done.")


def start(data: Path, open_browser: bool) -> None:
    """Run the cart example. Raises `DemoError`."""
    run(data, parts(data), "the cart example", lambda: show_page(open_browser))


def start_by_command(description: str, kept: str, prefix: str, start: Callable[[Path, bool], None]) -> None:
    """Read a demo's command line, and start it. `kept` is what its folder holds; `prefix` names a temporary one."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"keep {kept} here [a temporary folder]")
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    given = parser.parse_args()
    try:
        if given.data is not None:
            given.data.mkdir(parents=True, exist_ok=True)
            start(given.data.resolve(), not given.no_open)
        else:
            with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
                start(Path(folder), not given.no_open)
    except DemoError as error:
        sys.exit(f"\n{error}")


def main() -> None:
    """Start the cart example from the command line."""
    start_by_command(
        "Start the cart example: authorization server, shop and gateway.", "cart, keys and record", "cart-demo-", start
    )


if __name__ == "__main__":
    main()

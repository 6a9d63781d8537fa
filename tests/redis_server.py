"""A real Redis for tests: it runs on a free port, and can be stopped, frozen and restarted."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.leaks.files import look_through
from tests.leaks.watch import TAPS
from tests.world import bind_socket

WAIT = 20.0


class RedisServer:
    """One server; `folder` holds its data, `settings` are those of redis.conf by their names."""

    def __init__(self, folder: Path, **settings: str) -> None:
        program = shutil.which("redis-server") or shutil.which("valkey-server")
        if program is None:
            raise RuntimeError("Redis is not installed: run scripts/redis")
        self._program = program
        self._folder = folder
        self._settings = {name.replace("_", "-"): value for name, value in settings.items()}
        reserved = bind_socket()
        weakref.finalize(self, reserved.close)
        self.port = int(reserved.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    @property
    def url(self) -> str:
        """The URL of its first database."""
        return f"redis://127.0.0.1:{self.port}/0"

    def new_database(self) -> str:
        """Return the URL of an empty database, which is used again after 15 others."""
        self._databases = self._databases % 15 + 1
        with redis.Redis(port=self.port, db=self._databases) as client:
            client.flushdb()
        return self.url[:-1] + str(self._databases)

    def start(self) -> None:
        """Start the server; it answers when this returns."""
        settings = {"port": str(self.port), "bind": "127.0.0.1", "dir": str(self._folder), "save": "", **self._settings}
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([self._program, *options], stdout=log, stderr=log, cwd=self._folder)
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            with contextlib.suppress(redis.ConnectionError):
                if self.ask("PING"):
                    return
            time.sleep(0.02)
        raise TimeoutError("Redis does not answer")

    def stop(self) -> None:
        """Kill the server; its connections break."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(WAIT)

    def freeze(self) -> None:
        """Stop its process without closing its connections."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self._signal(signal.SIGCONT)

    def ask(self, *words: str | int) -> Any:
        """Run a command, by a client of its own."""
        with redis.Redis(
            port=self.port, password=self._settings.get("requirepass"), retry=Retry(NoBackoff(), 0)
        ) as client:
            return client.execute_command(*words)

    def names(self) -> set[str]:
        """Return the names of all keys but the one that checks of the connection write."""
        return {key.decode() for key in self.ask("KEYS", "*")} - {"webmcp:probe"}

    def save(self) -> None:
        """Write its data to a file, if it runs."""
        if self._process is not None:
            self.thaw()
            with contextlib.suppress(redis.RedisError):
                self.ask("SAVE")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


def be_patient(monkeypatch: pytest.MonkeyPatch, seconds: float = 3.0) -> None:
    """Let commands take longer than in production, so that tests need no quick machine."""
    monkeypatch.setattr("gateway.stores.redis.connection.TIMEOUT", seconds)
    monkeypatch.setattr("gateway.stores.redis.directory.TIMEOUT", seconds)


@contextmanager
def redis_server(**settings: str) -> Iterator[RedisServer]:
    """A running server with an empty folder of its own, which is searched for secrets at the end."""
    with TemporaryDirectory(prefix="redis-") as folder:
        server = RedisServer(Path(folder), **settings)
        server.start()
        try:
            yield server
        finally:
            server.save()
            server.stop()
            look_through(Path(folder), TAPS.watch, TAPS.cookies)

"""A real PostgreSQL for tests: it runs on a free port with a separate data folder, and can be stopped and restarted."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.leaks.files import look_through
from tests.leaks.watch import TAPS
from tests.world import bind_socket

WAIT = 20.0


def programs() -> Path | None:
    """The folder of the newest installed version, or None."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return found[-1] if found else None


class PostgreSQL:
    """One server; `folder` holds its data."""

    def __init__(self, folder: Path) -> None:
        home = programs()
        if home is None:
            raise RuntimeError("PostgreSQL is not installed: run scripts/postgresql")
        self._programs = home
        self._folder = folder
        # It refuses to run as root.
        self._as: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []}
        if os.getuid() != 0:
            self._as = {}
        reserved = bind_socket()
        weakref.finalize(self, reserved.close)
        self.port = int(reserved.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._addresses = ["127.0.0.1"]
        if self._as:
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "-A", "trust", "--no-sync", "-U", "postgres", "-D", str(folder / "data"))

    @property
    def url(self) -> str:
        """The URL of the default database."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self._folder / "data"

    def start(self) -> None:
        """Start the server; it accepts connections when this returns."""
        settings = (
            "fsync=off",
            f"port={self.port}",
            f"listen_addresses={','.join(self._addresses)}",
            f"unix_socket_directories={self._folder}",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._folder / "data"), *options],
                stdout=log, stderr=log, cwd=self._folder, **self._as,
            )  # fmt: skip
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            ready = [str(self._programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise TimeoutError("PostgreSQL does not answer")

    def new_database(self) -> str:
        """Create a database, and return its URL."""
        self._databases += 1
        name = f"new_{self._databases}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", name)
        return self.url.rpartition("/")[0] + f"/{name}"

    def stop(self) -> None:
        """Stop the server at once, and close its connections."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(2)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WAIT)

    def admit(self, address: str, clients: str) -> None:
        """Listen at a further address from the next start on, for clients of this network."""
        self._addresses.append(address)
        with (self.data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {clients} trust\n")

    def configure(self, *settings: str, recovery: bool = False) -> None:
        """Change settings of the stopped server; in recovery it is a standby that can be read, and promoted."""
        data = self._folder / "data"
        with (data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{setting}\n" for setting in settings)
        if recovery:
            (data / "standby.signal").touch()

    def _run(self, program: str, *arguments: str) -> None:
        command: list[str] = [str(self._programs / program), *arguments]
        subprocess.run(
            command,
            check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._as,
        )  # fmt: skip


@contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """A running server with a separate data folder: pytest's folders are closed to the user that it runs as."""
    with TemporaryDirectory(prefix="postgresql-") as folder:
        server = PostgreSQL(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()
            look_through(Path(folder), TAPS.watch, TAPS.cookies)

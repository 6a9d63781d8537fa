"""`serve --workers`: a supervisor of several gateway processes on one port, which are the nodes of one gateway."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gateway.config import ClusterSettings, Config, NodeAddress, Reading
from gateway.errors import StartError

WORKER: Final = "WEBMCP_GATEWAY_WORKER"
"""The environment variable of a worker: its number, the descriptor of the supervisor's pipe, those of its sockets."""

MOST: Final = 64
"""Workers at most."""

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 30.0
"""Seconds before a worker that ended is started again: the first pause, doubled each time up to the longest."""

METRICS: Final = "metrics"
"""The folder below the state folder in which workers share their metrics."""

START_ERROR: Final = 2
"""The exit code of a worker that cannot start as it is configured."""

STEADY: Final = 60.0
"""Seconds after which a worker that is ready counts as sound again."""

LOOP: Final = 6
"""Ends of workers, each before it was sound, after which the supervisor gives up."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """The place of this process among the workers: its number, from 1, the pipe, and its listening sockets."""

    number: int
    pipe: int
    sockets: tuple[int, ...]


def worker_place(environ: MutableMapping[str, str]) -> WorkerPlace | None:
    """Return the place of this process if a supervisor has started it, and unset its variable for children."""
    number, _, rest = environ.pop(WORKER, "").partition(":")
    if not number:
        return None
    pipe, *sockets = map(int, rest.split(","))
    for descriptor in (pipe, *sockets):
        os.set_inheritable(descriptor, False)
    return WorkerPlace(int(number), pipe, tuple(sockets))


def end_with_supervisor(place: WorkerPlace, loop: asyncio.AbstractEventLoop) -> None:
    """End this process, as by SIGTERM, when its supervisor is gone."""

    def ended() -> None:
        loop.remove_reader(place.pipe)
        os.kill(os.getpid(), signal.SIGTERM)

    loop.add_reader(place.pipe, ended)


def check(config: Config) -> None:
    """Raise StartError if workers cannot share what this configuration names."""
    if config.database.reveal().startswith("sqlite:"):
        raise StartError(
            "--workers: several processes share a database; name PostgreSQL in stores.database, SQLite is for one"
        )
    if config.cluster is None:
        raise StartError(
            "--workers: the processes sign what they share; name a key for that in cluster.keys of gateway.yaml. "
            "`webmcp-gateway credential rotate-key --print` makes one"
        )
    if config.cluster.listen is not None:
        raise StartError(
            "--workers is for a gateway on one machine: remove cluster.listen, or run one process for each cluster.name"
        )


def as_worker(config: Config, number: int) -> Config:
    """Return the configuration of a worker: its own state folder and journal, and its place in the cluster."""
    state = config.state / f"worker-{number}"
    address = NodeAddress(path=state / "node.sock")
    if config.cluster is None:
        raise StartError("cluster.keys is missing: the other workers have it")
    metrics = config.state / METRICS
    cluster = ClusterSettings(f"worker-{number}", config.cluster.keys, address, address, metrics=metrics)
    audit = config.audit
    if audit.key_file.parent == config.journal.parent:
        audit = replace(audit, key_file=state / audit.key_file.name)
    return replace(
        config,
        server=replace(config.server, state_dir=state),
        journal=state / config.journal.name,
        audit=audit,
        cluster=cluster,
    )


def reading_as_worker(read: Callable[[], Reading], number: int) -> Callable[[], Reading]:
    """Return a function that reads the configuration of a worker."""

    def reread() -> Reading:
        reading = read()
        return reading if reading.config is None else replace(reading, config=as_worker(reading.config, number))

    return reread


@dataclass(slots=True, eq=False)
class _Worker:
    number: int
    sockets: list[socket.socket]
    process: asyncio.subprocess.Process | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class Supervisor:
    """Starts `count` workers by `command`, and starts those again that end."""

    def __init__(
        self,
        config: Config,
        count: int,
        command: Sequence[str],
        environ: Mapping[str, str],
    ) -> None:
        self._config = config
        self._command = command
        self._environ = environ
        self._workers = [_Worker(number, []) for number in range(1, count + 1)]
        self._stopping = False
        self._ends = 0
        self._gave_up: str | None = None
        self._all_ready = asyncio.Event()
        self._pipe, self._held = os.pipe()
        os.set_blocking(self._pipe, False)

    async def run(self, ready: Callable[[], None]) -> None:
        """Run until a signal ends all; `ready` is called once all workers are. Raises StartError for a crash loop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._send, signal.SIGHUP)
        self._clear_metrics()
        notices, path = self._notices()
        loop.add_reader(notices, self._note, notices)
        try:
            await self._bind()
            async with asyncio.TaskGroup() as outer:
                announcing = outer.create_task(self._announce(ready))
                async with asyncio.TaskGroup() as tasks:
                    for worker in self._workers:
                        tasks.create_task(self._keep(worker, path))
                announcing.cancel()
        finally:
            loop.remove_reader(notices)
            notices.close()
            path.unlink(missing_ok=True)
            os.close(self._held)
            os.close(self._pipe)
            for worker in self._workers:
                for one in worker.sockets:
                    one.close()
        if self._gave_up is not None:
            raise StartError(self._gave_up)

    def _clear_metrics(self) -> None:
        """Make the folder of the workers' metrics, without those of an earlier run."""
        folder = self._config.state / METRICS
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            for path in folder.iterdir():
                path.unlink()
        except OSError as error:
            raise StartError(f"the folder {folder} cannot be emptied: {error.strerror}") from error

    async def _announce(self, ready: Callable[[], None]) -> None:
        for worker in self._workers:
            await worker.ready.wait()
        self._all_ready.set()
        ready()

    async def _keep(self, worker: _Worker, notices: Path) -> None:
        """Run a worker, again and again, until all stop."""
        pause, loop = FIRST_PAUSE, asyncio.get_running_loop()
        while not self._is_stopping():
            began = loop.time()
            worker.ready.clear()
            descriptors = [self._pipe, *(one.fileno() for one in worker.sockets)]
            place = f"{worker.number}:{','.join(map(str, descriptors))}"
            worker.process = await asyncio.create_subprocess_exec(
                *self._command,
                env={**self._environ, WORKER: place, "NOTIFY_SOCKET": str(notices)},
                pass_fds=descriptors,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops all in order
            )
            if self._is_stopping():  # a signal came while it was started
                worker.process.terminate()
            code = await worker.process.wait()
            worker.process = None
            if self._is_stopping():
                return
            was_ready = worker.ready.is_set()
            sound = was_ready and loop.time() - began >= STEADY
            self._ends = 0 if sound else self._ends + 1
            pause = FIRST_PAUSE if sound else min(pause * 2, LONGEST_PAUSE)
            why = f"worker {worker.number} ended {_way(code)}"
            if not was_ready and not self._all_ready.is_set() and code == START_ERROR:
                self._give_up(f"{why} before it was ready: its messages above say why")
                return
            if self._ends >= LOOP:
                self._give_up(f"{why}, and workers have ended {self._ends} times in a row: the log says why")
                return
            log.error("%s; it is started again in %g s", why, pause)
            await asyncio.sleep(pause)

    def _is_stopping(self) -> bool:
        return self._stopping

    def _give_up(self, why: str) -> None:
        self._gave_up = self._gave_up or why
        self._stop()

    def _stop(self) -> None:
        """Stop all workers; a second signal hurries them, as it does a single process."""
        self._stopping = True
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process is not None:
                with suppress(ProcessLookupError):
                    worker.process.send_signal(number)

    def _notices(self) -> tuple[socket.socket, Path]:
        """Return the socket on which workers report that they are ready (sd_notify(3)), and its path."""
        path = self._config.state / "workers.sock"
        path.unlink(missing_ok=True)
        notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        before = os.umask(0o177)
        try:
            notices.bind(str(path))
        except OSError as error:
            raise StartError(f"the socket {path} cannot be made: {error.strerror}") from error
        finally:
            os.umask(before)
        notices.setblocking(False)
        if hasattr(socket, "SO_PASSCRED"):
            notices.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        return notices, path

    def _note(self, notices: socket.socket) -> None:
        """Note which worker is ready: the system names the process that sent a message."""
        with suppress(BlockingIOError):
            while True:
                message, ancillary, _, _ = notices.recvmsg(256, socket.CMSG_SPACE(12))
                pid = next((int.from_bytes(data[:4], sys.byteorder) for *_, data in ancillary), 0)
                for worker in self._workers:
                    if worker.process is not None and worker.process.pid == pid and b"READY=1" in message:
                        worker.ready.set()

    async def _bind(self) -> None:
        """Bind a socket for each worker at each address: the system spreads connections over them.

        They stay open here, so that connections wait while a worker is started again.
        """
        server = self._config.server
        addresses = [("server.listen", server.host, server.port)]
        if server.admin is not None:
            addresses.append(("server.admin_listen", *server.admin))
        for key, host, port in addresses:
            try:
                places = await asyncio.get_running_loop().getaddrinfo(
                    host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
                )
                for worker in self._workers:
                    for family, _, _, _, address in dict.fromkeys(places):
                        worker.sockets.append(_bound(family, address))
            except OSError as error:
                reason = os.strerror(error.errno or 0)
                raise StartError(f"cannot listen on {host}:{port}: {reason}; set {key}") from error


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that listens at an address together with those of the other workers. Raises OSError."""
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind((str(address[0]), address[1]))
    except OSError:
        opened.close()
        raise
    return opened


def _way(code: int) -> str:
    """Return how a process ended."""
    if code < 0:
        with suppress(ValueError):
            return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"

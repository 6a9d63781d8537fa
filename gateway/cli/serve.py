"""`serve`: runs the gateway until a signal, then drains running exchanges. `dev`: the same with live reload of apps."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import click
from aiohttp import web

import gateway
from gateway.app import ADMIN, PACKER, RELOAD, SETTINGS, build_app
from gateway.assembly.live_settings import Settings
from gateway.assembly.packing import FEW, Packer
from gateway.callers.methods import TokenAuth
from gateway.cli import lock, logs
from gateway.cli.group import config_option
from gateway.cli.workers import (
    MOST,
    Supervisor,
    WorkerPlace,
    as_worker,
    check,
    end_with_supervisor,
    reading_as_worker,
    worker_place,
)
from gateway.config import Config, Reading, ServerSettings, load_config, read_config
from gateway.doors.client_connection import ConnectionLimits
from gateway.doors.client_limits import Peers, Unread
from gateway.doors.runner import DRAIN, LIMITS, LINGER, LINGER_IN_CLUSTER, Drain, GatewayRunner
from gateway.errors import DocumentError, Problem, StartError
from gateway.eventloop import busy_poll
from gateway.exchange.streams import IN_ALL
from gateway.stores.sql import Database

ENOUGH: Final = 4 * IN_ALL
"""Each open stream has two, to its page and to its backend; as many again are for clients, views and upstreams."""

ENDLESS: Final = 2**20
"""The requested limit if the system states no maximum: no system with a limit allows more."""


def raise_file_limit() -> str | None:
    """Raise the limit to the maximum of this process; return a warning if that is too low.

    Most systems default to 1,024, and allow more on request.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENDLESS if hard == resource.RLIM_INFINITY else hard
    if soft == resource.RLIM_INFINITY or soft >= most:
        most = soft
    else:
        with suppress(OSError, ValueError):  # the system may have a further limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most == resource.RLIM_INFINITY or most >= ENOUGH:
        return None
    return (
        f"only {most} connections and files may be open at a time, where {IN_ALL} streams alone take {2 * IN_ALL}: "
        f"set the limit to {ENOUGH} (ulimit -Hn, LimitNOFILE= of a systemd unit, --ulimit nofile= of a container)"
    )


PROGRESS_SECONDS = 2.0

ORDERLY = 3.0
"""Seconds for calls that were cut by a second signal to be recorded and answered, before connections are aborted."""

ADMIN_EACH = 32
"""Connections of one address to the listener for operators."""

ADMIN_CONNECTIONS = 128

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """The first signal starts the shutdown, the second cuts running calls; further ones have their default effect."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()
        self._announced = False
        for number in SIGNALS:
            loop.add_signal_handler(number, self._came, number)

    async def wait(self) -> bool:
        """Wait for the first signal; return whether it came from a supervisor, not from a person at the terminal."""
        await self._stop.wait()
        return self._announced

    async def announce(self, drain: Drain, seconds: float) -> None:
        """Say at `/readyz` that the gateway stops, and go on for so many seconds: load balancers notice."""
        drain.announce()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    async def end(self, runner: web.AppRunner) -> None:
        """Stop accepting, and end running calls."""
        async with asyncio.TaskGroup() as tasks:
            cutting = tasks.create_task(self._cut_off(runner))
            await runner.cleanup()
            cutting.cancel()

    async def _cut_off(self, runner: web.AppRunner) -> None:
        """At the second signal answer all calls with an error, then abort what is left (`handler_cancellation`)."""
        await self._hurry.wait()
        runner.app[DRAIN].cut()
        await asyncio.sleep(ORDERLY)
        server = runner.server
        for connection in server.connections if server is not None else ():
            if isinstance(connection.transport, asyncio.Transport):
                connection.transport.abort()

    def _came(self, number: signal.Signals) -> None:
        if not self._stop.is_set():
            self._announced = number == signal.SIGTERM
            self._stop.set()
            return
        self._hurry.set()
        for one in SIGNALS:
            self._loop.remove_signal_handler(one)


log = logging.getLogger(__name__)


@click.command()
@config_option()
@click.option("--verbose", "-v", is_flag=True, help="Log events, not only problems.")
@click.option(
    "--log-format", type=click.Choice(logs.FORMATS), help="Format of the log.  [default: `log` of gateway.yaml]"
)
@click.option(
    "--workers",
    type=click.IntRange(1, MOST),
    help="Processes that share the port, as one gateway; more than one need PostgreSQL.",
)
def serve(path: Path, verbose: bool, log_format: str | None, workers: int | None) -> None:
    """Run the gateway until Ctrl-C or SIGTERM.

    Changes of gateway.yaml, of policies, and of files with secrets and certificates take effect while it runs, within
    two seconds, or at once with SIGHUP. An invalid file changes nothing; the log and the console name its problems, and
    the few settings that need a restart.

    Example: webmcp-gateway serve --config gateway.yaml
    """
    place = worker_place(os.environ)
    if workers is not None and workers > 1 and place is None:
        supervise(path, log_format, workers, verbose=verbose)
    else:
        run(path, log_format, verbose=verbose, place=place)


def supervise(path: Path, log_format: str | None, count: int, *, verbose: bool) -> None:
    """Run `count` processes with the configuration in `path` until a signal ends them all."""
    logs.set_up(log_format or "text", verbose)
    config = load_config(path, os.environ)
    logs.set_up(log_format or config.log, verbose)
    raise_file_limit()
    check(config)
    lock.check_state(config)
    output = _Output(log_format, config.log, verbose=verbose)
    command = [sys.executable, "-P", "-m", "gateway", "serve", "--config", str(path)]
    command += ["--verbose"] if verbose else []
    command += ["--log-format", log_format] if log_format is not None else []
    with lock.hold_lock(config.state) as tell:
        for number in range(1, count + 1):
            lock.check_state(as_worker(config, number))

        def ready() -> None:
            tell(f"http://{_reachable(config.server.host)}:{config.server.port}/mcp")
            output.say(_ready(config))
            output.say(f"{count} workers share the port")
            notify("READY=1")

        asyncio.run(Supervisor(config, count, command, os.environ).run(ready))


def run(
    path: Path,
    log_format: str | None = None,
    *,
    verbose: bool,
    live: bool = False,
    place: WorkerPlace | None = None,
) -> None:
    """Run the gateway of the configuration in `path` until a signal ends it; `live` as in `build_app`.

    `place` is that of a worker among others.
    """
    gc.disable()  # until all that lives long is built: collections would visit it again and again
    logs.set_up(log_format or "text", verbose)
    read: Callable[[], Reading] = partial(read_config, path, os.environ)
    if place is not None:
        read = reading_as_worker(read, place.number)
    reading = read()
    config = reading.config
    if config is None or (reading.problems and not config.apps and not config.upstreams):
        raise DocumentError(reading.problems)
    logs.set_up(log_format or config.log, verbose, access=config.access_log)
    if (few := raise_file_limit()) is not None:
        log.warning(few)
    factory = busy_poll.loop_factory(busy_poll=config.server.busy_poll)
    lock.check_state(config)
    output = _Output(log_format, config.log, verbose=verbose)
    with lock.hold_lock(config.state) as tell, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve(config, read, live, tell, output, reading.problems, place))


class _Output:
    """The output and the log of the command: in `level`, the format of its option, or in that of gateway.yaml."""

    def __init__(self, level: str | None, format: str, *, verbose: bool) -> None:
        self._level = level
        self._format = level or format
        self._verbose = verbose

    @property
    def for_person(self) -> bool:
        """Whether a person reads it: lines in JSON are for a program, also where the output of a container is a tty."""
        return self._format == "text" and sys.stdout.isatty()

    def say(self, message: str) -> None:
        """Write to standard output."""
        click.echo(logs.log_text(self._format, log.name, message))

    def follow(self, before: Settings, now: Settings) -> None:
        """Log as the changed settings say."""
        old, new = before.config, now.config
        if (old.log, old.access_log) != (new.log, new.access_log):
            self._format = self._level or new.log
            logs.set_up(self._format, self._verbose, access=new.access_log)


async def _serve(
    config: Config,
    reread: Callable[[], Reading],
    live: bool,
    tell: Callable[[str], None],
    output: _Output,
    problems: Sequence[Problem],
    place: WorkerPlace | None,
) -> None:
    say = output.say if place is None else log.info
    loop = asyncio.get_running_loop()
    signals = Signals(loop)
    own = [app.id for app in config.apps.values() if isinstance(app.source, Path)]
    if own and len(own) <= FEW:
        say(f"Packing {', '.join(own)}")  # takes seconds for large scripts
    app = build_app(config, reread, live=live, problems=problems)
    app[SETTINGS].watch(output.follow)
    server = config.server
    linger = LINGER if config.cluster is None else LINGER_IN_CLUSTER
    runner = GatewayRunner(app, drain=server.drain, linger=linger)
    admin = _admin_runner(app[ADMIN]) if server.admin is not None else None
    try:
        await runner.setup()
        loop.add_signal_handler(signal.SIGHUP, app[RELOAD])
        sockets = inherited_sockets(os.environ) if place is None else worker_sockets(place, server)
        if place is not None:
            end_with_supervisor(place, loop)
        if admin is not None and server.admin is not None:
            await admin.setup()
            await _listen(admin, *server.admin, "server.admin_listen", sockets)
        await _listen(runner, server.host, server.port, "server.listen", sockets)
        for name, port in sockets:
            log.warning("systemd passed a socket at %s:%d, which is neither server.listen nor admin_listen", name, port)
        _tune()
        tell(f"http://{_reachable(config.server.host)}:{config.server.port}/mcp")
        notify("READY=1")
        say(_ready(config))
        if place is None:
            await _offer_login(config, output)
        progress = asyncio.create_task(_say_progress(app[PACKER], say))
        announced = await signals.wait()
        progress.cancel()
        notify("STOPPING=1")
        server = app[SETTINGS].now.config.server
        runner.drain = server.drain
        say(_stop_message(server, announced=announced))
        if announced:
            await signals.announce(app[DRAIN], server.announce)
    finally:
        await signals.end(runner)
        if admin is not None:
            await admin.cleanup()


async def _say_progress(packer: Packer, say: Callable[[str], None]) -> None:
    """Say every few seconds how many apps are packed, until all are."""
    total, before = packer.remaining, packer.remaining
    while packer.remaining:
        await asyncio.sleep(PROGRESS_SECONDS)
        if packer.remaining < before:
            before = packer.remaining
            say(f"Packed {total - before} of {total} apps")


def _stop_message(server: ServerSettings, *, announced: bool) -> str:
    first = f"/readyz answers 503 for {server.announce:g} seconds, then " if announced and server.announce else ""
    return (
        f"Stopping: {first}running calls have {server.drain:g} seconds; a second signal answers them with an error, a "
        "third one ends at once."
    )


def _admin_runner(app: web.Application) -> GatewayRunner:
    """Return the runner of the listener for operators, with its own connections, so that it always answers."""
    app[LIMITS] = ConnectionLimits(Peers(ADMIN_EACH, ADMIN_CONNECTIONS), Unread(), lambda _: None)
    return GatewayRunner(app, drain=0)


def _reachable(host: str) -> str:
    """Return the address at which a process of this machine reaches a server on `host`."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104  # compared, not listened at
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


async def _offer_login(config: Config, output: _Output) -> None:
    """Show a login link if a person reads the output; in a log others could read it."""
    if not any(isinstance(method, TokenAuth) for method in config.auth):
        return
    if not output.for_person:
        output.say(
            "To log in to the console, make a link with `webmcp-gateway token link`: it is good once, for ten minutes."
        )
        return
    from gateway.cli.token import login_link  # noqa: PLC0415  here, as it loads what prints tables

    try:
        async with Database(config.database.reveal()) as database:
            address = await login_link(config, database)
    except (OSError, StartError) as error:
        log.error("no login link can be made now: %s", error)
        return
    output.say(f"Log in to the console, once, within ten minutes:\n  {address}")


async def _listen(runner: GatewayRunner, host: str, port: int, key: str, sockets: Sockets) -> None:
    """Listen at an address; on the socket of a supervisor, if it passed one for this address."""
    try:
        if own := sockets.pop((host, port), []):
            for sock in own:
                await runner.listen(sock, inherited=True)
            return
        for sock in await _own_sockets(host, port):
            await runner.listen(sock)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise StartError(f"cannot listen on {host}:{port}: {reason}; set {key}") from error


async def _own_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to all addresses of a host; "" is every address of this machine. Raises OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets = list[socket.socket]()
    try:
        for family, _, _, _, address in dict.fromkeys(addresses):
            sockets.append(socket.create_server(address[:2], family=family))
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _tune() -> None:
    # After each system call, the event loop regains the GIL from a busy thread (the database's) within half a
    # millisecond; with Python's default of 5 ms one answer waits several times.
    sys.setswitchinterval(0.0005)
    # Exclude long-lived objects from full collections, whose pauses show in the slowest answers.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Collect young objects at 4,000, a pause of 4 ms.
    gc.set_threshold(4000, 250, 100)


def _ready(config: Config) -> str:
    server = config.server
    rows = [("console", server.origins.console), ("MCP", f"{server.public_url}/mcp")]
    for app in config.apps.values():
        site = server.origins.app(app.id) + (app.start if app.start != "/" else "")
        rows += [(app.id, site), ("", f"{server.public_url}/mcp/{app.id} (MCP, this app alone)")]
    width = max(len(name) for name, _ in rows)
    lines = (f"  {name:{width}}  {url}" for name, url in rows)
    return "\n".join((f"webmcp-gateway {gateway.__version__} is ready; Ctrl-C ends it", *lines))


@click.command()
@config_option("The configuration; `init` writes a first one.")
def dev(path: Path) -> None:
    """Run the gateway, and show changed apps at once.

    When a file of an app is saved, the app is packed again and the console reloads its view; models see the tools
    of the new page. If packing fails, the console shows why and keeps the previous page. Policies take effect as with
    `serve`. With a bundler, use its watch mode (`vite build --watch`) and name its output folder.

    Example: webmcp-gateway dev
    """
    run(path, verbose=True, live=True)


FIRST_DESCRIPTOR: Final = 3
"""The first inherited descriptor (sd_listen_fds(3))."""

Sockets = dict[tuple[str, int], list[socket.socket]]
"""Listening sockets by address and port; of several with one name, all are under the name."""


def notify(state: str) -> None:
    """Report a state, such as `READY=1`, to the supervisor that started this process, if it wants to know."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
        sender.sendall(state.encode())


def inherited_sockets(environ: MutableMapping[str, str]) -> Sockets:
    """Return the TCP sockets that the supervisor listens on for this process, and unset the variables for children.

    Connections that are made while the gateway restarts wait in them.
    """
    count, process = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not count.isdecimal() or process != str(os.getpid()):
        return {}
    ports: Sockets = {}
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
            ports[sock.getsockname()[:2]] = [sock]
        else:
            sock.close()
    return ports


def worker_sockets(place: WorkerPlace, server: ServerSettings) -> Sockets:
    """Return the sockets that the supervisor of workers has bound for this one, by the addresses of the settings."""
    hosts = {server.port: server.host}
    if server.admin is not None:
        hosts[server.admin[1]] = server.admin[0]
    ports: Sockets = {}
    for descriptor in place.sockets:
        sock = socket.socket(fileno=descriptor)
        port = sock.getsockname()[1]
        ports.setdefault((hosts[port], port), []).append(sock)
    return ports

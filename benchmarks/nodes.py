"""`python -m benchmarks.nodes`: what several processes cost beside one, behind nginx, with PostgreSQL on loopback.

Processor time of the gateway per request with one process, and with 1, 2 and 4 workers; the time that a call takes
longer when its view is at another node; and idle views at one node: their memory, and the cost of the lease.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import aiohttp
import msgspec

from benchmarks import gateway_files, idle
from benchmarks.errors import BenchmarkError
from benchmarks.processes import END_WITHIN, READY_WITHIN, Processes, cpu_seconds, free_port, last_words
from benchmarks.targets import SERVE

WIDTH: Final = 16
"""Requests at once."""

MOST: Final = 30_000
"""Connections, sessions and views that a gateway admits."""

WARM: Final = 2.0
"""Seconds of load before the measurement."""

ALONE: Final = "one-process"
"""The gateway beside which the others are compared: it has PostgreSQL, too."""

LISTEN: Final = "  listen: unix:node.sock\n"
"""The line of a node of this machine in its section `cluster`."""

POSTGRES: Final = "/usr/lib/postgresql"

NGINX: Final = """
daemon off; pid {folder}/nginx.pid; worker_processes 1; error_log {folder}/nginx.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    upstream gateway {{ server 127.0.0.1:{gateway}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://gateway; proxy_http_version 1.1; proxy_buffering off;
            proxy_set_header Host $http_host; proxy_set_header Connection "";
        }}
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Requests per second, and microseconds of the gateway's processor time for each."""

    what: str
    requests: str
    per_second: float
    micros: float
    errors: int


@dataclass(frozen=True, slots=True)
class Added:
    """Milliseconds of a call whose view is at the node, and at another one; medians of alternating calls."""

    here: float
    elsewhere: float
    here_p99: float
    elsewhere_p99: float

    @property
    def added(self) -> float:
        """The difference of the medians."""
        return self.elsewhere - self.here


@dataclass(frozen=True, slots=True)
class Idle:
    """Idle views at one node: KiB of memory for each, processor milliseconds per second, and how many answered.

    `without` is the processor time of the same node before it had views; `renewal` the ages of its lease, the oldest.
    """

    views: int
    kib: float
    cpu: float
    without: float
    answered: int
    oldest_lease: float


@contextmanager
def postgresql(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL on a free port of loopback, and yield its URL. Raises `BenchmarkError`."""
    homes = sorted(Path(POSTGRES).glob("*/bin"), key=lambda path: int(path.parent.name))
    if not homes:
        raise BenchmarkError("There is no PostgreSQL here: scripts/postgresql installs it.")
    home, data, port = homes[-1], folder / "postgresql", free_port()
    data.mkdir()
    user: dict[str, Any] = {}
    if os.getuid() == 0:  # it refuses to run as root
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(data, "postgres", "postgres")
    options = ("-A", "trust", "--no-sync", "-U", "postgres", "-D", str(data / "data"))
    subprocess.run([home / "initdb", *options], check=True, stdout=subprocess.DEVNULL, cwd=data, **user)
    command = [str(home / "postgres"), "-D", str(data / "data"), "-p", str(port), "-k", str(data)]
    with (folder / "postgresql.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=data, **user)
    try:
        url, end = f"postgresql://postgres@127.0.0.1:{port}/postgres", time.monotonic() + READY_WITHIN
        ready = [str(home / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, stdout=subprocess.DEVNULL, check=False).returncode:
            if time.monotonic() > end:
                raise BenchmarkError(f"PostgreSQL did not start:\n{last_words(folder / 'postgresql.log')}")
            time.sleep(0.1)
        yield url
    finally:
        process.send_signal(signal.SIGINT)  # without waiting for its clients
        process.wait(END_WITHIN)


class Gateway:
    """A gateway that is measured; `workers` is None for one process, and `port` where it listens."""

    def __init__(
        self, processes: Processes, folder: Path, database: str | None, *, name: str, workers: int | None = None,
        listen: str = "", backend: int = 9, server: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.name, self.port, folder = name, free_port(), folder / name
        folder.mkdir()
        more = "auth: [{type: proxy, name: bench, header: X-User, proxies: [127.0.0.1]}]\n"
        more += f"mcp: {{sessions: {MOST}, sessions_each: {MOST}, views_each: {MOST}}}\n"
        if database is not None:
            more += f'stores:\n  database: {database}\n  encryption_key: "${{env:BENCH_KEY}}"\n'
        if workers or listen:
            more += f'cluster:\n  name: {name}\n  keys: ["${{env:BENCH_KEY}}"]\n{listen}'
        room = dict.fromkeys(("connections", "connections_each", "requests_each"), str(MOST)) | dict(server)
        config = gateway_files.write(
            folder, port=self.port, backend=f"http://127.0.0.1:{backend}", routes=10, more=more, server=room
        )
        with (folder / "policy.yaml").open("a") as policy:
            policy.write("tools: {" + ", ".join(f"tool{number}: {{}}" for number in range(idle.TOOLS)) + "}\n")
        command = [sys.executable, "-c", SERVE, "serve", "--config", str(config)]
        command += ["--workers", str(workers)] if workers else []
        self._main = processes.start(name, command, port=self.port).pid
        self.workers = workers or 0

    def pids(self) -> list[int]:
        """Return the processes that serve."""
        if self.workers < 2:
            return [self._main]
        children = Path(f"/proc/{self._main}/task/{self._main}/children").read_text("ascii").split()
        return [int(pid) for pid in children]

    def cpu(self) -> float:
        """Return their processor time in seconds."""
        return sum(cpu_seconds(pid) or 0.0 for pid in self.pids())

    async def ready(self) -> None:
        """Wait until all processes serve. Raises `BenchmarkError`."""
        end = time.monotonic() + READY_WITHIN
        async with aiohttp.ClientSession() as http:
            seen = 0
            while seen < 8 * max(1, self.workers):
                with suppress(aiohttp.ClientError):
                    headers = {"host": f"localhost:{self.port}", "connection": "close"}
                    async with http.get(f"http://127.0.0.1:{self.port}/readyz", headers=headers) as answer:
                        seen = seen + 1 if answer.status == 200 else 0
                if time.monotonic() > end:
                    raise BenchmarkError(f"{self.name} is not ready.")
                await asyncio.sleep(0.02)


class Connection:
    """A connection on which plain requests are sent one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to a port of loopback."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**20))

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request; return the status and body of its answer."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        body, length = b"", head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if length:
            body = await self._reader.readexactly(int(length))
        elif b"transfer-encoding: chunked" in head:
            while (size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16)) > 0:
                body += (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readuntil(b"\r\n")
        return int(head[9:12]), body

    def close(self) -> None:
        """Close it."""
        self._writer.close()


def site_request(port: int) -> bytes:
    """Return a request of the app's page on its own site."""
    fields = {
        "host": f"{gateway_files.APP}.localhost:{port}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors",
        "sec-fetch-dest": "empty", "accept": "application/json", "x-user": "person0",
    }  # fmt: skip
    return _head("GET /api/items/1", fields)


def _head(line: str, fields: Mapping[str, str]) -> bytes:
    return (
        f"{line} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
    ).encode()


def call_request(port: int, tool: str, arguments: Mapping[str, object]) -> bytes:
    """Return a `tools/call` of protocol 2026-07-28."""
    body, fields = idle.message_of(tool, arguments, "person0")
    fields |= {"host": f"localhost:{port}", "content-type": "application/json", "content-length": str(len(body))}
    return _head("POST /mcp", fields) + body


async def load(port: int, seconds: float, request: Callable[[int], Callable[[], bytes]]) -> tuple[int, int]:
    """Send requests for so long, `WIDTH` at once; return how many were answered, and how many not with 200."""
    counts = [0, 0]
    end = time.monotonic() + seconds

    async def one(number: int) -> None:
        connection, make = await Connection.open(port), request(number)
        try:
            while time.monotonic() < end:
                status, body = await connection.send(make())
                counts[0] += 1
                counts[1] += status != 200 or b'"isError":true' in body
        finally:
            connection.close()

    await asyncio.gather(*(one(number) for number in range(WIDTH)))
    return counts[0], counts[1]


async def measure(
    gateway: Gateway, port: int, seconds: float, what: str, requests: str, request: Callable[[int], Callable[[], bytes]]
) -> Throughput:
    """Return the throughput through a port, and the gateway's processor time."""
    await load(port, WARM, request)
    before = gateway.cpu()
    began = time.monotonic()
    count, errors = await load(port, seconds, request)
    return Throughput(
        what, requests, count / (time.monotonic() - began), 1e6 * (gateway.cpu() - before) / count, errors
    )


async def attach(http: aiohttp.ClientSession, gateway: Gateway) -> idle.Proofs:
    """Open a view of the app at a gateway, and return its proofs."""
    url = f"http://localhost:{gateway.port}/mcp"
    opened = await idle.call(http, url, "person0", f"open_{gateway_files.APP}", {})
    launch = {"launch": opened["_meta"]["webmcp-gateway/launch"]}
    attached = (await idle.call(http, url, "person0", "webmcp_attach", launch))["structuredContent"]
    return idle.Proofs(str(attached["view"]), base64.urlsafe_b64decode(f"{attached['key']}=="))


async def throughput(
    folder: Path, processes: Processes, database: str, backend: int, seconds: float, rounds: int
) -> list[Throughput]:
    """Return one process and several workers side by side, behind nginx, alternating; the medians of the rounds."""
    alone = _new_database(database, "w0")
    gateways = [
        Gateway(processes, folder, alone, name=ALONE, backend=backend),
        Gateway(processes, folder, None, name="one-process-sqlite", backend=backend),
    ]
    for count in (1, 2, 4):
        url = _new_database(database, f"w{count}")
        how = {"workers": count} if count > 1 else {"listen": LISTEN}
        gateways.append(Gateway(processes, folder, url, name=f"nodes-{count}", backend=backend, **how))
    fronts = {}
    for gateway in gateways:
        await gateway.ready()
        fronts[gateway.name] = nginx(folder, processes, gateway)
    figures: dict[tuple[str, str], list[Throughput]] = {}
    async with aiohttp.ClientSession() as http:
        for _ in range(rounds):
            for gateway in gateways:
                port = fronts[gateway.name]
                views = [await attach(http, gateway) for _ in range(WIDTH)]

                def of_view(
                    number: int, views: Sequence[idle.Proofs] = views, port: int = gateway.port
                ) -> Callable[[], bytes]:
                    proofs, arguments = views[number], {"url": "/api/items/1"}
                    return lambda: call_request(port, "http_request", {**arguments, "_view": proofs.next()})

                site = site_request(gateway.port)
                for requests, request in (("of a site", lambda _, site=site: lambda: site), ("of a view", of_view)):
                    found = await measure(gateway, port, seconds, gateway.name, requests, request)
                    figures.setdefault((gateway.name, requests), []).append(found)
    return [
        Throughput(
            what, requests,
            statistics.median(one.per_second for one in found), statistics.median(one.micros for one in found),
            sum(one.errors for one in found),
        )
        for (what, requests), found in figures.items()
    ]  # fmt: skip


def nginx(folder: Path, processes: Processes, gateway: Gateway) -> int:
    """Start nginx before a gateway, and return its port."""
    own, port = folder / f"nginx-{gateway.name}", free_port()
    own.mkdir()
    (own / "nginx.conf").write_text(NGINX.format(folder=own, gateway=gateway.port, port=port), "utf-8")
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise BenchmarkError("There is no nginx here: scripts/proxies installs it.")
    processes.start(
        f"nginx-{gateway.name}", [program, "-c", str(own / "nginx.conf"), "-e", str(own / "log")], port=port
    )
    return port


def _new_database(url: str, name: str) -> str:
    """Create a database beside another one, and return its URL."""
    home = sorted(Path(POSTGRES).glob("*/bin"), key=lambda path: int(path.parent.name))[-1]
    subprocess.run([home / "psql", url, "-qc", f"CREATE DATABASE {name}"], check=True)
    return f"{url.rpartition('/')[0]}/{name}"


async def two_nodes(folder: Path, processes: Processes, database: str, backend: int) -> tuple[Gateway, Gateway]:
    """Start two nodes that reach each other by Unix sockets, and wait until both serve."""
    url = _new_database(database, "two")
    # The same at both, whose ports differ: otherwise their configurations would.
    sites = (("console", "gateway"), ("sandbox", "sandbox"), ("apps", "{app}"), ("dedicated", "{id}"))
    origins = ", ".join(f"{key}: 'http://{host}.localhost:8080'" for key, host in sites)
    server = {"public_url": "http://localhost:8080", "origins": f"{{{origins}}}"}
    gateways = [
        Gateway(processes, folder, url, name=name, listen=LISTEN, backend=backend, server=server) for name in ("a", "b")
    ]
    for gateway in gateways:
        await gateway.ready()
    return gateways[0], gateways[1]


async def added(a: Gateway, b: Gateway, count: int) -> Added:
    """Return how long calls of a view take at its own node, and at the other one; one at a time, alternating."""
    times: dict[Gateway, list[float]] = {a: [], b: []}
    async with aiohttp.ClientSession() as http:
        proofs = await attach(http, a)
    connections = {gateway: await Connection.open(gateway.port) for gateway in (a, b)}
    for number in range(count + 50):
        for gateway, connection in connections.items():
            arguments = {"url": "/api/items/1", "_view": proofs.next()}
            request = call_request(gateway.port, "http_request", arguments)
            began = time.perf_counter()
            status, body = await connection.send(request)
            took = 1000 * (time.perf_counter() - began)
            if status != 200 or b'"status":200' not in body.replace(b" ", b""):
                raise BenchmarkError(f"A call at {gateway.name} failed: {body[:500]!r}")
            if number >= 50:
                times[gateway].append(took)
    for connection in connections.values():
        connection.close()
    cuts = {gateway: statistics.quantiles(found, n=100) for gateway, found in times.items()}
    return Added(statistics.median(times[a]), statistics.median(times[b]), cuts[a][98], cuts[b][98])


async def idle_views(node: Gateway, count: int, seconds: float) -> Idle:
    """Hold idle views at a node; return what they and its lease cost, and how old its lease became."""
    (pid,) = node.pids()
    before = node.cpu()
    await asyncio.sleep(seconds)
    without = (node.cpu() - before) / seconds
    oldest = 0.0
    cpu: list[float] = []

    async def watch() -> None:
        nonlocal oldest
        async with aiohttp.ClientSession() as http:
            while True:
                began = node.cpu()
                await asyncio.sleep(seconds)
                cpu.append((node.cpu() - began) / seconds)
                headers = {"host": f"localhost:{node.port}"}
                async with http.get(f"http://127.0.0.1:{node.port}/readyz", headers=headers) as answer:
                    lease = (await answer.json())["cluster"]["lease"]
                oldest = max(oldest, lease["renewed"])

    watching = asyncio.create_task(watch())
    try:
        held = await idle.measure("polls", node.port, pid, count, lambda text: print(text, file=sys.stderr))
    finally:
        watching.cancel()
    return Idle(count, held.kib, 1000 * min(cpu, default=0.0), 1000 * without, held.answered, oldest)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the chosen parts, and return their figures."""
    os.environ["BENCH_KEY"] = base64.b64encode(secrets.token_bytes(32)).decode()
    os.environ.setdefault("BENCH_SECRET", "bench")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, Processes(folder := Path(name)) as processes:
        folder.chmod(0o755)  # for the user of PostgreSQL
        with postgresql(folder) as database:
            backend = processes.start("backend", [sys.executable, "-m", "benchmarks.backend"]).port
            if "throughput" in options.parts:
                found["throughput"] = await throughput(
                    folder, processes, database, backend, options.seconds, options.rounds
                )
            if {"added", "idle"}.intersection(options.parts):
                a, b = await two_nodes(folder, processes, database, backend)
                if "added" in options.parts:
                    found["added"] = await added(a, b, options.calls)
                if "idle" in options.parts:
                    found["idle"] = await idle_views(a, options.views, options.seconds)
    found["machine"] = {"load": os.getloadavg()[0], "processors": os.cpu_count()}
    return found


def table(found: Mapping[str, Any]) -> str:
    """Return the figures for people."""
    lines: list[str] = []
    if "throughput" in found:
        lines += [
            "| processes | requests | per second | µs of the gateway | beside one | errors |",
            "|---|---|---|---|---|---|",
        ]
        alone = {one.requests: one.micros for one in found["throughput"] if one.what == ALONE}
        for one in found["throughput"]:
            more = 100 * (one.micros / alone[one.requests] - 1)
            cells = (
                one.what,
                one.requests,
                f"{one.per_second:,.0f}",
                f"{one.micros:,.0f}",
                f"{more:+.0f} %",
                one.errors,
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
    if "added" in found:
        one = found["added"]
        lines += [
            "", f"A call whose view is at the node takes {one.here:.2f} ms (p99 {one.here_p99:.2f}), at another node "
            f"{one.elsewhere:.2f} ms (p99 {one.elsewhere_p99:.2f}): {one.added:.2f} ms more.",
        ]  # fmt: skip
    if "idle" in found:
        rest = found["idle"]
        lines += [
            "", f"{rest.views:,} idle views at one node, each on a connection of its own: {rest.kib:.1f} KiB each; "
            f"{rest.cpu:.0f} ms of processor time per second, {rest.without:.0f} ms without them. All but "
            f"{rest.views - rest.answered} answered a call at the end. The lease was renewed {rest.oldest_lease:.1f} s "
            "ago at most.",
        ]  # fmt: skip
    lines += ["", f"Load of this machine: {found['machine']['load']:.1f}, {found['machine']['processors']} processors."]
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodes", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["throughput", "added", "idle"], help="throughput, added, idle")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="of the throughput")
    parser.add_argument("--calls", type=int, default=3000, help="at each node, for the added time")
    parser.add_argument("--views", type=int, default=10_000, help="idle views")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    try:
        found = asyncio.run(run(options))
    except BenchmarkError as error:
        sys.exit(str(error))
    print(json.dumps(msgspec.to_builtins(found), indent=2) if options.json else table(found))


if __name__ == "__main__":
    main()

"""Measures a gateway with five apps at rest: CPU time until it is ready, memory after the start and after requests."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.processes import ROOT, free_port, last_words
from benchmarks.targets import SERVE, call

APPS = 5

READY_WITHIN = 60.0
END_WITHIN = 15.0

LOOK = 0.005
"""Seconds between two requests of `/readyz`; a refused connection costs the gateway nothing."""

REST = 2.0
"""Seconds after the last request before the memory is read: work in the background is over."""


_NAVIGATES = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document", "sec-fetch-site": "none"}


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of a gateway and its child processes in MiB, and their number."""

    rss: float
    pss: float
    children: int
    children_pss: float


@dataclass(frozen=True, slots=True)
class Rest:
    """One start. CPU and wall-clock seconds until `/readyz` answers 200, and the memory at the named moments."""

    cpu: float
    seconds: float
    memory: dict[str, Footprint]


def write_apps(folder: Path, port: int, apps: int) -> Path:
    """Write a configuration with so many apps, each with its own policy, and return its path."""
    lines = ["server:", f"  listen: 127.0.0.1:{port}", "apps:"]
    for number in range(apps):
        (folder / f"web{number}").mkdir(parents=True)
        (folder / f"web{number}" / "index.html").write_text("<!doctype html><title>Bench</title><p>Bench</p>", "utf-8")
        (folder / f"policy{number}.yaml").write_text(app_policy(), "utf-8")
        lines += [f"  app{number}:", f"    source: web{number}", f"    policy: policy{number}.yaml"]
    config = folder / "gateway.yaml"
    config.write_text("\n".join([*lines, ""]), "utf-8")
    return config


def app_policy(more: str = "") -> str:
    """Return a policy as an app has it, without a condition, which loads CEL; `more` is a further route."""
    return f"""\
version: 1
backends:
  shop:
    url: http://127.0.0.1:9
    network: [127.0.0.0/8]
limits:
  timeout: 10s
  rate: [20/second per view, 600/minute per principal]
routes:
  - {{path: /api/products, methods: [GET]}}
  - {{path: /api/cart, methods: [GET, POST]}}
  - path: "/api/cart/{{item}}"
    methods: [DELETE]
    confirm: {{when: model, message: "Remove {{params.item}} from the cart?"}}
  - {{path: "/api/admin/**", deny: "not for apps"}}
{more}tools:
  get_cart: {{}}
"""


def measure(folder: Path, tell: Callable[[str], None] = lambda _: None) -> Rest:
    """Start a gateway, measure it, and end it. Raises `BenchmarkError`."""
    port = free_port()
    config = write_apps(folder, port, APPS)
    output = folder / "gateway.log"
    command = [sys.executable, "-c", SERVE, "serve", "--config", str(config)]
    began = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        while not _ready(port):
            if process.poll() is not None or time.monotonic() > began + READY_WITHIN:
                raise BenchmarkError(f"The gateway did not start. Its last output:\n{last_words(output)}")
            time.sleep(LOOK)
        seconds, cpu = time.monotonic() - began, _cpu(process.pid)
        memory = {}
        for moment, request in _MOMENTS.items():
            tell(f"memory {moment}")
            if request is not None:
                request(port)
            time.sleep(REST)
            memory[moment] = footprint(process.pid)
        return Rest(cpu, seconds, memory)
    finally:
        process.terminate()
        process.terminate()  # a second signal: nobody waits for the announcement
        try:
            process.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def footprint(pid: int) -> Footprint:
    """Return the memory of a process and its children. Raises `BenchmarkError` off Linux."""
    children = _children(pid)
    return Footprint(
        _rollup(pid, "Rss"), _rollup(pid, "Pss"), len(children), sum(_rollup(child, "Pss") for child in children)
    )


def resident(pid: int) -> float:
    """Return the resident memory of a process, in KiB. Raises `BenchmarkError` off Linux."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1])
    raise BenchmarkError("The system does not tell how much memory a process has.")


def _rollup(pid: int, name: str) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1]) / 1024
    raise BenchmarkError("The system does not tell how much memory a process has.")


def _children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]


def _words(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text("ascii").split()
    return []


def _cpu(pid: int) -> float:
    """Return the processor seconds of a process and its children, those that have ended included."""
    return sum(_times(one) for one in (pid, *_children(pid)))


def _times(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # utime, stime, cutime, cstime: proc(5)


def _ready(port: int) -> bool:
    with suppress(OSError):
        return _get(port, "/readyz", f"127.0.0.1:{port}") == 200
    return False


def _get(port: int, path: str, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(
            "GET",
            path,
            headers={
                "host": host,
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
                "sec-fetch-site": "none",
            },
        )
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def _site(port: int) -> None:
    if (status := _get(port, "/", f"app0.localhost:{port}")) != 200:
        raise BenchmarkError(f"The site of an app answered {status}.")


def _mcp(port: int) -> None:
    """Open an app as a client of protocol 2026-07-28 does, and list the tools as one of 2025-11-25."""
    request = call(f"127.0.0.1:{port}", "/mcp/app0", {}, "open_app0")
    _exchange(port, request)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    head = [
        "POST /mcp HTTP/1.1",
        f"host: 127.0.0.1:{port}",
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        f"content-length: {len(body)}",
    ]
    _exchange(port, "\r\n".join([*head, "", ""]).encode() + body)


def _exchange(port: int, request: bytes) -> None:
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        method, path, _ = first.split()
        connection.request(method, path, body, fields)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200 or b'"result"' not in text:
        raise BenchmarkError(f"A request at /mcp was answered {answer.status}: {text[:500]!r}")


_MOMENTS: dict[str, Callable[[int], None] | None] = {
    "after the start": None,
    "after a request of an app's site": _site,
    "after the first requests at /mcp": _mcp,
}

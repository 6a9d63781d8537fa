"""Three machines for nodes: network namespaces on one bridge, or addresses of loopback where these cannot be had."""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.postgresql import PostgreSQL

NAMES = ("a", "b", "c")

CLONE_NEWNET = 0x40000000
"""The flag of network namespaces (setns(2))."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines by the names of their nodes.

    `outside` is the address of this machine for them; `tag` begins the names of namespaces and of the bridge, and is ""
    without namespaces.
    """

    outside: str
    tag: str

    @property
    def separate(self) -> bool:
        """True if each has a network of its own, which can be cut."""
        return bool(self.tag)

    @property
    def bound(self) -> str:
        """The addresses at which a server for the machines listens, separated by spaces."""
        return f"127.0.0.1 {self.outside}" if self.tag else self.outside

    def address(self, name: str) -> str:
        """Return the address of a machine."""
        number = NAMES.index(name)
        return f"{self.outside.rpartition('.')[0]}.{11 + number}" if self.tag else f"127.0.0.{2 + number}"

    def command(self, name: str) -> list[str]:
        """Return what begins the command of a process on a machine."""
        return ["ip", "netns", "exec", f"{self.tag}{name}"] if self.tag else []

    def cut(self, name: str) -> None:
        """Cut a machine off: its packets are lost without an error."""
        _ip("link", "set", f"{self.tag}{name}", "down")

    def join(self, name: str) -> None:
        """End the cut."""
        _ip("link", "set", f"{self.tag}{name}", "up")

    @asynccontextmanager
    async def exposed(self, port: int) -> AsyncIterator[None]:
        """Let processes on the machines reach a server of this one at the same port of their own loopback.

        A cut does not end that: what a node sends to its backends while it is cut off arrives.
        """

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while chunk := await reader.read(2**16):
                    writer.write(chunk)
                    await writer.drain()
            writer.close()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            await asyncio.gather(carry(reader, back), carry(there, writer))

        servers = []
        for name in NAMES if self.tag else ():
            with ThreadPoolExecutor(1) as thread:  # the namespace is that of the thread, which ends with the block
                sock = thread.submit(_listen, f"/run/netns/{self.tag}{name}", port).result()
            servers.append(await asyncio.start_server(connect, sock=sock))
        try:
            yield
        finally:
            for server in servers:
                server.close()


def _listen(namespace: str, port: int) -> socket.socket:
    """Return a socket that listens on loopback in a network namespace (setns(2))."""
    with Path(namespace).open("rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), namespace)
    return socket.create_server(("127.0.0.1", port), backlog=1024)


@contextmanager
def machines() -> Iterator[Machines]:
    """Yield three machines: in namespaces as root on Linux with iproute2, else at addresses of loopback."""
    made = _make() if os.geteuid() == 0 else None
    if made is None:
        yield Machines("127.0.0.1", "")
        return
    try:
        yield made
    finally:
        _remove(made)


def serve_machines(server: PostgreSQL, made: Machines) -> None:
    """Let a running PostgreSQL serve the machines, too."""
    if made.tag:
        server.stop()
        server.admit(made.outside, f"{made.outside}/24")
        server.start()


def _make() -> Machines | None:
    tag, third = f"wg{secrets.token_hex(3)}", 16 + secrets.randbelow(200)
    made = Machines(f"10.213.{third}.1", tag)
    try:
        _ip("link", "add", tag, "type", "bridge")
        _ip("address", "add", f"{made.outside}/24", "dev", tag)
        _ip("link", "set", tag, "up")
        for name in NAMES:
            one = f"{tag}{name}"
            _ip("netns", "add", one)
            _ip("link", "add", one, "type", "veth", "peer", "name", "eth0", "netns", one)
            _ip("link", "set", one, "master", tag, "up")
            _ip("-n", one, "link", "set", "lo", "up")
            _ip("-n", one, "address", "add", f"{made.address(name)}/24", "dev", "eth0")
            _ip("-n", one, "link", "set", "eth0", "up")
            subprocess.run([*made.command(name), "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        _remove(made)
        return None
    return made


def _remove(made: Machines) -> None:
    for words in [*(("netns", "delete", f"{made.tag}{name}") for name in NAMES), ("link", "delete", made.tag)]:
        try:
            _ip(*words)
        except (OSError, subprocess.CalledProcessError):
            continue


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)

"""Secrets and tokens from commands: `${plugin:command:pass show shop}`, and credentials of `type: command`.

A credential of this type sends a command's output, such as that of `gcloud auth print-access-token`, as a bearer token;
the command runs again after `lasts` seconds (default 300). Commands run without a shell, as the gateway's user.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence

from gateway.credentials import Tokens
from gateway.hookspecs import hookimpl
from gateway.model import Headers, Principal

PREFIX = "command:"
SECONDS = 4.0


@hookimpl
async def resolve_secret(reference: str) -> str | None:
    """Return the output of a command."""
    return await output_of(shlex.split(reference.removeprefix(PREFIX))) if reference.startswith(PREFIX) else None


@hookimpl
def register_credential_types() -> Mapping[str, Callable[[str, Mapping[str, object]], Tokens]]:
    """Register the type `command`."""
    return {"command": CommandToken}


class CommandToken:
    """A bearer token that a command prints."""

    def __init__(self, name: str, options: Mapping[str, object]) -> None:
        command, lasts = options.get("command"), options.get("lasts", 300)
        if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
            raise ValueError("command: must be a list of texts, such as [gcloud, auth, print-access-token]")
        if isinstance(lasts, bool) or not isinstance(lasts, int) or lasts < 0:
            raise ValueError("lasts: must be a whole number of seconds")
        if unknown := options.keys() - {"command", "lasts"}:
            raise ValueError(f"unknown key {sorted(unknown)[0]!r} (allowed: command, lasts)")
        self._command = [str(word) for word in command]
        self._lasts = lasts
        self._token = ""
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def headers(self, principal: Principal, method: str, url: str) -> Headers:
        """Return the header with the token, the same for all callers while it lasts."""
        async with self._asking:
            if time.monotonic() >= self._until:
                self._token = await output_of(self._command)
                self._until = time.monotonic() + self._lasts
            return (("authorization", f"Bearer {self._token}"),)


async def output_of(command: Sequence[str]) -> str:
    """Return the first line of a command's output. Raises OSError if it fails, without quoting its output."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = output.decode().splitlines()
    if process.returncode or not lines or not lines[0]:
        raise OSError(f"{command[0]} ended with exit code {process.returncode}")
    return lines[0]

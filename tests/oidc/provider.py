"""Starts, controls and stops the authorization server."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.leaks.marks import MARK

HERE = Path(__file__).parent
START_SECONDS = 30


@dataclass(frozen=True, slots=True)
class OidcProvider:
    """A running server. Its login page accepts every name as account, with any password."""

    issuer: str
    control: str

    async def events(self) -> list[dict[str, Any]]:
        """Return its grants and refusals since the last call: `event`, `client`, `grant`, `error`, `why`."""
        found: list[dict[str, Any]] = await self._steer("events")
        return found

    async def rotate_keys(self, keep: bool = False) -> str:
        """Sign with a new key from now on; return its id. With `keep` the old keys are still published."""
        return str((await self._steer("rotate", keep=keep))["kid"])

    async def set_down(self, down: bool) -> None:
        """Set whether it answers everything with 503."""
        await self._steer("down", down=down)

    async def hold(self) -> None:
        """Hold token requests until `release`."""
        await self._steer("hold")

    async def held(self) -> None:
        """Wait until a token request is held."""
        await self._steer("held")

    async def release(self) -> None:
        """Release the held token requests."""
        await self._steer("release")

    async def _steer(self, what: str, **told: Any) -> Any:
        async with aiohttp.ClientSession() as http, http.post(f"{self.control}/{what}", json=told) as answer:
            answer.raise_for_status()
            return await answer.json()


@asynccontextmanager
async def oidc_provider(
    clients: Sequence[Mapping[str, Any]] = (),
    *,
    accounts: Mapping[str, Mapping[str, Any]] | None = None,
    **settings: Any,
) -> AsyncIterator[OidcProvider]:
    """Run the server with these `clients` (as in dynamic client registration) and claims of `accounts`.

    `settings`: `scopes`; `resources` ({resource: {scope, audience, format}}) and `default_resource`; `ttl` ({kind:
    seconds}); `jwks` (private signing keys); `registration`; `dpop_nonce`; `tls` ({key, cert, ca}); `port`.
    """
    if not (HERE / "node_modules" / "oidc-provider").is_dir():
        raise RuntimeError("the test authorization server is not installed: run `npm --prefix tests/oidc ci`")
    told = {"clients": [*clients], "accounts": accounts or {}, "mark": MARK, **settings}
    process = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node",
        str(HERE / "provider.mjs"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(told).encode() + b"\n")
        line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        if not line:
            raise RuntimeError("the authorization server ended at its start: its words are on stderr")
        yield OidcProvider(**json.loads(line))
    finally:
        process.stdin.close()
        if process.returncode is None:
            process.terminate()
        await process.communicate()

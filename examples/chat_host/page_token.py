"""The token with which the page shows apps: exchanged for that of the person (RFC 8693), for five minutes at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from urllib.parse import quote_plus

import aiohttp
from aiohttp import encode_basic_auth

from examples.chat_host.settings import Settings

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
EARLY = 60.0
"""Seconds before its end at which a token is exchanged again."""


class TokenError(Exception):
    """The gateway gave no token; the text is for the person."""


@dataclass(slots=True)
class PageTokens:
    """Exchanges `person`, the person's token. A gateway without authentication needs none: both are empty then."""

    http: aiohttp.ClientSession
    settings: Settings
    person: str | None = field(repr=False)
    _token: str = field(default="", repr=False)
    _until: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get(self) -> str:
        """Return a token that is valid for a while. Raises `TokenError`."""
        if not self.settings.client_id or not self.person:
            return ""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if now >= self._until:
                self._token, seconds = await self._exchange(self.person)
                self._until = now + seconds - EARLY
            return self._token

    async def _exchange(self, person: str) -> tuple[str, float]:
        settings = self.settings
        form = {"grant_type": GRANT, "subject_token": person, "subject_token_type": ACCESS_TOKEN}
        quoted = (quote_plus(part) for part in (settings.client_id, settings.client_secret))  # RFC 6749, 2.3.1
        headers = {"authorization": encode_basic_auth(*quoted)}
        try:
            async with self.http.post(f"{settings.gateway}/oauth/token", data=form, headers=headers) as response:
                answer = await response.json()
                if response.status == 200:
                    return str(answer["access_token"]), float(answer["expires_in"])
                reason = answer.get("error_description") or answer.get("error")
        except (aiohttp.ClientError, ValueError, KeyError, TimeoutError) as error:
            raise TokenError("The gateway gave no token for this page.") from error
        raise TokenError(f"The gateway gave no token for this page: {reason}")

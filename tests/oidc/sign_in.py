"""A person at the login pages of the authorization server, without a browser."""

from __future__ import annotations

import re
from urllib.parse import urljoin

import aiohttp

_ACTION = re.compile(r'<form[^>]*action="([^"]+)"')
STEPS = 12


async def sign_in(http: aiohttp.ClientSession, url: str, account: str, back: str) -> str:
    """Open `url`, log in as `account` and consent; return the resulting address, which begins with `back`.

    `http` keeps the server's session: a second sign-in with it shows no page.
    """
    form: dict[str, str] | None = None
    for _ in range(STEPS):
        method = "GET" if form is None else "POST"
        async with http.request(method, url, data=form, allow_redirects=False) as answer:
            form = None
            text = await answer.text()
            if 300 <= answer.status < 400:
                url = urljoin(url, answer.headers["location"])
                if url.startswith(back):
                    return url
                continue
        action = _ACTION.search(text)
        if action is None:
            raise AssertionError(f"{url} answered {answer.status}: {text[:500]}")
        url = urljoin(url, action[1])
        form = (
            {"prompt": "login", "login": account, "password": "x"} if 'name="login"' in text else {"prompt": "consent"}
        )
    raise AssertionError(f"the login does not end: {url}")

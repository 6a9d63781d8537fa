"""Credentials change while the gateway runs: a real authorization server sees what is used, and when."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from aiohttp import web

from gateway.app import RELOAD, SETTINGS
from gateway.config import load_config
from gateway.stores.sealing import KeyFile, KeyRing
from gateway.stores.sql import Database
from gateway.stores.tokens import TokenStore
from tests.assembly.files import replace_file
from tests.credentials.house import House, house
from tests.world import serving


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """Yield a gateway between an authorization server and a resource server."""
    async with house(tmp_path) as running:
        yield running


async def change_settings(home: House, old: str, new: str) -> None:
    """Replace a text of gateway.yaml, and wait until it is in effect."""
    before, file = home.app[SETTINGS].now, home.folder / "gateway.yaml"
    text = file.read_text("utf-8")
    assert old in text
    replace_file(file, text.replace(old, new))
    async with asyncio.timeout(60):
        while home.app[SETTINGS].now is before:
            home.app[RELOAD]()
            await asyncio.sleep(0.05)


async def expire(home: House, credential: str) -> None:
    """Let the stored tokens of a credential expire while the gateway runs."""
    config = load_config(home.folder / "gateway.yaml", home.environ)
    async with Database(config.database.reveal()) as database:
        store = TokenStore(database, KeyRing(KeyFile(home.folder / "gateway.key")))
        for listed in await store.list():
            if listed.token is not None and listed.credential == credential:
                old, kept = replace(listed.token.token, expires_at=time.time() - 1), listed.token
                await store.save(
                    credential, kept.principal, old, kept.connection, before=kept.version, now=kept.changed_at
                )
                home.app[SETTINGS].now.credentials.tokens[credential].forget(kept.principal)


async def requested_grants(home: House) -> list[tuple[str, str | None]]:
    """Return the grants that the server has answered, with their errors."""
    return [(one["grant"], one["error"]) for one in await home.provider.events() if one["event"].startswith("grant.")]


async def test_a_changed_secret_is_used_at_the_next_renewal_and_nobody_else_notices(home: House) -> None:
    """Tokens stay good; a person's account, whose settings did not change, is neither renewed nor asked for."""
    assert (await home.connect())[0] == 200
    assert [(await home.get(name))[0] for name in ("secret", "person")] == [200, 200]
    await home.provider.events()
    right = 'type: client_credentials, client_id: service, client_secret: "${env:SECRET}", scope'
    await change_settings(home, right, right.replace("${env:SECRET}", "another"))
    assert [(await home.get(name))[0] for name in ("secret", "person")] == [200, 200]
    assert len({fields["authorization"] for fields in home.resource.seen}) == 2
    assert await requested_grants(home) == []
    await expire(home, "secret")
    assert (await home.get("secret"))[0] == 502
    assert [error for _, error in await requested_grants(home)] == ["invalid_client"]
    await change_settings(home, right.replace("${env:SECRET}", "another"), right)
    assert (await home.get("secret"))[0] == 200


@dataclass
class Endpoint:
    """An authorization server that grants everything; `forms` are the requests for tokens."""

    url: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)


@asynccontextmanager
async def endpoint() -> AsyncIterator[Endpoint]:
    """Serve it, with the metadata of an issuer."""
    made = Endpoint()

    async def token(request: web.Request) -> web.Response:
        made.forms.append({name: str(value) for name, value in (await request.post()).items()})
        return web.json_response(
            {"access_token": f"other-{len(made.forms)}", "token_type": "Bearer", "expires_in": 900}
        )

    async def metadata(_: web.Request) -> web.Response:
        return web.json_response({"issuer": made.url, "token_endpoint": f"{made.url}/token"})

    app = web.Application()
    app.router.add_post("/token", token)
    app.router.add_get("/.well-known/{name:.*}", metadata)
    async with serving(app) as port:
        made.url = f"http://localhost:{port}"
        yield made


async def test_a_changed_endpoint_is_used_at_the_next_renewal(home: House) -> None:
    """The account stays connected; its refresh token goes to the new endpoint of the same issuer."""
    assert (await home.connect())[0] == 200
    async with endpoint() as other:
        await change_settings(home, "title: The shop,", f'title: The shop, token_endpoint: "{other.url}/token",')
        assert (await home.get("person"))[0] == 200
        assert other.forms == []
        await expire(home, "person")
        assert (await home.get("person"))[0] == 200
    assert [form["grant_type"] for form in other.forms] == ["refresh_token"]
    assert home.resource.seen[-1]["authorization"] == "Bearer other-1"


async def test_tokens_of_one_issuer_are_never_sent_to_another(home: House) -> None:
    """The person must connect the new one, and is told so; with the old one back, its account is as it was."""
    assert (await home.connect())[0] == 200
    assert (await home.get("secret"))[0] == 200
    line = next(row for row in (home.folder / "gateway.yaml").read_text("utf-8").splitlines() if "person:" in row)
    async with endpoint() as other:
        await change_settings(home, line, line.replace(home.provider.issuer, other.url))
        status, problem = await home.get("person")
        assert (status, problem["type"].rpartition(":")[2]) == (401, "credential-needed")
        listed = (await home.api("connections"))[1]
        assert [one.get("since") for one in listed["connections"]] == [None]
        await expire(home, "person")
        assert (await home.get("person"))[0] == 401
        assert other.forms == []
        await change_settings(home, line.replace(home.provider.issuer, other.url), line)
    assert (await home.get("person"))[0] == 200
    assert ("refresh_token", None) in await requested_grants(home)


async def test_a_token_for_other_scopes_is_not_used(home: House) -> None:
    """The gateway's own account gets a token for what it is configured to ask for now."""
    assert (await home.get("secret"))[0] == 200
    await home.provider.events()
    first = home.resource.seen[-1]["authorization"]
    line = next(row for row in (home.folder / "gateway.yaml").read_text("utf-8").splitlines() if " secret:" in row)
    await change_settings(home, line, line.replace("scope: [cart]", "scope: []"))
    assert (await home.get("secret"))[0] == 200
    assert await requested_grants(home) == [("client_credentials", None)]
    assert home.resource.seen[-1]["authorization"] != first


async def test_a_secret_in_a_volume_of_kubernetes_is_noticed(home: House) -> None:
    """The kubelet swaps `..data`, a link to the folder with the files; nobody has to send a signal."""
    volume = home.folder / "secrets"
    for name, content in (("..one", "first-key"), ("..two", "second-key")):
        (volume / name).mkdir(parents=True)
        (volume / name / "key").write_text(content)
    (volume / "..data").symlink_to("..one")
    (volume / "key").symlink_to("..data/key")
    line = 'type: header, header: x-api-key, value: "${env:SECRET}"'
    await change_settings(home, line, line.replace("${env:SECRET}", "${file:secrets/key}"))
    assert (await home.get("header"))[0] == 200
    assert home.resource.seen[-1]["x-api-key"] == "first-key"
    before = home.app[SETTINGS].now
    (volume / "..new").symlink_to("..two")
    os.replace(volume / "..new", volume / "..data")
    async with asyncio.timeout(60):
        while home.app[SETTINGS].now is before:
            await asyncio.sleep(0.05)
    assert (await home.get("header"))[0] == 200
    assert home.resource.seen[-1]["x-api-key"] == "second-key"


async def test_a_secret_file_that_is_gone_changes_nothing_until_it_is_back(home: House) -> None:
    """The last secret stays in force, and the problem names the file and the line."""
    secret = home.folder / "key"
    secret.write_text("first-key")
    line = 'type: header, header: x-api-key, value: "${env:SECRET}"'
    await change_settings(home, line, line.replace("${env:SECRET}", "${file:key}"))
    before = home.app[SETTINGS].now
    secret.unlink()
    async with asyncio.timeout(60):
        while not (await home.api("state"))[1]["problems"]:
            await asyncio.sleep(0.05)
    (problem,) = (await home.api("state"))[1]["problems"]
    text = (home.folder / "gateway.yaml").read_text("utf-8").splitlines()
    assert "${file:key}" in text[problem["line"] - 1]
    assert "key cannot be read" in problem["message"]
    assert (await home.get("header"))[0] == 200
    assert home.app[SETTINGS].now is before
    secret.write_text("second-key")
    async with asyncio.timeout(60):
        while home.app[SETTINGS].now is before:
            await asyncio.sleep(0.05)
    await home.get("header")
    assert home.resource.seen[-1]["x-api-key"] == "second-key"

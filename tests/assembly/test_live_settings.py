"""`auth`, `roles`, limits and the rest of gateway.yaml change while the gateway runs: all or nothing, at every door."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from gateway.app import ADMIN, SETTINGS
from gateway.assembly.live_settings import Settings
from gateway.exchange.approvers import SIGNATURE, TIMESTAMP, signature
from gateway.model import Secret
from tests.assembly.files import replace_file
from tests.callers.issuer import Issuer, issuer
from tests.doors.access_world import HR, OTHER, Bridge, Building, building
from tests.world import serving

UNTIL = str((datetime.now(UTC) + timedelta(days=20)).date())
FIRST, SECOND = "k" * 32, "s" * 32
WEBHOOK = """
approvals:
  ask: [console, webhook]
  webhook: {url: "http://127.0.0.1:9/hook", secret: "%s", answers: true, network: private}
"""
OAUTH = "{type: oauth, issuer: %r, audience: us, network: private}, "
ROLES = "roles: {approver: [boss], auditor: [audit], admin: [root]}"
DOORS = ("mcp", "site", "console", "bridge")

Who = dict[str, str]


def rewrite(house: Building, old: str, new: str) -> None:
    """Replace a text of gateway.yaml."""
    file = house.folder / "gateway.yaml"
    text = file.read_text("utf-8")
    assert old in text
    replace_file(file, text.replace(old, new))


async def change_settings(house: Building, old: str, new: str) -> None:
    """Replace a text of gateway.yaml, and wait until it is in effect."""
    before = house.app[SETTINGS].now
    rewrite(house, old, new)
    async with asyncio.timeout(60):
        while house.app[SETTINGS].now is before:
            house.reread()
            await asyncio.sleep(0.05)


async def drain(content: aiohttp.StreamReader) -> None:
    """Read a stream to its end."""
    with suppress(aiohttp.ClientError, ConnectionError):
        while await content.readany():
            pass


@asynccontextmanager
async def opened(house: Building, who: Who, door: str) -> AsyncIterator[Awaitable[None]]:
    """Open something that lasts at one door, and yield its end."""
    own = {**who, "sec-fetch-site": "same-origin"}
    async with AsyncExitStack() as stack:
        if door == "mcp":
            ending = drain(await stack.enter_async_context(house.listening(who, "/mcp")))
        elif door == "bridge":
            bridge = await stack.enter_async_context(house.bridge(who, ["pay"], "pay"))
            ending = _wait_closed(bridge)
        else:
            origin = f"http://pay.localhost:{house.port}" if door == "site" else house.console
            path = "/api/feed" if door == "site" else "/api/events"
            asked = house.client.get(f"{origin}{path}", headers={**own, "origin": origin})
            answer = await stack.enter_async_context(asked)
            assert answer.status == 200
            ending = drain(answer.content)
        yield ending


async def _wait_closed(bridge: Bridge) -> None:
    with suppress(aiohttp.ClientError, TypeError):
        while not bridge.socket.closed:
            await bridge.socket.receive()


async def status(house: Building, who: Who, door: str) -> int:
    """Return the status of one request at a door; a view that opens counts as 200."""
    match door:
        case "mcp":
            return (await house.mcp(who, "/mcp", "tools/list", {}))[0]
        case "site":
            return (await house.get(who, "/api/pay", "pay"))[0]
        case "console":
            if (found := (await house.get(who, "/api/state"))[0]) != 200:
                return found
            return (await house.post(who, "/bridge/tickets", {"apps": ["pay"]}))[0]
        case _:
            try:
                async with house.bridge(who, ["pay"], "pay") as bridge:
                    return 200 if type(bridge.first).__name__ == "Opened" else 403
            except (KeyError, aiohttp.ClientError):
                return 401


@pytest.fixture
async def idp() -> AsyncIterator[Issuer]:
    """Yield an issuer of tokens."""
    async with issuer() as made:
        yield made


def bearer(idp: Issuer, **claims: object) -> Who:
    """Return the header of a token with these claims."""
    return {"authorization": f"Bearer {idp.sign(idp.claims('us', **claims))}"}


@pytest.mark.parametrize("door", DOORS)
async def test_what_an_issuer_allowed_ends_with_it_and_nothing_else(tmp_path: Path, idp: Issuer, door: str) -> None:
    """Removed from `auth`, its callers are cut off and refused; one named by the proxy goes on, on the same stream."""
    async with building(tmp_path, UNTIL, auth=OAUTH % idp.url) as house:
        token = bearer(idp, roles=["hr"])
        assert await status(house, token, door) == 200
        async with opened(house, token, door) as ends, opened(house, HR, door) as stays, asyncio.TaskGroup() as tasks:
            stay = tasks.create_task(_wait(stays))
            await change_settings(house, OAUTH % idp.url, "")
            async with asyncio.timeout(60):
                await ends
            assert await status(house, token, door) == 401
            assert await status(house, HR, door) == 200
            assert not stay.done()
            stay.cancel()


async def _wait(ending: Awaitable[None]) -> None:
    await ending


@pytest.mark.parametrize("door", DOORS)
async def test_who_loses_a_role_loses_what_it_opened(tmp_path: Path, door: str) -> None:
    """`roles.user` no longer names their role; somebody with another role goes on, and one who got it comes in."""
    async with building(tmp_path, UNTIL) as house:
        house.configure(pay="none", books_access="none")
        rewrite(house, ROLES, "roles: {user: [hr, sales], admin: [root]}")
        await house.reload()
        guest = {"x-user": "gus", "x-groups": "guests"}
        assert await status(house, guest, door) in (401, 403)
        async with opened(house, HR, door) as ends, opened(house, OTHER, door) as stays, asyncio.TaskGroup() as tasks:
            stay = tasks.create_task(_wait(stays))
            await change_settings(house, "user: [hr, sales]", "user: [guests, sales]")
            async with asyncio.timeout(60):
                await ends
            assert await status(house, HR, door) in (401, 403)
            assert await status(house, OTHER, door) == 200
            assert await status(house, guest, door) == 200
            assert not stay.done()
            stay.cancel()


async def test_an_open_event_stream_goes_on_with_a_right_that_comes_back(tmp_path: Path) -> None:
    """A person without a role has the console open; the apps are sent on the same stream once `roles` names theirs."""
    async with building(tmp_path, UNTIL) as house:
        house.configure(pay="none", books_access="none")
        rewrite(house, ROLES, "roles: {user: [sales], admin: [root]}")
        await house.reload()
        headers = {**HR, "sec-fetch-site": "same-origin", "origin": house.console}
        async with house.client.get(f"{house.console}/api/events", headers=headers) as stream:
            assert stream.status == 200
            await change_settings(house, "user: [sales]", "user: [sales, hr]")
            async with asyncio.timeout(60):
                async for line in stream.content:
                    if line.startswith(b"data: ") and b'"resource":' in line and b'"pay"' in line:
                        break
                else:
                    pytest.fail("the stream has ended")


BROKEN = [
    ("name: front,", "nme: front,", "unknown key"),
    (f'secret: "{FIRST}"', 'secret: "short"', "fewer than 32 characters"),
    (f'secret: "{FIRST}"', 'secret: "${env:NO_SUCH}"', "restart a gateway that runs; a ${file:path} is read while"),
    ("{type: authorization_code,", "{type: client_credentials, certificate: missing.pem,", "there is no file"),
    ("policy: notes.yaml}", "policy: gone.yaml}", "there is no file"),
    ("source: notes,", "source: empty,", "an app is a folder with an index.html"),
]
"""A text of gateway.yaml, what replaces it, and the words of the problem."""


@pytest.mark.parametrize(
    ("old", "new", "words"), BROKEN, ids=["key", "secret", "variable", "certificate", "policy", "app"]
)
async def test_a_broken_configuration_leaves_the_old_one_wholly_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, old: str, new: str, words: str
) -> None:
    """With an error elsewhere, a new proxy, new roles and a new secret of the webhook are not in force, either."""
    (tmp_path / "empty").mkdir()
    caplog.set_level(logging.WARNING, "gateway.assembly.reload")
    async with building(tmp_path, UNTIL, more=WEBHOOK % FIRST) as house, serving(house.app[ADMIN]) as admin:
        before = house.app[SETTINGS].now
        rewrite(house, old, new)
        for one, other in (
            ("header: X-User", "header: X-Person"),
            (ROLES, "roles: {user: [nobody]}"),
            (FIRST, SECOND),
            ('listen: "127', 'admin_listen: "127.0.0.1:1", admin_hosts: [ops], listen: "127'),
        ):
            text = (house.folder / "gateway.yaml").read_text("utf-8")
            replace_file(house.folder / "gateway.yaml", text.replace(one, other))
        house.reread()
        async with asyncio.timeout(60):
            while words not in caplog.text:
                await asyncio.sleep(0.05)
        assert house.app[SETTINGS].now is before
        for door in DOORS:
            assert await status(house, HR, door) == 200
            assert await status(house, {"x-person": "ann", "x-groups": "hr"}, door) == 401
        assert await send_signed(house, FIRST) == 410
        assert await send_signed(house, SECOND) == 403
        async with house.client.get(f"http://127.0.0.1:{admin}/readyz", headers={"host": "ops"}) as answer:
            assert answer.status == 421
        problem = next(line for line in caplog.messages if words in line)
        assert re.match(rf"{house.folder}/\S+:\d+:\d+: ", problem)


async def send_signed(house: Building, secret: str) -> int:
    """Send a signed answer to a question that is not there; return the status."""
    body, timestamp = b'{"id": "none", "digest": "d", "answer": "approve", "by": "bot"}', str(int(time.time()))
    headers = {TIMESTAMP: timestamp, SIGNATURE: signature(Secret(secret), timestamp, body)}
    url = f"http://localhost:{house.port}/approvals/webhook"
    async with house.client.post(url, data=body, headers=headers) as answer:
        return answer.status


async def test_all_of_a_good_configuration_is_in_force_at_once(tmp_path: Path) -> None:
    """The same changes without the error: at every door, for the webhook, and at the listener of operators."""
    async with building(tmp_path, UNTIL, more=WEBHOOK % FIRST) as house, serving(house.app[ADMIN]) as admin:
        text = (house.folder / "gateway.yaml").read_text("utf-8").replace("header: X-User", "header: X-Person")
        replace_file(house.folder / "gateway.yaml", text)
        await change_settings(house, FIRST, SECOND)
        for door in DOORS:
            assert await status(house, HR, door) == 401
            assert await status(house, {"x-person": "ann", "x-groups": "hr"}, door) == 200
        assert await send_signed(house, FIRST) == 403
        assert await send_signed(house, SECOND) == 410
        await change_settings(house, "listen:", 'admin_listen: "127.0.0.1:1", admin_hosts: [ops], listen:')
        async with house.client.get(f"http://127.0.0.1:{admin}/readyz", headers={"host": "ops"}) as answer:
            assert answer.status == 200
            assert (await answer.json())["needs_restart"] == ["server.admin_listen"]


async def test_nobody_is_let_in_where_others_can_reach_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`none` is valid with the new address, which needs a restart; the old one is reached by other machines."""
    async with building(tmp_path, UNTIL) as house:
        house.app[SETTINGS].now = before = _listening_everywhere(house)
        text = (house.folder / "gateway.yaml").read_text("utf-8")
        replace_file(house.folder / "gateway.yaml", text.replace("auth: [", "auth: [none, "))
        house.reread()
        async with asyncio.timeout(60):
            while "which other machines reach" not in caplog.text:
                await asyncio.sleep(0.05)
        assert house.app[SETTINGS].now is before
        assert "gateway.yaml:" in caplog.text
        assert (await house.mcp({}, "/mcp", "tools/list", {}))[0] == 401


def _listening_everywhere(house: Building) -> Settings:
    now = house.app[SETTINGS].now
    return replace(now, config=replace(now.config, server=replace(now.config.server, host="0.0.0.0")))


async def test_limits_count_at_once(tmp_path: Path) -> None:
    """Of requests, and of live views; what is open stays so."""
    async with building(tmp_path, UNTIL) as house, opened(house, HR, "site") as stays, asyncio.TaskGroup() as tasks:
        stay = tasks.create_task(_wait(stays))
        await change_settings(house, "listen:", "requests_each: 1, listen:")
        assert (await house.get(HR, "/api/pay", "pay"))[0] == 429
        assert (await house.get({"x-user": "hank", "x-groups": "hr"}, "/api/pay", "pay"))[0] == 200
        await change_settings(house, "requests_each: 1,", "requests_each: 2,")
        assert (await house.get(HR, "/api/pay", "pay"))[0] == 200
        assert not stay.done()
        stay.cancel()
        async with house.bridge(HR, ["pay"], "pay") as first:
            assert type(first.first).__name__ == "Opened"
            (house.folder / "gateway.yaml").write_text(
                (house.folder / "gateway.yaml").read_text("utf-8") + "mcp: {views_each: 1}\n", "utf-8"
            )
            await change_settings(house, "requests_each: 2,", "requests_each: 9,")
            async with house.bridge(HR, ["pay"], "pay") as second:
                assert type(second.first).__name__ == "ErrorFrame"


RELOADS = 100

PAUSES = {"mcp": 0.05, "site": 0.05, "console": 0.05, "bridge": 0.25}
"""Seconds between two calls of one caller, so that the reloads get their turns; 300 views may open in a minute."""


async def test_a_hundred_reloads_under_load_let_no_call_fail_or_pass_that_should_not(
    tmp_path: Path, idp: Issuer
) -> None:
    """Callers, rights, credentials with the policies that name them, and limits change to and fro.

    The proxy's caller is allowed in both configurations, a token of the issuer in one of them, and a token of another
    audience in none.
    """
    async with building(tmp_path, UNTIL) as house:
        pay = (tmp_path / "pay.yaml").read_text("utf-8")
        texts = []
        for name, extra in (("one", "requests_each: 90"), ("two", "requests_each: 80, connections: 500")):
            main = pay.replace("network: private}", f"network: private, credential: {name}}}", 1)
            (tmp_path / f"pay-{name}.yaml").write_text(main, "utf-8")
            text = (tmp_path / "gateway.yaml").read_text("utf-8")
            text = text.replace("pay.yaml", f"pay-{name}.yaml").replace("listen:", f"{extra}, listen:")
            own = f"  {name}: {{type: header, header: x-key, value: {name}}}\n"
            texts.append(text.replace("credentials:\n", f"credentials:\n{own}"))
        texts[1] = texts[1].replace("auth: [", f"auth: [{OAUTH % idp.url}").replace(ROLES, "roles: {admin: [hr]}")
        good, other, wrong = HR, bearer(idp, roles=["hr"]), {"authorization": f"Bearer {idp.sign(idp.claims('them'))}"}
        seen, stop = Counter[tuple[str, str, int]](), asyncio.Event()

        async def call(name: str, who: Who, door: str) -> None:
            while not stop.is_set():
                with suppress(aiohttp.ClientError, KeyError):  # cut off, which only `other` may be
                    found = await status(house, who, door)
                    seen[name, door, found] += 1
                    await asyncio.sleep(PAUSES[door])
                    continue
                seen[name, door, 0] += 1

        async with asyncio.TaskGroup() as tasks, asyncio.timeout(240):
            for door in DOORS:
                for name, who in (("good", good), ("other", other), ("wrong", wrong)):
                    tasks.create_task(call(name, who, door))
            for number in range(RELOADS):
                before = house.app[SETTINGS].now
                replace_file(house.folder / "gateway.yaml", texts[number % 2])
                while house.app[SETTINGS].now is before:
                    house.reread()
                    await asyncio.sleep(0.01)
            while any(seen["other", door, 200] == 0 for door in DOORS):  # each configuration held for moments only
                await asyncio.sleep(0.05)
            stop.set()
        kinds = {(name, found) for name, _, found in seen}
        assert {found for name, found in kinds if name == "good"} == {200}, seen
        assert {found for name, found in kinds if name == "wrong"} == {401}, seen
        assert {found for name, found in kinds if name == "other"} <= {0, 200, 401, 403}, seen


PRESENCE = "approvals: {presence: webauthn}\n"


async def waits(house: Building) -> bool:
    """Return whether the console says that something waits for a person."""
    root = {"x-user": "root", "x-groups": "root"}
    return any("waits for a person" in problem["message"] for problem in (await house.state(root))["problems"])


async def test_with_presence_nobody_is_let_in_without_a_person(tmp_path: Path, idp: Issuer) -> None:
    """Another issuer, and another role, wait; the removal of a role takes effect at once."""
    async with building(tmp_path, UNTIL, more=PRESENCE) as house:
        text = (house.folder / "gateway.yaml").read_text("utf-8")
        before = house.app[SETTINGS].now
        for old, new in (("auth: [", f"auth: [{OAUTH % idp.url}"), ("approver: [boss]", "approver: [boss, hr]")):
            replace_file(house.folder / "gateway.yaml", text.replace(old, new))
            await house.until(lambda: waits(house), True)
            assert house.app[SETTINGS].now is before
            replace_file(house.folder / "gateway.yaml", text)
            await house.until(lambda: waits(house), False)
        assert await status(house, bearer(idp, roles=["hr"]), "mcp") == 401
        await change_settings(house, "auditor: [audit]", "auditor: []")
        assert not await waits(house)


async def test_with_presence_the_organisation_allows_no_more_without_a_person(tmp_path: Path) -> None:
    """A loosened file of the organisation waits, for each app; a stricter one takes effect at once."""
    strict = "version: 1\nroutes: [{path: /api/pay, deny: not now}]\n"
    (tmp_path / "all.yaml").write_text(strict, "utf-8")
    more = f"{PRESENCE}policy: {{organisation: all.yaml}}\n"
    async with building(tmp_path, UNTIL, more=more) as house:

        async def pays() -> int:
            return (await house.get(HR, "/api/pay", "pay"))[0]

        assert await pays() == 403
        replace_file(tmp_path / "all.yaml", "version: 1\nroutes: []\n")
        await house.until(lambda: waits(house), True)
        assert await pays() == 403
        replace_file(tmp_path / "all.yaml", strict.replace("]", ", {path: /api/feed, deny: nor this}]"))
        await house.until(lambda: waits(house), False)
        assert (await house.get(HR, "/api/feed", "pay"))[0] == 403
        assert await pays() == 403

"""The first-party plugins, loaded by a configuration, in a whole gateway."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from gateway.hooks import Hooks
from tests.resource import resource
from tests.world import World, running

PLUGINS = Path(__file__).parents[2] / "plugins"


def own(world: World) -> dict[str, str]:
    """The headers that a browser sends from the cart's own page."""
    return {"origin": world.site, "sec-fetch-site": "same-origin"}


async def test_the_static_backend_answers_from_files(tmp_path: Path) -> None:
    """The policy names the plugin's backend type; only files of the folder are served."""
    fixtures = tmp_path / "fixtures" / "api"
    fixtures.mkdir(parents=True)
    (fixtures / "products.json").write_text('{"products": []}')
    (tmp_path / "outside.json").write_text('{"secret": true}')
    policy = f"""
version: 1
backends:
  shop: {{type: static, folder: {tmp_path / "fixtures"}}}
routes:
  - {{path: "/api/**", methods: [GET, POST]}}
  - {{path: "/{{name:encoded}}", methods: [GET]}}
"""
    extra = f"plugins: [{PLUGINS / 'static_backend.py'}]"
    async with running(tmp_path, policy=policy, extra=extra) as world, world.client(headers=own(world)) as client:
        async with client.get(f"{world.site}/api/products") as found:
            assert await found.json() == {"products": []}
        async with client.get(f"{world.site}/api/nothing") as missing:
            assert missing.status == 404
        async with client.post(f"{world.site}/api/products", json={}) as refused:
            assert refused.status == 405
        assert world.arrived() == []


async def test_the_change_freeze_stops_changes_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reads still work; the refused attempt is in the log with its caller."""
    freeze = tmp_path / "freeze"
    freeze.write_text("quarter end\n")
    monkeypatch.setenv("WEBMCP_GATEWAY_FREEZE", str(freeze))
    other = tmp_path / "not_today.py"
    other.write_text(
        "from gateway.hookspecs import hookimpl\n\n@hookimpl\ndef check_request(request):\n"
        "    return 'not today' if (request.method, request.path) == ('GET', '/api/cart') else None\n"
    )
    extra = f"plugins: [{PLUGINS / 'change_freeze.py'}, {other}]"
    caplog.set_level(logging.WARNING)
    async with running(tmp_path, extra=extra) as world, world.client(headers=own(world)) as client:
        async with client.get(f"{world.site}/api/products") as reading:
            assert reading.status == 200
        async with client.post(f"{world.site}/api/cart", json={"item_id": "x"}) as adding:
            assert adding.status == 403
            assert adding.headers["gateway-reason"] == "plugin-refused"
            told = await adding.json(content_type=None)
            assert "quarter end" in told["detail"]
            assert told["cause"] == f"change_freeze.py: {told['detail']}"  # without the plugin's folder
        async with client.delete(f"{world.site}/api/cart/x") as removing:
            assert (await removing.json(content_type=None))["cause"].startswith("change_freeze.py: ")
        async with client.get(f"{world.site}/api/cart") as asking:
            assert asking.headers["gateway-reason"] == "plugin-refused"
        assert [line["method"] for line in world.arrived()] == ["GET"]
    assert "stopped POST /api/cart" in caplog.text
    assert "stopped GET" not in caplog.text


async def test_a_command_gives_secrets_and_tokens(tmp_path: Path) -> None:
    """A credential of the plugin's type, and a secret from a plugin for another one; a failure is a refusal."""
    policy = """
version: 1
backends:
  shop: {url: "URL", network: private, credential: printed}
  other: {url: "URL", network: private, credential: fixed}
  broken: {url: "URL", network: private, credential: failing}
routes:
  - {path: /api/cart, methods: [GET], backend: shop}
  - {path: /api/products, methods: [GET], backend: other}
  - {path: /api/broken, methods: [GET], backend: broken}
"""
    extra = f"plugins: [{PLUGINS / 'command_secrets.py'}]"
    credentials = """
  printed: {type: command, command: [echo, a-token-of-a-command]}
  fixed: {type: header, header: x-api-key, value: "${plugin:command:echo a-key-of-a-command}"}
  failing: {type: command, command: ["false"]}
"""
    async with (
        resource() as behind,
        running(tmp_path, policy=policy.replace("URL", behind.url), extra=extra, credentials=credentials) as world,
        world.client(headers=own(world)) as client,
    ):
        for path in ("/api/cart", "/api/products"):
            async with client.get(f"{world.site}{path}") as answer:
                await answer.read()
        async with client.get(f"{world.site}/api/broken") as broken:
            assert (broken.status, broken.headers["gateway-reason"]) == (502, "credential-failed")
    assert [fields.get("authorization") for fields in behind.seen] == ["Bearer a-token-of-a-command", None]
    assert behind.seen[1]["x-api-key"] == "a-key-of-a-command"


async def test_a_command_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    """Otherwise it would run on without a reader."""
    hooks, said = Hooks([str(PLUGINS / "command_secrets.py")], tmp_path), tmp_path / "said"
    command = f"command:sh -c 'echo $$ > {said}.new; mv {said}.new {said}; exec sleep 600'"
    asked = asyncio.create_task(hooks.resolve_secret(command, "gateway.yaml"))
    while not said.exists():
        await asyncio.sleep(0.01)
    asked.cancel()
    await asyncio.wait({asked})
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), 0)

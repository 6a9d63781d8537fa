"""All of the demo chat on free ports: shop, board, a gateway with the example's own configuration, and the chat."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from examples.board_app import board
from examples.cart_app import auth_server
from examples.cart_app import shop as goods
from examples.chat_host import issuer
from examples.chat_host.demo import write_config
from gateway.app import build_app
from gateway.config import Config, load_config
from tests.board import build_board
from tests.examples.chat.endpoints import Endpoint
from tests.examples.chat.running import ChatRun, running_chat
from tests.world import SECRET, Server


@dataclass(frozen=True, slots=True)
class ChatWorld:
    """The running parts."""

    chat: ChatRun
    shop: goods.Settings
    board: int
    config: Config

    def posts(self) -> list[str]:
        """Return the paths of what was posted to the shop."""
        assert self.shop.log is not None
        lines = [json.loads(line) for line in self.shop.log.read_text("utf-8").splitlines()]
        return [line["path"] for line in lines if line["method"] == "POST"]


@asynccontextmanager
async def chat_world(
    folder: Path,
    server: Endpoint | None = None,
    apps: dict[str, Any] | None = None,
    *,
    login: bool = False,
    **settings: Any,
) -> AsyncIterator[ChatWorld]:
    """Run everything; `apps` are further apps of the gateway, `settings` those of the chat.

    Without `login` the chat and the gateway belong to one person.
    """
    auth, shop, tasks, door, page, people = (Server() for _ in range(6))
    build_board()
    ports = {
        9400: auth.port, 9401: shop.port, 9402: tasks.port, 9403: people.port, 8080: door.port, 8070: page.port,
    }  # fmt: skip
    config = yaml.safe_load(write_config(folder).read_text("utf-8"))
    for app in config["apps"].values():
        policy = Path(app["policy"])
        app["policy"] = str(folder / f"{policy.parent.name}.yaml")
        Path(app["policy"]).write_text(_move(policy.read_text("utf-8"), ports), "utf-8")
    if not login:
        del config["auth"]
        config["hosts"] = [{"origin": one["origin"], "apps": one["apps"]} for one in config["hosts"]]
    config["apps"] |= apps or {}
    config["hosts"][0]["apps"] += list(apps or {})
    (folder / "gateway.yaml").write_text(_move(yaml.safe_dump(config, allow_unicode=True), ports), "utf-8")
    loaded = load_config(
        folder / "gateway.yaml", dict.fromkeys(("SHOP_SECRET", "CHAT_CLIENT_SECRET", "CONSOLE_SECRET"), SECRET)
    )
    tokens = f"http://localhost:{auth.port}"
    bought = goods.Settings(folder / "shop.db", tokens, log=folder / "shop.log")
    if login:
        settings = login_settings(people.port) | settings
    try:
        await people.start(issuer.build_app(issuer_for(people.port, page.port, door.port)))
        await auth.start(auth_server.build_app(auth_server.Settings(tokens, "storefront", SECRET)))
        await shop.start(goods.build_app(bought))
        await tasks.start(board.build_app())
        await door.start(build_app(loaded))
        async with running_chat(folder, f"http://localhost:{door.port}", server, page, **settings) as chat:
            yield ChatWorld(chat, bought, tasks.port, loaded)
    finally:
        for one in (page, door, tasks, shop, auth, people):
            await one.stop()


def issuer_for(port: int, chat: int, gateway: int) -> issuer.Issuer:
    """Return the demo's issuer at a port."""
    clients = {
        "parlour": issuer.Client("Parlour", SECRET, f"http://localhost:{chat}/signed-in"),
        "console": issuer.Client("The gateway", SECRET, f"http://gateway.localhost:{gateway}/login/back"),
    }
    return issuer.Issuer(f"http://localhost:{port}", f"http://localhost:{gateway}", clients)


def login_settings(port: int) -> dict[str, str]:
    """Return the chat's settings for the demo's issuer at a port."""
    client = {"client_id": "parlour", "client_secret": SECRET, "login_id": "parlour", "login_secret": SECRET}
    return {"issuer": f"http://localhost:{port}", **client}


def _move(text: str, ports: dict[int, int]) -> str:
    for old, new in ports.items():
        text = text.replace(f":{old}", f":{new}")
    return text

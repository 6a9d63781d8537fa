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
    folder: Path, server: Endpoint | None = None, apps: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[ChatWorld]:
    """Run everything; `apps` are further apps of the gateway, `settings` those of the chat."""
    auth, shop, tasks, door, page = (Server() for _ in range(5))
    build_board()
    ports = {9400: auth.port, 9401: shop.port, 9402: tasks.port, 8080: door.port, 8070: page.port}
    config = yaml.safe_load(write_config(folder).read_text("utf-8"))
    for app in config["apps"].values():
        policy = Path(app["policy"])
        app["policy"] = str(folder / f"{policy.parent.name}.yaml")
        Path(app["policy"]).write_text(_move(policy.read_text("utf-8"), ports), "utf-8")
    config["apps"] |= apps or {}
    config["hosts"][0]["apps"] += list(apps or {})
    (folder / "gateway.yaml").write_text(_move(yaml.safe_dump(config, allow_unicode=True), ports), "utf-8")
    loaded = load_config(folder / "gateway.yaml", {"SHOP_SECRET": SECRET})
    issuer = f"http://localhost:{auth.port}"
    bought = goods.Settings(folder / "shop.db", issuer, log=folder / "shop.log")
    try:
        await auth.start(auth_server.build_app(auth_server.Settings(issuer, "storefront", SECRET)))
        await shop.start(goods.build_app(bought))
        await tasks.start(board.build_app())
        await door.start(build_app(loaded))
        async with running_chat(folder, f"http://localhost:{door.port}", server, page, **settings) as chat:
            yield ChatWorld(chat, bought, tasks.port, loaded)
    finally:
        for one in (page, door, tasks, shop, auth):
            await one.stop()


def _move(text: str, ports: dict[int, int]) -> str:
    for old, new in ports.items():
        text = text.replace(f":{old}", f":{new}")
    return text

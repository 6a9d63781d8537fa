"""Runs the chat with all that it shows: shop, board, sign-in, gateway and the chat as child processes, until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from examples.cart_app.demo import (
    AUTH_PORT,
    GATEWAY_PORT,
    SHOP,
    SHOP_PORT,
    DemoError,
    Part,
    run,
    say,
    start_by_command,
)
from examples.chat_host.settings import Settings, SettingsError, read_settings

HERE = Path(__file__).resolve().parent
CART, BOARD = HERE.parent / "cart_app", HERE.parent / "board_app"
BOARD_PORT = 9402  # as in the board's policy.yaml
LOGIN_PORT = 9403  # as in gateway.yaml
BUDGET = HERE.parents[1] / "tests/interop/node_modules/@modelcontextprotocol/server-budget-allocator/dist/index.js"
"""A published MCP server with an app, which `make test-interop` installs; without it the chat has two apps."""


def write_config(data: Path, budget: Path = BUDGET) -> Path:
    """Copy gateway.yaml to `data` with absolute paths, and with the published server if it is installed."""
    config: dict[str, Any] = yaml.safe_load((HERE / "gateway.yaml").read_text(encoding="utf-8"))
    for app in config["apps"].values():
        app |= {key: str((HERE / app[key]).resolve()) for key in ("source", "policy")}
    node = shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if budget.is_file() and node is not None:
        config["upstreams"] = {"budget": {"command": [node, str(budget), "--stdio"]}}
        config["hosts"][0]["apps"].append("budget")
    path = data / "gateway.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return path


def login_environ() -> dict[str, str]:
    """Return the settings of the login, with new secrets of its clients: issuer, gateway and chat read them."""
    return {
        "CHAT_ISSUER": f"http://localhost:{LOGIN_PORT}",
        "CHAT_LOGIN_ID": "parlour",
        "CHAT_CLIENT_ID": "parlour",
        **{name: secrets.token_urlsafe(32) for name in ("CHAT_LOGIN_SECRET", "CHAT_CLIENT_SECRET", "CONSOLE_SECRET")},
    }


def parts(data: Path, settings: Settings) -> list[Part]:
    """Return the programs in dependency order. Raises `DemoError`."""
    command = shutil.which("webmcp-gateway", path=str(Path(sys.executable).parent))
    if command is None:
        raise DemoError(f"There is no webmcp-gateway beside {sys.executable}: `make demo-chat` installs it.")
    if not (BOARD / "web/dist/index.html").is_file():
        raise DemoError("The board is not built: `make demo-chat` builds it (npm run build in examples/board_app/web).")
    python = sys.executable
    auth = [python, str(CART / "auth_server.py"), "--port", str(AUTH_PORT), "--keys", str(data / "keys.json")]
    shop = [python, "-m", SHOP, "--port", str(SHOP_PORT), "--database", str(data / "shop.db")]
    login = [python, "-m", "examples.chat_host.issuer", "--port", str(LOGIN_PORT), "--chat", settings.url]
    login += ["--gateway", f"http://localhost:{GATEWAY_PORT}", "--console", f"http://gateway.localhost:{GATEWAY_PORT}"]
    chat_port = urlsplit(settings.url).port or 80
    return [
        Part("authorization server", AUTH_PORT, "/.well-known/oauth-authorization-server", auth),
        Part("shop", SHOP_PORT, "/healthz", [*shop, "--issuer", f"http://localhost:{AUTH_PORT}"]),
        Part("board", BOARD_PORT, "/api/board", [python, str(BOARD / "board.py"), "--port", str(BOARD_PORT)]),
        Part("sign-in", LOGIN_PORT, "/.well-known/openid-configuration", login),
        Part("gateway", GATEWAY_PORT, "/readyz", [command, "serve", "--config", str(write_config(data))]),
        Part("chat", chat_port, "/healthz", [python, "-m", "examples.chat_host.server", "--data", str(data / "chat")]),
    ]


def show_page(settings: Settings, open_browser: bool) -> None:
    """Print the address and the model, and open the page if there is a display."""
    frame = f"  +{'-' * (len(settings.url) + 8)}+"
    model = {"scripted": "a scripted model (set OPENAI_API_KEY, ANTHROPIC_API_KEY or CHAT_BASE_URL for a real one)"}
    say(f"\n{frame}\n  |    {settings.url}    |\n{frame}\n")
    say(f"  The model is {model.get(settings.provider, f'{settings.model} at {settings.base_url}')}.")
    say("  Sign in as one of two people; another browser, or a private window, can be the other one.")
    say("  Ctrl-C ends everything.\n")
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if open_browser and has_display:
        webbrowser.open(settings.url)


def start(data: Path, open_browser: bool) -> None:
    """Run the chat and all that it shows. Raises `DemoError`."""
    try:
        environ = login_environ()
        settings = read_settings({**os.environ, **environ}, data)
    except SettingsError as error:
        raise DemoError(str(error)) from error
    needed = parts(data, settings)
    run(data, needed, "the chat and its apps", lambda: show_page(settings, open_browser), environ)


def main() -> None:
    """Start the demo chat from the command line."""
    start_by_command(
        "Start the demo chat, its apps and their gateway.", "conversations and all else", "chat-demo-", start
    )


if __name__ == "__main__":
    main()

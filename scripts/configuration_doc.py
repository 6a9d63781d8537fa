"""Writes docs/configuration.md, and the table of reloads in docs/deployment.md, from the settings as they are declared.

Run `python scripts/configuration_doc.py`.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from gateway.config import SETTINGS, Setting
from gateway.config.notices import LIVE, RESTART

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
DEPLOYMENT = PAGE.with_name("deployment.md")
BEGIN = "<!-- made by scripts/configuration_doc.py: -->\n"
END = "<!-- until here -->\n"

ALSO_LIVE = ("apps", "upstreams", "policy")
"""Sections that are compared one by one, with their policies."""

HEAD = """\
# `gateway.yaml`

The configuration is one file.
Paths in it are relative to it.
An unknown key is an error that lists the allowed ones.
`${env:NAME}` and `${file:path}` insert secrets, as the whole value of a key that contains one.
In `credentials`, `${plugin:reference}` does, too.
There is no other interpolation.

```yaml
# gateway.yaml
apps:
  cart: {source: web, policy: policies/cart.yaml}
credentials:
  shop-service:
    type: client_credentials
    issuer: https://login.shop.example
    client_id: cart
    client_secret: "${env:SHOP_SECRET}"
    scope: [cart]
```

An app's id is a lower-case letter and up to 23 of `a-z`, `0-9` and `-`.
It is part of the names of the app's tools (`cart_add_to_cart`), of its MCP address (`/mcp/cart`) and of its site.
The console, the sandbox and each app need separate hosts, because cookies ignore ports.
`PORT` below is the port of `server.listen`.

A changed setting takes effect while the gateway runs, except those that are marked `restart` below.
[In production](deployment.md#changes-while-it-runs) says how.
"""


def page() -> str:
    """The whole page."""
    sections = groupby(SETTINGS, key=lambda setting: setting.key.partition(".")[0].removesuffix("[]"))
    return HEAD + "".join(_section(name, list(settings)) for name, settings in sections)


def _section(name: str, settings: list[Setting]) -> str:
    rows = "".join(
        f"| `{one.key}` | {_default(one)} | {one.help.replace('|', '')} | {_change(one.key)} |\n" for one in settings
    )
    return f"\n## {name}\n\n| key | default | meaning | change |\n|---|---|---|---|\n{rows}"


def _change(key: str) -> str:
    """Return whether a change of this key takes effect while the gateway runs."""
    parts = key.replace("[]", "").split(".")
    above = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    if above & {*RESTART}:
        return "restart"
    if above & {*LIVE, *ALSO_LIVE}:
        return "live"
    raise ValueError(f"{key}: neither LIVE nor RESTART of gateway/config/notices.py names it")


def deployment(text: str) -> str:
    """The page docs/deployment.md with the table of now."""
    sections: dict[str, tuple[list[str], list[str]]] = {}
    for setting in SETTINGS:
        name = setting.key.partition(".")[0].removesuffix("[]")
        live, restart = sections.setdefault(name, ([], []))
        short = f"`{setting.key.removeprefix(f'{name}.')}`"
        (restart if _change(setting.key) == "restart" else live).append(short)
    rows = "".join(
        f"| `{name}` | {_listed(live, restart)} | {_listed(restart, live)} |\n"
        for name, (live, restart) in sections.items()
    )
    before, _, rest = text.partition(BEGIN)
    head = "\n| section | takes effect while it runs | needs a restart |\n|---|---|---|\n"
    return f"{before}{BEGIN}{head}{rows}\n{END}{rest.partition(END)[2]}"


def _listed(keys: list[str], others: list[str]) -> str:
    return ", ".join(keys) if others and keys else "all" if keys else ""


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "needed"
    return f"`{setting.default}`" if setting.default else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    DEPLOYMENT.write_text(deployment(DEPLOYMENT.read_text("utf-8")), encoding="utf-8")

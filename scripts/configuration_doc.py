"""Writes docs/configuration.md from the settings as they are declared: `python scripts/configuration_doc.py`."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from gateway.config import SETTINGS, Setting

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

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
"""


def page() -> str:
    """The whole page."""
    sections = groupby(SETTINGS, key=lambda setting: setting.key.partition(".")[0].removesuffix("[]"))
    return HEAD + "".join(_section(name, list(settings)) for name, settings in sections)


def _section(name: str, settings: list[Setting]) -> str:
    rows = "".join(f"| `{one.key}` | {_default(one)} | {one.help.replace('|', '')} |\n" for one in settings)
    return f"\n## {name}\n\n| key | default | meaning |\n|---|---|---|\n{rows}"


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "needed"
    return f"`{setting.default}`" if setting.default else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

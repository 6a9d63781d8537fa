"""`token`: manages the gateway's own tokens, and login links."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

token = CommandGroup(
    name="token",
    purpose="Create, list and revoke the gateway's own tokens, and login links to the console.",
    commands_in={
        "create": "gateway.cli.token.commands:create",
        "list": "gateway.cli.token.commands:list_tokens",
        "revoke": "gateway.cli.token.commands:revoke",
        "link": "gateway.cli.token.commands:link",
    },
)

__all__ = ["token"]

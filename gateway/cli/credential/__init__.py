"""`credential`: the credentials for backends, connected accounts, and the encryption key of stored tokens."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

credential = CommandGroup(
    name="credential",
    purpose="List, connect, test and revoke credentials; rotate the encryption key.",
    commands_in={
        "list": "gateway.cli.credential.commands:list_credentials",
        "connect": "gateway.cli.credential.commands:connect",
        "test": "gateway.cli.credential.commands:test",
        "revoke": "gateway.cli.credential.commands:revoke",
        "rotate-key": "gateway.cli.credential.commands:rotate_key",
    },
)

__all__ = ["credential"]

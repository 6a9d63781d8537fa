"""`credential`: the credentials for backends, connected accounts, and the encryption key of stored tokens."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

credential = CommandGroup(
    name="credential",
    purpose="List, connect, test and revoke credentials; change the key of stored tokens.",
    commands_in={
        "list": "gateway.cli.credential.list:list_credentials",
        "connect": "gateway.cli.credential.connect:connect",
        "test": "gateway.cli.credential.test:test",
        "revoke": "gateway.cli.credential.revoke:revoke",
        "rotate-key": "gateway.cli.credential.rotate_key:rotate_key",
    },
)

__all__ = ["credential"]

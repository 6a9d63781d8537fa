"""`storage`: manages what pages of apps with `storage: gateway` store for people."""

from __future__ import annotations

from gateway.cli.group import CommandGroup

storage = CommandGroup(
    name="storage",
    purpose="List and delete page storage on the gateway.",
    commands_in={
        "list": "gateway.cli.storage.commands:list_storage",
        "delete": "gateway.cli.storage.commands:delete_storage",
    },
)

__all__ = ["storage"]
